"""One answer on its way: from the engine's events to what `llm` prints, counts and logs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click
from llm.parts import StreamEvent

from llm_msi.progress import Notice
from llm_msi.trace import collapse_lines
from msi_engine.events import Collapsed, Committed, Event, Finished, Prefilled

if TYPE_CHECKING:
    import llm

    from msi_engine import DecodeConfig


class Answer:
    """Takes the events of one generation in order, then reports to `llm`.

    Attributes:
        finished: The last event; None until the generation is over.
        collapses: The collapses so far.
    """

    def __init__(self, model_name: str, config: DecodeConfig, *, trace: bool = False) -> None:
        self.finished: Finished | None = None
        self.collapses: list[Collapsed] = []
        self._model_name = model_name
        self._config = config
        self._trace = trace
        self._notice = Notice("Reading the prompt")

    def waiting(self) -> Notice:
        """Context in which a slow prompt is announced until the first text comes."""
        return self._notice

    def take(self, event: Event) -> list[str | StreamEvent]:
        """What `llm` is to be given for an event, in order; often nothing."""
        if isinstance(event, Committed):
            self._notice.close()
            return [event.text]
        if isinstance(event, Prefilled) and event.done < event.total:
            self._notice.update(f"Reading the prompt: {event.done} of {event.total} tokens")
        if isinstance(event, Finished):
            self.finished = event
        if isinstance(event, Collapsed):
            self.collapses.append(event)
            if self._trace:
                self._notice.close()
                lines = "".join(f"{line}\n" for line in collapse_lines(event))
                return [StreamEvent(type="reasoning", chunk=lines)]
        return []

    def report(self, response: llm.Response | llm.AsyncResponse) -> None:
        """Leave usage, resolved model and trace with the response; say so if it was cut off."""
        response.set_resolved_model(self._model_name)
        if self.finished is None:
            return
        stats = self.finished.stats
        response.set_usage(
            input=stats.prompt_tokens,
            output=stats.output_tokens,
            details={
                "paths": self._config.k,
                "path_tokens": stats.path_tokens,
                "forward_passes": stats.forward_passes,
                "collapses": stats.collapses,
                "reused_tokens": stats.prompt_tokens - stats.prefilled_tokens,
            },
        )
        response.response_json = plain(self._summary(self.finished))
        if self.finished.reason == "length":
            announce(
                f"The answer was cut off at max_tokens = {self._config.max_tokens}; "
                f"raise it with -o max_tokens {2 * self._config.max_tokens}"
            )

    def _summary(self, finished: Finished) -> dict[str, Any]:
        return {
            "finish_reason": finished.reason,
            "seed": finished.seed,
        }


def plain(value: Any) -> Any:
    """The same as plain JSON: Python's own numbers, None for what JSON has no number for."""
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (bool, str)):
        return value
    number = value.item() if hasattr(value, "item") else value
    if isinstance(number, float) and not math.isfinite(number):
        return None
    return number


def announce(text: str) -> None:
    """Say one line on stderr, at the terminal only: in Python the response carries the fact.

    `llm` ends the answer's line after the model has finished, so the line waits for the end of
    the command; a chat has no such end.
    """
    context = click.get_current_context(silent=True)
    if context is None:
        return
    if context.info_name == "chat":
        click.echo(f"\n{text}", err=True)
    else:
        context.call_on_close(lambda: click.echo(text, err=True))
