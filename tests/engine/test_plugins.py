"""Plugins as they are installed: distributions on a path, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from msi_engine.errors import ConfigError, ScorerError
from msi_engine.evidence import Evidence
from msi_engine.hookspecs import hookimpl
from msi_engine.plugins import find_scorers
from msi_engine.registration import Offer
from msi_engine.scorer import ScoreContext
from msi_engine.testing import ToyEmbedder

GOOD = """
    from msi_engine import hookimpl

    class Constant:
        def __init__(self, value):
            self.value = value

        def score(self, paths):
            return [self.value for _ in paths]

    @hookimpl
    def register_scorers(register):
        register("{name}", lambda context: Constant({value}), description="Always {value}")
"""

# What every script begins with: warnings become JSON lines, so that they can be looked at.
HEAD = """
    import json, sys, threading, warnings
    from msi_engine.errors import ConfigError, ScorerError
    from msi_engine.plugins import *
    from msi_engine.scorer import ScoreContext

    def show(value):
        print(json.dumps(value))

    def look_up(name):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                found = find_scorers([name], {})[name](ScoreContext()).score([None])
            except Exception as error:
                found = f"{type(error).__name__}: {error}"
        assert all(w.category is PluginWarning for w in caught)
        show({"found": found, "warnings": [str(w.message) for w in caught]})
