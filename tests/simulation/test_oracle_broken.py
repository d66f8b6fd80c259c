"""A broken pool is seen: for each invariant the real pool is broken in one place, and a story shows it.

The same story on the pool as it is breaks nothing, so that it is the breakage that is seen.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import trio

from afpool._base.errors import NOT_SENT
from afpool.client import _attempt, _ends, _http_way
from afpool.pool import _call, _deadlines, _janitor, _machine, _openings, _pool, _reload, _settle
from afpool.pool import _messages as m
from afpool.protocol import _verdict
from tests.simulation import steps as s
from tests.simulation.driver import run_story
from tests.simulation.world import Manners, Person, ServerSpec, ToolSpec, Way, Weather, World

if TYPE_CHECKING:
    from collections.abc import Callable

TOOLS = (ToolSpec(name="echo"), ToolSpec(name="sleep", kind="sleep"))
PEOPLE = (
    Person(name="alice", tenant="acme", principal="alice"),
    Person(name="bob", tenant="acme", principal="bob"),
)


def story(*steps: s.Step, server: dict[str, Any] | None = None, seed: int = 3, **world: Any) -> s.Story:
    spec = ServerSpec(name="files", tools=TOOLS, **(server or {}))
    return s.Story(World(people=PEOPLE, servers=(spec,), **world), tuple(steps), seed)


def listed(who: str = "alice") -> s.ListTools:
    return s.ListTools(at=0.0, who=who)


def call(at: float, number: int, **members: Any) -> s.Call:
    members = {"who": "alice", "tool": "echo", **members}
    return s.Call(at=at, id=f"c{number}", server="files", **members)


def sleeping(at: float, number: int, seconds: float, **members: Any) -> s.Call:
    return call(at, number, tool="sleep", args={"seconds": seconds}, **members)


def rules(told: s.Story) -> set[str]:
    return {violation.split()[0] for violation in run_story(told).violations}


# ------------------------------------------------------------------------------------------ how the pool is
# broken


def no_share_is_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_call.Call, "check_share", lambda self: None)


def no_list_is_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_call.Call, "check_list", lambda self, listed, gate: None)


def no_gate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_call.Call, "ask", lambda self, stage: setattr(self, "begun", False))


def all_people_are_one(patch: pytest.MonkeyPatch) -> None:
    encode = _pool.encode_key

    def careless(server: str, identity: Any, keyed_on: Any) -> Any:
        return encode(server, type(identity)(tenant=identity.tenant, principal="somebody"), keyed_on)

    patch.setattr(_pool, "encode_key", careless)
    patch.setattr("afpool.pool._asking.encode_key", careless)


def a_lost_call_is_sent_again(patch: pytest.MonkeyPatch) -> None:
    attempt = _attempt.attempt

    async def stubborn(client: Any, caller: Any, rpc: Any, tries: Any) -> Any:
        try:
            return await attempt(client, caller, rpc, tries)
        except Exception:
            if rpc.method != "tools/call":
                raise
            return await attempt(client, caller, rpc, tries)

    patch.setattr(_attempt, "attempt", stubborn)


def no_end_of_places(patch: pytest.MonkeyPatch) -> None:
    init = _machine.KeyMachine.__init__

    def generous(self: Any, limits: Any, next_id: Any) -> None:
        init(
            self, type(limits)(max_operations=99, max_waiting=99, recheck_lists=limits.recheck_lists), next_id
        )

    patch.setattr(_machine.KeyMachine, "__init__", generous)


def places_that_nobody_gives_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_settle, "_settled", lambda actor, ticket, held, answered: None)


def credentials_in_the_log(patch: pytest.MonkeyPatch) -> None:
    headers = _attempt.credential_headers

    async def telling(client: Any, tries: Any) -> Any:
        given = await headers(client, tries)
        logging.getLogger("afpool").debug("going out with %r", given)
        return given

    patch.setattr(_attempt, "credential_headers", telling)


def no_clock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_deadlines.Deadlines, "_wake_due", lambda self, now: self._heap.clear())


def openings_side_by_side(patch: pytest.MonkeyPatch) -> None:
    open_client = _openings.open_client

    async def twice(**made: Any) -> Any:
        clients: list[Any] = []

        async def one() -> None:
            clients.append(await open_client(**made))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one)
            nursery.start_soon(one)
        clients[1].kill()
        return clients[0]

    patch.setattr(_openings, "open_client", twice)


def connections_that_nobody_closes(patch: pytest.MonkeyPatch) -> None:
    async def nothing(client: Any, deadline: float) -> str:
        client.lost = client.lost or "closed"
        return "closed"

    patch.setattr(_ends, "aclose", nothing)


def late_is_always_before(patch: pytest.MonkeyPatch) -> None:
    late = _call.Call.late

    def hopeful(self: Any) -> Any:
        error = late(self)
        error.delivery = NOT_SENT
        return error

    patch.setattr(_call.Call, "late", hopeful)


def every_error_proves_that_nothing_ran(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(_verdict._REFUSED_STATUS, 503, _verdict._REFUSED_STATUS[421])


def keys_that_nobody_forgets(patch: pytest.MonkeyPatch) -> None:
    keep = _pool.Pool.keep
    patch.setattr(_pool.Pool, "keep", lambda self, actor, keep: keep_all(self, actor))

    def keep_all(pool: Any, actor: Any) -> None:
        keep(pool, actor, keep=True)


def notices_that_nobody_hears(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("afpool.pool._hooks.ActorHooks.list_changed", lambda self, client: None)


def background_work_that_fails(patch: pytest.MonkeyPatch) -> None:
    def failing(self: Any) -> float:
        raise ZeroDivisionError

    patch.setattr(_janitor.Janitor, "_sweep", failing)


def connections_for_everybody(patch: pytest.MonkeyPatch) -> None:
    links: list[Any] = []
    make = _http_way.http_channel

    def shared(*args: Any, **more: Any) -> Any:
        channel = make(*args, **more)
        links.append(channel.link)
        channel.link = links[0]
        return channel

    patch.setattr(_http_way, "http_channel", shared)
    patch.setattr("afpool.client._open.http_channel", shared)


def bindings_that_outlive_their_configuration(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(_machine._TURNS, m.Reconfigure, lambda key, message, reply: [])
    patch.setattr(_reload, "_end_calls", lambda pool, hit, number: None)


def clients_that_outlive_their_server(patch: pytest.MonkeyPatch) -> None:
    reconfigure = _machine.clients.reconfigure
    patch.setitem(
        _machine._TURNS,
        m.Reconfigure,
        lambda key, message, reply: reconfigure(key, m.Reconfigure(message.limits, keep=True), reply),
    )
    patch.setattr(_openings.Openings, "may_evict", lambda self, actor: False)


def servers_that_stay(patch: pytest.MonkeyPatch) -> None:
    put = _reload._put

    def keep(pool: Any, wanted: Any) -> None:
        before = pool.servers
        put(pool, wanted)
        pool.servers = {**before, **pool.servers}
        pool.key_limits = _reload.limits_of(pool.limits, pool.servers)

    patch.setattr(_reload, "_put", keep)


def a_configuration_by_halves(patch: pytest.MonkeyPatch) -> None:
    wanted = _reload._wanted

    def hasty(pool: Any, servers: Any, plan: Any, *more: Any) -> Any:
        pool.plan = pool.plan if plan is ... else plan
        return wanted(pool, servers, plan, *more)

    patch.setattr(_reload, "_wanted", hasty)


# ------------------------------------------------------------------------------------------ what shows it

SLOW = Weather(connect=0.5)
BROKEN: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None], s.Story]] = {
    "I1": (
        "one key for two people",
        all_people_are_one,
        story(listed(), listed("bob"), call(1, 1), call(2, 2, who="bob")),
    ),
    "I2 share": (
        "the name changed while the call waited for a place",
        no_share_is_asked,
        story(
            listed(), sleeping(1, 1, 2), call(1.1, 2),
            s.ChangeShare(at=2, who="alice", server="files", name="other"),
            limits={"max_operations": 1},
        ),
    ),
    "I2 gate": (
        "the caller was named no more while the call connected",
        no_gate,
        story(
            listed(), sleeping(1, 1, 2), call(1.1, 2, live=True),
            s.WithdrawCaller(at=1.101, who="alice"), weather=SLOW,
        ),
    ),
    "I2 notice": (
        "the change that was announced is not known",
        notices_that_nobody_hears,
        story(listed(), s.ChangeTools(at=1, server="files"), call(2, 1)),
    ),
    "I5": (
        "the list that was asked for again shows another definition",
        no_list_is_looked_at,
        story(
            listed(), s.ChangeTools(at=1, server="files"), s.Refresh(at=2, who="alice"),
            call(4, 1, binding="first"),
        ),
    ),
    "I3": (
        "the answer got lost",
        a_lost_call_is_sent_again,
        story(listed(), s.DropNext(at=1, server="files", executed=True), call(2, 1)),
    ),
    "I4 bound": (
        "three calls, one place",
        no_end_of_places,
        story(
            listed(), sleeping(1, 1, 1), sleeping(1, 2, 1), sleeping(1, 3, 1), limits={"max_operations": 1},
            server={"kind": "websocket"},
        ),
    ),
    "I4 leak": (
        "one call",
        places_that_nobody_gives_back,
        story(listed(), call(1, 1)),
    ),
    "I6": (
        "debug logging",
        credentials_in_the_log,
        story(listed(), call(1, 1), server={"way": Way(credential="machine")}),
    ),
    "I7": (
        "a server that hangs",
        no_clock,
        story(listed(), s.HangNext(at=1, server="files"), call(2, 1, deadline=1.0)),
    ),
    "I8": (
        "a first call",
        openings_side_by_side,
        story(listed(), call(1, 1), server={"manners": Manners(slow_start=0.5)}),
    ),
    "I9": (
        "connections at the end",
        connections_that_nobody_closes,
        story(listed(), call(1, 1), s.ClosePool(at=2)),
    ),
    "I10 late": (
        "late after the first byte",
        late_is_always_before,
        story(listed(), sleeping(1, 1, 5, deadline=1.0)),
    ),
    "I10 refused": (
        "503 after the tool ran",
        every_error_proves_that_nothing_ran,
        story(listed(), s.StatusNext(at=1, server="files", status=503, executed=True), call(2, 1)),
    ),
    "I11": (
        "one key",
        keys_that_nobody_forgets,
        story(listed(), call(1, 1)),
    ),
    "I12": (
        "two people over one connection",
        connections_for_everybody,
        story(listed(), listed("bob"), call(1, 1), call(2, 2, who="bob")),
    ),
    "I2 configuration": (
        "its server was configured otherwise while it waited for a place",
        bindings_that_outlive_their_configuration,
        story(
            listed(), sleeping(1, 1, 2), call(1.1, 2), s.Reconfigure(at=2, server="files", how="clients"),
            limits={"max_operations": 1},
        ),
    ),
    "I4 removed": (
        "a server that was removed",
        clients_that_outlive_their_server,
        story(listed(), call(1, 1), s.Reconfigure(at=2, server="files", how="remove")),
    ),
    "E4 removed": (
        "a server that was removed is listed",
        servers_that_stay,
        story(
            listed(), call(1, 1), s.Reconfigure(at=2, server="files", how="remove"),
            s.ListTools(at=3, who="alice", server="files"),
        ),
    ),
    "E4 wrong": (
        "a configuration that is refused",
        a_configuration_by_halves,
        story(listed(), s.Reconfigure(at=2, server="files", how="wrong"), call(3, 1)),
    ),
    "E3": (
        "the janitor",
        background_work_that_fails,
        story(listed(), call(1, 1)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_pool_is_seen(case, monkeypatch):
    _, break_it, told = BROKEN[case]
    assert rules(told) == set(), "the pool as it is"
    break_it(monkeypatch)
    assert case.split()[0] in rules(told)


def test_every_turn_is_as_it_was_after_a_run():
    turn = _machine.KeyMachine.turn
    rules(story(listed(), s.CrashActor(at=1, who="alice", server="files", turn="Admit"), call(2, 1)))
    assert _machine.KeyMachine.turn is turn
    assert m.Admit in _machine._TURNS
