"""Grammars: what an answer may be, held to at every token of every path.

`JsonSchema` says what is wanted and is checked when it is made, before any model is. The grammar
of a schema becomes a logits processor, `GrammarProcessor`, that leaves the tokens that may follow
and masks the others, so that paths compete among valid answers only.
"""

from msi_engine.grammar.schema import JsonSchema

__all__ = ["JsonSchema"]
