"""Secrets are read by name and by nothing else."""

from __future__ import annotations

import base64
import copy
import dataclasses
import json
import pickle
import pprint
import traceback

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from afpool._base.credential import (
    ApiKey,
    Credential,
    CredentialProvider,
    CredentialRequest,
    CredentialRequirement,
    Issued,
    NeedsAuthorization,
    ScriptedCredentials,
    Secret,
    StaticCredentials,
    api_key,
    basic,
    bearer,
    header_map,
)
from afpool._base.identity import Identity

CANARY = "canary-7f3a"
ENCODED = base64.b64encode(f"alice:{CANARY}".encode()).decode()


class Custom(Credential):
    __slots__ = ("_parts",)

    kind = "custom-pair"

    def __init__(self, left, right):
        self._parts = (Secret(left), Secret(right))

    def to_headers(self):
        return [("x-pair", ":".join(part.reveal() for part in self._parts))]

    def secrets(self):
        return tuple(part.reveal() for part in self._parts)


@dataclasses.dataclass
class Holder:
    held: object


KINDS = {
    "secret": lambda: Secret(CANARY),
    "bearer": lambda: bearer(CANARY),
    "api_key": lambda: api_key(CANARY),
    "basic": lambda: basic("alice", CANARY),
    "headers": lambda: header_map({"x-token": CANARY}),
    "custom": lambda: Custom(CANARY, CANARY),
    "issued": lambda: Issued(bearer(CANARY), 5.0),
    "static": lambda: StaticCredentials({"search": CANARY, "mail": bearer(CANARY)}),
    "scripted": lambda: ScriptedCredentials([bearer(CANARY)]),
}


def walk(value):
    """Everything that slot and attribute walkers find."""
    found = [repr(value)]
    for cls in type(value).__mro__:
        for slot in getattr(cls, "__slots__", ()):
            inner = getattr(value, slot, None)
            found.append(repr(inner))
            if isinstance(inner, Secret | Credential):
                found += walk(inner)
    return found


class TestCanary:
    @pytest.mark.parametrize("kind", KINDS)
    def test_absent_from_every_text(self, kind):
        held = KINDS[kind]()
        texts = [
            repr(held),
            str(held),
            f"{held}",
            f"{held!r:>40}",
            "{:}".format(held),  # noqa: UP032 - the other door to __format__
            "%s %r" % (held, held),  # noqa: UP031 - likewise
            pprint.pformat([held, {"a": held}]),
            repr(Holder(held)),
            *walk(held),
        ]
        if attrs.has(type(held)):
            texts += [repr(attrs.asdict(held)), repr(attrs.astuple(held))]
        for text in texts:
            assert CANARY not in text
            assert ENCODED not in text

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize(
        "attempt",
        [copy.deepcopy, pickle.dumps, json.dumps, lambda held: dataclasses.asdict(Holder(held))],
        ids=["deepcopy", "pickle", "json", "dataclasses"],
    )
    def test_never_copied_or_stored(self, kind, attempt):
        with pytest.raises(TypeError) as refused:
            attempt(KINDS[kind]())
        assert CANARY not in str(refused.value)

    @pytest.mark.parametrize("kind", ["secret", "bearer", "api_key", "basic", "headers", "custom"])
    def test_nothing_to_walk(self, kind):
        held = KINDS[kind]()
        for attempt in (
            copy.copy,
            vars,
            lambda held: json.dumps(held, default=vars),
            type(held).__getstate__,
        ):
            with pytest.raises(TypeError) as refused:
                attempt(held)
            assert CANARY not in str(refused.value)
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            with pytest.raises(TypeError, match="never copied"):
                pickle.dumps(held, protocol)
        with pytest.raises(AttributeError):
            held.surprise = 1

    @pytest.mark.parametrize("kind", KINDS)
    def test_json_with_a_lenient_default(self, kind):
        assert CANARY not in json.dumps({"held": KINDS[kind]()}, default=repr)

    @pytest.mark.parametrize("kind", KINDS)
    def test_absent_from_tracebacks_with_locals(self, kind):
        held = KINDS[kind]()

        def fail(argument):
            local = [argument]
            raise RuntimeError(f"with {argument}", local)

        with pytest.raises(RuntimeError) as failed:
            fail(held)
        assert CANARY not in traceback_with_locals(failed.value)

    @pytest.mark.parametrize(
        "bad", [f"{CANARY}\n", f"\x00{CANARY}", f"{CANARY}\u20ac", f" {CANARY}", CANARY.encode()]
    )
    @pytest.mark.parametrize(
        "make",
        [
            bearer,
            api_key,
            lambda value: header_map({"x-a": "fine", "x-token": value}),
            lambda value: basic("alice", value) and bearer(value),
            lambda value: StaticCredentials({"search": value}),
        ],
        ids=["bearer", "api_key", "headers", "basic", "static"],
    )
    def test_refusals_show_it_nowhere(self, make, bad):
        with pytest.raises((ValueError, TypeError)) as refused:
            make(bad)
        assert CANARY not in str(refused.value)
        assert_frames_of_ours_are_clean(refused.value)
        assert refused.value.__context__ is None

    def test_what_is_no_string_is_forgotten_first(self):
        with pytest.raises(TypeError, match="not bytes") as refused:
            Secret(CANARY.encode())
        assert_frames_of_ours_are_clean(refused.value)


