"""Where a path may be collapsed: boundaries on decoded text, tested at every token of a stream.

Knows text and one probability; no tokens, models or paths. See `predicate` for the interface,
`registry` for the names, `sentence` for the rules of sentences, `paragraph` for newlines and `stop`
for stop strings.
"""

from msi_engine.boundary.predicate import BoundaryContext, BoundaryPredicate
from msi_engine.boundary.registry import (
    BoundaryFactory,
    boundary_names,
    make_boundaries,
    register_boundary,
)
from msi_engine.boundary.stop import StopStrings

__all__ = [
    "BoundaryContext",
    "BoundaryFactory",
    "BoundaryPredicate",
    "StopStrings",
    "boundary_names",
    "make_boundaries",
    "register_boundary",
]
