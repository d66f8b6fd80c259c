"""What of an identity reaches a server: one value among others, whole or not at all."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import hypothesis
import hypothesis.strategies as st
import pytest

from afpool import HttpTransport, Identity, StdioTransport, WebSocketTransport
from afpool._base.errors import PlanFailed
from afpool.config._building import plan_of
from tests.config.config_kit import problems, read

ALICE = Identity("acme", "alice@example.com", "c-1")


def server(folder, text: str):
    return read(folder, f"[servers.x]\n{text}\n").servers["x"]


def plan(folder, text: str, identity: Identity = ALICE):
    return plan_of(server(folder, text), identity).transport


def test_where_a_field_may_stand(tmp_path) -> None:
    http = plan(
        tmp_path,
        """
        url = "https://a.example/t/${identity.tenant}/mcp?who=${identity.principal}&c=${identity.conversation_id}"
        headers = { X-Tenant = "${identity.tenant}", X-User = "user:${identity.principal}", X-Plain = "p" }
        """.replace("        ", ""),
    )
    assert isinstance(http, HttpTransport)
    assert http.url == "https://a.example/t/acme/mcp?who=alice%40example.com&c=c-1"
    assert dict(http.headers) == {"x-tenant": "acme", "x-user": "user:alice@example.com", "x-plain": "p"}
    socket = plan(tmp_path, 'url = "wss://a.example/${identity.tenant}"')
    assert isinstance(socket, WebSocketTransport)
    assert socket.url == "wss://a.example/acme"
    child = plan(
        tmp_path,
        'command = "serve"\nargs = ["--root=/data/${identity.tenant}", "${identity.tenant}"]\n'
        'env = { WHO = "${identity.principal}", DIR = "/d/${identity.tenant}" }\n'
        'cwd = "/data/${identity.tenant}"',
    )
    assert isinstance(child, StdioTransport)
    assert child.config.command == ("serve", "--root=/data/acme", "acme")
    assert child.config.env == {"WHO": "alice@example.com", "DIR": "/d/acme"}
    assert child.config.cwd == "/data/acme"


NOWHERE = [
    ("command = '${identity.tenant}'", "${identity.tenant} cannot stand here"),
    ("url = 'https://${identity.tenant}.example/mcp'", "cannot decide which host is asked"),
    ("url = 'https://a.example:${identity.tenant}/mcp'", "cannot be parsed"),
    ("url = 'https://a.example${identity.tenant}/mcp'", "cannot decide which host is asked"),
    ("url = 'https://a.example${identity.tenant}'", "cannot decide which host is asked"),
    ("url = '${identity.tenant}://a.example/'", "the URL must start with one of"),
    ("url = '${identity.tenant}'", "the URL must start with one of"),
    ("url = 'https://a.example/${identity.tenant}${identity.principal}'", "stand side by side"),
    ("url = 'https://a.example/${identity.tenant}-${identity.principal}'", "stand side by side"),
    ("url = 'http://a.example'\nunix_socket = '/${identity.tenant}'", "cannot stand here"),
    ("url = 'http://a.example'\nproxy = 'http://${identity.tenant}'", "cannot stand here"),
    ("url = 'http://a.example'\ntls = { hostname = '${identity.tenant}' }", "cannot stand here"),
    ("url = 'http://a.example'\nheaders = { '${identity.tenant}' = 'a' }", "is not a header's name"),
    (
        "url = 'http://a.example'\nheaders = { X = '${identity.tenant}${identity.principal}' }",
        "several fields",
    ),
    ("command = 'c'\nargs = ['${identity.tenant}/${identity.principal}']", "several fields"),
    ("command = 'c'\nenv = { A = '${identity.tenant}/${identity.principal}' }", "several fields"),
    ("command = 'c'\nenv = { PATH = '/bin/${identity.tenant}' }", "PATH decides what runs"),
    ("command = 'c'\nenv = { LD_PRELOAD = '${identity.tenant}' }", "LD_PRELOAD decides what runs"),
    ("command = 'c'\nenv_file = '${identity.tenant}'", "cannot stand here"),
    ("command = 'c'\ncwd = '${identity.tenant}'", "it has to begin with / and a folder"),
    ("command = 'c'\nargs = ['${identity.tenant}']\nkeyed_on = ['principal']", "it differs by tenant"),
    ("command = 'c'\nkeyed_on = ['${identity.tenant}']", "cannot stand here"),
    ("url = 'https://a.example/${identity.user}'", "an identity has tenant, principal, conversation_id"),
    ("url = 'https://a.example/${identity.tenant:-all}'", "takes no default"),
]


@pytest.mark.parametrize(("text", "what"), NOWHERE, ids=[str(number) for number in range(len(NOWHERE))])
def test_where_no_field_may_stand(tmp_path, text, what) -> None:
    told = problems(tmp_path, f"[servers.x]\n{text}\n")
    assert any(what in one for one in told), told


URL = "url = 'https://a.example/t/${identity.tenant}/mcp'"
QUERY = "url = 'https://a.example/mcp?t=${identity.tenant}'"
HEADER = "url = 'https://a.example/'\nheaders = { X = '${identity.tenant}' }"
PART = "url = 'https://a.example/'\nheaders = { X = 'org=${identity.tenant}' }"
ARGUMENT = "command = 'c'\nargs = ['${identity.tenant}']"
OPTION = "command = 'c'\nargs = ['--t=${identity.tenant}']"
VARIABLE = "command = 'c'\nenv = { T = '${identity.tenant}' }"
FOLDER = "command = 'c'\ncwd = '/d/${identity.tenant}'"
PATH = "command = 'c'\nenv = { T = '/d/${identity.tenant}' }"
EVERYWHERE = [URL, QUERY, HEADER, PART, ARGUMENT, OPTION, VARIABLE, FOLDER, PATH]


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        ("..", [URL, ARGUMENT, OPTION, PART, FOLDER, PATH]),
        (".", [URL, ARGUMENT, OPTION, PART, FOLDER, PATH]),
        ("../other", [URL, ARGUMENT, OPTION, PART, FOLDER, PATH]),
        ("a/b", [URL, ARGUMENT, OPTION, PART, FOLDER, PATH]),
        ("a\\b", [URL, HEADER, ARGUMENT, OPTION, PART, FOLDER, PATH]),
        ("--help", [ARGUMENT, OPTION, PART, FOLDER, PATH]),
        ("a b", [HEADER, ARGUMENT, OPTION, PART, FOLDER, PATH]),
        ("$(id)", [ARGUMENT, OPTION, PART, FOLDER, PATH]),
        ("a;b", [HEADER, ARGUMENT, OPTION, PART, FOLDER, PATH]),
        ("a,b", [HEADER, ARGUMENT, OPTION, PART, FOLDER, PATH]),
        ("auth0|123", [ARGUMENT, OPTION, PART, FOLDER, PATH]),
        ("é", [HEADER, ARGUMENT, OPTION, PART, FOLDER, PATH]),
        ("a\r\nX-Admin: 1", EVERYWHERE),
        ("a\0", EVERYWHERE),
        ("a?b#c&d", [ARGUMENT, OPTION, PART, FOLDER, PATH]),
        ("%2e%2e%2f", [ARGUMENT, OPTION, PART, FOLDER, PATH]),
        ("${TOKEN}", [ARGUMENT, OPTION, PART, FOLDER, PATH]),
        ("x" * 2000, [URL, QUERY, HEADER, ARGUMENT, OPTION, PART, FOLDER, PATH]),
        ("acme-1.x", []),
        ("ann+b@example.com", []),
    ],
    ids=range(20),
)  # fmt: skip
def test_what_of_a_value_fits_where(tmp_path, value, refused) -> None:
    for text in EVERYWHERE:
        if text in refused:
            with pytest.raises(PlanFailed) as caught:
                plan(tmp_path, text, Identity(value))
            assert value not in str(caught.value)
            assert "its tenant holds" in str(caught.value)
            assert caught.value.__cause__ is None
        else:
            plan(tmp_path, text, Identity(value))


def test_who_lacks_a_field_is_refused(tmp_path) -> None:
    for text in EVERYWHERE:
        with pytest.raises(PlanFailed, match="it names no tenant"):
            plan(tmp_path, text, Identity(principal="alice"))


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12) | st.text("./\\%?#&-_:@", min_size=1)


@hypothesis.given(first=TEXTS, second=TEXTS)
@hypothesis.settings(max_examples=300, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_a_url_says_both_fields_and_nothing_else(tmp_path_factory, first, second) -> None:
    """Two identities that differ have URLs that differ, at one host, in the same places."""
    there = _both(tmp_path_factory)
    try:
        transport = plan_of(there, Identity(first, second)).transport
    except PlanFailed:
        return
    assert isinstance(transport, HttpTransport)
    parts = urlsplit(transport.url)
    assert parts.netloc == "a.example"
    begin, tenant, end = parts.path.split("/")[1:]
    assert (begin, unquote(tenant), end) == ("t", first, "mcp")
    assert parts.query.startswith("who=")
    assert unquote(parts.query.removeprefix("who=")) == second
    assert parts.fragment == ""
    assert transport.origin.host == "a.example"
    assert transport.target.count(b"/") == 3


_KEPT: list = []


def _both(factory):
    if not _KEPT:
        url = "url = 'https://a.example/t/${identity.tenant}/mcp?who=${identity.principal}'"
        _KEPT.append(server(factory.mktemp("both"), url))
    return _KEPT[0]


@hypothesis.given(value=TEXTS)
@hypothesis.settings(max_examples=300, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_an_argument_is_one_word(tmp_path_factory, value) -> None:
    child = server(tmp_path_factory.getbasetemp(), "command = 'c'\nargs = ['${identity.tenant}', 'last']")
    try:
        transport = plan_of(child, Identity(value)).transport
    except PlanFailed:
        return
    assert isinstance(transport, StdioTransport)
    assert transport.config.command == ("c", value, "last")
    assert value.isascii()
    assert not set(value) & set(" \t\n'\"\\$`;|&<>()*?[]{}!#/,")
    assert value[0].isalnum()
