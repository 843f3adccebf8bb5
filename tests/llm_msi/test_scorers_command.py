"""`llm msi scorers`: what is registered, by whom, and what did not load; real entry points."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
from pydantic import BaseModel, Field

from llm_msi.page import cells
from llm_msi.scorers_command import details, listing, scorers_found

TEA = """
    from typing import Literal
    from msi_engine import hookimpl
    from pydantic import BaseModel, Field

    class TeaOptions(BaseModel):
        kind: Literal["green", "black"] = Field("green", description="Which tea")
        cups: int = Field(ge=1, le=9, description="How many")
        extras: list[int] = Field(default_factory=lambda: [1, 2])

    def make(context):
        raise AssertionError("a list of scorers makes none")

    @hookimpl
    def register_scorers(register):
        register("tea", make, description="Prefers tea", options=TeaOptions,
                 requires=["evidence", "embeddings"])
        register("quiet", make)
"""

ONE = """
    from msi_engine import hookimpl

    @hookimpl
    def register_scorers(register):
        register("{name}", print, description="By {name}")
"""


class Site:
    """A folder of installed distributions, and `llm` in a process that sees it."""

    def __init__(self, folder):
        self.folder = folder

    def install(self, name, code, version="1.0"):
        module = name.replace("-", "_")
        (self.folder / f"{module}.py").write_text(textwrap.dedent(code))
        info = self.folder / f"{module}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[msi]\nplugin = {module}\n")

    def scorers(self, *arguments, code=0, **environment):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("MSI_")}
        done = subprocess.run(
            [sys.executable, "-m", "llm", "msi", "scorers", *arguments],
            env={
                **clean,
                "PYTHONPATH": str(self.folder),
                "LLM_USER_PATH": str(self.folder / "llm"),
                "LLM_LOAD_PLUGINS": "llm-msi",
                "COLUMNS": "80",
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    def report(self, **environment):
        return json.loads(self.scorers("--json", **environment))


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def named(report, name):
    (found,) = [scorer for scorer in report["scorers"] if scorer["name"] == name]
    return found


def test_a_plugins_scorer_stands_with_everything_that_it_declares(site):
    site.install("acme-tea", TEA, version="2.1")
    report = site.report()
    assert named(report, "tea") == {
        "name": "tea",
        "description": "Prefers tea",
        "provider": "acme-tea",
        "version": "2.1",
        "needs": ["embeddings", "evidence"],
        "options": [
            {
                "name": "kind", "required": False, "default": "green",
                "values": "green or black", "description": "Which tea",
            },
            {
                "name": "cups", "required": True, "default": None,
                "values": "1 to 9", "description": "How many",
            },
            {
                "name": "extras", "required": False, "default": "1,2",
                "values": "", "description": "",
            },
        ],
        "problem": None,
    }  # fmt: skip
    assert named(report, "quiet")["options"] == []
    assert report["not_loaded"] == []


def test_the_list_and_the_details_are_for_reading(site):
    site.install("acme-tea", TEA, version="2.1")
    listed = site.scorers()
    assert (
        "tea           Prefers tea\n"
        "              acme-tea 2.1; loaded; needs embeddings and evidence\n"
        "              options: cups (required), kind, extras\n"
    ) in listed
    assert (
        "quiet         (no description)\n              acme-tea 2.1; loaded; no options\n"
    ) in listed
    assert "\nlength        Prefers segments near a target length\n" in listed
    assert site.scorers("tea").splitlines() == [
        "tea           Prefers tea",
        "              acme-tea 2.1; loaded; needs embeddings and evidence",
        "  kind            Which tea (default green; green or black)",
        "  cups            How many (required; 1 to 9)",
        "  extras          (default 1,2)",
        """  -> -o scorer_options '{"tea": {"OPTION": "VALUE"}}'""",
    ]
    assert all(len(line) <= 80 for line in listed.splitlines())


def test_every_scorer_that_msi_brings_is_listed_in_alphabetical_order(site):
    names = [line.split()[0] for line in site.scorers().splitlines() if line[:1].islower()]
    assert names == sorted(names)
    assert {"agreement", "length", "regex", "register", "repetition"} <= set(names)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import no_such_module_at_all", "ModuleNotFoundError: No module named 'no_such_module"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("x = 1", "it implements no hook"),
        (ONE.replace("register_scorers", "register_scorer"), "PluginValidationError: unknown hook"),
        (ONE.replace("{name}", "length"), "scorer 'length' is provided by both llm-msi"),
    ],
    ids=["import", "exit", "no hook", "misspelt", "name taken"],
)
def test_a_plugin_that_did_not_load_is_listed_with_the_reason(site, code, reason):
    site.install("acme-broken", code, version="0.3")
    report = site.report()
    (plugin,) = report["not_loaded"]
    assert (plugin["provider"], plugin["version"]) == ("acme-broken", "0.3")
    assert plugin["problem"].startswith(reason)
    assert named(report, "length")["problem"] is None
    said = site.scorers()
    assert "\nNot loaded: acme-broken 0.3\n" in said
    assert "".join(reason.split()) in "".join(said.split())


def test_a_name_that_two_plugins_claim_cannot_be_used_and_says_why(site):
    site.install("acme-a", ONE.replace("{name}", "facts"))
    site.install("acme-b", ONE.replace("{name}", "facts"))
    report = site.report()
    assert "provided by both acme-a 1.0 and acme-b 1.0" in named(report, "facts")["problem"]
    assert [plugin["provider"] for plugin in report["not_loaded"]] == ["acme-b"]
    assert "cannot be used: scorer 'facts' is provided by both" in site.scorers()


@pytest.mark.parametrize("variable", [{"MSI_DISABLE_PLUGINS": "acme-a"}, {"MSI_LOAD_PLUGINS": ""}])
def test_a_plugin_that_was_switched_off_is_listed_as_such(site, variable):
    site.install("acme-a", "raise SystemExit('imported all the same')")
    (plugin,) = site.report(**variable)["not_loaded"]
    assert plugin["problem"].startswith("switched off by MSI_LOAD_PLUGINS or MSI_DISABLE_PLUGINS")


def test_an_unknown_name_is_an_error_of_one_line(site):
    said = site.scorers("lenght", code=1)
    assert said.startswith("Error: no scorer 'lenght'; there are ")
    assert "length" in said
    assert len(said.splitlines()) == 1


def test_names_are_shown_in_the_order_asked_for():
    assert [s["name"] for s in scorers_found(["repetition", "length"])] == ["repetition", "length"]


class Awkward(BaseModel):
    """Options that are hard to show."""

    other: str = Field(default_factory=lambda: 1 / 0)
    spelt: int = Field(3, alias="really-spelt")


def test_defaults_that_cannot_be_known_are_no_obstacle():
    from llm_msi.scorers_command import _options

    other, spelt = _options(Awkward)
    assert other["default"] == "computed"
    assert (spelt["name"], spelt["default"]) == ("really-spelt", "3")


@pytest.mark.parametrize("columns", [40, 80, 100])
def test_every_line_fits_the_terminal(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    option = {"name": "o" * 30, "required": True, "default": None, "values": "", "description": ""}
    scorer = {
        "name": "a-very-long-name-of-a-scorer", "description": "雨 " * 80, "provider": "p",
        "version": "1", "needs": [], "options": [option], "problem": "\x1b[31mred " * 30,
    }  # fmt: skip
    for lines in (listing([scorer], []), details([scorer])):
        plain = [line.replace("\x1b[1m", "").replace("\x1b[0m", "") for line in lines]
        assert not [line for line in plain if "\x1b" in line]
        assert all(cells(line) <= columns for line in plain)
