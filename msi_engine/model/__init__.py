"""Models: the machine they run on, finding, fetching, converting, keeping and loading them."""

from msi_engine.model.backend import BackendReport, prepare_backend, set_blas_threads

__all__ = ["BackendReport", "prepare_backend", "set_blas_threads"]
