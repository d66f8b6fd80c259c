"""The record of a simulated run: every call that did not end well is explained, and that is filed.

Twice: in the step in which the call ended, before anything else can run, and when the pool has been left and
all that could still happen has happened. What is said then is judged by `checks_why.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from afpool import IdentityMissing
from afpool._base.identity import KeyDigest, encode_key
from afpool.record import Record
from tests.simulation import steps as s
from tests.simulation.driver_host import NOWHERE, SECRET, key_of
from tests.simulation.driver_steps import stranger
from tests.simulation.ground_why import Explained

if TYPE_CHECKING:
    from afpool.record import Explanation
    from tests.simulation.driver import Run

WELL: Final = frozenset({"ok", "tool-error"})
"""How calls end of which nothing is asked."""

WIDTH: Final = 72


class Whys:
    """Asks the record of a run's pool.

    Args:
        run: The run.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self._record: Record | None = None
        self._asked: dict[str, None] = {}
        self._answered: set[str] = set()

    @property
    def record(self) -> Record:
        """The record of the pool."""
        if self._record is None:
            self._record = Record(self.run.pool)
        return self._record

    def answered(self, call: str) -> None:
        """A call gave a result; what reading that raises is no end of a call."""
        self._answered.add(call)

    def ended(self, call: str, code: str) -> None:
        """A call has ended: explain it, unless it ended well. Synchronous."""
        if code in WELL or call in self._answered or self.run.ground.muted:
            return
        self._asked[call] = None
        self._file(call, "ended", "explain", self._explained(call))

    def shown(self) -> dict[str, str]:
        """What the record shows for each key that there may be, to the key as the driver writes it."""
        world = self.run.story.world
        strangers = max(
            (step.strangers for step in self.run.story.steps if isinstance(step, s.EvictPressure)), default=0
        )
        whose = [person.identity for person in world.people]
        whose += [stranger(number) for number in range(strangers)] + [NOWHERE]
        digest = KeyDigest(SECRET)
        found: dict[str, str] = {}
        for spec in world.servers:
            for identity in whose:
                with contextlib.suppress(IdentityMissing):
                    found[digest.show(encode_key(spec.name, identity, spec.keyed_on))] = key_of(
                        spec, identity
                    )
        return found

    def people(self) -> tuple[str, ...]:
        """Tenants and persons, none of whom may be named."""
        found = {name for person in self.run.story.world.people for name in (person.tenant, person.principal)}
        return tuple(sorted(found - {""}))

    async def come(self) -> None:
        """The run is over: explain each of those again, in both ways."""
        for call in self._asked:
            self._file(call, "over", "explain", self._explained(call))
            told: Explanation | BaseException
            try:
                told = await self.record.why(call)
            except Exception as error:
                told = error
            self._file(call, "over", "why", told)

    def _explained(self, call: str) -> Explanation | BaseException:
        try:
            return self.record.explain(call)
        except Exception as error:
            return error

    def _file(self, call: str, when: str, how: str, told: Explanation | BaseException) -> None:
        run = self.run
        run.counts[f"explained:{when}"] += 1
        if isinstance(told, BaseException):
            said = f"{type(told).__name__}: {told}"
            run.shown.append(said)
            run.ground.file(Explained(call=call, when=when, how=how, raised=said))
            return
        words, plain = told.words(WIDTH), json.dumps(told.as_json(), allow_nan=False)
        run.shown += [words, plain, repr(told)]
        body: dict[str, Any] = json.loads(plain)
        digest = hashlib.sha256(f"{words}\n{plain}".encode("utf-8", "backslashreplace")).hexdigest()[:16]
        run.ground.file(Explained(call=call, when=when, how=how, digest=digest, told=body, words=words))
