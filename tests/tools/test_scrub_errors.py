"""What a tool raises holds no secret, in whatever it hangs together with, and stays what it is."""

from __future__ import annotations

import dataclasses
import json
import logging
import subprocess
import traceback
from typing import Any

import attrs
import httpx
import pytest
import trio

from afpool import InvalidOutput, Secret, ServerError, ToolResult
from afpool.tools._scrub import HOST_FILLED_PLACEHOLDER as GONE
from afpool.tools._scrub import Scrubber

KEY = "canary-7d41b0"


def clean(error: BaseException) -> Any:
    return Scrubber([Secret(KEY)]).exception(error)


def told(error: BaseException, seen: set[int] | None = None) -> str:
    """Everything that an exception tells to somebody who shows it, locals of every frame included."""
    seen = set() if seen is None else seen
    if id(error) in seen:
        return ""
    seen.add(id(error))
    shown = [str(error), repr(error), repr(error.args), repr(vars(error)), *getattr(error, "__notes__", ())]
    full = traceback.TracebackException.from_exception(error, capture_locals=True)
    shown += full.format(chain=True)
    below = [error.__cause__, error.__context__, *getattr(error, "exceptions", ())]
    shown += [told(one, seen) for one in [*below, *vars(error).values()] if isinstance(one, BaseException)]
    return "\n".join(shown)


def fail(error: BaseException) -> None:
    raise error


def raised(error: BaseException, secret: str = KEY) -> BaseException:
    """Raise an exception below a frame that has the secret in a local."""

    def tool(token: str) -> None:
        raise error

    try:
        tool(secret)
    except BaseException as caught:
        return caught
    raise AssertionError


def test_what_is_looked_at_here_would_tell() -> None:
    assert KEY in told(raised(ValueError("words")))
    assert KEY in told(ValueError(KEY))


def test_an_exception_without_a_secret_stays_the_same_object() -> None:
    error = ValueError("words", 3, {"a": [1]})
    error.add_note("more words")
    error.code = 7  # type: ignore[attr-defined]
    assert clean(raised(error)) is error
    assert KEY not in told(error)
    assert error.__notes__[0] == "more words"


def test_a_note_says_where_it_was_raised() -> None:
    error = clean(raised(ValueError("words")))
    (note,) = error.__notes__
    assert note.startswith("raised at test_scrub_errors.py:")
    assert note.endswith("in tool")
    assert clean(error).__notes__ == [note], "once"
    assert clean(raised(error)).__notes__ == [note], "also where it is raised again"
    leaving = clean(raised(SystemExit("bye")))
    assert not getattr(leaving, "__notes__", []), "who ends a program or a scope is no failure"


@attrs.frozen
class Detail:
    body: str


class WithSlots(Exception):
    __slots__ = ("token",)

    def __init__(self, token: str) -> None:
        super().__init__("failed")
        self.token = token


class Talkative(Exception):
    def __init__(self, *, secret: str) -> None:
        super().__init__()
        self._held = secret

    def __str__(self) -> str:
        return f"talks of {self._held}"


class Broken(Exception):
    def __str__(self) -> str:
        raise RuntimeError(KEY)


def with_attributes() -> Exception:
    error = LookupError("failed")
    error.headers = {"authorization": f"Bearer {KEY}"}  # type: ignore[attr-defined]
    error.detail = Detail(KEY)  # type: ignore[attr-defined]
    error.status = 401  # type: ignore[attr-defined]
    return error


def of_httpx() -> Exception:
    request = httpx.Request("POST", "https://x.example/", headers={"x-key": KEY}, content=KEY.encode())
    return httpx.HTTPStatusError("401", request=request, response=httpx.Response(401, request=request))


def of_json() -> Exception:
    try:
        json.loads(f'{{"a": {KEY}}}')
    except ValueError as error:
        return error
    raise AssertionError


EVERY = [
    ValueError(f"bad {KEY}"),
    KeyError(KEY),
    OSError(2, "no such file", f"/tmp/{KEY}"),
    ConnectionRefusedError(111, f"refused {KEY}"),
    UnicodeDecodeError("utf-8", KEY.encode() + b"\xff", len(KEY), len(KEY) + 1, "invalid start byte"),
    subprocess.CalledProcessError(1, ["curl", "-H", KEY], output=KEY, stderr=KEY.encode()),
    with_attributes(),
    WithSlots(KEY),
    Talkative(secret=KEY),
    of_json(),
    of_httpx(),
    ServerError(f"the server says {KEY}"),
    ImportError(KEY, name=KEY),
    StopAsyncIteration(KEY),
    ValueError([{"deep": (KEY,)}], {KEY: 1}),
]


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
def test_no_exception_tells_it(error: Exception) -> None:
    found = clean(raised(error))
    assert found is not error
    assert KEY not in told(found)
    assert GONE in told(found) or isinstance(found, httpx.HTTPError | WithSlots)
    assert isinstance(found, type(error) | RuntimeError)


