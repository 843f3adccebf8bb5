"""The `llm` plugin: MSI as a model, and `llm msi` as commands.

Every `llm` call imports this package, so it imports nothing but `llm`; options, the bodies of the
commands and the engine are imported when they are used.
"""

from __future__ import annotations

from collections.abc import Callable

import click
import llm


@llm.hookimpl
def register_models(register: Callable[..., None]) -> None:
    """Register `msi`, the default model, and `msi/ALIAS` for each pulled one."""
    from llm_msi.models import MSI, AsyncMSI
    from llm_msi.registered import aliases

    for alias in (None, *aliases()):
        register(MSI(alias), AsyncMSI(alias))


@llm.hookimpl
def register_commands(cli: click.Group) -> None:
    """Add `llm msi` and its commands."""
    from llm_msi.commands import msi

    cli.add_command(msi)
