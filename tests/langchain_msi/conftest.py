"""Models for these tests: the embedded one, and tiny ones of random weights."""

import pytest
from langchain_core.globals import set_llm_cache

from tests.model.conftest import TEMPLATE, WORDS, write_tokenizer, write_weights


@pytest.fixture(autouse=True)
def _no_cache_left():
    yield
    set_llm_cache(None)


@pytest.fixture
def home(store, monkeypatch):
    """The embedded model in a store of its own, and none of the user's settings."""
    monkeypatch.setenv("MSI_HOME", str(store))
    return store


@pytest.fixture(scope="session")
def tiny_folders(tmp_path_factory):
    """Two models of two layers that differ in their weights."""
    folders = []
    for seed in (1, 2):
        folder = tmp_path_factory.mktemp("models") / f"tiny-{seed}"
        folder.mkdir()
        write_weights(folder, write_tokenizer(folder, WORDS, TEMPLATE), seed)
        folders.append(str(folder))
    return folders


@pytest.fixture
def tiny(tiny_folders, tmp_path, monkeypatch):
    """The folder of a tiny model, in a home without settings."""
    monkeypatch.setenv("MSI_HOME", str(tmp_path / "home"))
    return tiny_folders[0]


@pytest.fixture
def other(tiny, tiny_folders):
    """The folder of another."""
    return tiny_folders[1]
