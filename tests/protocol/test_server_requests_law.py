"""Whose a server's request is, what is declared and what is refused: the decisions, without I/O."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from afpool.protocol import (
    HANDSHAKE_VERSIONS,
    LATEST_HANDSHAKE,
    LATEST_STATELESS,
    NOTHING_DECLARED,
    Attribution,
    Capabilities,
)

ALL = Capabilities(roots=True, sampling=True, elicitation=("form", "url"))
FORM = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
URL = {"mode": "url", "message": "?", "url": "https://acme.example/ask", "elicitationId": "e"}

# ---------------------------------------------------------------------------- attribution

EVENTS = st.lists(
    st.tuples(st.sampled_from(["sent", "own", "answered", "given_up", "lost", "doubt"]), st.integers(0, 5)),
    max_size=30,
)


def told(events: list[tuple[str, int]]) -> list[str]:
    """The law as a sentence about what has happened, asked after each event."""
    said = []
    for end in range(1, len(events) + 1):
        past = events[:end]
        unanswered = []
        waits = {}
        blind = False
        for what, token in past:
            if what in ("sent", "own") and token not in unanswered:
                unanswered.append(token)
                waits[token] = what == "sent"
            elif what == "doubt":
                blind = True
            elif token in unanswered and what == "given_up":
                waits[token] = False
            elif token in unanswered and what in ("answered", "lost"):
                unanswered.remove(token)
                blind |= what == "lost"
        alone = len(unanswered) == 1 and not blind and waits[unanswered[0]]
        said.append(f"op-{unanswered[0]}" if alone else "nobody")
    return said


@given(EVENTS)
@example([("sent", 0), ("given_up", 0)])
@example([("sent", 0), ("sent", 1), ("answered", 0)])
@example([("sent", 0), ("lost", 0), ("sent", 1)])
def test_a_request_on_a_shared_stream_belongs_to_the_only_one_that_can_have_caused_it(events):
    book: Attribution[str] = Attribution()
    known: set[int] = set()
    said = []
    for what, token in events:
        if what in ("sent", "own"):
            if token not in known:
                known.add(token)
                book.sent(token, f"op-{token}" if what == "sent" else None)
        elif what == "doubt":
            book.doubt()
        else:
            getattr(book, what)(token)
            if what != "given_up":
                known.discard(token)
        said.append(book.whose() or "nobody")
    assert said == told(events)


def test_once_one_was_given_up_without_an_answer_nobody_is_asked_any_more():
    book: Attribution[str] = Attribution()
    book.sent(1, "first")
    book.given_up(1)
    assert book.whose() is None
    book.lost(1)
    book.sent(2, "second")
    assert book.whose() is None


def test_a_late_answer_proves_that_the_server_is_done():
    book: Attribution[str] = Attribution()
    book.sent(1, "first")
    book.given_up(1)
    book.answered(1)
    book.sent(2, "second")
    assert book.whose() == "second"


# ---------------------------------------------------------------------------- what is declared


@pytest.mark.parametrize(
    ("declared", "version", "document"),
    [
        (NOTHING_DECLARED, LATEST_STATELESS, {}),
        (ALL, LATEST_STATELESS, {"roots": {}, "sampling": {}, "elicitation": {"form": {}, "url": {}}}),
        (ALL, "2025-11-25", {"roots": {}, "sampling": {}, "elicitation": {"form": {}, "url": {}}}),
        (ALL, "2025-06-18", {"roots": {}, "sampling": {}, "elicitation": {}}),
        (ALL, "2025-03-26", {"roots": {}, "sampling": {}}),
        (Capabilities(elicitation=("url",)), "2025-06-18", {}),
        (Capabilities(sampling=True, sampling_tools=True), "2025-11-25", {"sampling": {"tools": {}}}),
    ],
)
def test_what_is_declared_in_a_version(declared, version, document):
    assert json.loads(declared.encode(version)) == document


@pytest.mark.parametrize("version", [*HANDSHAKE_VERSIONS, LATEST_STATELESS])
@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("roots/list", {}, -32601),
        ("sampling/createMessage", {"messages": []}, -1),
        ("elicitation/create", FORM, -32602),
        ("elicitation/create", URL, -32602),
        ("tasks/get", {}, -32601),
        ("", {}, -32601),
    ],
)
def test_what_was_not_declared_is_refused_by_its_code(version, method, params, code):
    refusal = NOTHING_DECLARED.refuses(method, params, version)
    assert refusal is not None
    assert refusal.code == code


@pytest.mark.parametrize(
    ("method", "params", "since"),
    [
        ("roots/list", {}, "2024-11-05"),
        ("sampling/createMessage", {"messages": [], "maxTokens": 1}, "2024-11-05"),
        ("elicitation/create", FORM, "2025-06-18"),
        ("elicitation/create", {**FORM, "mode": "form"}, "2025-06-18"),
        ("elicitation/create", URL, "2025-11-25"),
    ],
)
def test_what_was_declared_is_for_a_handler_since_its_version(method, params, since):
    for version in (*HANDSHAKE_VERSIONS, LATEST_STATELESS):
        refusal = ALL.refuses(method, params, version)
        assert (refusal is None) == (version >= since), version
        assert refusal is None or refusal.code == -32602


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"message": "?"},
        {"message": 1, "requestedSchema": {"type": "object"}},
        {"message": "?", "requestedSchema": {"type": "string"}},
        {"message": "?", "requestedSchema": {"type": "object", "properties": {"a": {"type": "object"}}}},
        {"message": "?", "requestedSchema": {"type": "object", "properties": {"a": {"type": ["string"]}}}},
        {"message": "?", "requestedSchema": {"type": "object", "properties": {}, "required": ["a"]}},
        {"message": "?", "requestedSchema": {"type": "object", "properties": {}, "required": [{}]}},
        {"mode": ["form"], "message": "?"},
        {**URL, "url": "javascript:alert(1)"},
        {**URL, "url": "file:///etc/passwd"},
        {**URL, "url": "https://"},
        {**URL, "url": "https://acme.example/\n"},
        {**URL, "url": "https://[::1"},
        {**URL, "url": None},
    ],
)
def test_an_elicitation_that_cannot_be_shown_is_refused(params):
    refusal = ALL.refuses("elicitation/create", params, LATEST_HANDSHAKE)
    assert refusal is not None
    assert refusal.code == -32602


def test_tools_in_sampling_are_declared_on_their_own():
    params = {"messages": [], "tools": [{"name": "t"}]}
    refusal = ALL.refuses("sampling/createMessage", params, LATEST_HANDSHAKE)
    assert refusal is not None
    assert refusal.code == -32602
    able = Capabilities(sampling=True, sampling_tools=True)
    assert able.refuses("sampling/createMessage", params, LATEST_HANDSHAKE) is None
    assert able.refuses("sampling/createMessage", {}, LATEST_HANDSHAKE) is not None
