"""What is known of tools' schemas: the names that they declare, and what is left once arguments are gone.

Kept as long as whoever holds the schema: all who were listed the same definition share it. `computed` is pure
and may run in any thread; what is kept belongs to the loop's.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import attrs

from .._base.definition import Definition
from ._derive import HoldsSchemas, held_input_schema, schema_holder
from ._schema_cut import CannotCut, argument_names, cut_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .._base.model import Tool

_MAX_CUTS: Final = 16


class Cut(NamedTuple):
    """A schema without some arguments.

    Attributes:
        schema: It is shared, and nobody may change it.
        names: The arguments that it declares.
    """

    schema: dict[str, Any]
    names: frozenset[str]


CutOrReason: TypeAlias = Cut | str


@attrs.define(eq=False)
class _Known:
    names: frozenset[str] | None = None
    cuts: dict[frozenset[str], CutOrReason] = attrs.field(factory=dict)


_known: weakref.WeakKeyDictionary[Any, _Known] = weakref.WeakKeyDictionary()


def _of(tool: Tool) -> _Known:
    holder = schema_holder(tool)
    if not isinstance(holder, Definition | HoldsSchemas):
        return _Known()  # what a tool of another class answers may differ from time to time
    known = _known.get(holder)
    if known is None:
        known = _known[holder] = _Known()
    return known


def declared_by(tool: Tool) -> frozenset[str]:
    """Give the arguments that a tool's schema declares or demands, in whatever branch."""
    known = _of(tool)
    if known.names is None:
        known.names = argument_names(held_input_schema(tool), required=True)
    return known.names


def cut_of(tool: Tool, fields: Iterable[str]) -> CutOrReason:
    """Give a tool's schema without some arguments, or why that cannot be."""
    gone = frozenset(fields)
    known = _of(tool)
    found = known.cuts.get(gone)
    if found is None:
        found = computed(tool, gone)
        _keep(known, gone, found)
    return found


def is_known(tool: Tool) -> bool:
    """Whether a tool's schema has been looked at."""
    return _of(tool).names is not None


def computed(tool: Tool, fields: frozenset[str]) -> CutOrReason:
    """Cut a tool's schema, or say why that cannot be; keeps nothing."""
    try:
        schema = cut_schema(held_input_schema(tool), fields)
    except CannotCut as error:
        return error.reason
    return Cut(schema, argument_names(schema))


class Looked(NamedTuple):
    """What looking at a large schema has given.

    Attributes:
        names: The arguments that it declares or demands.
        fields: Those that were to go.
        found: What came of that; `None` where none was to go.
    """

    names: frozenset[str]
    fields: frozenset[str]
    found: CutOrReason | None


def looked(tool: Tool, fields: Iterable[str]) -> Looked:
    """Look at a tool's schema, and take out those of the arguments that it declares; keeps nothing."""
    names = argument_names(held_input_schema(tool), required=True)
    own = names.intersection(fields)
    return Looked(names, own, computed(tool, own) if own else None)


def keep(tool: Tool, seen: Looked) -> None:
    """Keep what looking at a tool's schema has given."""
    known = _of(tool)
    known.names = seen.names
    if seen.found is not None:
        _keep(known, seen.fields, seen.found)


def _keep(known: _Known, fields: frozenset[str], found: CutOrReason) -> None:
    if len(known.cuts) < _MAX_CUTS:
        known.cuts[fields] = found
