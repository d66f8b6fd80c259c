"""Walk through every order of messages that a key's machine can get, breadth first, until nothing new is met.

Run it: `python tests/pool/explore.py [--deep] [--depth N] [--seconds S]`. It prints what was walked
through; at a violation it prints the way there and ends with status 1.

A walk is through one `Scope`: a bounded world, with so many places, askers, clients, drains and crashes at
once. In it every state is met that any order of messages, of any length, can lead to; the depth that is
printed is how far the last of them is from the empty key. In each state

* every move is made, and where a crash is due every way to crash in it: at each line of the turn that makes a
  difference (`machine_tears`), after each of its effects, and between two turns;
* every late word is said, and changes nothing (`machine_late`);
* the books are compared with the machine (`machine_books`; it says which invariants that is about);
* and afterwards it is shown that everything ends well from there, in whichever order (`machine_ends`).

`machine_states` says what is left out of a state, and why nothing is lost by it.
"""

from __future__ import annotations

import argparse
import functools
import gc
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.pool.machine_ends import Endings, at_rest, ending
from tests.pool.machine_late import EACH, say_all
from tests.pool.machine_moves import MESSAGES, Move, make, may_crash, moves, shown
from tests.pool.machine_scopes import DEEP, USUAL
from tests.pool.machine_states import Scope, State, freeze, thaw

if TYPE_CHECKING:
    from tests.pool.machine_world import World

Step = tuple[Move, int | None]


class Violation(AssertionError):
    """The way to a broken invariant."""


@attrs.define
class Walk:
    """What a walk has seen.

    Attributes:
        scope: What it went through.
        states: How many it met.
        left: How many of them it has gone on from: all of them, if it is complete.
        edges: Turns (and crashes between turns) that were made from them.
        depth: How many moves the farthest state, of those that were gone on from, is away from the beginning.
        complete: Whether no state is left that was not gone on from.
        torn: Crashes at a line of a turn.
        cut: Crashes after so many of the effects of a turn.
        between: Crashes between two turns.
        late: Late words that were said.
        endings: Moves by which something ends, in the graph of all endings.
        moves: Edges by the name of the move.
        seconds: How long it took, in time of one core.
    """

    scope: Scope
    states: int = 0
    left: int = 0
    edges: int = 0
    depth: int = 0
    complete: bool = False
    torn: int = 0
    cut: int = 0
    between: int = 0
    late: int = 0
    endings: int = 0
    moves: Counter[str] = attrs.field(factory=Counter)
    seconds: float = 0.0

    @property
    def messages(self) -> Counter[str]:
        """Turns by the message that they were about, late words included."""
        found: Counter[str] = Counter()
        for name, times in self.moves.items():
            if name in MESSAGES:
                found[MESSAGES[name]] += times
        for message in EACH:
            found[type(message).__name__] += self.left
        return found


