"""Who may attach: users, tokens, hosts, origins; and what a console's settings may say."""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afpool.console import ConsoleSettings
from afpool.console import _door as door_module
from afpool.console._door import Door, Entered, Refused, peer_uid
from afpool.console._settings import host_and_port, token_digest
from tests.console.server_kit import OPERATE, READ

LOCAL: dict[str, Any] = {"bind": "127.0.0.1:8790", "read_token": READ, "operate_token": OPERATE}


def door(**fields: Any) -> Door:
    return Door(ConsoleSettings(**{**LOCAL, **fields}))


def judged(headers: dict[str, str], *, unix: bool = False, **fields: Any) -> str:
    found = door(**fields).judge(list(headers.items()), unix=unix)
    return "in" if found is None else found.code


# ------------------------------------------------------------------ who


def test_the_user_of_the_process_and_root_may_operate_and_nobody_else() -> None:
    own = os.geteuid()
    assert door().by_user(own) == Entered("operate", f"console uid {own}")
    assert door().by_user(0) == Entered("operate", "console uid 0")
    other = door().by_user(own + 4242)
    assert isinstance(other, Refused)
    assert other.code == "wrong-user"


def test_the_kernel_says_who_is_at_the_other_end() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        assert peer_uid(ours) == os.geteuid()


def test_a_token_says_what_somebody_may_do() -> None:
    found = door()
    operates, reads = found.by_token(OPERATE, "1.2.3.4"), found.by_token(READ, "1.2.3.4")
    assert isinstance(operates, Entered)
    assert (operates.level, operates.who) == ("operate", "console token operate from 1.2.3.4")
    assert isinstance(reads, Entered)
    assert reads.level == "read"
    assert isinstance(found.by_token("", "x"), Refused)
    assert isinstance(found.by_token(READ + "x", "x"), Refused)
    assert isinstance(found.by_token("\ud800", "x"), Refused)
    assert found.refused == {"wrong-token": 3}


def test_a_token_may_be_kept_as_its_digest_only() -> None:
    digest = "sha256:" + hashlib.sha256(OPERATE.encode()).hexdigest()
    found = door(operate_token=digest)
    assert isinstance(found.by_token(OPERATE, "x"), Entered)
    assert isinstance(found.by_token(digest, "x"), Refused)  # the digest itself opens nothing


def test_a_level_without_a_token_is_nobodys() -> None:
    found = door(operate_token=None)
    for token in (OPERATE, "", "None", "\0" * 32):
        assert isinstance(found.by_token(token, "x"), Refused)


