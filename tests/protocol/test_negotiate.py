"""The opening: every (state, input) pair against a table, and what holds on every path."""

import json

import pytest

from afpool.protocol import (
    Done,
    Era,
    Failed,
    FailureKind,
    NeedCredential,
    Negotiation,
    Respawn,
    Send,
    decode_message,
)


def result(**members):
    return decode_message(json.dumps({"jsonrpc": "2.0", "id": 1, "result": members}).encode())


def error(code, **data):
    body = {"code": code, "message": "s3cret"} | ({"data": data} if data else {})
    return decode_message(json.dumps({"jsonrpc": "2.0", "id": None, "error": body}).encode())


INFO = {"name": "srv", "version": "9"}
ANSWERS = {
    "discover": result(
        supportedVersions=["2025-11-25", "2026-07-28", "2099-01-01"],
        capabilities={"tools": {}},
        instructions="hi",
        ttlMs=7,
        cacheScope="public",
        _meta={"io.modelcontextprotocol/serverInfo": INFO},
    ),
    "discover-legacy": result(supportedVersions=["2025-11-25"], capabilities={}),
    "discover-future": result(supportedVersions=["2099-01-01"], capabilities={}),
    "initialize": result(protocolVersion="2025-06-18", capabilities={"tools": {}}, serverInfo=INFO),
    "initialize-future": result(protocolVersion="2026-07-28", capabilities={}),
    "odd": result(),
    "-32022 mutual": error(-32022, supported=["2026-07-28"]),
    "-32022 future": error(-32022, supported=["2099-01-01"]),
    "-32022 legacy": error(-32022, supported=["2025-11-25"]),
    "-32022 blank": error(-32022),
    "-32020": error(-32020),
    "-32021": error(-32021),
    "-32601": error(-32601),
    "-32602": error(-32602),
    "codeless": error(None),
}
INPUTS = {name: lambda n, m=message: n.answered(m, session_id="sid") for name, message in ANSWERS.items()}
INPUTS |= {
    "unreadable": lambda n: n.unreadable("not JSON"),
    "silent": lambda n: n.silent(),
    "ended": lambda n: n.ended(),
    "sent": lambda n: n.sent(),
    "respawned": lambda n: n.respawned(),
    "resumed": lambda n: n.resumed(),
}
HTTP_INPUTS = {
    "400 -32600": lambda n: n.answered(error(-32600), status=400, session_id="sid"),
    "404 -32601": lambda n: n.answered(error(-32601), status=404),
    "500 -32603": lambda n: n.answered(error(-32603), status=500),
    "429 -32000": lambda n: n.answered(error(-32000), status=429),
    "202": lambda n: n.answered(None, status=202, session_id="sid"),
    "302": lambda n: n.answered(None, status=302),
    "400": lambda n: n.answered(None, status=400, session_id="sid"),
    "404": lambda n: n.answered(None, status=404),
    "405": lambda n: n.answered(None, status=405),
    "408": lambda n: n.answered(None, status=408),
    "429": lambda n: n.answered(None, status=429),
    "503": lambda n: n.answered(None, status=503),
    "401": lambda n: n.answered(None, status=401),
    "403": lambda n: n.answered(error(-32600), status=403),
    "unreadable 404": lambda n: n.unreadable("not JSON", status=404),
    "unreadable 503": lambda n: n.unreadable("not JSON", status=503),
    "unreadable 401": lambda n: n.unreadable("not JSON", status=401),
    "initialize 400": lambda n: n.answered(ANSWERS["initialize"], status=400),
    "initialize bad sid": lambda n: n.answered(ANSWERS["initialize"], session_id="a b"),
    "initialize no sid": lambda n: n.answered(ANSWERS["initialize"]),
}

