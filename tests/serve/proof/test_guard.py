"""What the guard lets through: by host, by page, by form, and by nothing that the caller could choose."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afpool._base.web_names import HostPort, is_loopback, read_host, read_origin
from afpool.config import ServeConfig, ServeLimits
from afpool.serve._guard import SINGLE, Guard, guard
from afpool.serve._proof_types import Refused, RequestHead, UnsafeDoor
from tests.serve.proof.proof_kit import head, header_of, is_refused

JSON = ("content-type", "application/json")
PUBLIC = {"bind": "0.0.0.0:8765", "allowed_hosts": ("tools.example.com", "10.1.2.3:8765")}
LOCAL: dict[str, Any] = {}
OPEN = {"bind": "0.0.0.0:8765"}
SOCKET = {"bind": "unix:/run/afpool.sock"}


def asked(
    settings: dict[str, Any], host: str, *headers: tuple[str, str | bytes], **more: Any
) -> Refused | None:
    return Guard(ServeConfig(**settings)).check(head(("host", host), JSON, *headers, **more))


# ------------------------------------------------------------------ hosts


@pytest.mark.parametrize(
    ("settings", "host"),
    [
        *((LOCAL, host) for host in ("localhost", "localhost:8765", "LOCALHOST:1", "127.0.0.1",
        "127.9.9.9:80",
                                     "[::1]", "[::1]:8765", "[0:0:0:0:0:0:0:1]:8765", "localhost.")),
        ({"bind": "[::1]:8765"}, "localhost"),
        ({"bind": "localhost:8765"}, "127.0.0.1:8765"),
        ({"allowed_hosts": ("tools.example.com",)}, "tools.example.com"),
        ({"allowed_hosts": ("tools.example.com",)}, "localhost:8765"),
        *((PUBLIC, host) for host in ("tools.example.com", "tools.example.com:443", "Tools.Example.Com.:8443",
                                      "10.1.2.3:8765")),
        *((OPEN, host) for host in ("anything.example", "10.0.0.1:8765", "localhost")),
        *((SOCKET, host) for host in ("anything.example", "localhost")),
    ],
)  # fmt: skip
def test_by_a_name_of_ours_everybody_comes_in(settings: dict[str, Any], host: str) -> None:
    assert asked(settings, host) is None


@pytest.mark.parametrize(
    ("settings", "host"),
    [
        *((LOCAL, host) for host in ("evil.example", "evil.example:8765", "localhost.evil.example",
        "localhost-evil",
                                     "127.0.0.1.evil.example", "0.0.0.0:8765", "192.168.0.2", "128.0.0.1",
                                     "[::2]",
                                     "[::]", "127.1", "0x7f000001", "2130706433")),
        *((PUBLIC, host) for host in ("localhost", "127.0.0.1", "evil.example", "a.tools.example.com",
        "example.com",
                                      "tools.example.com.evil.example", "10.1.2.3", "10.1.2.3:80",
                                      "xtools.example.com",
                                      "tools.example.co", "xn--tools-9fd.example.com")),
        ({**SOCKET, "allowed_hosts": ("tools.example.com",)}, "localhost"),
    ],
)  # fmt: skip
def test_by_another_name_nobody_comes_in(settings: dict[str, Any], host: str) -> None:
    found = is_refused(asked(settings, host), 421)
    assert found.code == "host-not-allowed"


@pytest.mark.parametrize(
    "host",
    ["", " ", "localhost:", "localhost:0", "localhost:65536", "localhost:8765:1", "localhost/",
        "user@localhost",
     "localhost evil", "local\thost", "[::1", "::1", "[localhost]", "[127.0.0.1]", "[::1]x", "ö.example",
     "a..b",
     "http://localhost", "localhost,evil", "*", ".", "-:1", "[::1%25lo]", "x" * 300],
)  # fmt: skip
def test_what_is_no_host_is_none_for_anybody(host: str) -> None:
    for settings in (LOCAL, OPEN, SOCKET):
        is_refused(asked(settings, host), 400)


def test_a_request_names_one_host() -> None:
    judge = Guard(ServeConfig())
    is_refused(judge.check(head(JSON)), 400, "names one host")
    for second in ("localhost", "evil.example"):
        found = judge.check(head(("host", "localhost"), ("host", second), JSON))
        is_refused(found, 400, "came twice")


# ------------------------------------------------------------------ pages


@pytest.mark.parametrize(
    ("settings", "host", "origin"),
    [
        (LOCAL, "localhost:8765", "http://localhost:8765"),
        (LOCAL, "localhost:8765", "http://localhost:6274"),
        (LOCAL, "127.0.0.1:8765", "https://[::1]:3000"),
        (PUBLIC, "tools.example.com", "https://tools.example.com"),
        (PUBLIC, "tools.example.com:8443", "https://tools.example.com:8443"),
        (PUBLIC, "tools.example.com:443", "https://tools.example.com"),
        (PUBLIC, "tools.example.com", "https://TOOLS.example.com:443"),
        (
            {**PUBLIC, "allowed_origins": ("https://app.example.com",)},
            "tools.example.com",
            "https://app.example.com",
        ),
        (
            {**OPEN, "allowed_origins": ("https://app.example.com:443",)},
            "x.example",
            "https://app.example.com",
        ),
        ({"allowed_origins": ("https://app.example.com",)}, "localhost:8765", "http://localhost:8765"),
        ({**SOCKET, "allowed_origins": ("http://a.example:81",)}, "x", "http://a.example:81"),
    ],
)
def test_pages_that_may_call(settings: dict[str, Any], host: str, origin: str) -> None:
    assert asked(settings, host, ("origin", origin)) is None
    assert asked(settings, host, ("origin", origin), ("sec-fetch-site", "cross-site")) is None


FOREIGN = [
    "null", "https://evil.example", "http://evil.example:8765", "", " ", "*", "file://", "localhost",
    "http://",
    "http://localhost@evil.example", "http://localhost:8765/x", "http://localhost.evil.example",
    "//localhost",
    "HTTP://localhost", "ftp://localhost", "http://localhost http://evil.example", "chrome-extension://abc",
    "http://tools.example.com", "https://tools.example.com:8443", "https://app.example.com.evil.example",
]  # fmt: skip


@pytest.mark.parametrize("origin", FOREIGN)
def test_pages_that_may_not(origin: str) -> None:
    for settings, host in (
        (LOCAL, "localhost:8765"),
        ({"allowed_origins": ("https://app.example.com",)}, "localhost:8765"),
        ({**PUBLIC, "allowed_origins": ("https://app.example.com",)}, "tools.example.com:443"),
        (OPEN, "evil.example"),
        (SOCKET, "evil.example"),
    ):
        found = is_refused(asked(settings, host, ("origin", origin)), 403)
        assert found.code == "origin-not-allowed"


def test_a_page_that_was_rebound_is_of_its_own_host_and_still_comes_not_in() -> None:
    """Host and origin agree, since the page's own name leads here now."""
    for settings in (OPEN, SOCKET):
        found = asked(settings, "evil.example:8765", ("origin", "http://evil.example:8765"))
        is_refused(found, 403)
    found = asked(LOCAL, "evil.example:8765", ("origin", "http://evil.example:8765"))
    is_refused(found, 421)


