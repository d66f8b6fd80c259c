"""`${…}` in one pass: what variables give is never looked through again, and is never told."""

from __future__ import annotations

import contextlib

import hypothesis
import hypothesis.strategies as st
import pytest

from afpool import Identity
from afpool.config._expand import MOST, BadText, expand
from afpool.config._written import Written
from tests.config.config_kit import CANARY, problems, read

ENV = {"A": "one", "EMPTY": "", "LOOP_A": "${LOOP_B}", "LOOP_B": "${LOOP_A}", "OPEN": "${", "SECRET": CANARY}


@pytest.mark.parametrize(
    ("text", "says", "variables"),
    [
        ("", "", ()),
        ("plain $A $ {A} $$", "plain $A $ {A} $$", ()),
        ("${A}", "one", ("A",)),
        ("${env:A}", "one", ("A",)),
        ("x${A}y${A}z", "xoneyonez", ("A",)),
        ("${NONE:-two}", "two", ()),
        ("${env:NONE:-two}", "two", ()),
        ("${EMPTY:-two}", "two", ()),
        ("${EMPTY}", "", ("EMPTY",)),
        ("${NONE:-}", "", ()),
        ("${A:-two}", "one", ("A",)),
        ("${NONE:-a:-b}", "a:-b", ()),
        ("$${A}", "${A}", ()),
        ("$${A}${A}", "${A}one", ("A",)),
        ("$$${A}", "$${A}", ()),
        ("${OPEN}", "${", ("OPEN",)),
    ],
)
def test_what_a_text_says(text, says, variables) -> None:
    written = expand(text, ENV)
    assert written.reveal() == says
    assert written.variables == variables
    assert written.written.reveal() == text


@pytest.mark.parametrize(
    ("text", "what", "near"),
    [
        ("${", "no closing brace", None),
        ("a${A", "no closing brace", None),
        ("${}", "cannot be understood", None),
        ("${1A}", "cannot be understood", None),
        ("${A-x}", "cannot be understood", None),
        ("${A:?x}", "cannot be understood", None),
        ("${command:x}", "cannot be understood", None),
        ("${A B}", "cannot be understood", None),
        ("${NONE}", "the variable NONE is not set", None),
        ("${SECRETS}", "the variable SECRETS is not set", "SECRET"),
        ("${NONE:-${A}}", "inside another one", None),
        ("${${A}}", "inside another one", None),
        ("${LOOP_A}", "the value of the variable LOOP_A holds ${…} itself", None),
        ("${identity.user}", "an identity has tenant, principal, conversation_id", None),
        ("${identity.tenent}", "an identity has tenant", "tenant"),
        ("${identity.tenant:-x}", "takes no default", None),
        ("${A}" * (MOST + 1), "more than 64 placeholders", None),
    ],
)
def test_what_cannot_be_expanded(text, what, near) -> None:
    with pytest.raises(BadText) as caught:
        expand(text, ENV)
    assert what in caught.value.what
    assert caught.value.nearest == near


def test_what_it_comes_to_is_bounded() -> None:
    with pytest.raises(BadText, match="more than 262144 characters"):
        expand("${A}" * 60, {"A": "x" * 10_000})


@hypothesis.given(st.text(st.sampled_from("${}:-AenvidtyLOP_.1 \n"), max_size=60))
def test_no_text_is_too_much(text) -> None:
    with contextlib.suppress(BadText):
        written = expand(text, ENV)
        assert written.fields or isinstance(written.reveal(), str)


@hypothesis.given(st.text(st.characters(exclude_categories=["Cs"])))
def test_what_a_variable_gives_is_taken_as_it_is(value) -> None:
    hypothesis.assume("${" not in value)
    assert expand("<${V}>", {"V": value}).reveal() == f"<{value}>"


def test_fields_of_an_identity() -> None:
    written = expand("a${identity.tenant}b${A}${identity.tenant}${identity.principal}", ENV)
    assert written.fields == ("tenant", "tenant", "principal")
    with pytest.raises(ValueError, match="another one for each identity"):
        written.reveal()
    assert written.for_identity(Identity("T", "P"), lambda _, value: value) == "aTboneTP"
    with pytest.raises(LookupError, match="principal"):
        written.for_identity(Identity("T"), lambda _, value: value)
    assert repr(written) == "Written(tenant, tenant, principal)"


def test_texts_are_equal_when_they_say_the_same() -> None:
    assert expand("${A}x", ENV).pieces != expand("onex", ENV).pieces, "secrets are equal to themselves only"
    one, same = expand("${A}x", ENV), expand("${A}x", ENV)
    assert one == same
    assert hash(one) == hash(same)
    assert expand("${A}", {"A": "1"}) != expand("${A}", {"A": "2"})
    assert expand("${identity.tenant}", {}) != expand("tenant", {})
    assert Written.plain("") == expand("", {})


def test_where_values_have_kinds_texts_are_read_as_them(tmp_path) -> None:
    text = """
    [serve]
    drain = "${SECONDS}"
    reload = "${RELOAD:-off}"
    qualify = "${HOW}"
    bind = "${HOST:-localhost}:${PORT}"
    [serve.limits]
    body = "${BODY}"
    headers = "${HEADERS}"
    """
    env = {"SECONDS": "2.5", "HOW": "always", "PORT": "80", "BODY": "2 MiB", "HEADERS": " 7 "}
    serve = read(tmp_path, text, env=env).serve
    assert (serve.drain, serve.reload, serve.qualify, serve.bind) == (2.5, False, "always", "localhost:80")
    assert (serve.limits.body, serve.limits.headers) == (2 * 2**20, 7)
    bad = {"SECONDS": CANARY, "HOW": CANARY, "PORT": CANARY, "BODY": "-1", "HEADERS": "1e3", "RELOAD": CANARY}
    told = problems(tmp_path, text, env=bad)
    assert [one.split(": ")[1] for one in told] == [
        "serve.drain", "serve.reload", "serve.qualify", "serve.bind", "serve.limits.body",
        "serve.limits.headers",
    ]  # fmt: skip