class Explorer:
    """One walk.

    Args:
        scope: Through what.
        seen: To gather the lines of turns that are run, by file and number; it is slow.
    """

    def __init__(self, scope: Scope, seen: set[tuple[str, int]] | None = None) -> None:
        self.walk = Walk(scope)
        self._scope = scope
        self._seen = seen
        self._number: dict[State, int] = {}
        self._came: list[tuple[int, Step] | None] = []
        self._onward: list[State] = []
        self._endings = Endings()

    def run(self, depth: float = float("inf"), seconds: float = float("inf")) -> Walk:
        """Walk until nothing new is met, or to a depth, or for so many seconds of a core.

        Raises:
            Violation: An invariant does not hold; the text is the way there.
        """
        began = time.process_time()
        walk = self.walk
        collecting = gc.isenabled()
        gc.disable()  # worlds hold no cycles, and a walk makes nothing but worlds
        try:
            world = self._scope.world()
            self._met(freeze(world), None)
            level, self._onward = self._onward, []
            while level and walk.depth < depth and time.process_time() - began < seconds:
                for number, state in enumerate(level):
                    self._go_on(state)
                    if not number % 64 and time.process_time() - began > seconds:
                        self._onward = level[number + 1 :] + self._onward
                        break
                else:
                    walk.depth += 1
                level, self._onward = self._onward, []
            walk.complete = not level
            while level:  # to see that all ends well from those, too
                for state in level:
                    self._end(state)
                level, self._onward = self._onward, []
            walk.endings = len(self._endings)
            if stuck := self._endings.circle(len(self._came)):
                raise Violation(self._story(stuck[0], None, "I7: what is under way may go on for ever"))
        finally:
            if collecting:
                gc.enable()
            walk.seconds = time.process_time() - began
        return walk

    # ------------------------------------------------------------------ from one state

    def _go_on(self, state: State) -> None:
        here = thaw(state, self._scope)
        assert freeze(here) == state, "a world was not made from its state as it was"
        number = self._number[state]
        found = moves(here, self._scope)
        ends = self._ends(here, found, number)
        crashing = may_crash(here, self._scope)
        for move in found:
            if move[0] != "late_opened":
                after, leads_to = self._step(state, number, (move, None), watching=crashing)
                if move in ends:
                    self._endings.add(number, leads_to)
            if crashing and move[0] != "crash":
                if move[0] == "late_opened":
                    self._step(state, number, (move, -1))
                    continue
                for tear in after.tears:
                    self._step(state, number, (move, tear))
                for cut in range(after.effects):
                    self._step(state, number, (move, cut))
        self._say_late_words(state, number)
        self.walk.left += 1

    def _ends(self, here: Any, found: list[Move], number: int) -> list[Move]:
        ends = ending(here, found)
        if not ends:
            try:
                at_rest(here)
            except AssertionError as error:
                raise Violation(self._story(number, None, f"at the end of all: {error}")) from error
        return ends

    def _end(self, state: State) -> None:
        here = thaw(state, self._scope)
        number = self._number[state]
        for move in self._ends(here, moves(here, self._scope), number):
            _, leads_to = self._step(state, number, (move, None))
            self._endings.add(number, leads_to)

    def _step(self, state: State, number: int, step: Step, *, watching: bool = False) -> tuple[World, int]:
        move, crash = step
        world = thaw(state, self._scope)
        world.crash_next = crash
        world.watching = watching or self._seen is not None
        world.seen = self._seen
        walk = self.walk
        try:
            make(world, move)
            found = freeze(world)
            leads_to = self._number.get(found)
            if leads_to is None:
                world.check()
                leads_to = self._met(found, (number, step))
        except Exception as error:
            raise Violation(self._story(number, step, f"{type(error).__name__}: {error}")) from error
        walk.edges += 1
        walk.moves[move[0]] += 1
        if crash is None:
            walk.between += move[0] == "crash"
        elif crash < 0:
            walk.torn += 1
        else:
            walk.cut += 1
        return world, leads_to

    def _say_late_words(self, state: State, number: int) -> None:
        world = thaw(state, self._scope)
        world.seen = self._seen
        try:
            self.walk.late += say_all(world)
            if not world.kick:
                assert freeze(world) == state, "late words have changed something"
            world.check()
        except Exception as error:
            raise Violation(self._story(number, None, f"{type(error).__name__}: {error}")) from error

    # ------------------------------------------------------------------ what was met

    def _met(self, state: State, came: tuple[int, Step] | None) -> int:
        number = self._number[state] = len(self._came)
        self._came.append(came)
        self._onward.append(state)
        self.walk.states += 1
        return number

    @property
    def met(self) -> set[State]:
        """Every state that was met."""
        return set(self._number)

    def _story(self, number: int, last: Step | None, what: str) -> str:
        way = [] if last is None else [last]
        back = self._came[number]
        while back is not None:
            number, step = back
            way.append(step)
            back = self._came[number]
        lines = [f"{self._scope.name}: {what}"]
        for move, crash in reversed(way):
            at = (
                ""
                if crash is None
                else f"  crash at line {-crash}"
                if crash < 0
                else f"  crash after effect {crash}"
            )
            lines.append(f"  {shown(move)}{at}")
        return "\n".join(lines)


@functools.cache
def walked(scope: Scope) -> Explorer:
    """A walk through all of a scope, made once in a process; for tests of the machine as it is."""
    explorer = Explorer(scope)
    explorer.run()
    return explorer


def explore(scope: Scope, depth: float = float("inf"), seconds: float = float("inf")) -> Walk:
    """Walk through a scope; see `Explorer.run`."""
    return Explorer(scope).run(depth, seconds)


def main() -> int:
    """Explore and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--deep", action="store_true", help="wider worlds, too: ten minutes more of a core")
    parser.add_argument("--only", help="the one scope of this name")
    parser.add_argument("--depth", type=int, default=float("inf"), help="no more moves from the empty key")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of a core, for each walk")
    options = parser.parse_args()
    total: Counter[str] = Counter()
    messages: Counter[str] = Counter()
    for scope in (*USUAL, *(DEEP if options.deep else ())):
        if options.only not in (None, scope.name):
            continue
        try:
            walk = explore(scope, options.depth, options.seconds)
        except Violation as violation:
            print(violation)
            return 1
        whole = "complete" if walk.complete else "cut short"
        print(
            f"{scope.name}: {walk.states} states, {walk.edges} edges, depth {walk.depth}, {whole}, "
            f"{walk.seconds:.1f} s",
            flush=True,
        )
        for name in ("states", "edges", "torn", "cut", "between", "late", "endings"):
            total[name] += getattr(walk, name)
        messages += walk.messages
    print(
        f"{total['states']} states, {total['edges']} edges; crashes: {total['torn']} at a line of a turn, "
        f"{total['cut']} among its effects, {total['between']} between turns; {total['late']} late words; "
        f"{total['endings']} endings, all of which lead to rest"
    )
    print("turns by message:", ", ".join(f"{name} {times}" for name, times in messages.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
