"""The canary run can fail: leaks that are made by hand, each at another place, are found there.

A plant breaks one piece of code in the way in which somebody might; the brief tour must then find a canary at
the place that it leaks to. Without a plant it finds none.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

import afpool
from afpool._base import secret as secrets_held
from afpool.client import _attempt, _carried, _signing
from afpool.pool import _asking, _call, _statistics
from afpool.tools import _asked_credentials, _call_use, _execute, _filled_arguments, _hooks, _scrub
from afpool.tools import _call as _door_call
from tests.canary.test_canary_run import Told, told_apart, toured
from tests.canary.tour import briefly

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from afpool import Credential


def kept(_: object, value: Any) -> Any:
    return value


async def kept_later(_: object, value: Any) -> Any:
    return value


def on_the_way(patch: pytest.MonkeyPatch, leak: Callable[[Any, Credential], object]) -> None:
    """Have something done with each credential, where a call is told of it."""
    real = _call.Call.carries

    def carries(call: Any, credential: Credential) -> None:
        real(call, credential)
        leak(call, credential)

    patch.setattr(_call.Call, "carries", carries)


def secret_of(credential: Credential) -> str:
    return credential.secrets()[0]


def logs(patch: pytest.MonkeyPatch, spelled: Callable[[str], str]) -> None:
    on_the_way(patch, lambda _, held: logging.getLogger("httpx").debug("sent %s", spelled(secret_of(held))))


def shows_arguments(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_door_call, "shown_args_of", lambda tool, args: args)


def frames_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_door_call, "untraced", lambda error, *, foreign: None)


def causes_stay(patch: pytest.MonkeyPatch) -> None:
    def told(error: Exception, failure: Any) -> Any:
        failure.__cause__ = error
        return failure

    for module in (_asked_credentials, _attempt, _hooks, _signing):
        patch.setattr(module, "in_place_of", told)


def in_a_file(patch: pytest.MonkeyPatch, folder: Path) -> None:
    on_the_way(patch, lambda _, held: (folder / "store" / "debug.dump").write_text(secret_of(held)))


def in_a_use(patch: pytest.MonkeyPatch) -> None:
    on_the_way(patch, lambda call, held: call.use.note("credential", secret_of(held), 0.0))


def in_a_doors_use(patch: pytest.MonkeyPatch) -> None:
    """The use of a call says what the door has fetched for it, where it is only just known."""
    real = _execute.Executing.use_credential

    def use(executing: Any, credential: Credential) -> None:
        executing._record.note("credential", secret_of(credential))
        executing._record.use.took = [secret_of(credential)]
        real(executing, credential)

    patch.setattr(_execute.Executing, "use_credential", use)


def in_the_shown(patch: pytest.MonkeyPatch) -> None:
    real = _execute.Executing.use_credential

    def use(executing: Any, credential: Credential) -> None:
        real(executing, credential)
        executing._record.use.shown = json.dumps({"with": secret_of(credential)}).encode()

    patch.setattr(_execute.Executing, "use_credential", use)
    patch.setattr(_call_use, "clean", lambda use, scrubber: None)


def in_statistics(patch: pytest.MonkeyPatch) -> None:
    real = _statistics._of

    def of(actor: Any) -> Any:
        client = actor.machine.client
        held = [] if client is None else [secret_of(one) for one in client.handle.carried]
        return real(actor).__class__(**{**_fields(real(actor)), "server": "".join(held)})

    patch.setattr(_statistics, "_of", of)


def _fields(thing: Any) -> dict[str, Any]:
    return {field.name: getattr(thing, field.name) for field in thing.__attrs_attrs__}


def pickled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        _filled_arguments.FilledArguments, "__reduce_ex__", lambda args, protocol: (dict, (dict(args),))
    )


def in_asdict(patch: pytest.MonkeyPatch) -> None:
    """An event that carries the credential where only what walks its attributes meets it."""
    real = _execute.Executing.use_credential

    def use(executing: Any, credential: Credential) -> None:
        # before the record knows of it
        executing._record.file("credential_used", {"with": {"headers": credential.to_headers()}})
        real(executing, credential)

    patch.setattr(_execute.Executing, "use_credential", use)


PLANTS: dict[str, tuple[Callable[..., None], str]] = {
    "results are not looked through": (
        lambda patch: patch.setattr(_scrub.Scrubber, "result", kept_later), r"result of bearer/"),
    "reports are not looked through": (
        lambda patch: patch.setattr(_scrub.Scrubber, "progress", kept), r"progress of bearer/"),
    "what a tool raises is not looked through": (
        lambda patch: patch.setattr(_scrub.Scrubber, "exception", kept), r"error of own/chained"),
    "errors of the pool's quote the server": (
        lambda patch: patch.setattr(_carried.Carried, "clean", kept), r"error of bearer/direct"),
    "a record shows the arguments": (shows_arguments, r"event tool_start of bearer/invalid"),
    "refusals keep their frames": (frames_stay, r"error of bearer/invalid: frame"),
    "a provider's words are a cause": (causes_stay, r"error of own/broken"),
    "a hook's words are a cause": (causes_stay, r"error of bearer/denied"),
    "an app's callback keeps its frames": (
        lambda patch: patch.setattr(_asking, "unframed", lambda error: None), r"problems"),
    "a secret shows itself": (
        lambda patch: patch.setattr(secrets_held.Secret, "__repr__", lambda held: held.reveal()),
        r"a secret"),
    "a credential shows itself": (
        lambda patch: patch.setattr(
            secrets_held.Credential, "__repr__", lambda held: f"<{held.to_headers()}>"),
        r"context of a tool"),
    "filled arguments show themselves": (
        lambda patch: patch.setattr(_filled_arguments.FilledArguments, "__repr__", dict.__repr__),
        r"arguments of a tool"),
    "filled arguments are pickled": (pickled, r"arguments of a tool: pickle"),
    "an event has one fact too many": (in_asdict, r"event credential_used of own/keep"),
    "a use has a note": (in_a_use, r"use of call-\d+"),  # one past the door, which hides what it knows
    "a use shows the arguments": (shows_arguments, r"use of bearer/invalid.*shown"),
    "a use tells what the door fetched": (in_a_doors_use, r"use of own/keep.*took"),
    "a use is not looked through at its end": (in_the_shown, r"use of own/keep.*shown"),
    "a running use shows the arguments": (shows_arguments, r"running use of bearer/denied.*shown"),
    "a transport shows its headers": (
        lambda patch: patch.setattr(
            afpool.HttpTransport, "__repr__", lambda transport: f"<{transport.headers}>"), r"repr of list"),
    "a run shows itself": (
        lambda patch: patch.setattr(
            afpool.Run, "__repr__", lambda run: f"<Run {run._runtime.config.secret}>"), r"run: repr"),
    "statistics say too much": (in_statistics, r"statistics"),
    "something is printed": (
        lambda patch: on_the_way(patch, lambda _, held: print(secret_of(held))), r"stdout"),
    "something is printed as an error": (
        lambda patch: on_the_way(patch, lambda _, held: print(secret_of(held), file=sys.stderr)), r"stderr"),
    "something is logged": (lambda patch: logs(patch, str), r"log of httpx"),
    "something is logged in JSON": (
        lambda patch: logs(patch, lambda held: json.dumps(held).replace("/", "\\/")), r"log of httpx"),
    "something is logged as a header": (
        lambda patch: logs(patch, lambda held: base64.b64encode(f"u:{held}".encode()).decode()),
        r"log of httpx"),
    "something is logged as a URL": (
        lambda patch: logs(patch, lambda held: f"https://x/?{quote(held, safe='')}"), r"log of httpx"),
    "something is logged in hexadecimal": (
        lambda patch: logs(patch, lambda held: held.encode().hex()), r"log of httpx"),
    "something is logged in reverse": (lambda patch: logs(patch, lambda held: held[::-1]), r"log of httpx"),
    "half of something is logged": (lambda patch: logs(patch, lambda held: held[:9]), r"log of httpx"),
    "bytes are logged": (lambda patch: logs(patch, lambda held: repr(held.encode())), r"log of httpx"),
}  # fmt: skip


@pytest.mark.parametrize("plant", PLANTS)
async def test_a_planted_leak_is_found(
    plant: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: Any
) -> None:
    leak, place = PLANTS[plant]
    leak(monkeypatch)
    found, here, _ = await toured("memory", tmp_path, capfd, briefly, inside=False)
    leaks = told_apart(found, here).leaks
    assert any(re.match(place, one.place) for one in leaks), sorted({one.place for one in leaks})[:30]


async def test_a_leak_into_a_file_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: Any
) -> None:
    in_a_file(monkeypatch, tmp_path)
    found, here, _ = await toured("sqlite", tmp_path, capfd, briefly, inside=False)
    leaks = told_apart(found, here).leaks
    assert {one.place for one in leaks} == {
        "file of the-store: debug.dump",
        "open file of the-store: debug.dump",
    }


async def test_the_brief_tour_finds_nothing_where_nothing_was_planted(tmp_path: Path, capfd: Any) -> None:
    found, here, _ = await toured("memory", tmp_path, capfd, briefly, inside=False)
    assert told_apart(found, here) == Told()
