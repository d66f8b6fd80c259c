"""Results as lines of text, and as objects for programs.

A kind of result that is not known here, of a newer server, is written member by member.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from .._text import one_line, width_of
from ._cells import color_of, plain
from ._events import event_line
from ._explained import explained, waterfall
from ._overview import overview
from ._tables import lay_out

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ._look import Look

BAD: Final = "bad"
_LEVELS: Final = ("bad", "warn", "ok")
_SECONDS: Final = re.compile(
    r"(?:.*_)?(?:in|p50|p95|p99|took|wait|waited|since|age|idle|uptime|held|left|timeout|maxwait|lag)"
)
_OF_DONE: Final = frozenset({"kind", "what", "before", "after", "until", "ends"})
_UNIX: Final = frozenset({"at", "began", "opened", "until", "expires", "ended", "unix"})


def lines_of(result: dict[str, Any], look: Look, keep: Collection[str] = ()) -> list[str]:
    """Write a result for people.

    Args:
        result: As the console answered.
        look: Who looks at it.
        keep: Names of columns that were asked for.
    """
    kind = result.get("kind")
    if kind == "table":
        return _table(result, look, keep)
    if kind == "explanation":
        return explained(result, look)
    if kind == "tree":
        return _tree(result, look)
    if kind == "checks":
        return _checks(result, look)
    if kind == "done":
        return _done(result, look)
    if kind == "text":
        return [folded for line in _list(result.get("lines")) for folded in look.fold(str(line))]
    if kind == "call":
        return _call(result, look)
    if kind == "overview":
        return overview(result, look)
    return list(_members(result, look))


def objects_of(result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give a result as objects, one for each line of JSON: rows of tables by the names of their columns."""
    kind = result.get("kind")
    if kind == "table":
        names = [name for name, _ in _columns(result)]
        for row in _list(result.get("rows")):
            if isinstance(row, list):
                yield dict(zip(names, row, strict=False))
    elif kind == "tree":
        yield from (line for line in _list(result.get("lines")) if isinstance(line, dict))
    elif kind == "checks":
        yield from (one for one in _list(result.get("found")) if isinstance(one, dict))
    elif kind == "text":
        yield from ({"line": str(line)} for line in _list(result.get("lines")))
    else:
        yield result


def is_bad(result: dict[str, Any]) -> bool:
    """Whether something that was checked is bad."""
    found = _list(result.get("found")) if result.get("kind") == "checks" else []
    return any(isinstance(one, dict) and one.get("level") == BAD for one in found)


def _columns(result: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (one_line(str(column.get("name", ""))), str(column.get("kind", "text")))
        for column in _list(result.get("columns"))
        if isinstance(column, dict)
    ]


def _table(result: dict[str, Any], look: Look, keep: Collection[str]) -> list[str]:
    columns = _columns(result)
    rows = [row for row in _list(result.get("rows")) if isinstance(row, list)]
    total, shown = result.get("total", len(rows)), result.get("shown", len(rows))
    if not columns:
        return []
    if not rows and look.people:
        return [look.paint("nothing", "dim")]
    lines, left_out = lay_out(columns, rows, look, keep)
    notes = []
    if isinstance(total, int) and isinstance(shown, int) and total > shown:
        notes.append(f"{shown:,} of {total:,} rows: limit=N shows more")
    if left_out:
        notes.append(f"no room for {', '.join(left_out)}")
    if notes and look.people:
        lines += [look.paint(line, "dim") for line in look.wrap("; ".join(notes), "")]
    return lines


def _tree(result: dict[str, Any], look: Look) -> list[str]:
    lines = []
    for one in _list(result.get("lines")):
        if not isinstance(one, dict):
            continue
        depth = one.get("depth")
        indent = "  " * min(depth, 40) if isinstance(depth, int) else ""
        text = look.fit(str(one.get("name", "")))
        waits = one_line(str(one.get("waits") or ""))
        room = None if look.width is None else look.width - len(indent) - width_of(text) - 2
        if waits and (room is None or room > 8):
            text += "  " + look.paint(look.fit(waits, room), "dim")
        lines.append(indent + text)
    return lines