# How each state is reached: kind, pin, memory, inputs.
STATES = {
    "PROBE": (None, None, []),
    "PROBE (remembered)": (None, Era.STATELESS, []),
    "PROBE_AGAIN": (None, None, ["-32022 mutual"]),
    "INITIALIZE": (None, None, ["-32601"]),
    "INITIALIZE (remembered)": (None, Era.HANDSHAKE, []),
    "INITIALIZE (pinned)": ("2025-03-26", None, []),
    "PROBE_LAST": (None, None, ["-32601", "-32022 mutual"]),
    "PROBE_LAST (remembered)": (None, Era.HANDSHAKE, ["-32601"]),
    "INITIALIZED": (None, None, ["-32601", "initialize"]),
    "DONE": (None, None, ["discover"]),
    "DONE (pinned)": ("2026-07-28", None, []),
    "FAILED": (None, None, ["-32022 future"]),
    "RESPAWN": (None, None, ["silent"]),
    "CREDENTIAL": (None, None, ["401"]),
}


def reached(kind, name):
    pin, memory, path = STATES[name]
    negotiation = Negotiation(kind, pin, memory)
    for step in path:
        (INPUTS | HTTP_INPUTS)[step](negotiation)
    return negotiation


def place(negotiation):
    step = negotiation.next()
    if isinstance(step, NeedCredential):
        return "CREDENTIAL"
    return negotiation._state.name


COMMON = {"401": "CREDENTIAL", "403": "CREDENTIAL", "unreadable 401": "CREDENTIAL"}
COMMON |= dict.fromkeys(["408", "429", "503", "429 -32000", "unreadable 503"], "FAILED")
ILLEGAL = {"sent": "!", "respawned": "!", "resumed": "!"}
# Everything that a table below does not name goes to its `else`.
PROBE = COMMON | ILLEGAL | {
    "discover": "DONE",
    "-32020": "DONE",
    "-32021": "DONE",
    "-32022 mutual": "PROBE_AGAIN",
    "-32022 future": "FAILED",
    "silent": {"http": "INITIALIZE", "stream": "RESPAWN"},
    "ended": {"http": "FAILED", "stream": "RESPAWN"},
    "else": "INITIALIZE",
}  # fmt: skip
INITIALIZE = COMMON | ILLEGAL | {
    "initialize": "INITIALIZED",
    "initialize no sid": "INITIALIZED",
    "-32022 mutual": "PROBE_LAST",
    "-32022 blank": "PROBE_LAST",
    "else": "FAILED",
}  # fmt: skip
PROBE_LAST = COMMON | ILLEGAL | {"discover": "DONE", "-32020": "DONE", "-32021": "DONE", "else": "FAILED"}
DOUBT = (
    "-32020|-32021|-32601|-32602|codeless|400 -32600|404 -32601|500 -32603|202|302|400|404|405|unreadable 404"
)
NOT_OK = ["silent", "ended", "302", "400", "404", "405", "400 -32600", "404 -32601", "500 -32603"]
NOT_OK += ["unreadable 404", "initialize 400"]
TABLE = {
    "PROBE": PROBE,
    "PROBE (remembered)": PROBE,
    "PROBE_AGAIN": PROBE | {"-32022 mutual": "FAILED"},
    "INITIALIZE": INITIALIZE,
    "INITIALIZE (remembered)": INITIALIZE | dict.fromkeys(DOUBT.split("|"), "PROBE_LAST"),
    "INITIALIZE (pinned)": INITIALIZE | {"-32022 mutual": "FAILED", "-32022 blank": "FAILED"},
    "PROBE_LAST": PROBE_LAST,
    "PROBE_LAST (remembered)": PROBE_LAST,
    "INITIALIZED": COMMON
    | dict.fromkeys(NOT_OK, "FAILED")
    | {"respawned": "!", "resumed": "!", "else": "DONE"},
    "DONE": {"else": "!"},
    "DONE (pinned)": {"else": "!"},
    "FAILED": {"else": "!"},
    "RESPAWN": {"respawned": "INITIALIZE", "else": "!"},
    "CREDENTIAL": {"resumed": "PROBE", "else": "!"},
}
PAIRS = [
    (kind, state, name)
    for kind in ("http", "stream")
    for state in STATES
    for name in (INPUTS | HTTP_INPUTS if kind == "http" else INPUTS)
    if (kind, state) not in {("http", "RESPAWN"), ("stream", "CREDENTIAL")}
]


