"""Samples: N answers of one runnable to one input, each with a seed of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, cast

from langchain_core.language_models import BaseLanguageModel
from langchain_core.runnables import (
    ConfigurableField,
    Runnable,
    RunnableBinding,
    RunnableConfig,
    RunnableSequence,
    RunnableSerializable,
)
from langchain_core.runnables.config import merge_configs, patch_config
from langchain_core.runnables.configurable import RunnableConfigurableFields
from pydantic import ConfigDict, Field, field_validator

from langchain_msi.fields import MSIFields

SEED_FIELD = "seed"


class Samples(RunnableSerializable[Any, list[Any]]):
    """Run a runnable N times on the same input; a list of its outputs, in the order of the seeds.

    The runs go through ``batch``, so that the runnable decides how many run at once. Language
    models with a field ``seed``, `ChatMSI` and `MSILLM` among them, get a different seed for each
    run, derived from one: the whole can be repeated. They are found in the runnable itself, in the
    steps of a chain and behind ``bind``; anywhere else make the seed configurable under the name
    ``seed``: ``model.configurable_fields(seed=ConfigurableField(id="seed"))``. What has no seed
    is run N times as it is.

    Example:
        .. code-block:: python

            model = ChatMSI(temperature=0.8)
            answers = Samples(runnable=prompt | model | StrOutputParser(), n=8).invoke(question)
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    runnable: Runnable[Any, Any]
    """What is run."""

    n: int = Field(5, ge=1, le=10_000)
    """Runs."""

    seed: int = Field(0, ge=0)
    """Root of the seeds."""

    @field_validator("runnable")
    @classmethod
    def _seeded(cls, value: Runnable[Any, Any]) -> Runnable[Any, Any]:
        return _with_seed(value, {})

    @property
    def seeds(self) -> list[int]:
        """The seed of each run. A longer list begins with the shorter one."""
        return [_derived(self.seed, index) for index in range(self.n)]

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> list[Any]:
        """Run N times; ``kwargs`` go to the runnable."""

        def run(value: Any, run_manager: Any, config: RunnableConfig) -> list[Any]:
            configs = self._configs(config, run_manager.get_child)
            return self.runnable.batch([value] * self.n, configs, **kwargs)

        return self._call_with_config(run, input, config)

    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> list[Any]:
        """`invoke` for an event loop."""

        async def run(value: Any, run_manager: Any, config: RunnableConfig) -> list[Any]:
            configs = self._configs(config, run_manager.get_child)
            return await self.runnable.abatch([value] * self.n, configs, **kwargs)

        return await self._acall_with_config(run, input, config)

    def _configs(self, config: RunnableConfig, child: Callable[[str], Any]) -> list[RunnableConfig]:
        """One for each run: its own callbacks and, where there is a seed to set, its own seed."""
        configs = []
        for index, seed in enumerate(self.seeds):
            own = patch_config(config, callbacks=child(f"sample:{index}"))
            if self._takes_seed:
                own = merge_configs(own, {"configurable": {SEED_FIELD: seed}})
            configs.append(own)
        return configs

    @property
    def _takes_seed(self) -> bool:
        return any(spec.id == SEED_FIELD for spec in self.runnable.config_specs)


def _derived(root: int, index: int) -> int:
    """A seed below 2**31: what every library takes for one."""
    digest = hashlib.blake2b(f"{root}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) % 2**31


def _with_seed(runnable: Runnable[Any, Any], bound: Mapping[str, Any]) -> Runnable[Any, Any]:
    """The same runnable with the seeds of its models configurable, as far as they are found.

    Args:
        runnable: What is sampled from.
        bound: Options that are bound to it.

    Raises:
        ValueError: If one of MSI's models leaves nothing to chance.
    """
    if isinstance(runnable, RunnableConfigurableFields):
        return runnable  # the caller's own choice
    if isinstance(runnable, BaseLanguageModel):
        if SEED_FIELD not in type(runnable).model_fields:
            return runnable
        if isinstance(runnable, MSIFields) and not _is_random(runnable, bound):
            raise ValueError(
                "all samples would be the same, for the temperature of the model is 0; give it "
                "one above, temperature=0.7 say"
            )
        field = ConfigurableField(id=SEED_FIELD)
        return cast("Runnable[Any, Any]", runnable.configurable_fields(**{SEED_FIELD: field}))
    if isinstance(runnable, RunnableSequence):
        steps = [_with_seed(step, {}) for step in runnable.steps]
        return RunnableSequence(*steps, name=runnable.name)
    if isinstance(runnable, RunnableBinding):
        inner = _with_seed(runnable.bound, {**runnable.kwargs, **bound})
        return runnable.model_copy(update={"bound": inner})
    return runnable


def _is_random(model: MSIFields, bound: Mapping[str, Any]) -> bool:
    def value(name: str) -> Any:
        return bound.get(name, getattr(model, name))

    return bool(value("temperature") or value("spawn_temperature") or value("collapse") == "sample")
