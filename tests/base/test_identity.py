"""The tenant boundary: one key per (server, keyed fields), and no two that meet."""

from __future__ import annotations

import copy
import itertools
import pickle
import time
import unicodedata

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afpool._base.errors import IdentityMissing
from afpool._base.identity import (
    FIELDS,
    Identity,
    KeyDigest,
    check_keyed_on,
    decode_field,
    decode_key,
    encode_field,
    encode_key,
    identity_namespace,
    project,
)

ADVERSARIAL = (
    None,
    "_",
    "__",
    "%",
    "%%",
    "%5F",
    "%5f",
    "%255F",
    "%25",
    "%2525",
    "/",
    "//",
    "%2F",
    "%2f",
    "%252F",
    "a/b",
    "a%2Fb",
    "a%252Fb",
    "_/_",
    "|",
    "%7C",
    "a|b",
    "alice",
    "Alice",
    "ALICE",
    unicodedata.normalize("NFC", "é"),
    unicodedata.normalize("NFD", "é"),
    "\N{KELVIN SIGN}",
    "K",
    " ",
    "\n",
    "\0",
    "\U0001f600",
    "None",
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("%/_|25FC"))
FIELD = st.none() | TEXT | st.sampled_from([value for value in ADVERSARIAL if value])


class TestEncoding:
    def test_adversarial_product_never_collides(self):
        assert len(set(ADVERSARIAL)) == 34
        seen = set()
        for fields in itertools.product(ADVERSARIAL, repeat=3):
            identity = Identity(*fields)
            namespace = identity_namespace(identity)
            assert tuple(map(decode_field, namespace.split("/"))) == fields
            seen.add(namespace)
        assert len(seen) == 39_304

    @given(st.tuples(FIELD, FIELD, FIELD), st.tuples(FIELD, FIELD, FIELD), TEXT, TEXT)
    def test_injective(self, one, other, server, another):
        server, another = server or "s", another or "s"
        first, second = Identity(*one), Identity(*other)
        keys = [
            encode_key(name, identity, FIELDS if attrs.astuple(identity) != (None, None, None) else ())
            for name, identity in ((server, first), (another, second))
        ]
        assert (keys[0] == keys[1]) == ((server, first) == (another, second))

    @given(st.tuples(FIELD, FIELD, FIELD), TEXT.filter(bool))
    def test_left_inverse(self, fields, server):
        identity = Identity(*fields)
        keyed_on = FIELDS if identity != Identity() else ()
        assert decode_key(encode_key(server, identity, keyed_on)) == (server, identity)

    @given(FIELD)
    def test_field_round_trip(self, raw):
        encoded = encode_field(raw)
        assert "/" not in encoded
        assert encoded
        assert decode_field(encoded) == (raw or None)

    @pytest.mark.parametrize(
        ("server", "fields", "key"),
        [
            ("search", ("acme", "alice", "c1"), "search|acme/alice/c1"),
            ("search", ("acme", None, ""), "search|acme/_/_"),
            ("search", ("_", "%5F", "c"), "search|%5F/%255F/c"),
            ("search", ("a/b", "a%2Fb", "a|b"), "search|a%2Fb/a%252Fb/a|b"),
            ("a|b/c%", ("acme", "bob", None), "a%7Cb%2Fc%25|acme/bob/_"),
            ("_", (None, "\u00e9", "e\u0301"), "_|_/\u00e9/e\u0301"),
        ],
    )
    def test_pinned_keys_never_move(self, server, fields, key):
        assert encode_key(server, Identity(*fields)) == key

    @pytest.mark.parametrize("encoded", ["", "a/b", "%", "%2f", "%41", "a%5F", "%2"])
    def test_what_was_never_encoded_is_refused(self, encoded):
        with pytest.raises(ValueError, match="not an encoded"):
            decode_field(encoded)

    @pytest.mark.parametrize(
        "key", ["", "s", "s|", "|a/b/c", "s|a/b", "s|a/b/c/d", "%|a/b/c", "%41|a/b/c", "s/|a/b/c", "s|//"]
    )
    def test_what_is_no_key_is_refused(self, key):
        with pytest.raises(ValueError, match="not a"):
            decode_key(key)