def test_a_list_of_origins_is_in_place_of_all_pages_of_this_machine() -> None:
    listed = {"allowed_origins": ("https://app.example.com",)}
    is_refused(asked(listed, "localhost:8765", ("origin", "http://localhost:6274")), 403)


@pytest.mark.parametrize(("site", "let_in"), [("cross-site", False), ("same-site", False), ("CROSS-SITE",
    False),
                                              ("same-origin", True), ("none", True)])  # fmt: skip
def test_without_an_origin_a_browser_still_says_whose_page_it_is(site: str, let_in: bool) -> None:
    found = asked(LOCAL, "localhost", ("sec-fetch-site", site), method="GET")
    assert (found is None) == let_in


def test_a_client_that_is_no_browser_says_nothing_of_the_kind() -> None:
    for settings, host in ((LOCAL, "localhost"), (PUBLIC, "tools.example.com"), (OPEN, "x"), (SOCKET, "x")):
        assert asked(settings, host) is None


# ------------------------------------------------------------------ form


def test_so_many_headers_of_so_many_bytes() -> None:
    judge = Guard(ServeConfig(limits=ServeLimits(headers=10, header_bytes=256)))
    many = [(f"x-{number}", "1") for number in range(9)]
    assert judge.bounds(head(("host", "localhost"), *many)) is None
    found = is_refused(judge.bounds(head(("host", "localhost"), *many, ("x", "1"))), 431)
    assert found.code == "too-many-headers"
    used = len("x") + 4
    assert judge.bounds(head(("x", "a" * (256 - used)))) is None
    found = is_refused(judge.bounds(head(("x", "a" * (257 - used)))), 431)
    assert found.code == "headers-too-large"
    ten_thousand = head(*((f"x-{number}", "") for number in range(10_000)))
    is_refused(Guard(ServeConfig()).check(ten_thousand), 431)


