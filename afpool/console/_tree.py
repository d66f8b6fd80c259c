"""`tree`: the tasks of the process, and what each waits for.

Names of functions, of modules and numbers of lines are shown, and nothing else: neither what a frame holds
nor what a task was called, since a host may call its tasks by whom they serve.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from ._spec import Command

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from ._ask import Ask
    from ._registry import Registry
    from ._slices import Slices

LIMIT: Final = 500
MOST: Final = 10_000
FRAMES: Final = 64
SHOWN: Final = 5
_WRAPPERS: Final = frozenset({"Background._guarded"})


def register(registry: Registry) -> None:
    """Add the command."""

    async def tree(ask: Ask) -> dict[str, Any]:
        limit = ask.count("limit", LIMIT, most=MOST)
        depth = ask.count("depth", 100, most=100)
        lines, total = await tasks(ask.slices, limit=limit, depth=depth)
        return {"kind": "tree", "lines": lines, "total": total, "shown": len(lines)}

    registry.command(
        Command(
            words=("tree",),
            usage="tree [depth=N] [limit=500]",
            help="the tasks of the process, and what each waits for",
            run=tree,
            options=("depth", "limit"),
        )
    )


async def tasks(slices: Slices, *, limit: int, depth: int) -> tuple[list[dict[str, Any]], int]:
    """Walk the task tree of this run of trio, in slices.

    Args:
        slices: Of this work.
        limit: How many tasks are shown at most.
        depth: How deep.

    Returns:
        A line for each task, parents before their children, and how many there are.
    """
    root = trio.lowlevel.current_root_task()
    me = trio.lowlevel.current_task()
    lines: list[dict[str, Any]] = []
    total = 0
    todo: list[tuple[int, Any]] = [(0, root)] if root is not None else []
    while todo:
        level, task = todo.pop()
        total += 1
        if len(lines) < limit and level <= depth:
            name, waits = _chain(task.coro)
            lines.append({"depth": level, "name": name, "waits": "this command" if task is me else waits})
        for nursery in reversed(task.child_nurseries):
            todo += [(level + 1, child) for child in sorted(nursery.child_tasks, key=id, reverse=True)]
        await slices.step()
    return lines, total


def _chain(coro: Any) -> tuple[str, str]:
    """What a coroutine is called, and where it and what it awaits have got to, outermost first."""
    places: list[tuple[str, str]] = []
    name = ""
    awaited = coro
    for _ in range(FRAMES):
        code, frame, inner = _look(awaited)
        if code is None:
            break
        called = code.co_qualname.replace(".<locals>", "")
        if not name and called not in _WRAPPERS:
            name = called if frame is None else f"{_module(frame)}.{called}"
        if frame is not None:
            places.append((f"{called}:{frame.f_lineno}", _module(frame)))
        awaited = inner
    if not places:
        return name or type(coro).__name__, "it has ended" if getattr(coro, "cr_frame", 1) is None else ""
    # of trio's own frames the first says what is waited for; those below it are how trio does that
    last = next((at for at, (_, module) in enumerate(places) if at and _is_trio(module)), len(places) - 1)
    shown = [place for place, _ in places[: last + 1]][-SHOWN:]
    return name or places[0][0], " > ".join(shown)


def _look(awaited: Any) -> tuple[CodeType | None, FrameType | None, Any]:
    for code, frame, inner in (
        ("cr_code", "cr_frame", "cr_await"),
        ("ag_code", "ag_frame", "ag_await"),
        ("gi_code", "gi_frame", "gi_yieldfrom"),
    ):
        if hasattr(awaited, code):
            return getattr(awaited, code), getattr(awaited, frame), getattr(awaited, inner)
    return None, None, None


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "?"))


def _is_trio(module: str) -> bool:
    return module == "trio" or module.startswith("trio.")
