"""Long random walks through a wider world than the exhaustive one: more places, waiters, clients, crashes.

The same oracle as `explore`, and nothing left out of a state: every late word is a move of its own. Every
walk is driven to its end, where nothing may be left.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.pool.machine_ends import finish
from tests.pool.machine_moves import all_moves, is_late, make, may_crash
from tests.pool.machine_states import Scope
from tests.pool.machine_world import World

WIDE = Scope("wide", askers=12, clients=6, drains=3, crashes=4)
CALLERS = {"admit", "nest", "cancel", "leave", "time_out", "give_up"}
CLIENTS = {"plan", "opened", "late_opened", "open_failed", "forget", "close_done", "lose"}
LISTS = {"listed", "notice", "plan_seen", "shared_moves"}
SILENT = {"cancel", "forget", "crash", "kicked"}  # no turn of their own, or the one that ends a crash
OPERATORS = {"evict", "revoke", "reconfigure", "pause", "resume", "drain", "close", "crash", "kicked"}


class MachineWalk(RuleBasedStateMachine):
    """One key and its world."""

    world: World | None = None

    @initialize(places=st.integers(1, 5), max_waiting=st.integers(1, 8), recheck=st.booleans())
    def begins(self, places, max_waiting, recheck):
        self.world = World(places, max_waiting, recheck_lists=recheck)

    def _one(self, data, names, *, crash=False):
        ways = [move for move in all_moves(self.world, WIDE) if move[0] in names]
        if ways:
            move = data.draw(st.sampled_from(ways))
            if crash and move[0] not in SILENT and may_crash(self.world, WIDE):
                # at a line of the turn, if it has so many, or after some of its effects
                self.world.crash_next = data.draw(st.integers(-25, -1 if is_late(self.world, move) else 2))
            make(self.world, move)
            self.world.crash_next = None

    @rule(data=st.data())
    def a_caller_does_something(self, data):
        self._one(data, CALLERS)

    @rule(data=st.data(), times=st.integers(1, 6))
    def many_come(self, data, times):
        for _ in range(times):
            self._one(data, {"admit"})

    @rule(data=st.data())
    def something_happens_to_a_client(self, data):
        self._one(data, CLIENTS)

    @rule(data=st.data())
    def a_client_opens(self, data):
        self._one(data, {"plan"})
        self._one(data, {"opened"})

    @rule(data=st.data())
    def a_list_changes(self, data):
        self._one(data, LISTS)

    @rule(data=st.data())
    def an_operator_acts(self, data):
        self._one(data, OPERATORS - {"close"})

    @precondition(lambda self: self.world.crashes < WIDE.crashes)
    @rule(data=st.data())
    def a_turn_crashes(self, data):
        self._one(data, CALLERS | CLIENTS | LISTS | OPERATORS - {"close"}, crash=True)

    @rule(data=st.data(), sure=st.integers(0, 7))
    def the_key_is_closed(self, data, sure):
        if sure == 7:
            self._one(data, {"close"})

    def teardown(self):
        if self.world is not None:
            finish(self.world)


TestMachineWalk = MachineWalk.TestCase
TestMachineWalk.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