class TestIdentity:
    def test_empty_is_absent(self):
        assert Identity("", "alice", "") == Identity(principal="alice")
        assert Identity("").tenant is None

    @pytest.mark.parametrize("field", FIELDS)
    def test_refusals_quote_nothing(self, field):
        with pytest.raises(TypeError) as not_text:
            Identity(**{field: 8675309})
        assert "8675309" not in str(not_text.value)
        with pytest.raises(ValueError, match="surrogate") as not_unicode:
            Identity(**{field: "alice\ud800"})
        assert "alice" not in str(not_unicode.value)
        assert not_unicode.value.__context__ is None
        with pytest.raises(TypeError) as encoded:
            encode_field(b"alice")
        assert "alice" not in str(encoded.value)

    def test_a_string_subclass_cannot_lie(self):
        class Everybody(str):
            __slots__ = ()

            def __eq__(self, other):
                return True

            def __hash__(self):
                return hash("alice")

        identity = Identity(principal=Everybody("bob"))
        assert type(identity.principal) is str
        assert identity != Identity(principal="alice")

    def test_repr_names_fields_only(self):
        assert repr(Identity("acme", "alice")) == "Identity(tenant=…, principal=…)"
        assert repr(Identity()) == "Identity()"

    def test_remembered_keys_stay_private(self):
        used, fresh = Identity("acme", "alice", "c1"), Identity("acme", "alice", "c1")
        encode_key("search", used)
        assert used == fresh
        assert hash(used) == hash(fresh)
        assert repr(used) == repr(fresh)
        assert attrs.asdict(used) == {"tenant": "acme", "principal": "alice", "conversation_id": "c1"}
        changed = attrs.evolve(used, principal="bob")
        assert encode_key("search", changed) == "search|acme/bob/c1"
        for twin in (copy.copy(used), copy.deepcopy(used), pickle.loads(pickle.dumps(used))):
            assert twin == used
            assert not hasattr(twin, "_keys")
            assert encode_key("search", twin) == "search|acme/alice/c1"
        assert not hasattr(used, "__dict__")

    def test_remembers_per_server_and_keyed_fields(self):
        identity = Identity("acme", "alice", "c1")
        for _ in range(2):
            assert encode_key("a", identity) == "a|acme/alice/c1"
            assert encode_key("a", identity, ("tenant",)) == "a|acme/_/_"
            assert encode_key("a", identity, ()) == "a|_/_/_"
            assert encode_key("b", identity) == "b|acme/alice/c1"
        assert encode_key("a", identity) is encode_key("a", identity)
        for index in range(1_000):
            assert encode_key(f"s{index}", identity) == f"s{index}|acme/alice/c1"
        assert len(identity._keys) <= 3 * 16

    def test_a_repeated_key_is_cheap(self):
        identity = Identity("acme", "alice", "c1")
        encode_key("search", identity)
        best = min(_seconds_for(1_000, identity) for _ in range(20))
        # 0.15 us on an idle machine; building anew costs 3 us and more.
        assert best / 1_000 < 1e-6


def _seconds_for(times, identity):
    start = time.perf_counter()
    for _ in range(times):
        encode_key("search", identity)
    return time.perf_counter() - start


class TestKeyedOn:
    def test_only_keyed_fields_count(self):
        keyed_on = ("tenant", "principal")
        one, other = Identity("acme", "alice", "c1"), Identity("acme", "alice", "c2")
        assert encode_key("s", one, keyed_on) == encode_key("s", other, keyed_on)
        assert encode_key("s", one) != encode_key("s", other)

    def test_none_of_the_keyed_fields(self):
        with pytest.raises(IdentityMissing) as refused:
            encode_key("search", Identity(conversation_id="c-secret"), ("tenant", "principal"))
        assert "tenant, principal" in str(refused.value)
        assert "c-secret" not in str(refused.value)
        assert refused.value.delivery == "not-sent"
        with pytest.raises(IdentityMissing):
            encode_key("search", Identity())
        assert encode_key("search", Identity(), ()) == "search|_/_/_"

    def test_a_value_that_spells_absence_is_present(self):
        assert encode_key("s", Identity("_", "_", "_")) == "s|%5F/%5F/%5F"

    def test_project(self):
        identity = Identity("acme", "alice", "c1")
        assert project(identity, FIELDS) is identity
        assert project(identity, ("principal",)) == Identity(principal="alice")
        assert project(identity, ()) == Identity()

    def test_check(self):
        assert check_keyed_on(["principal", "tenant"]) == ("tenant", "principal")
        assert check_keyed_on(FIELDS) is FIELDS
        assert check_keyed_on(()) == ()
        for wrong in (("user",), ("tenant", "tenant"), "tenant", ("tenant", "")):
            with pytest.raises(ValueError, match="keyed_on"):
                check_keyed_on(wrong)
        with pytest.raises(ValueError, match="unknown"):
            encode_key("s", Identity("acme"), ("tenant", "user"))

    @pytest.mark.parametrize("nobody", [None, "alice", lambda: None])
    def test_no_identity_is_a_type_error(self, nobody):
        with pytest.raises(TypeError, match="must be an Identity") as refused:
            encode_key("s", nobody)
        assert "alice" not in str(refused.value)

    @pytest.mark.parametrize("server", ["", "a\udfff"])
    def test_a_server_needs_a_name(self, server):
        with pytest.raises(ValueError, match="server name"):
            encode_key(server, Identity("acme"))


class TestDigest:
    def test_shape_and_stability(self):
        digest = KeyDigest(b"0123456789abcdef")
        assert digest.show("search|acme/alice/c1") == "k:7323e58e80cc"
        assert digest.show("search|acme/alice/c1", "sh") == "sh:7323e58e80cc"

    def test_per_process_secret(self):
        assert KeyDigest().show("k") != KeyDigest().show("k")

    def test_a_short_secret_is_refused(self):
        with pytest.raises(ValueError, match="16 bytes"):
            KeyDigest(b"short")

    def test_never_copied_or_shown(self):
        digest = KeyDigest(b"canary-canary-canary")
        assert "canary" not in repr(digest)
        for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="never copied"):
                attempt(digest)
