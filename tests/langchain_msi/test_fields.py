"""Fields: every option of the engine, validated, at construction and at call time."""

import subprocess
import sys

import pytest
from langchain_core.runnables import ConfigurableField

from langchain_msi import MSILLM, ChatMSI
from msi_engine import PRESETS, DecodeConfig
from msi_engine.errors import ConfigError

BOTH = pytest.mark.parametrize("kind", [ChatMSI, MSILLM])


class Calm:
    def score(self, paths):
        return [-path.segment.count("!") for path in paths]


@BOTH
@pytest.mark.parametrize("name", DecodeConfig.model_fields)
def test_every_option_is_a_field_of_the_same_type_bounds_and_default(kind, name):
    theirs, ours = DecodeConfig.model_fields[name], kind.model_fields[name]
    assert ours.annotation == theirs.annotation
    assert ours.metadata == theirs.metadata
    assert ours.get_default(call_default_factory=True) == theirs.get_default(
        call_default_factory=True
    )
    assert ours.description == theirs.description


@BOTH
def test_the_engine_is_given_what_was_named_and_nothing_else(kind):
    llm = kind(k=7, stop=["."], scorers={"length": 2}, seed=0)
    assert llm.decode_config() == DecodeConfig(k=7, stop=(".",), scorers={"length": 2.0}, seed=0)
    assert kind().decode_config() == DecodeConfig()


@BOTH
def test_one_stop_string_is_one_and_not_its_characters(kind):
    assert kind(stop="END").stop == ("END",)
    assert kind().tuned("END", {})[0].stop == ("END",)
    assert kind()._get_ls_params(stop="END")["ls_stop"] == ["END"]
    assert kind(stop="END")._get_ls_params()["ls_stop"] == ["END"]
    assert kind(stop="END").tuned([], {})[0].stop == ()


@BOTH
def test_presets_are_those_of_the_engine(kind):
    llm = kind.preset("paper", k=3)
    assert isinstance(llm, kind)
    assert llm.decode_config() == DecodeConfig(**{**PRESETS["paper"], "k": 3})


@BOTH
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"k": 0}, "`k`: input should be greater than or equal to 1, got 0"),
        ({"temprature": 1}, "unknown option 'temprature'; did you mean 'temperature'?"),
        ({"law": "murphy"}, "`law`: input should be 'paper', 'mean' or 'posterior', got 'murphy'"),
        ({"stop": [""]}, "`stop`: a stop string is empty"),
        ({"timeout": 0}, "`timeout`: input should be greater than 0, got 0"),
        ({"embedder": 3}, "`embedder`: must be a name, an Embeddings or a VectorStore, got 3"),
        ({"evidence": 3}, "`evidence`: evidence must be a sequence of texts or documents"),
        ({"custom_scorers": {"calm": 3}}, "'calm' must have a method score(paths)"),
        ({"custom_scorers": {"calm": Calm()}}, "custom_scorers without a weight in scorers"),
        ({"scorer_options": {"rag": {}}}, "scorer_options for scorers that are not active"),
    ],
)
def test_bad_values_are_value_errors_of_one_line(kind, options, said):
    with pytest.raises(ValueError, match=r".") as caught:
        kind(**options)
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(ConfigError):
        kind().tuned(None, options)[0].replace(**options)


@BOTH
def test_what_models_behind_a_network_take_is_taken(kind):
    llm = kind(api_key="key", base_url="http://localhost", max_retries=2, timeout=60, stop=None)
    assert llm.timeout == 60
    assert llm.stop == ()
    assert not hasattr(llm, "api_key")


@BOTH
def test_options_of_a_call_are_over_the_fields_and_validated(kind):
    llm = kind(k=7, temperature=0.5, stop=["a"])
    tuned, rest = llm.tuned(["b"], {"k": "3", "tools": []})
    assert (tuned.k, tuned.temperature, tuned.stop, rest) == (3, 0.5, ("b",), {"tools": []})
    assert (llm.k, llm.stop) == (7, ("a",))
    with pytest.raises(ValueError, match="`k`"):
        llm.tuned(None, {"k": 65})


@BOTH
def test_fields_that_are_not_named_stay_unnamed(kind):
    tuned, _ = kind(k=7).tuned(None, {"temperature": 0.5})
    named = set(DecodeConfig.model_fields) & tuned.model_fields_set
    assert named == {"k", "temperature"}


@BOTH
def test_a_bad_value_assigned_to_a_field_is_found_when_it_is_used(kind):
    llm = kind()
    llm.k = 0
    with pytest.raises(ConfigError, match="`k`"):
        llm.decode_config()


@BOTH
def test_fields_can_be_configurable(kind):
    llm = kind(k=7).configurable_fields(k=ConfigurableField(id="paths"))
    prepared, _ = llm.prepare({"configurable": {"paths": 3}})
    assert prepared.k == 3


@BOTH
def test_making_one_loads_no_model(kind):
    code = (
        f"import sys; from langchain_msi import {kind.__name__}; {kind.__name__}(model='no/such', "
        "scorers={'rag': 10}, embedder='no-such-model'); "
        "print({'mlx', 'mlx_lm', 'torch', 'sentence_transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
