import pytest


@pytest.fixture(autouse=True)
def no_files_of_the_user(tmp_path_factory, monkeypatch):
    """The shipped registers and archetypes, whatever lies in the folder of whoever runs this."""
    monkeypatch.setenv("MSI_HOME", str(tmp_path_factory.mktemp("home")))