@pytest.mark.parametrize(("kind", "state"), sorted({pair[:2] for pair in PAIRS}))
def test_every_pair_of_state_and_input(kind, state):
    table = TABLE[state]
    assert set(table) - {"else"} <= set(INPUTS | HTTP_INPUTS)
    for name in (pair[2] for pair in PAIRS if pair[:2] == (kind, state)):
        negotiation = reached(kind, state)
        before = negotiation.next()
        expected = table.get(name, table["else"])
        if isinstance(expected, dict):
            expected = expected[kind]
        feed = (INPUTS | HTTP_INPUTS)[name]
        if expected == "!":
            with pytest.raises(RuntimeError):
                feed(negotiation)
            assert negotiation.next() == before, (kind, state, name)
            continue
        feed(negotiation)
        assert place(negotiation) == expected, (kind, state, name)
        assert negotiation.next() == negotiation.next()


@pytest.mark.parametrize("kind", ["http", "stream"])
def test_every_path_ends_and_keeps_the_rules(kind):
    inputs = INPUTS | HTTP_INPUTS if kind == "http" else INPUTS
    starts = [
        (None, None),
        (None, Era.HANDSHAKE),
        (None, Era.STATELESS),
        ("2025-11-25", None),
        ("2026-07-28", None),
    ]
    ends = set()
    # A path is explored once for each set of facts that later steps can depend on.
    seen = set()
    queue = [(start, ()) for start in starts]
    while queue:
        start, path = queue.pop()
        negotiation = Negotiation(kind, *start)
        methods = []
        for name in path:
            step = negotiation.next()
            if isinstance(step, Send):
                methods.append(step.method)
            inputs[name](negotiation)
        step = negotiation.next()
        facts = (start, repr(step), repr(vars(negotiation)))
        if facts in seen:
            continue
        seen.add(facts)
        assert "s3cret" not in repr(step)
        assert methods.count("initialize") <= 1 + path.count("resumed")
        assert methods.count("server/discover") <= 3 + path.count("resumed")
        if isinstance(step, Done | Failed):
            ends.add(type(step))
            if isinstance(step, Done):
                made = step.negotiated
                assert made.session_id in {None, "sid"}
                assert made.era is Era.HANDSHAKE or made.session_id is None
                assert made.session_id is None or "initialize" in methods
            continue
        assert len(path) < 6 + 2 * path.count("resumed")
        for name in inputs:
            if name == "resumed" and path.count("resumed"):
                continue
            probe = Negotiation(kind, *start)
            for earlier in path:
                inputs[earlier](probe)
            try:
                inputs[name](probe)
            except RuntimeError:
                continue
            queue.append((start, (*path, name)))
    assert ends == {Done, Failed}
    assert len(seen) > 20


def test_the_steps_of_a_stateless_server():
    negotiation = Negotiation("http", client_name="c", client_version="1", capabilities=b'{"roots":{}}')
    step = negotiation.next()
    assert (step.method, step.era, step.version, step.timeout, step.notification, step.session_id) == (
        "server/discover",
        Era.STATELESS,
        "2026-07-28",
        "probe",
        False,
        None,
    )
    meta = json.loads(step.params)["_meta"]
    assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert meta["io.modelcontextprotocol/clientInfo"] == {"name": "c", "version": "1"}
    assert meta["io.modelcontextprotocol/clientCapabilities"] == {"roots": {}}
    negotiation.answered(ANSWERS["discover"], session_id="sid")
    made = negotiation.next().negotiated
    assert (made.era, made.version, made.session_id) == (Era.STATELESS, "2026-07-28", None)
    assert (made.server_name, made.server_version, made.instructions) == ("srv", "9", "hi")
    assert (made.capabilities, made.ttl_ms, made.cache_scope, made.asked) == (
        {"tools": {}},
        7,
        "public",
        True,
    )


