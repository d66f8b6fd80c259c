"""Facts that only what the record says is held against. See `ground.py`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import attrs

from tests.simulation.ground import Fact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.simulation.ground import Ground


@attrs.define(eq=False, kw_only=True)
class Explained(Fact):
    """The record explained a call.

    Attributes:
        call: Its id.
        when: `ended`: in the step in which it ended; `over`: at the end of the run.
        how: By `explain` or `why`.
        raised: What it raised instead.
        digest: Stands for all of what follows.
        told: What it said, as plain data, and `words` as lines for people.
    """

    call: str
    when: str
    how: str
    raised: str | None = None
    digest: str = ""
    told: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    words: str = attrs.field(default="", repr=False)


@attrs.define(eq=False, kw_only=True)
class Evicted(Fact):
    """An operator asked that the client of a key be closed if nobody uses it."""

    key: str


@attrs.define(eq=False, kw_only=True)
class Draining(Fact):
    """An operator drains a key."""

    key: str


@attrs.define(eq=False, kw_only=True)
class Drained(Fact):
    """A key was drained, or whoever asked for it was refused."""

    key: str


@attrs.define(eq=False, kw_only=True)
class AppAsked(Fact):
    """The app is asked for a `plan` or a `credential`; whose, as a key or as an owner."""

    what: str
    whose: str


@attrs.define(eq=False, kw_only=True)
class AppSaid(Fact):
    """It has answered what it was asked as fact `asked`, or has raised, by the name of the class."""

    what: str
    whose: str
    asked: int
    raised: str | None = None


@contextlib.contextmanager
def asked(ground: Ground, what: str, whose: str) -> Iterator[None]:
    """File that the app is asked, and how that ended."""
    begun = ground.file(AppAsked(what=what, whose=whose))
    raised: str | None = None
    try:
        yield
    except BaseException as error:
        raised = type(error).__name__
        raise
    finally:
        ground.file(AppSaid(what=what, whose=whose, asked=begun.seq, raised=raised))
