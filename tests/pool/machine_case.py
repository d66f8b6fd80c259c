"""Short cuts for cases that are told one by one in the watched world."""

from __future__ import annotations

from tests.pool.machine_books import A, Asker
from tests.pool.machine_world import World


class Case(World):
    """A world with short cuts."""

    def open(self, context="A"):
        (opening,) = self.openings.values()
        self.plan(opening, context)
        return self.opened(opening)

    def ready(self, calls=0):
        """A client of A, with so many calls on it."""
        first = self.admit(A)
        client = self.open()
        held = [first, *(self.admit(A) for _ in range(calls - 1))]
        if not calls:
            self.settle(first)
        return client, held[:calls]

    @property
    def state(self):
        return self.machine.snapshot()


def refusal(asker: Asker):
    error = asker.reply._error
    assert error is not None, f"{asker} was not refused"
    return error
