"""Shared-prefix copy-on-write key-value caches over unmodified mlx-lm models."""

from msi_engine.cache.hook import uninstall
from msi_engine.cache.shared import SharedPrefixCache

__all__ = ["SharedPrefixCache", "uninstall"]