def assert_frames_of_ours_are_clean(error):
    # The callers' own frames hold what they passed; those of the package must not.
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    ours = [repr(frame.locals) for frame in shown.stack if "/afpool/_base/" in frame.filename]
    assert ours
    assert not any(CANARY in line for line in ours)


def traceback_with_locals(error):
    return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())


class TestKinds:
    def test_headers_and_names(self):
        token, key, pair = bearer("t"), api_key("k", "X-Key"), basic("alice", "p:w\u00e9")
        several = header_map({"X-A": "1", "Authorization": "Bearer abc"})
        assert token.to_headers() == [("authorization", "Bearer t")]
        assert (token.kind, token.token, token.secrets()) == ("bearer", "t", ("t",))
        assert key.to_headers() == [("X-Key", "k")]
        assert (key.kind, key.key, key.header_name, key.secrets()) == ("api_key", "k", "X-Key", ("k",))
        assert api_key("k").header_name == "x-api-key"
        encoded = base64.b64encode("alice:p:w\u00e9".encode()).decode()
        assert pair.to_headers() == [("authorization", f"Basic {encoded}")]
        assert (pair.kind, pair.username, pair.password) == ("basic", "alice", "p:w\u00e9")
        assert pair.secrets() == (encoded, "p:w\u00e9")
        assert several.to_headers() == [("X-A", "1"), ("Authorization", "Bearer abc")]
        assert several.headers == dict(several.to_headers())
        assert (several.kind, several.secrets()) == ("headers", ("1", "Bearer abc", "abc"))
        custom = Custom("a", "b")
        assert (custom.to_headers(), custom.secrets()) == ([("x-pair", "a:b")], ("a", "b"))
        assert repr(custom) == "<credential custom-pair>"

    def test_a_secret_passes_through(self):
        held = Secret("t")
        assert bearer(held).token == api_key(held).key == basic("a", held).password == "t"
        assert header_map({"x": held}).headers == {"x": "t"}
        assert Secret(held).reveal() == "t"
        assert held != Secret("t")

    def test_the_mapping_is_copied(self):
        given_map = {"x-a": "1"}
        held = header_map(given_map)
        given_map["x-a"] = "2"
        held.headers["x-a"] = "3"
        assert held.headers == {"x-a": "1"}

    def test_nothing_is_assigned(self):
        for held, name in ((bearer("t"), "token"), (api_key("k"), "key"), (basic("a", "p"), "password")):
            with pytest.raises(AttributeError):
                setattr(held, name, "other")

    @pytest.mark.parametrize("name", ["", "a b", "a:b", "a\n", "\u00e9", "x\r\ny: z"])
    def test_header_names(self, name):
        with pytest.raises(ValueError, match="token"):
            api_key("k", name)
        with pytest.raises(ValueError, match="token"):
            header_map({name: "v"})

    def test_other_refusals(self):
        with pytest.raises(ValueError, match="twice"):
            header_map({"X-A": "1", "x-a": "2"})
        for user, password in (("a:b", "p"), ("a\n", "p"), ("a", "p\x7f"), ("a", "\ud800")):
            with pytest.raises(ValueError, match="user name"):
                basic(user, password)
        with pytest.raises(ValueError, match="empty"):
            bearer("")
        with pytest.raises(TypeError, match="string"):
            Secret(5)

    @given(st.text())
    def test_a_header_value_is_writable_or_refused(self, value):
        try:
            held = bearer(value)
        except ValueError:
            return
        ((_, written),) = held.to_headers()
        data = written.encode("latin-1")
        assert not any(byte < 0x20 or byte == 0x7F for byte in data)
        assert data == data.strip(b" \t")