def test_the_steps_of_a_handshake_server():
    negotiation = Negotiation("http")
    negotiation.answered(error(-32600), status=400, session_id="not-this-one")
    step = negotiation.next()
    assert (step.method, step.era, step.version, step.timeout) == (
        "initialize",
        Era.HANDSHAKE,
        None,
        "handshake",
    )
    assert step.session_id is None
    assert json.loads(step.params)["protocolVersion"] == "2025-11-25"
    negotiation.answered(ANSWERS["initialize"], session_id="sid")
    step = negotiation.next()
    assert (step.method, step.params, step.notification) == ("notifications/initialized", None, True)
    assert (step.version, step.session_id) == ("2025-06-18", "sid")
    assert "sid" not in repr(step)
    negotiation.answered(None, status=202, session_id="nor-this-one")
    made = negotiation.next().negotiated
    assert (made.era, made.version, made.session_id) == (Era.HANDSHAKE, "2025-06-18", "sid")
    assert made.probe_hostile is False


@pytest.mark.parametrize("death", ["silent", "ended"])
def test_a_server_that_dies_of_the_probe_is_started_anew_and_remembered_so(death):
    negotiation = Negotiation("stream")
    INPUTS[death](negotiation)
    assert isinstance(negotiation.next(), Respawn)
    negotiation.respawned()
    assert negotiation.next().method == "initialize"
    negotiation.answered(ANSWERS["initialize"])
    negotiation.sent()
    assert negotiation.next().negotiated.probe_hostile is True


def test_a_credential_sends_the_same_step_again():
    negotiation = Negotiation("http")
    before = negotiation.next()
    negotiation.answered(None, status=401)
    assert negotiation.next() == NeedCredential(401)
    negotiation.resumed()
    assert negotiation.next() == before


@pytest.mark.parametrize(
    ("path", "kind", "status"),
    [
        (["503"], FailureKind.OUTAGE, 503),
        (["ended"], FailureKind.OUTAGE, None),
        (["silent", "silent"], FailureKind.OUTAGE, None),
        (["-32022 future"], FailureKind.INCOMPATIBLE, 200),
        (["-32601", "-32602"], FailureKind.REFUSED, 200),
        (["404", "404"], FailureKind.INCOMPATIBLE, 404),
        (["-32601", "initialize-future"], FailureKind.INCOMPATIBLE, 200),
        (["-32601", "initialize", "503"], FailureKind.OUTAGE, 503),
        (["-32601", "initialize", "404"], FailureKind.REFUSED, 404),
    ],
)
def test_failures_say_what_they_mean(path, kind, status):
    negotiation = Negotiation("http")
    for name in path:
        (INPUTS | HTTP_INPUTS)[name](negotiation)
    step = negotiation.next()
    assert (step.kind, step.http_status) == (kind, status)


def test_the_peers_own_error_is_kept_apart_from_our_words():
    negotiation = Negotiation("stream", "2025-11-25")
    negotiation.answered(error(-32602))
    step = negotiation.next()
    assert (step.error.code, step.error.message) == (-32602, "s3cret")
    assert step.http_status is None
    assert "s3cret" not in repr(step)


def test_pins():
    made = Negotiation("http", "2026-07-28").next().negotiated
    assert (made.era, made.version, made.asked) == (Era.STATELESS, "2026-07-28", False)
    step = Negotiation("stream", "2024-11-05").next()
    assert json.loads(step.params)["protocolVersion"] == "2024-11-05"
    with pytest.raises(ValueError, match="pinned") as caught:
        Negotiation("http", "1999-s3cret")
    assert "s3cret" not in str(caught.value)


def test_only_a_response_is_an_answer():
    negotiation = Negotiation("stream")
    with pytest.raises(ValueError, match="response"):
        negotiation.answered(decode_message(b'{"id":1,"method":"ping"}'))
    assert negotiation.next().method == "server/discover"