def _checks(result: dict[str, Any], look: Look) -> list[str]:
    found = [one for one in _list(result.get("found")) if isinstance(one, dict)]
    order = {level: number for number, level in enumerate(_LEVELS)}
    found.sort(key=lambda one: order.get(str(one.get("level")), 1))
    lines = []
    for one in found:
        level = one_line(str(one.get("level", "-")))
        color = color_of("level", "text", level)
        head = f"{level:<5}"
        what = str(one.get("what", ""))
        detail = str(one.get("detail") or "")
        first, *more = look.wrap(f"{what}: {detail}" if detail else what, " " * 6)
        lines += [f"{look.paint(head, color) if color else head} {first[6:]}", *more]
        for each in one["try"] if isinstance(one.get("try"), list) else filter(None, [one.get("try")]):
            lines += look.wrap(f"try: {look.hint(str(each))}", " " * 6)
        if one.get("advice"):
            lines += look.wrap(str(one["advice"]), " " * 6)
    return lines


def _done(result: dict[str, Any], look: Look) -> list[str]:
    """What was done, what it changed, and until when."""
    lines = look.wrap(str(result.get("what", "done")), "")
    before, after = result.get("before"), result.get("after")
    before = before if isinstance(before, dict) else {"state": before}
    after = after if isinstance(after, dict) else {"state": after}
    changes = [
        f"{name} {plain(before.get(name))} → {plain(after.get(name))}"
        if before.get(name) != after.get(name) and name in before and name in after
        else f"{name} {plain(after.get(name, before.get(name)))}"
        for name in {**before, **after}
        if after.get(name, before.get(name)) is not None
    ]
    if changes:
        lines += look.wrap(", ".join(changes), "  ")
    until = result.get("until")
    if result.get("ends"):
        lines += look.wrap(f"it ends {result['ends']}", "  ")
    elif isinstance(until, int | float) and not isinstance(until, bool):
        lines += look.wrap(f"until {look.cell('unix', until)}", "  ")
    rest = {name: value for name, value in result.items() if name not in _OF_DONE and value is not None}
    note = rest.pop("note", None)
    if note:
        lines += [look.paint(line, "yellow") for line in look.wrap(str(note), "  ")]
    return [*lines, *(f"  {line}" for line in _members(rest, look))]


def _call(result: dict[str, Any], look: Look) -> list[str]:
    """Every pass of a call, the last one first, each with its stages."""
    lines: list[str] = []
    for use in [result.get("use"), *_list(result.get("before"))]:
        if isinstance(use, dict):
            said = {name: value for name, value in use.items() if name != "stages" and value is not None}
            drawn = waterfall(use, look)
            lines += [""] * bool(lines) + list(_members(said, look)) + [""] * bool(drawn) + drawn
    return lines or list(_members(result, look))


def _members(value: dict[str, Any], look: Look, indent: str = "") -> Iterator[str]:
    """Write an object: short members first, one on each line; lists of objects as tables."""
    short = {
        one_line(str(name)): each
        for name, each in value.items()
        if name != "kind" and not (each and (isinstance(each, dict) or _objects(each)))
    }
    width = max(map(width_of, short), default=0)
    for name, each in short.items():
        text = look.cell(_kind(name), each)
        pad = " " * (width - width_of(name))
        color = color_of(name, "", text)
        if look.width is not None:
            text = look.fit(text, look.width - len(indent) - width - 2)
        yield f"{indent}{look.paint(name, 'dim')}{pad}  {look.paint(text, color) if color else text}"
    for name, each in value.items():
        if isinstance(each, dict) and each:
            yield ""
            yield f"{indent}{look.paint(look.fit(str(name)), 'bold')}"
            yield from _members(each, look, indent + "  ")
        elif isinstance(each, list) and _objects(each):
            yield ""
            yield f"{indent}{look.paint(look.fit(str(name)), 'bold')}"
            inner = look.inside(len(indent) + 2)
            if name == "events":
                yield from (f"{indent}  {event_line(event, inner)}" for event in each)
            else:
                yield from (f"{indent}  {line}" for line in _objects_as_table(each, inner))


def _objects_as_table(rows: list[dict[str, Any]], look: Look) -> list[str]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = [(one_line(str(name)), _kind(str(name))) for name in names]
    return lay_out(columns, [[row.get(name) for name in names] for row in rows], look)[0]


def _objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _kind(name: str) -> str:
    """The kind of a member, by its name."""
    if _SECONDS.fullmatch(name):
        return "seconds"
    if name in _UNIX:
        return "unix"
    return "bytes" if name.endswith(("bytes", "bytes_in", "bytes_out")) else "text"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
