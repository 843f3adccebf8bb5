"""JSON schemas at random, bounded so that an answer to any of them is short."""

from __future__ import annotations

import random
from typing import Any

Schema = dict[str, Any]

_NAMES = ["name", "age", "a b", "naïve", 'quo"te', "back\\slash", "x", "y", "日本", "type", ""]
_PATTERNS = ["^[a-z]{2,5}$", "^\\d{3}-\\d{2}$", "^(red|green|blue){1,2}$", "^[A-Z][a-z]?$", "b"]
_CONSTANTS = ["a", 'ünïcode "x"\n', 0, -7, 2.5, True, False, None, [1, "b"], {"k": [None]}]


def random_schema(seed: int, depth: int = 3) -> Schema:
    """The same schema for the same seed."""
    return _Maker(random.Random(seed)).schema(depth)


class _Maker:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def schema(self, depth: int) -> Schema:
        leaves = [self.string, self.integer, self.number, self.enum, self.const, self.other]
        inner = [self.object, self.object, self.array, self.any_of]
        return self._rng.choice(inner if depth > 1 else leaves + inner * (depth > 0))(depth)

    def object(self, depth: int) -> Schema:
        names = self._rng.sample(_NAMES, self._rng.randint(1, 4))
        made: Schema = {
            "type": "object",
            "properties": {name: self.schema(depth - 1) for name in names},
            "required": [name for name in names if self._rng.random() < 0.6],
        }
        if self._rng.random() < 0.5:
            made["additionalProperties"] = False
        return made

    def array(self, depth: int) -> Schema:
        least = self._rng.randint(0, 2)
        bounds = {"minItems": least, "maxItems": least + self._rng.randint(0, 2)}
        if self._rng.random() < 0.2:
            first = [self.schema(depth - 1), self.schema(depth - 1)]
            return {"type": "array", "prefixItems": first, "items": False, "minItems": 2}
        return {"type": "array", "items": self.schema(depth - 1), **bounds}

    def any_of(self, depth: int) -> Schema:
        return {"anyOf": [self.schema(depth - 1) for _ in range(self._rng.randint(2, 3))]}

    def string(self, depth: int) -> Schema:
        if self._rng.random() < 0.4:
            return {"type": "string", "pattern": self._rng.choice(_PATTERNS), "maxLength": 12}
        least = self._rng.randint(0, 3)
        return {"type": "string", "minLength": least, "maxLength": least + self._rng.randint(0, 6)}

    def integer(self, depth: int) -> Schema:
        low = self._rng.randint(-150, 150)
        bounds = {"minimum": low, "maximum": low + self._rng.randint(3, 2000)}
        return {"type": "integer", **bounds, **self._rng.choice([{}, {"multipleOf": 3}])}

    def number(self, depth: int) -> Schema:
        low = self._rng.uniform(-20, 20)
        return {
            "type": "number",
            self._rng.choice(["minimum", "exclusiveMinimum"]): round(low, 2),
            self._rng.choice(["maximum", "exclusiveMaximum"]): round(low + 7, 1),
        }

    def enum(self, depth: int) -> Schema:
        return {"enum": self._rng.sample(_CONSTANTS, self._rng.randint(1, 4))}

    def const(self, depth: int) -> Schema:
        return {"const": self._rng.choice(_CONSTANTS)}

    def other(self, depth: int) -> Schema:
        return {"type": self._rng.choice(["boolean", "null", ["boolean", "null"]])}
