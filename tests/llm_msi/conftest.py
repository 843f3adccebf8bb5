"""The real `llm` with our plugin, in a user folder of its own, on the real embedded model."""

import json
from types import SimpleNamespace

import pytest


@pytest.fixture
def user(tmp_path, monkeypatch):
    """An empty user folder of `llm`; without a model store unless `store` is asked for."""
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path / "llm"))
    monkeypatch.setenv("MSI_HOME", str(tmp_path / "msi"))
    return tmp_path


@pytest.fixture
def llm_cli(user):
    """Call `llm` in this process: ``llm_cli("-m", "msi", "Hello")``."""
    from click.testing import CliRunner
    from llm.cli import cli

    def call(*arguments, input=None, code=0):
        result = CliRunner().invoke(cli, list(arguments), input=input)
        assert result.exit_code == code, result.output
        return SimpleNamespace(out=result.stdout, err=result.stderr, both=result.output)

    return call


@pytest.fixture
def msi(llm_cli, store, monkeypatch):
    """`llm -m msi` with a few tokens, greedy: ``msi("Hello", "-o", "k", "1")``."""
    monkeypatch.setenv("MSI_HOME", str(store))
    llm_cli("models", "options", "set", "msi", "max_tokens", "10")
    return lambda *arguments, **others: llm_cli("-m", "msi", *arguments, **others)


@pytest.fixture
def logged(llm_cli):
    """What `llm` has logged, oldest first, as a strict reader of JSON sees it."""

    def read():
        def refuse(name):
            raise ValueError(f"{name} is not JSON")

        return json.loads(llm_cli("logs", "list", "-n", "0", "--json").out, parse_constant=refuse)

    return read


@pytest.fixture(scope="session")
def engine(store):
    """The engine that the plugin uses, for comparison."""
    from msi_engine import Engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MSI_HOME", str(store))
        return Engine.load()
