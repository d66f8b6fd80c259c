"""Parts of the service by themselves: what is no message, what an answer may be, sessions, their counts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from afpool import Identity, Overloaded
from afpool.config import ServeLimits
from afpool.serve import DoorLimits, Proven, RequestHead
from afpool.serve._http_parts import accepts
from afpool.serve._rpc import RpcError, error_message, read_message, result_message
from afpool.serve._sessions import Sessions
from afpool.serve._streams import _DROP_BEYOND, _MOST, EventChannel

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
MARK = "sEcReT"


def read(body):
    """The message, or the refusal."""
    try:
        return read_message(body), None
    except RpcError as error:
        return None, error


@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")) | JSON.map(json.dumps))
def test_what_is_read_is_a_message_or_is_refused(body):
    message, refusal = read(body)
    if refusal is not None:
        assert refusal.code in (-32700, -32600, -32602)
        assert json.loads(error_message(b"", refusal))["id"] is None
    else:
        assert isinstance(message.params, dict)
        assert message.method is not None or message.id is not None


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "jsonrpc": st.just("2.0") | st.just(MARK),
            "id": st.integers()
            | st.text(max_size=5)
            | st.none()
            | st.booleans()
            | st.floats(allow_nan=False),
            "method": st.just("tools/list") | st.just(MARK) | st.integers(),
            "params": st.just({"a": MARK}) | st.just([MARK]) | st.none(),
            "result": st.just({"a": MARK}),
            "error": st.just({"code": 1, "message": MARK}),
        },
    )
)
def test_a_refusal_repeats_nothing_and_an_id_comes_back_as_it_was(document):
    message, refusal = read(json.dumps(document))
    if refusal is not None:
        assert MARK not in refusal.message
        assert MARK not in json.dumps(refusal.data)
        return
    assert document["jsonrpc"] == "2.0"
    if message.is_request:
        answered = json.loads(result_message(message.id_raw, b"{}"))
        assert answered["id"] == document["id"]
        assert type(answered["id"]) is type(document["id"])
    if message.method is None:
        assert ("result" in document) != ("error" in document)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], (True, True)),
        (["application/json, text/event-stream"], (True, True)),
        (["Application/JSON;q=0.9"], (True, False)),
        (["text/*"], (False, True)),
        (["application/*", "text/event-stream"], (True, True)),
        (["*/*;q=0.1"], (True, True)),
        (["text/html, image/png"], (False, False)),
        ([""], (False, False)),
    ],
)
def test_what_an_answer_may_be(values, expected):
    head = RequestHead("POST", "/mcp", tuple((b"accept", value.encode()) for value in values))
    assert accepts(head) == expected


async def test_a_client_that_does_not_read_loses_what_may_be_lost_and_then_its_connection():
    killed = []

    class Connection:
        def kill(self):
            killed.append(True)

    channel = EventChannel(Proven(Identity("a", "b"), "test"), Connection())
    for _ in range(_MOST):
        channel.announce(b"{}")
    assert killed == []
    channel.announce(b"{}")
    assert killed == [True]
    assert len(channel._said) == _MOST
    assert _DROP_BEYOND < _MOST


PEOPLE = [Identity(tenant, name) for tenant in ("t", "u") for name in ("a", "b")]


class SessionsMachine(RuleBasedStateMachine):
    """Whatever comes and goes, what is counted is what is there, and what is found is one's own."""

    @initialize()
    def begin(self):
        self.clock = [0.0]
        self.limits = DoorLimits(ServeLimits(sessions=6, sessions_per_principal=2), now=lambda: self.clock[0])
        self.sessions = Sessions(self.limits, idle_for=10)
        self.open = []
        self.ended = []

    @rule(who=st.sampled_from(PEOPLE), named=st.booleans())
    def opens(self, who, named):
        try:
            session = self.sessions.open(Proven(who, "test"), None, named=named)
        except Overloaded:
            return
        session.used_at = self.clock[0]
        self.open.append(session)

    @rule(number=st.integers(0, 5))
    def ends(self, number):
        if self.open:
            session = self.open[number % len(self.open)]
            self.sessions.remove(session)
            self.sessions.remove(session)

    @rule(number=st.integers(0, 5))
    def is_used(self, number):
        if self.open:
            self.open[number % len(self.open)].used_at = self.clock[0]

    @rule(seconds=st.floats(0.1, 8))
    def time_passes(self, seconds):
        self.clock[0] += seconds
        self.sessions.sweep(self.clock[0])

    @rule()
    def limits_change(self):
        self.limits.reconfigure(ServeLimits(sessions=6, sessions_per_principal=2))

    @invariant()
    def counts_what_is_there(self):
        there = set(self.sessions)
        self.open = [session for session in self.open if session in there]
        assert there == set(self.open)
        assert self.limits.statistics().sessions == len(self.sessions) == len(there)
        for who in PEOPLE:
            own = [session for session in there if session.identity == who]
            assert len(own) <= 2
            for session in own:
                if session.id:
                    assert self.sessions.find(session.id, who) is session
                    assert all(
                        self.sessions.find(session.id, other) is None for other in PEOPLE if other != who
                    )
                    assert self.clock[0] - session.used_at <= 10


@pytest.fixture
def _session_clock(monkeypatch):
    monkeypatch.setattr("afpool.serve._sessions.trio.current_time", lambda: 0.0)


@pytest.mark.usefixtures("_session_clock")
class TestSessions(SessionsMachine.TestCase):
    pass
