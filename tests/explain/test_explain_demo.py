"""Every way in which a call can end is played, and the record says what the scene did."""

from __future__ import annotations

import pytest

from afpool.record import Record
from tests.explain.__main__ import ACTS, play_all
from tests.explain.play import NEVER_OF_A_CALL, Play, ended, promised
from tests.pool.kit import ALICE, BOB, world

ENDING = ("refused", "identity-mismatch", "not-sent")


async def test_every_ending_is_explained_by_what_was_done() -> None:
    play = Play(lambda line: None)
    await play_all(play)
    assert play.wrong == []
    assert play.missing() == []
    assert play.scenes > 80


def test_what_is_left_out_is_there_to_be_left_out() -> None:
    codes = {code for code, _ in promised()}
    for code, delivery in NEVER_OF_A_CALL:
        assert code in codes
        assert delivery is None or (code, delivery) in promised()
    assert len(ACTS) == 7


@pytest.mark.parametrize(
    ("ending", "cause", "event", "wrong"),
    [
        (ENDING, "does not encode to", None, 0),
        (("refused", "stale-tools", "not-sent"), "does not encode to", None, 2),
        (ENDING, "something else", None, 1),
        (ENDING, "does not encode to", "opened", 2),
        (ENDING, "does not encode to", "no such event", 1),
    ],
)
async def test_a_scene_notices_what_is_wrong(
    ending: tuple[str, str, str], cause: str, event: str | None, wrong: int
) -> None:
    play = Play(lambda line: None)
    async with world() as w:
        tool = await w.tool()
        await ended(tool.call(identity=BOB, call_id="c"))
        await play.why("somebody else calls", Record(w.pool), "c", ending, cause, event=event)
    assert len(play.wrong) == wrong
    assert play.missing()


async def test_a_cause_that_is_told_and_was_not_brought_about_is_noticed() -> None:
    play = Play(lambda line: None)
    async with world() as w:
        tool = await w.tool()
        w.pool.invalidate(identity=ALICE, reason="left")
        await ended(tool.call(identity=ALICE, call_id="c"))
        await play.why("a key is revoked", Record(w.pool), "c", ("refused", "binding-changed", "not-sent"))
    assert len(play.wrong) == 1
