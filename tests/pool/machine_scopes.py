"""The worlds that are walked through: each is wide in one way and narrow in the others, so that it ends.

The usual ones take a core about a minute in all, the deep ones ten minutes more.
"""

from __future__ import annotations

from typing import Final

from tests.pool.machine_books import BOUND, FRESH, LISTS, A, B, Role
from tests.pool.machine_states import Scope

FIVE: Final[tuple[Role, ...]] = (A, B, BOUND, LISTS, FRESH)

SMALL: Final = Scope("small", places=1, askers=2, clients=2, crashes=1, roles=FIVE)
INNER: Final = Scope("calls from inside", places=2, askers=3, clients=2, crashes=0, roles=FIVE)
EVERY: Final = Scope(
    "every role", places=1, askers=3, clients=2, drains=2, crashes=0, max_waiting=2, recheck_lists=True
)
HELD: Final = Scope(
    "its server is held", places=1, askers=2, clients=1, crashes=1, roles=(A, LISTS), halts=True
)

USUAL: Final = (
    EVERY,
    HELD,
    Scope("one place, a crash", places=1, askers=3, clients=2, crashes=1, roles=FIVE),
    Scope("two places, a crash", places=2, askers=3, clients=2, crashes=1, roles=FIVE),
    Scope("two crashes", places=1, askers=2, clients=2, crashes=2, roles=FIVE),
    Scope("many", places=2, askers=4, clients=3, crashes=0, roles=FIVE),
)
DEEP: Final = (
    Scope("every role, two crashes", places=2, askers=3, clients=2, drains=2, crashes=2, recheck_lists=True),
    Scope("many, a crash", places=2, askers=4, clients=3, crashes=1, roles=FIVE),
    Scope("three places", places=3, askers=5, clients=3, crashes=0, roles=FIVE),
    Scope("many wait", places=1, askers=5, clients=3, crashes=0),
    Scope("many clients", places=2, askers=4, clients=5, crashes=0, roles=FIVE),
    Scope("three places, many", places=3, askers=6, clients=3, crashes=0, roles=FIVE),
)
