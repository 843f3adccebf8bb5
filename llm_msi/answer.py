"""One answer on its way: from the engine's events to what `llm` prints, counts and logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from llm.parts import StreamEvent

from llm_msi.progress import SLOW_S, Notice
from llm_msi.schema import is_whole
from llm_msi.trace import event_lines
from msi_engine.events import Committed, Event, Finished, Prefilled, Spawned, Stats
from msi_engine.trace import Trace

if TYPE_CHECKING:
    import llm

    from llm_msi.grounding import Grounding
    from llm_msi.tools import Calls
    from msi_engine import JsonSchema


_TOLD: set[str] = set()  # notes that are not repeated in a chat


class Answer:
    """Takes the events of one generation in order, then reports to `llm`.

    Args:
        model_name: The engine's name of the model.
        grounding: Options in force, evidence and citations.
        constraint: What the answer is held to, if anything.
        calls: What tells calls of tools from the text; None where the model has no tools.
        note: What the user should be told besides, if anything.
        show_paths: Whether the collapses go to the reasoning channel.
    """

    def __init__(
        self,
        model_name: str,
        grounding: Grounding,
        constraint: JsonSchema | None = None,
        *,
        calls: Calls | None = None,
        note: str | None = None,
        show_paths: bool = False,
    ) -> None:
        self._constraint = constraint
        self._calls = calls
        self._note = note
        self._grounding = grounding
        self._show_paths = show_paths
        self._trace = Trace(model_name, grounding.config)
        self._notice = Notice("Reading the prompt")
        self._inside_line = False  # the last text did not end its line

    def waiting(self) -> Notice:
        """Context in which a slow prompt is announced until the first text comes."""
        return self._notice

    def take(self, event: Event) -> list[str | StreamEvent]:
        """What `llm` is to be given for an event, in order; often nothing."""
        self._trace.record(event)
        if isinstance(event, Committed):
            self._notice.close()
        if isinstance(event, Prefilled) and event.done < event.total:
            self._notice.update(f"Reading the prompt: {event.done} of {event.total} tokens")
        if isinstance(event, Spawned):
            self._notice.update("Writing the first sentence")
        told = self._told(event) if self._show_paths else []
        shown = self._shown(event)
        for text in shown:
            if isinstance(text, str):
                self._inside_line = not text.endswith("\n")
        return [*told, *shown]

    def _told(self, event: Event) -> list[StreamEvent]:
        """The trace of an event, on lines of its own: a terminal has both in one place."""
        lines = event_lines(event)
        if not lines:
            return []
        self._notice.close()
        told = "".join(f"{line}\n" for line in lines)
        if self._inside_line:
            told = "\n" + told
            self._inside_line = False
        return [StreamEvent(type="reasoning", chunk=told)]

    def _shown(self, event: Event) -> list[str | StreamEvent]:
        """The text of an event, with citations where these are wanted, and calls of tools."""
        if self._calls is not None:
            return list(self._calls.take(event))
        citer = self._grounding.citer
        if citer is not None:
            text = citer.take(event)
        else:
            text = event.text if isinstance(event, Committed) else ""
        return [text] if text else []

    def report(self, response: llm.Response | llm.AsyncResponse) -> None:
        """Leave usage, resolved model and trace with the response; say so if it was cut off."""
        response.set_resolved_model(self._trace.model)
        finished = self._trace.finished
        if finished is None:
            return
        stats = finished.stats
        response.set_usage(
            input=stats.prompt_tokens,
            output=stats.output_tokens,
            details={
                "paths": self._grounding.config.k,
                "path_tokens": stats.path_tokens,
                "forward_passes": stats.forward_passes,
                "collapses": stats.collapses,
                "reused_tokens": stats.prompt_tokens - stats.prefilled_tokens,
                **refinement_details(stats),
            },
        )
        response.response_json = self._trace.summary()
        if self._grounding.evidence:
            response.response_json["sources"] = self._grounding.summary()
        if self._grounding.citer is not None and not (self._calls and self._calls.made):
            announce("\n".join(f"[{e.id}] {e.source}" for e in self._grounding.evidence))
        for note in (self._grounding.note, self._note):
            if note is not None and note not in _TOLD:
                _TOLD.add(note)
                announce(note)
        if slow := slow_scorers(stats):
            announce(slow)
        if self._calls is not None:
            self._calls.report(response)
            for note in self._calls.notes():
                announce(note)
        self._report_end(finished)

    def _report_end(self, finished: Finished) -> None:
        """Say what ended the answer before its end. JSON that is whole has not been cut off."""
        broken = self._constraint is not None and not is_whole(self._trace.text)
        before = ", before its JSON was complete" if broken else ""
        in_call = self._calls is not None and self._calls.was_cut
        if in_call:
            before = ", within the call of a tool, which was not made"
        if finished.reason == "length" and (broken or self._constraint is None):
            announce(cut_off(self._grounding.config.max_tokens, finished.stats, before))
        elif finished.reason == "stop" and (broken or in_call):
            announce(f"The answer ended at a stop string{before}; leave `stop` out")


def refinement_details(stats: Stats) -> dict[str, Any]:
    """What the target did, where there was one."""
    cost = stats.refinement
    if cost is None:
        return {}
    return {
        "target": cost.target_kind,
        "drafted": cost.drafted,
        "checked": cost.deferred,
        "sweeps": cost.sweeps,
        "rollbacks": cost.rollbacks,
        "acceptance_rate": round(cost.acceptance_rate, 4),
        "bytes_per_token": round(cost.bytes_per_token),
    }


def slow_scorers(stats: Stats) -> str | None:
    """Which scorers most of the time went to, and how to ask them less often; None if none."""
    slow = {n: s for n, s in stats.scorer_s.items() if s > SLOW_S and s > stats.decode_s / 2}
    if not slow:
        return None
    times = " and ".join(f"{n} ({stats.scorer_calls[n]} calls)" for n in slow)
    return (
        f"Of {stats.decode_s:.0f} s of writing {sum(slow.values()):.0f} went to the scorer "
        f"{times}; -o score_every 16 asks it less often"
    )


def cut_off(max_tokens: int, stats: Stats, before: str = "") -> str:
    """What ended an answer before its end: the option, or the model's context.

    Args:
        max_tokens: The option.
        stats: Of the answer.
        before: What had not come yet, with a comma before it.
    """
    if stats.output_tokens < max_tokens:
        return (
            f"The answer was cut off where prompt and answer ({stats.prompt_tokens} and "
            f"{stats.output_tokens} tokens) fill what the model can read{before}; "
            "shorten the prompt"
        )
    return (
        f"The answer was cut off at max_tokens = {max_tokens}{before}; "
        f"raise it with -o max_tokens {2 * max_tokens}"
    )


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
