"""Whatever is sent in whatever order: every ask is answered, in order, and nothing stays behind."""

from __future__ import annotations

from typing import Any

import attrs
import outcome
from hypothesis import given
from hypothesis import strategies as st

from actors import (
    Actor,
    ActorCrashed,
    ActorStopped,
    Answer,
    MailboxFull,
    Refusal,
    Request,
    Restart,
    Undelivered,
)
from actors.testing import assert_quiescent


@attrs.frozen
class Req(Request[int]):
    n: int
    kind: str


@attrs.frozen
class Ctl:
    kind: str
    epoch: int | None = None


class Model:
    """Answers now, keeps, refuses, crashes, answers the oldest, or sends to itself."""

    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen
        self.kept: list[tuple[int, Any]] = []

    def turn(self, message: Any, reply: Any, /) -> Any:
        self.seen.append(message)
        match message.kind:
            case "now":
                return [Answer(reply, message.n)]
            case "keep":
                self.kept.append((message.n, reply))
            case "refuse":
                raise Refusal
            case "crash":
                raise ZeroDivisionError
            case "give" if self.kept:
                n, kept = self.kept.pop(0)
                return [Answer(kept, n)]
            case "give-crash" if self.kept:
                n, kept = self.kept.pop(0)
                return [Answer(kept, n), "raise", "unreachable"]
            case "echo":
                return ["echo", "post"]
        return None

    def snapshot(self) -> dict[str, object]:
        return {"kept": len(self.kept)}


steps = st.lists(
    st.one_of(
        st.tuples(st.just("post"), st.sampled_from(["now", "keep", "refuse", "crash"])),
        st.tuples(st.just("tell"), st.sampled_from(["give", "give-crash", "echo", "refuse", "crash"])),
        st.tuples(st.just("tell-old"), st.sampled_from(["give", "crash"])),
        st.tuples(st.just("abandon"), st.integers(0, 30)),
        st.tuples(st.just("fail"), st.integers(0, 30)),
        st.tuples(st.sampled_from(["pause", "resume", "hold", "release"]), st.none()),
    ),
    max_size=40,
)


@given(steps, st.integers(0, 4), st.integers(1, 5), st.booleans())
def test_every_ask_is_answered(plan: list[Any], intensity: int, limit: int, observed: bool) -> None:
    seen: list[Any] = []
    performed: list[Any] = []
    posted: list[tuple[Req, Any]] = []
    accepted: set[int] = set()
    outside: set[int] = set()

    def perform(actor: Actor[Model], effect: Any) -> None:
        performed.append(effect)
        assert effect != "unreachable"
        if effect == "raise":
            raise ZeroDivisionError
        if effect == "echo":
            actor.tell(Ctl("give"))
        if effect == "post":
            post(Req(1000 + len(posted), "now"))

    def post(request: Req) -> None:
        before = actor.info()
        end = outcome.capture(actor.post, request)
        if isinstance(end, outcome.Value):
            posted.append((request, end.value))
            accepted.add(request.n)
        elif isinstance(end.error, MailboxFull):
            assert before.requests == limit == actor.info().requests
        else:
            assert type(end.error) is ActorCrashed
            assert end.error.final
            assert before.phase == "crashed"

    actor: Actor[Model] = Actor(
        "model",
        Model(seen),
        perform=perform,
        successor=lambda _actor, _error: Model(seen),
        restart=Restart(intensity=intensity, within=1.0),
        mailbox_limit=limit,
        clock=lambda: 0.0,
    )
    actor.observe(observed)
    for number, (what, how) in enumerate(plan):
        match what:
            case "post":
                post(Req(number, how))
            case "tell":
                actor.tell(Ctl(how))
            case "tell-old":
                actor.tell(Ctl(how, epoch=actor.epoch - 1))
            case "abandon" if how < len(posted) and posted[how][1].abandon():
                outside.add(posted[how][0].n)
            case "fail" if how < len(posted) and posted[how][1].fail(TimeoutError()):
                outside.add(posted[how][0].n)
            case "pause" | "resume" | "hold" | "release":
                getattr(actor, what)()
        info = actor.info()
        assert not info.in_turn
        assert info.control == 0
        assert info.requests <= limit
        assert info.requests == 0 or info.phase in {"paused", "held"}
        assert info.requests + info.deferred == sum(not r.done and not r.abandoned for _, r in posted)
    actor.stop()

    for request, reply in posted:
        assert reply.done or reply.abandoned
        owed = (TimeoutError, RuntimeError) if request.n in outside else (Refusal, ActorCrashed, ActorStopped)
        end = outcome.capture(reply.result)
        if isinstance(end, outcome.Error):
            assert type(end.error) in owed
        else:
            assert end.value == request.n
            assert request.n not in outside
    order = [m.n for m in seen if type(m) is Req]
    assert order == sorted(order, key=[r.n for r, _ in posted].index)
    assert set(order) <= accepted
    assert not any(type(m) is Ctl and m.epoch is not None for m in seen)
    assert all(type(e) is not Undelivered or e.reply.abandoned or e.reply.done for e in performed)
    assert_quiescent(actor)