"""


class Site:
    """A folder of installed distributions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(
        self, name: str, code: str, *, version: str = "1.0", entry: str = "plugin", module: str = ""
    ) -> None:
        module = module or name.replace("-", "_")
        (self.folder / f"{module}.py").write_text(textwrap.dedent(code))
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[msi]\n{entry} = {module}\n")

    def run(self, script: str, **environment: str) -> list:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("MSI_")}
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(HEAD) + textwrap.dedent(script)],
            env={**clean, "PYTHONPATH": str(self.folder), **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def look_up(self, name: str, **environment: str) -> tuple[object, list[str]]:
        [result] = self.run(f"look_up({name!r})", **environment)
        return result["found"], result["warnings"]


def own_scorers() -> list[str]:
    """What MSI brings itself."""
    import msi_scorers

    return list(Offer.of(msi_scorers, "llm-msi").scorers)


@pytest.fixture
def site(tmp_path) -> Site:
    return Site(tmp_path)


def good(name: str, value: float) -> str:
    return GOOD.replace("{name}", name).replace("{value}", str(value))


def test_an_installed_scorer_is_found_by_its_name(site):
    site.install("acme-facts", good("facts", 0.25))
    assert site.look_up("facts") == ([0.25], [])


def test_entry_points_of_the_same_name_are_both_loaded(site):
    site.install("one", good("first", 1.0), entry="scorers")
    site.install("two", good("second", 2.0), entry="scorers")
    results = site.run("look_up('first'); look_up('second')")
    assert [r["found"] for r in results] == [[1.0], [2.0]]


def test_an_unknown_name_lists_what_there_is(site):
    site.install("acme", good("facts", 0.25))
    found, _ = site.look_up("fact")
    assert found == f"ConfigError: no scorer 'fact'; there are {', '.join(own_scorers())}, facts"


BROKEN = {
    "cannot be imported": ("import no_such_library", "No module named 'no_such_library'"),
    "exits": ("import sys; sys.exit('no licence')", "SystemExit: no licence"),
    "is no Python": ("def (", "SyntaxError"),
    "misspells the hook": (
        good("bad", 1).replace("def register_scorers", "def register_scorer"),
        "unknown hook 'register_scorer'",
    ),
    "asks for what is not given": (
        good("bad", 1).replace("(register):", "(register, model):"),
        "PluginValidationError",
    ),
    "forgot the decorator": (good("bad", 1).replace("@hookimpl", ""), "it implements no hook"),
    "wraps": (
        good("bad", 1).replace("@hookimpl", "@hookimpl(wrapper=True)") + "        yield\n",
        "it wraps register_scorers",
    ),
    "raises in the hook": (good("bad", 1) + "        1 / 0\n", "ZeroDivisionError"),
    "registers twice": (
        good("bad", 1) + "        register('bad', Constant)\n",
        "scorer 'bad' is registered twice",
    ),
    "has a name with a comma": (good("a,b", 1), "scorer name 'a,b' must be lower-case words"),
    "registers no factory": (
        good("bad", 1) + "        register('worse', 3)\n",
        "factory of scorer 'worse' must be callable, got 3",
    ),
    "requires the unknown": (
        good("bad", 1) + "        register('worse', Constant, requires={'tea'})\n",
        "scorer 'worse' requires tea; known are embeddings, evidence",
    ),
    "has options that are no model": (
        good("bad", 1) + "        register('worse', Constant, options=dict)\n",
        "options of scorer 'worse' must be a pydantic model",
    ),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_plugin_is_skipped_with_a_warning_and_leaves_nothing_behind(site, how):
    code, reason = BROKEN[how]
    site.install("broken-msi", code, version="2.3")
    site.install("works", good("facts", 0.25))
    results = site.run("look_up('facts'); look_up('bad'); look_up('facts')")
    assert [r["found"] for r in results] == [
        [0.25],
        f"ConfigError: no scorer 'bad'; there are {', '.join(own_scorers())}, facts "
        "(1 skipped for errors; see `llm msi doctor`)",
        [0.25],
    ]
    [[warning], *later] = [r["warnings"] for r in results]
    assert later == [[], []]  # once is enough
    assert warning.startswith("plugin broken-msi 2.3 (plugin = broken_msi) is skipped: ")
    assert reason in warning
    assert warning.endswith("or set MSI_DISABLE_PLUGINS=broken-msi")
    assert "\n" not in warning


def test_what_msi_brings_itself_is_found_without_importing_others(site):
    site.install("broken-msi", "1 / 0")
    site.install("acme", "import sys; sys.modules['acme_was_here'] = sys\n" + textwrap.dedent(GOOD))
    [result, here] = site.run(
        """
        with warnings.catch_warnings(record=True) as caught:
            found = list(find_scorers(["length", "mine"], {"mine": None}))
        show([found, len(caught)])
        show("acme_was_here" in sys.modules)
        """
    )
    assert result == [["length", "mine"], 0]
    assert here is False


def test_nothing_is_discovered_at_import_nor_for_ones_own_scorers(site):
    site.install("broken-msi", "1 / 0")
    [loaded] = site.run(
        """
        import msi_engine
        find_scorers(["mine"], {"mine": None})
        show(sorted({"msi_scorers", "broken_msi"} & set(sys.modules)))
        """
    )
    assert loaded == []


def test_a_duplicate_of_a_built_in_is_refused_and_the_built_in_stays(site):
    site.install("acme", good("length", 0.5))
    results = site.run("look_up('other'); show(len(find_scorers(['length'], {})))")
    [warning] = results[0]["warnings"]
    assert re.search(r"scorer 'length' is provided by both llm-msi [\d.]+ and acme 1\.0", warning)
    assert "length" in results[0]["found"]
    assert results[1] == 1
    [[error]] = site.run(
        """
        warnings.simplefilter("ignore")
        plugin_report()
        try:
            find_scorers(["length"], {})["length"](ScoreContext(options={"target": 0}))
        except ConfigError as error:
            show([str(error)])
        """
    )
    assert "`target`" in error  # it is still the built-in one


def test_a_name_that_two_plugins_claim_goes_to_neither(site):
    site.install("alpha", good("facts", 1.0), version="1.1")
    site.install("beta", good("facts", 2.0), version="2.2")
    site.install("gamma", good("facts", 3.0), version="3.3")
    found, warnings = site.look_up("facts")
    both = "scorer 'facts' is provided by both alpha 1.1 and beta 2.2"
    assert found == f"ConfigError: {both}; name one of them in MSI_DISABLE_PLUGINS"
    assert len(warnings) == 2
    assert both in warnings[0]
    assert both in warnings[1]
    assert "gamma 3.3 provides it, too" in warnings[1]
    assert site.look_up("facts", MSI_DISABLE_PLUGINS="alpha,gamma") == ([2.0], [])


def test_variables_choose_what_is_loaded(site):
    site.install("Acme.Facts", good("facts", 1.0), module="acme_facts")
    site.install("other", good("other", 2.0))

    def found(**environment):
        results = site.run("look_up('facts'); look_up('other')", **environment)
        assert not any(r["warnings"] for r in results)
        return [isinstance(r["found"], list) for r in results]

    assert found() == [True, True]
    assert found(MSI_LOAD_PLUGINS="") == [False, False]
    assert found(MSI_LOAD_PLUGINS="acme_facts") == [True, False]  # as pip would read the name
    assert found(MSI_LOAD_PLUGINS="other, ACME-facts,") == [True, True]
    assert found(MSI_DISABLE_PLUGINS="acme.facts") == [False, True]
    assert found(MSI_LOAD_PLUGINS="acme-facts", MSI_DISABLE_PLUGINS="acme-facts") == [False, False]
    assert site.run("show(list(find_scorers(['length'], {})))", MSI_LOAD_PLUGINS="") == [["length"]]


@pytest.mark.parametrize("variable", ["MSI_LOAD_PLUGINS", "MSI_DISABLE_PLUGINS"])
def test_a_variable_that_names_nothing_installed_is_pointed_out(site, variable):
    _, warnings = site.look_up("nothing", **{variable: "acmee"})
    assert warnings == [
        f"{variable} names 'acmee', which is not installed or has no plugin for MSI"
    ]


def test_a_disabled_plugin_is_not_even_imported(site):
    site.install("broken-msi", "1 / 0")
    assert site.look_up("length2", MSI_DISABLE_PLUGINS="broken-msi")[1] == []


def test_an_author_may_have_the_traceback(site):
    site.install("broken-msi", "def helper():\n    return 1 / 0\n\nhelper()\n")
    script = """
        import traceback
        for _ in range(2):  # it is not forgotten the second time
            try:
                find_scorers(["facts"], {})
            except ZeroDivisionError as error:
                show([frame.name for frame in traceback.extract_tb(error.__traceback__)][-1])
    """
    assert site.run(script, MSI_RAISE_PLUGIN_ERRORS="1") == ["helper", "helper"]


def test_the_report_tells_of_every_plugin_and_warns_of_none(site):
    site.install("broken-msi", "1 / 0", version="2.3")
    site.install("disabled", good("off", 1.0))
    site.install("works", good("facts", 0.25))
    [report] = site.run(
        """
        warnings.simplefilter("error")
        show([
            [s.distribution, s.version, s.entry_point, dict(s.scorers), s.enabled, s.error]
            for s in plugin_report()
        ])
        """,
        MSI_DISABLE_PLUGINS="disabled",
    )
    own, *others = report
    assert own[0] == "llm-msi"
    assert list(own[3]) == own_scorers()
    assert "length" in own[3]
    assert others == [
        [
            "broken-msi",
            "2.3",
            "plugin = broken_msi",
            {},
            True,
            "ZeroDivisionError: division by zero",
        ],
        ["disabled", "1.0", "plugin = disabled", {}, False, None],
        ["works", "1.0", "plugin = works", {"facts": "Always 0.25"}, True, None],
    ]


BROKEN_FILES = {
    "empty": {"METADATA": b"", "entry_points.txt": b"[msi]\nx = y\n"},
    "nameless": {"METADATA": b"Version: 1\n", "entry_points.txt": b"[msi]\nx = y\n"},
    "no metadata": {"entry_points.txt": b"[msi]\nx = y\n"},
    "half an entry": {"METADATA": b"Name: z\nVersion: 1\n", "entry_points.txt": b"[msi\n= = \nx"},
    "not text": {"METADATA": b"Name: \xff\n", "entry_points.txt": b"[msi]\nx = y\n"},
}


@pytest.mark.parametrize("how", BROKEN_FILES)
def test_a_broken_installation_of_something_else_does_no_harm(site, how):
    site.install("works", good("facts", 0.25))
    info = site.folder / "broken-1.dist-info"
    info.mkdir()
    for name, content in BROKEN_FILES[how].items():
        (info / name).write_bytes(content)
    found, _ = site.look_up("facts")
    assert found == [0.25]


def test_sixteen_threads_load_once_and_all_see_the_same(site):
    site.install(
        "acme",
        "import time; time.sleep(0.2); print('\"imported\"')\n"
        + textwrap.dedent(good("facts", 0.25)),
    )
    lines = site.run(
        """
        start, found = threading.Barrier(16), []

        def look():
            start.wait()
            found.append(find_scorers(["facts"], {})["facts"](ScoreContext()).score([None]))

        threads = [threading.Thread(target=look) for _ in range(16)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        show(found)
        """
    )
    assert lines == ["imported", [[0.25]] * 16]


BOUNDARY = """
    from msi_engine import hookimpl

    class Comma:
        name = "comma"

        def __init__(self, language):
            self.language = language

        def reached(self, context):
            return context.segment.endswith(",")

    @hookimpl
    def register_boundaries(register):
        register("comma", Comma, description="At a comma")
"""


def test_a_boundary_is_registered_in_the_same_way(site):
    site.install("acme", BOUNDARY)
    [made, report] = site.run(
        """
        from msi_engine.boundary import make_boundaries
        load_boundaries(["sentence", "comma"])
        show([b.name for b in make_boundaries(["sentence", "comma"], language="de")])
        show([dict(s.boundaries) for s in plugin_report()][-1])
        """
    )
    assert made == ["sentence", "comma"]
    assert report == {"comma": "At a comma"}


def test_a_boundary_of_a_plugin_collapses_paths(site):
    site.install("acme", BOUNDARY)
    [reasons] = site.run(
        """
        from msi_engine import DecodeConfig
        from msi_engine.events import Collapsed
        from msi_engine.testing import ToyModel, ToyTokenizer, run_toy
        tokenizer = ToyTokenizer((" sea", " tide", ",", "</s>"))
        comma = [-9, -9, 9, -9]
        model = ToyModel.from_table({(): [1, 0.5, 0, -9], (0,): comma, (1,): comma})
        config = DecodeConfig(k=2, max_tokens=7, boundary=("comma",))
        events = run_toy(config, model, tokenizer, prompt=[2])
        show([e.reason for e in events if isinstance(e, Collapsed)][:2])
        """
    )
    assert reasons == ["comma", "comma"]


@pytest.mark.parametrize("taken", ["sentence", "length", "eos"])
def test_a_duplicate_of_a_built_in_boundary_is_refused(site, taken):
    site.install("acme", BOUNDARY.replace('"comma", Comma', f'"{taken}", Comma'))
    _, [warning] = site.look_up("nothing")
    assert f"boundary '{taken}' is provided by both llm-msi itself and acme 1.0" in warning


def test_a_boundary_that_two_plugins_claim_goes_to_neither(site):
    site.install("alpha", BOUNDARY)
    site.install("beta", BOUNDARY)
    [message] = site.run(
        """
        from msi_engine.boundary import make_boundaries
        warnings.simplefilter("ignore")
        load_boundaries(["comma"])
        try:
            make_boundaries(["comma"])
        except ConfigError as error:
            show(str(error))
        """
    )
    assert message.startswith("boundary 'comma' is provided by both alpha 1.0 and beta 1.0")


def offered(options=None, factory=None, requires=()):
    """The scorer of a plugin object, as the loader sees it."""

    class Plugin:
        @hookimpl
        def register_scorers(self, register):
            register("mine", factory or Recorder, options=options, requires=requires)

    return Offer.of(Plugin(), "acme 1.0").scorers["mine"].make


class Recorder:
    def __init__(self, context):
        self.context = context

    def score(self, paths):
        return [0.0 for _ in paths]


def options_model():
    from pydantic import BaseModel

    class Options(BaseModel):
        pool: str = "max"
        top: int = 3

    return Options


def test_options_are_validated_and_completed():
    make = offered(options_model())
    scorer = make(ScoreContext(prompt="p", options={"top": "5"}))
    assert scorer.context == ScoreContext(prompt="p", options={"pool": "max", "top": 5})


@pytest.mark.parametrize(
    ("options", "given", "message"),
    [
        (options_model(), {"top": "many"}, "options of scorer 'mine': `top`: .*got 'many'"),
        (options_model(), {"tpo": 1}, "scorer 'mine' has no option tpo; there are pool, top"),
        (None, {"top": 1}, "scorer 'mine' takes no options, got top"),
    ],
)
def test_wrong_options_are_one_line(options, given, message):
    with pytest.raises(ConfigError, match=message) as caught:
        offered(options)(ScoreContext(options=given))
    assert "\n" not in str(caught.value)


def test_a_scorer_that_requires_what_there_is_not_says_how_to_give_it():
    with pytest.raises(ConfigError, match=r"scorer 'mine' needs evidence, .* -o docs FILES"):
        offered(requires=["evidence"])(ScoreContext())
    with pytest.raises(ConfigError, match=r"scorer 'mine' needs an embedder: .*llm-msi\[rag\]"):
        offered(requires=["embeddings"])(ScoreContext(evidence=(Evidence("Tea."),)))
    both = ScoreContext(evidence=(Evidence("Tea."),), embedder=ToyEmbedder())
    assert offered(requires=["embeddings", "evidence"])(both).context.evidence == both.evidence


def test_a_factory_that_fails_is_an_error_of_the_scorer():
    def factory(context):
        raise OSError("no such model")

    with pytest.raises(
        ScorerError, match=r"'mine'.*by acme 1\.0.*OSError: no such model"
    ) as caught:
        offered(factory=factory)(ScoreContext())
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(ScorerError, match="not a scorer"):
        offered(factory=lambda context: len)(ScoreContext())


def test_a_hook_may_ignore_its_argument():
    class Plugin:
        @hookimpl
        def register_scorers(self):
            pass

    assert Offer.of(Plugin(), "acme 1.0").scorers == {}


def test_ones_own_scorers_come_first_and_the_order_is_kept():
    own = {"length": Recorder, "b": Recorder}
    found = find_scorers(["b", "length"], own)
    assert list(found.items()) == [("b", Recorder), ("length", Recorder)]