@pytest.mark.parametrize("name", sorted(name.decode() for name in SINGLE))
def test_a_header_that_decides_something_comes_once_and_is_spelled_one_way(name: str) -> None:
    judge = Guard(ServeConfig())
    first = "localhost" if name == "host" else "application/json"
    assert judge.bounds(head((name, first))) is None
    for second in (name, name.upper()):
        found = judge.bounds(head((name, first), (second, first)))
        is_refused(found, 400, "came twice")
    if "-" in name:
        for spelled in (name.replace("-", "_"), name.upper().replace("-", "_", 1)):
            found = judge.bounds(head((spelled, first)))
            is_refused(found, 400, "spelled with `_`")


@pytest.mark.parametrize(
    ("name", "value"),
    [("x", "a\r\nhost: evil"), ("x", "a\n b"), ("x", "a\r b"), ("x", "a\0"), ("x", "\x7f"), ("x y", "a"),
        ("x:", "a"),
     ("", "a"), ("x\r\n", "a"), ("host ", "localhost"), ("\xe4", "a"), ("x\t", "a"), ("x\0", "a")],
)  # fmt: skip
def test_a_header_that_could_be_two_is_none(name: str, value: str) -> None:
    found = Guard(ServeConfig()).bounds(head((name, value)))
    is_refused(found, 400, "what no header may hold")


def test_the_length_is_told_in_one_way() -> None:
    both = head(("content-length", "1"), ("transfer-encoding", "chunked"))
    found = is_refused(Guard(ServeConfig()).bounds(both), 400)
    assert found.code == "ambiguous-length"


# ------------------------------------------------------------------ requests


@pytest.mark.parametrize(
    ("path", "methods"),
    [("/mcp", "GET, POST, DELETE"), ("/ws", "GET"), ("/healthz", "GET, HEAD"), ("/", "GET, HEAD")],
)
def test_methods(path: str, methods: str) -> None:
    allowed = methods.split(", ")
    for method in (
        "GET",
        "POST",
        "DELETE",
        "HEAD",
        "PUT",
        "PATCH",
        "OPTIONS",
        "TRACE",
        "CONNECT",
        "get",
        "",
        "X",
    ):
        found = asked(LOCAL, "localhost", method=method, path=path)
        if method in allowed:
            assert found is None
        else:
            assert header_of(is_refused(found, 405), b"allow") == methods


def test_a_preflight_of_a_page_that_may_call_goes_through() -> None:
    page = ("origin", "http://localhost:3000")
    assert asked(LOCAL, "localhost", page, method="OPTIONS") is None
    is_refused(asked(LOCAL, "localhost", ("origin", "null"), method="OPTIONS"), 403)
    is_refused(asked(LOCAL, "localhost", page, method="OPTIONS", path="/ws"), 405)