def test_its_class_and_attributes_stay_where_they_can() -> None:
    found = clean(with_attributes())
    assert type(found) is LookupError
    assert found.headers == {"authorization": f"Bearer {GONE}"}
    assert found.detail == Detail(GONE)
    assert found.status == 401
    file = clean(OSError(2, "no such file", f"/tmp/{KEY}"))
    assert (type(file), file.errno, file.filename) == (FileNotFoundError, 2, f"/tmp/{GONE}")
    status = clean(of_httpx())
    assert type(status) is httpx.HTTPStatusError
    assert str(status) == "401"
    assert "_request" not in vars(status), "it holds the secret, and nobody can take it out of there"
    assert str(clean(Talkative(secret=KEY))) == f"talks of {GONE}"
    server = ServerError(f"the server says {KEY}", retry_after=3)
    server.error_code, server.data, server.call_id = -32000, {KEY: [KEY]}, "c1"
    found = clean(server)
    assert type(found) is ServerError
    assert (found.message, found.delivery, found.retry_after) == (f"the server says {GONE}", "answered", 3)
    assert (found.error_code, found.data, found.call_id) == (-32000, {GONE: [GONE]}, "c1")
    output = InvalidOutput("no object")
    output.result = ToolResult(b'{"structuredContent":"%b"}' % KEY.encode(), "c1")
    assert clean(output).result.structured == GONE


def test_an_exception_that_cannot_be_shown_is_given_on_as_it_is() -> None:
    error = Broken()
    assert clean(error) is error
    again = clean(Broken(KEY))
    assert type(again) is not Broken or again.args == (GONE,)


def test_causes_contexts_and_notes_are_cleaned() -> None:
    try:
        try:
            try:
                fail(ValueError(f"inner {KEY}"))
            except ValueError as inner:
                raise LookupError("middle") from inner
        except LookupError:
            fail(RuntimeError("outer"))
    except RuntimeError as error:
        error.add_note(f"note {KEY}")
        found = clean(error)
    assert type(found) is RuntimeError
    assert found.__notes__[0] == f"note {GONE}"
    middle = found.__context__
    assert (type(middle), str(middle)) == (LookupError, "middle")
    assert str(middle.__cause__) == f"inner {GONE}"
    assert middle.__suppress_context__
    assert not found.__suppress_context__
    assert KEY not in told(found)


def test_only_what_it_hangs_on_is_replaced_where_it_is_quiet_itself() -> None:
    error = RuntimeError("outer")
    error.__cause__ = ValueError(KEY)
    found = clean(error)
    assert found is error
    assert str(found.__cause__) == GONE


def test_groups_are_cleaned_and_keep_their_form() -> None:
    stopped = KeyboardInterrupt()
    quiet = ExceptionGroup("quiet", [ValueError("x")])
    group = BaseExceptionGroup(
        "many", [ValueError(KEY), stopped, ExceptionGroup(f"inner {KEY}", [KeyError("x")]), quiet]
    )
    group.add_note(KEY)
    found = clean(group)
    assert type(found) is BaseExceptionGroup
    assert [type(one) for one in found.exceptions] == [
        ValueError, KeyboardInterrupt, ExceptionGroup, ExceptionGroup,
    ]  # fmt: skip
    assert found.exceptions[1] is stopped
    assert found.exceptions[2].message == f"inner {GONE}"
    assert found.exceptions[3] is quiet
    assert found.__notes__[0] == GONE
    assert KEY not in told(found)
    assert clean(quiet) is quiet


async def test_a_cancellation_stays_the_very_object() -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            fail(ValueError(KEY))
        except ValueError:
            try:
                await trio.sleep_forever()
            except trio.Cancelled as cancelled:
                seen = cancelled
                raise
    assert scope.cancelled_caught
    assert clean(seen) is seen
    assert str(seen.__context__) == GONE
    leaving = SystemExit(f"bye {KEY}")
    assert clean(leaving) is leaving
    assert leaving.args == (f"bye {GONE}",)


def test_circles_and_long_chains_have_an_end() -> None:
    one, two = ValueError(KEY), ValueError("x")
    one.__context__, two.__cause__ = two, one
    found = clean(one)
    assert found.__context__ is two
    assert two.__cause__ is found
    assert KEY not in told(found)
    error: BaseException = ValueError(KEY)
    for _ in range(5000):
        above = ValueError("x")
        above.__context__ = error
        error = above
    found = clean(error)
    length = 0
    while found is not None:
        assert KEY not in str(found)
        found, length = found.__context__, length + 1
    assert length < 5000


def test_a_class_that_fights_back_is_described() -> None:
    class Fights(Exception):
        def __reduce__(self) -> Any:
            raise TypeError(KEY)

        def __new__(cls, *args: object) -> Any:
            if args and GONE in str(args[0]):
                raise TypeError(KEY)
            return super().__new__(cls, *args)

    found = clean(Fights(KEY))
    assert type(found) is RuntimeError
    assert str(found) == f"Fights: {GONE}"
    assert KEY not in told(found)


def test_a_class_that_cannot_even_be_looked_into_is_given_on_without_a_word() -> None:
    class Closed(Exception):
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            raise TypeError(KEY)

    found = clean(raised(Closed(KEY)))
    assert type(found) is RuntimeError
    assert KEY not in told(found)


def test_an_exception_that_lets_nobody_set_anything_is_cleaned_all_the_same() -> None:
    @dataclasses.dataclass(frozen=True)
    class Frozen(Exception):
        token: str

    for error in (Frozen(KEY), Frozen("words")):
        found = clean(raised(error))
        assert isinstance(found, Exception)
        assert KEY not in told(found)
        assert found.__traceback__ is None


def test_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for error in EVERY:
            clean(error)
    assert not caplog.records
