"""`make explain-demo`: every way in which a call can end, and what the record says of each.

Servers are real, everything happens for its real reason, and what the record says is checked against what was
done. Exit code 1 when something is wrong, or when a code or a verdict has not been shown.
"""

from __future__ import annotations

import sys
from time import monotonic

import trio

from tests.explain import (
    acts_artifacts,
    acts_door,
    acts_ends,
    acts_getting_there,
    acts_refusals,
    acts_slow,
    acts_wire,
)
from tests.explain.play import NEVER_OF_A_CALL, Play

ACTS = (acts_refusals, acts_getting_there, acts_ends, acts_wire, acts_door, acts_slow, acts_artifacts)


async def play_all(play: Play) -> None:
    for act in ACTS:
        await act.play(play)


def main() -> int:
    began = monotonic()
    play = Play()
    trio.run(play_all, play)
    play.title("What was shown")
    print(f"{play.scenes} explanations, {len(play.shown)} endings, {monotonic() - began:.1f} s")
    for (code, verdict), why in NEVER_OF_A_CALL.items():
        print(f"not shown: {code}{f' ({verdict})' if verdict else ''}: {why}")
    for each in play.missing():
        print(f"MISSING: {each}")
    for each in play.wrong:
        print(f"WRONG: {each}")
    return 1 if play.wrong or play.missing() else 0


if __name__ == "__main__":
    sys.exit(main())
