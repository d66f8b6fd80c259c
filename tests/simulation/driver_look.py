"""An operator looks at the pool of a run: what is shown has to be found again by what it is shown as."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from afpool import Identity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.driver import Run

NO_KEYS: Final = ("", "k:", "k:no-such-digest")
NO_TOOL: Final = "no-such-tool"
NO_CLIENT: Final = 10**9
NOBODY: Final = Identity(tenant="no-such-tenant", principal="nobody", conversation_id="none")


def look(run: Run, call: str) -> None:
    """Look at numbers, keys and record; what is wrong with them is a failure of the run (E5)."""
    pool = run.pool
    run.shown.append(repr((pool, pool.statistics(), pool.actors())))
    run.failures += [f"E5 {what}" for what in (*_keys(pool), *_events(pool.records.events))]
    run.failures += [f"E5 {what}" for what in _nobody(pool)]
    found = pool.records.find(call)
    if any(use.call_id != call for use in found):
        run.failures.append(f"E5 another call than {call} is found by its id")


def _keys(pool: Any) -> Iterator[str]:
    shown = [actor.shown for actor in pool.actors()]
    if len(set(shown)) < len(shown):
        yield "two keys are shown alike"
    for actor in pool.actors():
        digest = actor.shown.removeprefix("k:")
        alike = [each for each in shown if each.startswith(f"k:{digest[:2]}")]
        for word in (actor.shown, digest, digest[:2]):
            found = _found(pool, word)
            wanted = actor if word != digest[:2] or len(alike) == 1 else None
            if found is not wanted:
                yield f"{actor!r}, asked for as {word!r}, is {found!r}"
    for word in NO_KEYS:
        if _found(pool, word) is not None:
            yield f"a key is found as {word!r}"


def looked_up(tools: Any) -> Iterator[str]:
    """What is wrong with a list of tools as a mapping."""
    names = list(tools)
    if len(tools) != len(names):
        yield f"{len(tools)} tools have {len(names)} names"
    if not all(name in tools for name in names):
        yield f"of {names} not all are there"
    if NO_TOOL in tools:
        yield "a tool is there that was never listed"
    try:
        tools[NO_TOOL]
    except KeyError:
        return
    yield "a tool was bound that was never listed"


def _nobody(pool: Any) -> Iterator[str]:
    """What is asked about nobody, or about who is not there, is said to be so."""
    if pool.kill(NO_CLIENT):
        yield "a client was closed that there is none of"
    if pool.cancel("no-such-call"):
        yield "a call was withdrawn that there is none of"
    try:
        pool.invalidate()
    except ValueError:
        pass
    else:
        yield "nobody was invalidated"
    for server in pool.servers.values():
        if server.keyed_on:  # else everybody's key is there
            try:
                pool.pause(pool.key_of(NOBODY, server.name))
            except LookupError:
                continue
            yield f"a key was paused that there is none of at {server.name}"


def _found(pool: Any, shown: str) -> Any:
    try:
        return pool.actor_shown(shown)
    except LookupError:
        return None


def _events(events: Any) -> Iterator[str]:
    numbers = [event.number for event in events]
    if numbers != list(range(events.filed - len(events) + 1, events.filed + 1)):
        yield f"events are numbered {numbers}"
    if events.get(0) is not None or events.get(events.filed + 1) is not None:
        yield "there is an event that was never filed"
