"""A service that is broken in one place is seen: for each rule, and a story that shows it.

The same story on the service as it is breaks nothing, so that it is the breakage that is seen.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from afpool import Identity
from afpool.serve import _health, _http, _kernel, _proof, _service, _sessions, _streams, _tokens
from tests.simulation import steps as s
from tests.simulation.driver import run_story
from tests.simulation.making import Swarm
from tests.simulation.making_service import Scene, with_service
from tests.simulation.world import Person, ServerSpec, World
from tests.simulation.world_service import BehindSpec, ServiceSpec, TokenSpec

if TYPE_CHECKING:
    from collections.abc import Callable

TOKENS = (
    TokenSpec(name="ann-1", who="ann"),
    TokenSpec(name="ben-1", who="ben"),
    TokenSpec(name="half", who="ann", strange="half"),
)


def story(*steps: s.Step, **members: Any) -> s.Story:
    members.setdefault("behind", (BehindSpec(name="desk", tools=("echo", "sleep", "progress", "ask")),))
    service = ServiceSpec(tokens=TOKENS, **members)
    world = World(
        people=(Person(name="alice", tenant="acme", principal="alice"),),
        servers=(ServerSpec(name="files"),),
        service=service,
    )
    return s.Story(world, tuple(sorted(steps, key=lambda step: step.at)), 3)


def opened(client: str, token: str, **members: Any) -> s.ServeOpen:
    return s.ServeOpen(at=0.0, client=client, token=token, **members)


def ask(at: float, number: int, client: str = "k1", **members: Any) -> s.ServeAsk:
    return s.ServeAsk(at=at, id=f"n{number}", client=client, **members)


def sleeping(at: float, number: int, seconds: float, **members: Any) -> s.ServeAsk:
    return ask(at, number, tool="sleep", args={"seconds": seconds}, **members)


def hear(at: float, number: int, client: str = "k1", **members: Any) -> s.ServeHear:
    return s.ServeHear(at=at, id=f"n{number}", client=client, **members)


def rules(told: s.Story) -> set[str]:
    return {violation.split()[0] for violation in run_story(told).violations}


# ------------------------------------------------------------------------------------------ how it is broken


def everybody_is_ann(patch: pytest.MonkeyPatch) -> None:
    prove = _tokens.StaticTokens.prove

    def careless(self: Any, token: Any) -> Any:
        proven = prove(self, token)
        if isinstance(proven, str):
            return proven
        return attrs.evolve(proven, identity=Identity(tenant="north", principal="ann"))

    patch.setattr(_tokens.StaticTokens, "prove", careless)


def any_token_proves(patch: pytest.MonkeyPatch) -> None:
    def believing(self: Any, token: Any) -> Any:
        entry = next(iter(self._entries.values()))
        return _proof.Proven(entry.identity, "token", None, still_holds=lambda: True)

    patch.setattr(_tokens.StaticTokens, "prove", believing)


def no_token_proves(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_tokens.StaticTokens, "prove", lambda self, token: "no")


def tokens_hold_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_tokens.StaticTokens, "_holds", lambda self, entry: True)
    patch.setattr(_proof.Proof, "_by_token", _judged_anew)


async def _judged_anew(self: Any, sources: Any, token: Any) -> Any:
    return await self._judge(sources, token)


def sessions_are_anybodys(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_sessions.Sessions, "find", lambda self, name, identity: self._all.get(name))


def others_hear_what_is_said(patch: pytest.MonkeyPatch) -> None:
    replies: list[Any] = []
    init, tell = _streams.Reply.__init__, _streams.Reply.tell

    def noted(self: Any, *args: Any, **more: Any) -> None:
        init(self, *args, **more)
        replies.append(self)

    def loud(self: Any, message: bytes, *, droppable: bool) -> None:
        for reply in replies:
            tell(reply, message, droppable=droppable)

    patch.setattr(_streams.Reply, "__init__", noted)
    patch.setattr(_streams.Reply, "tell", loud)


def answers_that_are_given_twice(patch: pytest.MonkeyPatch) -> None:
    answer = _streams.Reply.answer

    async def twice(self: Any, status: int, body: bytes, headers: Any = ()) -> None:
        await answer(self, status, body, headers)
        await answer(self, status, body, headers)

    patch.setattr(_streams.Reply, "answer", twice)


def answers_that_nobody_gives(patch: pytest.MonkeyPatch) -> None:
    async def silent(self: Any, asked: Any) -> Any:
        await trio.sleep_forever()

    patch.setattr(_kernel.Kernel, "_list", lambda self, asked, modern: silent(self, asked))


def nobody_looks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_service.Service, "_sweep", lambda self, now: None)
    patch.setattr(_tokens.StaticTokens, "watch", _never)


async def _never(self: Any) -> None:
    await trio.sleep_forever()


def tokens_in_the_log(patch: pytest.MonkeyPatch) -> None:
    prove = _tokens.StaticTokens.prove

    def telling(self: Any, token: Any) -> Any:
        logging.getLogger("afpool.serve").info("proving %s", token.reveal())
        return prove(self, token)

    patch.setattr(_tokens.StaticTokens, "prove", telling)


def draining_is_nobodys_business(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_health.Health, "draining", property(lambda self: False))


def what_went_is_offered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("afpool.runtime.Runtime.reconfigure", lambda self, config, replan=None: None)


def what_is_left_waits_for_ever(patch: pytest.MonkeyPatch) -> None:
    def eager(self: Any) -> None:
        if not self._writing:
            self._writing = True
            self._nursery.start_soon(self._write)

    patch.setattr(_streams.Reply, "_write_soon", eager)
    patch.setattr(_http.HttpEndpoint, "end", lambda self: None)


TWO = (opened("k1", "ann-1"), opened("k2", "ben-1"))
REVOKED = story(
    *TWO, sleeping(1, 1, 6), s.RevokeToken(at=1.2, token="ann-1"), ask(2, 2), hear(0.5, 3, seconds=20.0)
)
WAITED = story(
    opened("k1", "ann-1"), sleeping(1, 1, 3), sleeping(1.01, 2, 3), s.RevokeToken(at=1.2, token="ann-1"),
    pool={"max_operations": 1},
)  # fmt: skip
LEFT = story(
    opened("k1", "ann-1", era="stateless"),
    ask(1, 1, tool="progress", args={"steps": 8, "seconds": 0.3}),
    s.DrainService(at=1.4, seconds=0.1),
)
BEHIND = (BehindSpec(name="desk"), BehindSpec(name="shop"))

BROKEN: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None], s.Story]] = {
    "everybody is ann": ("N1", everybody_is_ann, story(*TWO, ask(1, 1), ask(1, 2, "k2"))),
    "others hear what is said": (
        "N2",
        others_hear_what_is_said,
        story(
            *TWO,
            ask(1, 1, tool="progress", args={"steps": 3, "seconds": 0.2}),
            sleeping(1, 2, 2, client="k2"),
        ),
    ),
    "any token proves somebody": ("N3", any_token_proves, story(*TWO, ask(1, 1, token="half"))),
    "no token proves anybody": ("N3", no_token_proves, story(*TWO)),
    "tokens hold for ever": ("N4", tokens_hold_for_ever, WAITED),
    "answers are given twice": ("N5", answers_that_are_given_twice, story(*TWO, ask(1, 1))),
    "nobody answers": ("N5", answers_that_nobody_gives, story(*TWO)),
    "nobody looks after tokens": ("N6", nobody_looks, REVOKED),
    "what is left waits for ever": ("N5", what_is_left_waits_for_ever, LEFT),
    "sessions are anybody's": (
        "N7",
        sessions_are_anybodys,
        story(*TWO, ask(1, 1, "k2", session_of="k1"), ask(2, 2, "k1", token="ben-1")),
    ),
    "tokens stand in the log": ("N8", tokens_in_the_log, story(*TWO)),
    "draining is nobody's business": (
        "N9",
        draining_is_nobodys_business,
        story(*TWO, sleeping(1, 1, 3), s.DrainService(at=1.2, seconds=4), ask(2, 2, "k2")),
    ),
    "what went is offered": (
        "N9",
        what_went_is_offered,
        story(
            *TWO, s.ReloadService(at=1, how="remove", server="shop"), ask(2, 1, what="list"), behind=BEHIND
        ),
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_service_is_seen(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, breaks, told = BROKEN[what]
    assert rules(told) == set()
    breaks(monkeypatch)
    assert rule in rules(told)


def test_a_story_with_a_service_is_data_and_the_same_run() -> None:
    told = next(
        made for seed in range(60) if (made := with_service(story_of(seed))).world.service is not None
    )
    again = s.Story.from_json(told.to_json())
    assert again == told
    assert run_story(told).digest == run_story(again).digest


def story_of(seed: int) -> s.Story:
    world = World(
        people=(Person(name="alice", tenant="acme", principal="alice"),), servers=(ServerSpec(name="files"),)
    )
    return s.Story(world, (), seed)


def test_every_kind_of_step_of_a_service_is_made() -> None:
    kinds = {type(step) for seed in range(60) for step in Scene(Swarm(seed)).steps()}
    assert kinds == {
        s.ServeOpen, s.ServeAsk, s.ServeHear, s.ServeEnd, s.RevokeToken, s.ReloadService, s.ChangeBehind,
        s.CutBehind, s.DrainService,
    }  # fmt: skip
