"""Models: the machine they run on, finding, fetching, converting, keeping and loading them.

Importing this package imports neither mlx nor mlx-lm, transformers or huggingface_hub.
"""

from msi_engine.model.backend import BackendReport, prepare_backend, set_blas_threads
from msi_engine.model.doctor import Check, doctor
from msi_engine.model.load import LoadedModel, load_model
from msi_engine.model.progress import OnProgress, Progress
from msi_engine.model.pull import pull
from msi_engine.model.resolve import ResolvedModel, resolve
from msi_engine.model.store import ModelRecord, default_name, list_models, remove, set_default
from msi_engine.model.target import TargetModel, load_target
from msi_engine.model.tensors import logical_nbytes

__all__ = [
    "BackendReport",
    "Check",
    "LoadedModel",
    "ModelRecord",
    "OnProgress",
    "Progress",
    "ResolvedModel",
    "TargetModel",
    "default_name",
    "doctor",
    "list_models",
    "load_model",
    "load_target",
    "logical_nbytes",
    "prepare_backend",
    "pull",
    "remove",
    "resolve",
    "set_blas_threads",
    "set_default",
]