@pytest.mark.parametrize("token", [READ, OPERATE, "wrong-0123456789abcdef", ""])
def test_tokens_are_compared_in_constant_time_and_both_always(
    monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    class Watched:
        compare_digest = staticmethod(compare)

    monkeypatch.setattr(door_module, "hmac", Watched)
    door().by_token(token, "x")
    assert len(compared) == 2
    assert all(len(one) == len(other) == 32 for one, other in compared)


@pytest.mark.parametrize("value", ["", "Basic abc", OPERATE, "bearer", "Bearer ", f"Basic {OPERATE}"])
def test_a_header_that_is_no_bearer_opens_nothing(value: str) -> None:
    found = door().by_header(value, "x")
    assert isinstance(found, Refused)
    assert found.status == 401
    assert OPERATE not in found.sentence


def test_a_bearer_header_is_read_as_others_write_it() -> None:
    for value in (f"Bearer {OPERATE}", f"bearer {OPERATE}", f"BEARER  {OPERATE} "):
        assert isinstance(door().by_header(value, "x"), Entered)


def test_nothing_of_a_token_is_shown_by_what_holds_it() -> None:
    settings = ConsoleSettings(**LOCAL)
    found = Door(settings)
    for shown in (repr(settings), repr(found), repr(vars(found)), repr(found.by_token(OPERATE + "x", "y"))):
        assert READ not in shown
        assert OPERATE not in shown


# ------------------------------------------------------------------ from where


@pytest.mark.parametrize(
    ("headers", "verdict"),
    [
        ({"host": "127.0.0.1:8790"}, "in"),
        ({"host": "localhost"}, "in"),
        ({"host": "[::1]:8790"}, "in"),
        ({"host": "LOCALHOST:8790", "origin": "http://localhost:8790"}, "in"),
        ({"host": "localhost:8790", "origin": "http://localhost:3000"}, "origin-not-allowed"),
        ({"host": "localhost:8790", "origin": "http://127.0.0.1:8790"}, "origin-not-allowed"),
        ({"host": "localhost:8790", "origin": "http://evil.example"}, "origin-not-allowed"),
        ({"host": "localhost:8790", "origin": "null"}, "origin-not-allowed"),
        ({"host": "localhost:8790", "origin": ""}, "origin-not-allowed"),
        ({"host": "localhost:8790", "origin": "file://"}, "origin-not-allowed"),
        # a name of somebody's own that was made to lead here
        ({"host": "evil.example:8790", "origin": "http://evil.example:8790"}, "host-not-allowed"),
        ({"host": "evil.example"}, "host-not-allowed"),
        ({"host": "localhost.evil.example"}, "host-not-allowed"),
        ({}, "malformed-host"),
        ({"host": ""}, "malformed-host"),
        ({"host": "a b"}, "malformed-host"),
        ({"host": "localhost", "sec-fetch-site": "cross-site"}, "origin-not-allowed"),
        ({"host": "localhost", "sec-fetch-site": "same-site"}, "origin-not-allowed"),
        ({"host": "localhost", "sec-fetch-site": "none"}, "in"),
        # whoever follows a link sees the page, which shows nothing by itself
        ({"host": "localhost", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, "in"),
    ],
)
def test_hosts_and_origins_on_tcp(headers: dict[str, str], verdict: str) -> None:
    assert judged(headers) == verdict


@pytest.mark.parametrize(
    ("headers", "verdict"),
    [
        ({}, "in"),  # no browser
        ({"host": "anything at all"}, "in"),
        # a browser, by a forwarded port
        ({"host": "localhost:9000", "origin": "http://localhost:9000"}, "in"),
        ({"host": "localhost:9000", "origin": "http://evil.example"}, "origin-not-allowed"),
        ({"host": "evil.example", "origin": "http://evil.example"}, "host-not-allowed"),
        ({"host": "evil.example", "sec-fetch-site": "same-origin"}, "host-not-allowed"),
    ],
)
def test_hosts_and_origins_on_a_unix_socket(headers: dict[str, str], verdict: str) -> None:
    assert judged(headers, unix=True) == verdict


def test_hosts_and_origins_that_were_allowed() -> None:
    fields: dict[str, Any] = {
        "bind": "0.0.0.0:8790",
        "allowed_hosts": ["ops.example", "10.0.0.7:8790"],
        "allowed_origins": ["https://dash.example"],
    }
    assert judged({"host": "ops.example"}, **fields) == "in"
    assert judged({"host": "ops.example:8790", "origin": "http://ops.example:8790"}, **fields) == "in"
    assert judged({"host": "ops.example", "origin": "https://ops.example"}, **fields) == "in"  # TLS before us
    assert judged({"host": "ops.example", "origin": "https://dash.example"}, **fields) == "in"
    assert judged({"host": "ops.example", "origin": "http://dash.example"}, **fields) == "origin-not-allowed"
    assert judged({"host": "10.0.0.7:8790"}, **fields) == "in"
    assert judged({"host": "10.0.0.7"}, **fields) == "host-not-allowed"
    assert judged({"host": "localhost"}, **fields) == "host-not-allowed"


@pytest.mark.parametrize("name", ["host", "origin", "authorization", "sec-websocket-key", "upgrade"])
def test_a_header_that_decides_something_comes_once(name: str) -> None:
    found = door().judge([("host", "localhost"), (name, "localhost"), (name, "localhost")], unix=False)
    assert found is not None
    assert found.code == "repeated-header"


@given(
    st.lists(st.tuples(st.sampled_from(["host", "origin", "sec-fetch-site", "cookie"]), st.text(max_size=20)))
)
def test_whatever_stands_in_a_head_is_judged_and_never_quoted(headers: list[tuple[str, str]]) -> None:
    for unix in (False, True):
        found = door().judge(headers, unix=unix)
        if found is None:
            continue
        assert found.status in (400, 403, 421)
        for _, value in headers:
            assert len(value) < 4 or value not in found.sentence


# ------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": ""}, "name"),
        ({"name": "../x"}, "name"),
        ({"name": "a" * 41}, "name"),
        ({"unix": False}, "listens nowhere"),
        ({"bind": "127.0.0.1:8790"}, "needs `read_token`"),
        ({"bind": "0.0.0.0:8790", "read_token": READ}, "allowed_hosts"),
        ({"bind": "ops.example:8790", "read_token": READ}, "allowed_hosts"),
        ({"bind": "nonsense", "read_token": READ}, "host:port"),
        ({"bind": "127.0.0.1:70000", "read_token": READ}, "host:port"),
        ({"read_token": "short"}, "less than 16"),
        ({"read_token": ""}, "less than 16"),
        ({"read_token": "with a space in it, 16 and more"}, "visible ASCII"),
        ({"read_token": "sha256:abc"}, "digest"),
        ({"operate_token": "sha256:" + "A" * 64}, "digest"),
        ({"read_token": READ, "operate_token": READ}, "the same"),
        ({"allowed_hosts": ["http://x"]}, "allowed_hosts"),
        ({"allowed_origins": ["null"]}, "allowed_origins"),
    ],
)
def test_settings_that_cannot_be(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        ConsoleSettings(**fields)
    for token in (READ, "with a space in it"):
        assert token not in str(refused.value)


def test_settings_of_the_same_tokens_are_equal() -> None:
    assert ConsoleSettings(**LOCAL) == ConsoleSettings(**LOCAL)
    assert ConsoleSettings(**LOCAL) != ConsoleSettings(**{**LOCAL, "read_token": READ + "x"})
    hashed = "sha256:" + token_digest(ConsoleSettings(**LOCAL).read_token).hex()  # type: ignore[arg-type]
    assert ConsoleSettings(**LOCAL) == ConsoleSettings(**{**LOCAL, "read_token": hashed})


@given(st.text(max_size=30))
def test_any_text_is_a_host_and_port_or_none(text: str) -> None:
    found = host_and_port(text)
    if found is not None:
        assert 0 <= found[1] <= 65535
        assert found[0]
