"""`tail`: calls as they end and events as they happen.

What is told is chosen when it happens, by a few comparisons in the filing step, and written when a frame is
made; see `_stream`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .._base.use import Use
from ..record import unix_offset
from ..record._json import call_line
from ._ask import CommandError
from ._parse import unknown
from ._spec import Command
from ._stream import KEPT, Queued

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..pool import Event
    from ._ask import Ask
    from ._registry import Registry
    from ._slices import Slices
    from ._sources import Sources

    UseTest: TypeAlias = Callable[[Use], bool]
    EventTest: TypeAlias = Callable[[Event], bool]

WHAT: Final = ("all", "calls", "events", "refusals")
OPTIONS: Final = (
    "kind", "outcome", "code", "server", "tool", "key", "client", "call", "run", "slower",
    "tenant", "principal", "conversation", "last",
)  # fmt: skip
OF_CALLS: Final = frozenset(
    {"outcome", "code", "tool", "run", "slower", "tenant", "principal", "conversation"}
)
_FIELDS: Final = {"tenant": "tenant", "principal": "principal", "conversation": "conversation_id"}


def register(registry: Registry, sources: Sources) -> None:
    """Add the command."""

    async def follow(ask: Ask) -> Tail:
        return await tail(sources, ask)

    registry.command(
        Command(
            words=("tail",),
            usage="tail [calls|events|refusals] [server=… key=… code=… tenant=… slower=1s last=20 …]",
            help="calls as they end and events as they happen",
            run=follow,
            options=OPTIONS,
            takes=(0, 1),
            complete=lambda _word, before: () if before else WHAT,
        )
    )


async def tail(sources: Sources, ask: Ask) -> Tail:
    """Begin to follow.

    Raises:
        CommandError: A filter cannot be read.

    A checkpoint where what has been is gone through. Cancelled, nothing is followed.
    """
    what = ask.words[0] if ask.words else "all"
    if what not in WHAT:
        raise unknown("bad-option", "thing to follow", what, WHAT, tries="tail {}")
    options = dict(ask.options)
    last = ask.count("last", 0, most=KEPT, least=0)
    options.pop("last", None)
    if what == "refusals":
        options.setdefault("outcome", "refused,failed")
    kinds = _set(options.pop("kind", None))
    calls = what != "events" and (kinds is None or "call" in kinds)
    events = what in ("all", "events") and (kinds is None or kinds != {"call"})
    if OF_CALLS & options.keys():
        if not calls:
            name = min(OF_CALLS & options.keys())
            raise CommandError("bad-option", f"events have no {name}", ["tail calls"])
        events = False
    use_test = _use_test(sources, ask, options) if calls else None
    event_test = _event_test(options, kinds) if events else None
    made = Tail(sources, use_test, event_test)
    try:
        if last:
            await made.look_back(use_test, event_test, last, ask.slices)
    except BaseException:
        made.close()
        raise
    return made


class Tail(Queued[Any]):
    """Follows the record of a pool.

    Args:
        sources: Of what.
        uses: Which calls; `None`: none.
        events: Which events; `None`: none.
    """

    def __init__(self, sources: Sources, uses: UseTest | None, events: EventTest | None) -> None:
        super().__init__(self._line)
        self._sources = sources
        records = sources.pool.records
        self._unix = 0.0
        self._untap = records.tap(
            on_use=None if uses is None else self._chosen(uses),
            on_event=None if events is None else self._chosen(events),
        )

    def _chosen(self, test: Callable[[Any], bool]) -> Callable[[Any], None]:
        if test is _everything:
            return self.put

        def put(thing: Any) -> None:
            if test(thing):
                self.put(thing)

        return put

    async def look_back(
        self, uses: UseTest | None, events: EventTest | None, last: int, slices: Slices
    ) -> None:
        """Have the last of what has been told first, before what happens meanwhile. In slices.

        Args:
            uses: Which calls; `None`: none.
            events: Which events; `None`: none.
            last: How many at most.
            slices: Of this work.
        """
        records = self._sources.pool.records
        ring = records.events
        # what was filed up to now; the rest has come by the tap, or will
        kept, newest, oldest = list(records.uses), ring.filed, max(0, ring.filed - len(ring))
        found: list[tuple[float, int, Any]] = []
        if uses is not None:
            async for use in slices.each(reversed(kept)):
                if uses(use):
                    found.append((use.ended_at or use.began_at, -len(found), use))
                    if len(found) >= last:
                        break
        if events is not None:
            most = len(found) + last
            async for number in slices.each(range(newest, oldest, -1)):
                event = ring.get(number)
                if event is not None and events(event):
                    found.append((event.at, -len(found), event))
                    if len(found) >= most:
                        break
        found.sort(key=lambda one: one[:2])
        self.put_first([thing for _, _, thing in found[-last:]])

    async def make(self) -> dict[str, Any] | None:
        """Tell what waits."""
        self._unix = unix_offset(self._sources.pool.seams)
        return await super().make()

    def _line(self, thing: Any) -> Any:
        if isinstance(thing, Use):
            return call_line(thing, self._sources.digests, self._unix)
        return self._sources.event_plain(thing)

    def let_go(self) -> None:
        """Follow no longer."""
        self._untap()


def _everything(_: Any) -> bool:
    return True


def _set(text: str | None) -> set[str] | None:
    if text is None:
        return None
    words = {word for word in text.split(",") if word}
    if not words or text[:1] in "!<>":
        raise CommandError("bad-option", "what to follow is given in words that commas part, as server=a,b")
    return words


def _use_test(sources: Sources, ask: Ask, options: dict[str, str]) -> Any:
    tests: list[UseTest] = []
    for name, text in options.items():
        if name == "slower":
            least = ask.seconds("slower", 0.0, most=1e6)
            tests.append(lambda use, least=least: (use.ended_at or 0.0) - use.began_at >= least)  # type: ignore[misc]
        elif name in _FIELDS:
            # as it was given and not by a part of it: see the rules of `_registry`
            field = _FIELDS[name]
            tests.append(
                lambda use, field=field, text=text: use.who is not None and getattr(use.who, field) == text  # type: ignore[misc]
            )
        elif name == "key":
            tests.append(_of_key(sources, tuple(_set(text) or ())))
        else:
            words = _set(text) or set()
            tests.append(_of_use(name, words))
    return _all(tests)


def _of_key(sources: Sources, cut: tuple[str, ...]) -> UseTest:
    show = sources.digests.show
    return lambda use: isinstance(use.key, str) and show(use.key).startswith(cut)


def _of_use(name: str, words: set[str]) -> UseTest:
    if name == "outcome":
        return lambda use: use.outcome in words or (use.tool_error and "failed" in words)
    if name == "tool":
        return lambda use: use.tool in words or use.name in words
    if name == "client":
        return lambda use: str(use.client_id) in words
    field = {"code": "code", "server": "server", "call": "call_id", "run": "run_id"}[name]
    return lambda use: getattr(use, field) in words


def _event_test(options: dict[str, str], kinds: set[str] | None) -> Any:
    tests: list[EventTest] = []
    if kinds is not None and not kinds & {"event", "events"}:
        wanted = kinds
        tests.append(lambda event: event.kind in wanted)
    for name, text in options.items():
        words = _set(text) or set()
        if name == "key":
            tests.append(lambda event, cut=tuple(words): event.key.startswith(cut))  # type: ignore[misc]
        elif name == "server":
            tests.append(lambda event, words=words: event.server in words)  # type: ignore[misc]
        else:
            tests.append(lambda event, name=name, words=words: str(event.facts.get(name)) in words)  # type: ignore[misc]
    return _all(tests)


def _all(tests: list[Any]) -> Any:
    if not tests:
        return _everything
    if len(tests) == 1:
        return tests[0]
    return lambda thing: all(test(thing) for test in tests)
