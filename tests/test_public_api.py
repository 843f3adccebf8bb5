"""The public names: listed, sorted, importable, documented."""

import importlib
import inspect
import subprocess
import sys

import pytest

import msi_engine
import msi_engine.model

# What people's programs rely on; a name that leaves this list is a breaking change.
PROMISED = {
    "langchain_msi": {"ChatMSI", "MSILLM", "grounded"},
    "msi_engine": {"PRESETS", "DecodeConfig", "Engine", "Generation", "PathView", "hookimpl"},
    "msi_engine.model": {
        *("Check", "ModelRecord", "Progress", "pull", "list_models", "set_default"),
        *("default_name", "remove", "doctor", "resolve"),
    },
}


@pytest.mark.parametrize("name", PROMISED)
def test_promised_names_are_listed_and_there(name):
    module = importlib.import_module(name)
    assert PROMISED[name] <= set(module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)
    for public in module.__all__:
        assert getattr(module, public) is not None


@pytest.mark.parametrize("name", PROMISED)
def test_public_classes_and_functions_have_docstrings(name):
    module = importlib.import_module(name)
    for public in module.__all__:
        thing = getattr(module, public)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert inspect.getdoc(thing), public


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Motor'"):
        _ = msi_engine.Motor


@pytest.mark.parametrize(
    "method", ["load", "generate", "stream", "agenerate", "astream", "model_name"]
)
def test_the_engine_has_its_methods(method):
    assert inspect.getdoc(getattr(msi_engine.Engine, method))


def test_star_import_gives_exactly_what_is_listed():
    code = (
        "from msi_engine import *; import msi_engine; print(set(msi_engine.__all__) <= set(dir()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