@pytest.mark.parametrize(
    ("kind", "taken"),
    [("application/json", True), ("Application/JSON", True), ("application/json; charset=utf-8", True),
     ('application/json;charset="UTF-8"', True), ("application/json ", True), ("text/plain", False),
     ("", False),
     ("application/json; charset=utf-16", False), ("application/jsonp", False), ("application/*", False),
     ("text/plain, application/json", False), ("application/json, text/plain", False),
     ("text/plain; application/json", False), ("application/x-www-form-urlencoded", False),
     ("multipart/form-data; boundary=application/json", False)],
)  # fmt: skip
def test_a_message_is_sent_as_json(kind: str, taken: bool) -> None:
    made = head(("host", "localhost"), ("content-type", kind))
    found = Guard(ServeConfig()).check(made)
    assert (found is None) == taken
    if found is not None:
        assert found.status == 415
    is_refused(Guard(ServeConfig()).check(head(("host", "localhost"))), 415)


@pytest.mark.parametrize(
    ("session", "taken"),
    [
        ("a", True),
        ("~" * 400, True),
        ("", False),
        ("a b", False),
        ("~" * 401, False),
        ("ä", False),
        ("a\t", False),
    ],
)
def test_a_session_id_is_visible(session: str, taken: bool) -> None:
    found = asked(LOCAL, "localhost", ("mcp-session-id", session))
    assert (found is None) == taken
    if found is not None:
        assert found.code == "invalid-session-id"


# ------------------------------------------------------------------ configuration


@pytest.mark.parametrize(
    "entry",
    ["*", "*.example.com", "https://x", "x/y", "x:0", "x:99999", "", " x", "bücher.example", "x,y", "x@y"],
)
def test_an_entry_that_is_no_host_is_refused_before_anything_listens(entry: str) -> None:
    with pytest.raises(UnsafeDoor, match="allowed_hosts"):
        Guard(ServeConfig(allowed_hosts=("good.example", entry)))


@pytest.mark.parametrize(
    "entry",
    ["null", "*", "https://*.x", "https://x/", "x", "https://x/y", "ftp://x", "", "https://bücher.example"],
)
def test_an_entry_that_is_no_origin_is_refused_before_anything_listens(entry: str) -> None:
    with pytest.raises(UnsafeDoor, match="allowed_origins"):
        Guard(ServeConfig(allowed_origins=("https://good.example", entry)))


def test_one_warning_where_any_host_is_taken_from_the_world() -> None:
    (warning,) = Guard(ServeConfig(bind="0.0.0.0:8765")).warnings
    assert "allowed_hosts" in warning
    for settings in (
        LOCAL,
        PUBLIC,
        SOCKET,
        {"bind": "[::1]:1"},
        {"bind": "127.0.0.2:1"},
        {"bind": "localhost:1"},
    ):
        assert Guard(ServeConfig(**settings)).warnings == ()
    for bind in ("[::]:1", "10.0.0.1:1", "myhost:1", "localhost.example:1"):
        assert len(Guard(ServeConfig(bind=bind)).warnings) == 1


# ------------------------------------------------------------------ for any input

SAID = st.sampled_from([b"localhost", b"evil.example", b"null", b"http://localhost"])
ANY = st.binary(max_size=30).map(lambda junk: b"canary-9" + junk) | SAID
NAMES = st.sampled_from([b"host", b"origin", b"Host", b"content-type", b"mcp_session_id", b"x"]) | st.binary(
    max_size=8
)


@given(st.lists(st.tuples(NAMES, ANY), max_size=6), st.sampled_from(["GET", "POST", "TRACE"]))
def test_what_comes_in_names_a_host_of_ours_and_no_page_of_others(
    headers: list[tuple[bytes, bytes]], method: str
) -> None:
    made = RequestHead(method, "/mcp", tuple(headers))
    found = guard(made, ServeConfig())
    assert found is None or found.status in {400, 403, 405, 415, 421}
    if found is None:
        (host,) = made.all(b"host")
        name = read_host(host.decode())
        assert name is not None
        assert is_loopback(name.name)
        for value in made.all(b"origin"):
            origin = read_origin(value.decode())
            assert origin is not None
            assert is_loopback(origin.name)
    else:
        said = f"{found.message}{found.headers}{found.body!r}"
        assert "canary-9" not in said


@given(st.text(max_size=40))
def test_any_text_is_a_host_or_none(text: str) -> None:
    found = read_host(text)
    if found is not None:
        assert text.isascii()
        again = read_host(found.name if found.port is None else f"{found.name}:{found.port}")
        assert again == HostPort(*found)
    read_origin(text)
