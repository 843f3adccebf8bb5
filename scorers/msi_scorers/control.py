"""Passages for the negative control of scorers with evidence: about things nobody asked for."""

from __future__ import annotations

PASSAGES = (
    "A lighthouse keeper trimmed the wick at dusk and wound the clockwork that turned the lens. "
    "Each station had its own pattern of flashes, so that a captain could tell one from another.",
    "Sourdough rises because wild yeasts and lactic bacteria live together in the starter. Bakers "
    "feed it with flour and water and keep a part of it for the next loaf.",
    "In a string quartet two violins, a viola and a cello share the parts without a conductor. "
    "The form settled in the second half of the eighteenth century.",
    "A glacier moves because ice under its own weight creeps and slides over wet rock. Boulders "
    "frozen into its base scratch long grooves into the valley floor.",
    "The offside rule is broken when a player nearer to the goal line than both the ball and the "
    "second last defender joins in the play at the moment of the pass.",
    "Tulip bulbs are planted in autumn, twice as deep as they are high. Cold weeks in the ground "
    "are needed before they will flower in spring.",
    "A mechanical watch keeps time with a balance wheel and a hairspring. The escapement lets the "
    "gear train advance one tooth at a time, which makes the tick.",
    "Double-entry bookkeeping writes every transaction twice, once as a debit and once as a "
    "credit, so that the two columns must agree when the books are closed.",
)


def control_passages(number: int, seed: int) -> tuple[str, ...]:
    """As many passages as are asked for, or all of them, beginning at place ``seed``."""
    start = seed % len(PASSAGES)
    return (PASSAGES[start:] + PASSAGES[:start])[:number]
