"""A stranger's JSON Schema, made ready for strangers' values.

Rules:

* Nothing is fetched: a reference out of the schema makes it one that cannot be compiled. Patterns take linear
  time.
* A validator runs to its end once it has begun, on the C stack. So what a schema costs that may apply many
  places to one value is known before a value meets it (`schema_cost`), and a value that would take too long,
  or nest the validator deeper than a stack holds, is never shown to it.
* A value that the validator itself cannot read (nested deeper than it goes) is not allowed.
* A pattern that cannot be compiled is left out (`schema_patterns`). A schema that cannot be compiled
  validates nothing. Whoever holds it says either once.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import jsonschema_rs

from .schema_cost import (
    MAX_LEVELS,
    MAX_PER_NODE,
    MAX_WORK,
    Cost,
    Unresolved,
    breadth_of,
    cost_of,
    nodes_and_depth,
)
from .schema_patterns import without_bad_patterns

if TYPE_CHECKING:
    from collections.abc import Mapping

MASK: Final = "..."
_CHEAP: Final = 64
_PATTERNS: Final = jsonschema_rs.RegexOptions(size_limit=1 << 20, dfa_size_limit=1 << 21)


class Unusable(ValueError):
    """A schema that no value can be validated against; says why in a few words."""


@final
class Compiled:
    """A schema made ready.

    Attributes:
        schema: As it was given.
        validator: Of the library; `None` where there is nothing to validate against.
        cost: What a value costs at most; `None` where that is no question.
        breadth: How many faults one node of a value may have, roughly and at most.
        problem: Why there is no validator, or which patterns were left out.
    """

    __slots__ = ("__weakref__", "breadth", "cost", "problem", "schema", "validator")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema
        self.validator: Any = None
        self.cost: Cost | None = None
        self.breadth = 0
        self.problem: str | None = None
        try:
            self.validator, self.problem = _compile(schema)
            self.cost, self.breadth = _cost(schema)
        except Unusable as error:
            self.validator = None
            self.problem = str(error)

    def allows(self, value: Any) -> bool:
        """Say whether a JSON value is what the schema allows; one that is never validated is."""
        if self.validator is None:
            return True
        if self.cost is not None and self.too_costly(value) is not None:
            return False
        try:
            valid: bool = self.validator.is_valid(value)
        except ValueError:
            return False  # nested deeper than it reads
        return valid

    def too_costly(self, value: Any) -> str | None:
        """Say why a value is not shown to the validator; `None` where it is."""
        cost = self.cost
        if cost is None:
            return None
        deepest = MAX_LEVELS if cost.max_depth is None else cost.max_depth
        nodes, depth = nodes_and_depth(value, deepest + 1)
        if depth > deepest:
            return f"nested deeper than {deepest} levels, which is as far as this schema can be followed"
        if cost.per_node > _CHEAP and nodes * cost.per_node > MAX_WORK and cost.work(value) > MAX_WORK:
            return f"{nodes} values, more than can be checked against this schema"
        return None


def _compile(schema: Mapping[str, Any]) -> tuple[Any, str | None]:
    try:
        return _validator(schema), None
    except jsonschema_rs.ValidationError as error:
        first = error
    except Exception as error:  # noqa: BLE001 -- whatever is wrong with it, it is a stranger's schema
        raise Unusable(_words(error)) from None
    try:
        bare, left_out = without_bad_patterns(schema, _compiles)
    except RecursionError:
        raise Unusable("it is nested too deeply") from None
    if not left_out:
        raise Unusable(_words(first))
    try:
        return _validator(bare), f"patterns that cannot be matched in linear time: {', '.join(left_out[:4])}"
    except Exception as error:  # noqa: BLE001 -- whatever is wrong with it, it is a stranger's schema
        raise Unusable(_words(error)) from None


def _validator(schema: Mapping[str, Any]) -> Any:
    return jsonschema_rs.validator_for(dict(schema), retriever=_never, pattern_options=_PATTERNS, mask=MASK)


def _never(_: str) -> NoReturn:
    raise LookupError("schemas are never fetched")


def _words(error: Exception) -> str:
    if isinstance(error, jsonschema_rs.ValidationError):
        if error.kind.name == "$ref":
            return "a reference leads nowhere, or out of it, and nothing is fetched"
        path = "/".join(map(str, error.instance_path))[:128]
        return f"it is no valid schema at {path!r}"
    return f"it cannot be compiled ({type(error).__name__})"


def _cost(schema: Mapping[str, Any]) -> tuple[Cost | None, int]:
    """Count what a schema costs that may apply many parts to one value, and how many faults a node may have.

    No cost where it is little at any depth.
    """
    multiplies, parallel, named = breadth_of(schema)
    if not multiplies and parallel <= _CHEAP:
        return None, parallel + named
    try:
        cost = cost_of(schema, MAX_PER_NODE if multiplies else inf)
    except Unresolved:
        raise Unusable("a reference of it cannot be followed to an end") from None
    except RecursionError:
        raise Unusable("its references are nested too deeply") from None
    if cost.max_depth is not None and cost.max_depth < 1:
        raise Unusable("its references would apply it to one value many thousand times")
    little = cost.max_depth is None and cost.per_node <= _CHEAP
    return None if little else cost, cost.per_node + named


def _compiles(pattern: str) -> bool:
    try:
        _validator({"pattern": pattern})
    except Exception:  # noqa: BLE001 -- whatever is wrong with it
        return False
    return True