class TestRequests:
    def test_the_conversation_is_cut_off(self):
        request = CredentialRequest("search", ["a"], identity=Identity("acme", "alice", "c1"))
        assert request.identity == Identity("acme", "alice")
        assert request.scopes == ("a",)
        assert (request.mode, request.reason, request.rejected) == ("machine", "call", False)
        assert "alice" not in repr(request)
        assert CredentialRequest("search").identity == Identity()

    def test_refusals(self):
        for wrong in ({"scopes": "read"}, {"scopes": [1]}):
            with pytest.raises(TypeError, match="scopes"):
                CredentialRequest("s", **wrong)
            with pytest.raises(TypeError, match="scopes"):
                CredentialRequirement("s", **wrong)
        for wrong in ({"mode": "robot"}, {"reason": "why"}):
            with pytest.raises(ValueError, match="must be in"):
                CredentialRequest("s", **wrong)
        with pytest.raises(ValueError, match="must be in"):
            CredentialRequirement("s", mode="robot")

    def test_a_requirement_is_a_value(self):
        assert CredentialRequirement("s", ["a"]) == CredentialRequirement("s", ("a",))
        assert len({CredentialRequirement("s"), CredentialRequirement("s"), CredentialRequirement("t")}) == 2

    def test_the_url_is_not_shown(self):
        needed = NeedsAuthorization("https://auth.example/consent?state=canary", "session-1")
        assert "canary" not in f"{needed} {needed!r}"
        assert needed.authorization_url.endswith("canary")


REQUEST = CredentialRequest("search")


class TestProviders:
    async def test_static(self):
        provider: CredentialProvider = StaticCredentials(
            {"search": "t", "mail": api_key("k")}, expires_at=9.0
        )
        with trio.fail_after(5), trio.testing.assert_checkpoints():
            issued = await provider.get(REQUEST)
        assert issued.credential.to_headers() == [("authorization", "Bearer t")]
        assert issued.expires_at == 9.0
        assert isinstance((await provider.get(CredentialRequest("mail"))).credential, ApiKey)
        with pytest.raises(LookupError, match="known services: mail, search"):
            await provider.get(CredentialRequest("other"))
        with pytest.raises(LookupError, match="none"):
            await StaticCredentials({}).get(REQUEST)
        with pytest.raises(TypeError, match="search"):
            StaticCredentials({"search": 5})

    async def test_scripted_in_order(self):
        async def later(request):
            await trio.lowlevel.checkpoint()
            return Issued(bearer(request.service), 7.0)

        token, consent = bearer("a"), NeedsAuthorization("https://auth.example", "s")
        provider = ScriptedCredentials([token, consent, OSError("down"), later, Issued(token, 3.0)])
        with trio.fail_after(5), trio.testing.assert_checkpoints():
            assert await provider.get(REQUEST) == Issued(token)
        assert await provider.get(REQUEST) is consent
        with pytest.raises(OSError, match="down"):
            await provider.get(REQUEST)
        vended = await provider.get(REQUEST)
        assert vended.credential.token == "search"
        assert (await provider.get(REQUEST)).expires_at == 3.0
        with pytest.raises(AssertionError, match="beyond the script"):
            await provider.get(REQUEST)
        assert provider.requests == [REQUEST] * 6

    async def test_scripted_by_function(self):
        provider = ScriptedCredentials(lambda request: bearer(request.service))
        with trio.fail_after(5):
            assert (await provider.get(CredentialRequest("mail"))).credential.token == "mail"
            with pytest.raises(TypeError, match="cannot answer with NoneType"):
                await ScriptedCredentials(lambda _: None).get(REQUEST)

    async def test_scripted_waits_for_the_test(self, nursery):
        hold, answers = trio.Event(), []
        provider = ScriptedCredentials([bearer("a")], hold=hold)

        async def ask():
            answers.append(await provider.get(REQUEST))

        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        assert (len(provider.requests), answers) == (1, [])
        hold.set()
        await trio.testing.wait_all_tasks_blocked()
        assert answers[0].credential.token == "a"
