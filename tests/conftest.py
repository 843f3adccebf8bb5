"""Fixtures for every folder of tests: the embedded model, in a store of its own."""

import os
import signal

import hypothesis
import pytest

from msi_engine.model import prepare_backend

# A busy machine is no defect of the code.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

# Other plugins of whoever runs the tests stay out; `llm` reads this when it is imported.
os.environ["LLM_LOAD_PLUGINS"] = "llm-msi"

# A shell has what it puts into the background ignore Ctrl-C, and all that is started from there.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

prepare_backend()  # before any test module imports MLX


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """An MSI_HOME that holds the embedded model, fetched once, and no settings of the user's."""
    from msi_engine.model import pull
    from msi_engine.model.store import model_folder

    pull("embedded")
    embedded = model_folder("embedded")
    folder = tmp_path_factory.mktemp("msi")
    (folder / "models").mkdir()
    (folder / "models" / "embedded").symlink_to(embedded)
    return folder
