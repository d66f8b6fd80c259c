"""Keys that are fetched and keys in files: rotated, withdrawn, not to be had; one fetch for all who wait."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio

from afpool.serve._jwks_cache import KEEP, TTL, UNKNOWN_EVERY
from afpool.serve._proof_types import Proven, Refused, UnsafeDoor
from tests.serve.proof.proof_kit import (
    EC,
    ED,
    NOW,
    RSA,
    RSA2,
    Issuer,
    Wall,
    bearing,
    claims,
    config,
    header_of,
    is_refused,
    jwt_config,
    proving,
    public,
    signed,
)

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

LONG = claims(exp=NOW + 10 * KEEP)
FOREVER = signed(LONG)


async def test_a_key_that_was_just_put_into_use_is_fetched_once_for_all_who_need_it(
    autojump_clock: MockClock,
) -> None:
    issuer = Issuer(document=public(RSA))
    async with proving(config(), issuer) as proof:
        assert isinstance(await proof.prove(bearing(signed())), Proven)
        assert issuer.asked == 1
        await trio.sleep(UNKNOWN_EVERY)
        issuer.document = public(RSA2)
        issuer.hold = trio.Event()
        found: list[Any] = []

        async def ask(number: int) -> None:
            token = signed(claims(sub=f"user-{number}"), key=RSA2)
            found.append(await proof.prove(bearing(token)))

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(ask, number)
            gone = trio.CancelScope()

            async def leave() -> None:
                with gone:
                    await proof.prove(bearing(signed(claims(sub="gone"), key=RSA2)))

            nursery.start_soon(leave)
            await trio.testing.wait_all_tasks_blocked()
            gone.cancel()  # one who does not wait any more ends nobody's fetch
            await trio.testing.wait_all_tasks_blocked()
            # Meanwhile the others are not kept waiting.
            assert isinstance(await proof.prove(bearing(signed(claims(sub="bob")))), Proven)
            assert not found
            issuer.hold.set()
        assert len(found) == 20
        assert all(isinstance(one, Proven) for one in found)
        assert issuer.asked == 2


async def test_keys_that_are_made_up_do_not_make_us_ask(autojump_clock: MockClock) -> None:
    issuer = Issuer(document=public(RSA))
    async with proving(config(), issuer) as proof:
        await proof.prove(bearing(signed()))
        for number in range(100):
            await trio.sleep(0.5)
            token = signed(key=RSA2, header={"kid": f"made-up-{number}"})
            is_refused(await proof.prove(bearing(token)), 401, "names no signing key")
        assert issuer.asked <= 1 + 50 / UNKNOWN_EVERY


async def test_keys_outlive_an_issuer_that_is_down_and_not_for_ever(autojump_clock: MockClock) -> None:
    issuer = Issuer()
    async with proving(config(), issuer) as proof:
        running = await proof.prove(bearing(FOREVER))
        assert isinstance(running, Proven)
        for status, document in ((503, {}), (200, b"<html>"), (200, b""), (302, {}), (404, {})):
            issuer.status, issuer.document = status, document
            await trio.sleep(TTL * 2)
            assert isinstance(await proof.prove(bearing(signed(LONG | {"sub": str(status)}))), Proven)
            assert running.still_holds()
            (problem,) = proof.problems()
            assert "https://login.example/keys" in problem
        await trio.sleep(KEEP)
        found = is_refused(await proof.prove(bearing(signed(LONG | {"sub": "late"}))), 503, "keys")
        assert found.code == "keys-unavailable"
        assert int(header_of(found, b"retry-after") or 0) >= 1
        issuer.status, issuer.document = 200, public(RSA)
        await trio.sleep(TTL)
        assert isinstance(await proof.prove(bearing(signed(LONG | {"sub": "late"}))), Proven)
        assert proof.problems() == ()


async def test_an_issuer_that_was_never_reached_is_asked_with_pauses(autojump_clock: MockClock) -> None:
    issuer = Issuer(status=500)
    async with proving(config(), issuer) as proof:
        for _ in range(600):
            found = await proof.prove(bearing(signed()))
            assert isinstance(found, Refused)
            assert found.status == 503
            await trio.sleep(0.1)
        assert 5 <= issuer.asked <= 9, "1, 2, 4, 8 … seconds, each shortened by up to a half"
        issuer.status, issuer.headers = 503, {"retry-after": "600"}
        await trio.sleep(TTL)
        before = issuer.asked
        await trio.sleep(599)
        assert issuer.asked - before <= 1


async def test_a_fetch_that_hangs_ends_by_itself(autojump_clock: MockClock) -> None:
    issuer = Issuer(hold=trio.Event())
    async with proving(config(), issuer) as proof:
        began = trio.current_time()
        is_refused(await proof.prove(bearing(signed())), 503)
        assert trio.current_time() - began <= 31


async def test_a_key_that_is_withdrawn_takes_back_what_it_proved(autojump_clock: MockClock) -> None:
    issuer = Issuer()
    async with proving(config(), issuer) as proof:
        by_rsa = await proof.prove(bearing(FOREVER))
        by_ec = await proof.prove(bearing(signed(LONG, key=EC, algorithm="ES256")))
        assert isinstance(by_rsa, Proven)
        assert isinstance(by_ec, Proven)
        issuer.document = public(EC, ED)
        await trio.sleep(TTL + 1)  # nobody calls meanwhile
        assert not by_rsa.still_holds()
        assert by_ec.caller() is by_ec.identity
        is_refused(await proof.prove(bearing(FOREVER)), 401, "names no signing key")
        issuer.document = {"keys": []}
        await trio.sleep(TTL + 1)
        assert not by_ec.still_holds()


async def test_another_key_under_the_same_name_takes_back_as_well(autojump_clock: MockClock) -> None:
    issuer = Issuer(document=public(RSA))
    async with proving(config(), issuer) as proof:
        found = await proof.prove(bearing(FOREVER))
        assert isinstance(found, Proven)
        issuer.document = public(RSA2, kid="rsa-1")
        await trio.sleep(TTL + 1)
        assert not found.still_holds()
        is_refused(await proof.prove(bearing(FOREVER)), 401, "signature is wrong")


async def test_a_proof_ends_with_its_token_and_its_leeway() -> None:
    wall = Wall()
    async with proving(config(), wall=wall) as proof:
        found = await proof.prove(bearing(signed()))
        assert isinstance(found, Proven)
        wall.now = NOW + 629.9
        assert found.caller() is found.identity
        assert (await proof.prove(bearing(signed()))) is found, "it is remembered"
        wall.now = NOW + 630
        assert not found.still_holds()
        is_refused(await proof.prove(bearing(signed())), 401, "has expired")


async def test_where_keys_are_looked_for_no_secret_and_no_proxy_goes(autojump_clock: MockClock) -> None:
    seen: list[httpx.Request] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(302, headers={"location": "http://169.254.169.254/latest/meta-data"})

    issuer = Issuer()
    issuer.answer = answer  # type: ignore[method-assign]
    async with proving(config(), issuer) as proof:
        is_refused(await proof.prove(bearing(signed())), 503)
        assert [str(request.url) for request in seen] == ["https://login.example/keys"]
        assert "authorization" not in seen[0].headers
        (problem,) = proof.problems()
        assert "another origin" in problem
        assert "169.254" not in problem


# ------------------------------------------------------------------ files


def in_file(path: Path, document: Any) -> Any:
    path.write_text(json.dumps(document))
    path.chmod(0o644)
    return config(jwt=(jwt_config(jwks=str(path)),))


async def test_keys_in_a_file_are_read_again_when_it_changes(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    path = tmp_path / "keys.json"
    async with proving(in_file(path, public(RSA))) as proof:
        found = await proof.prove(bearing(signed()))
        assert isinstance(found, Proven)
        is_refused(await proof.prove(bearing(signed(key=RSA2))), 401, "names no signing key")
        in_file(path, public(RSA2))
        await trio.sleep(2)
        assert isinstance(await proof.prove(bearing(signed(key=RSA2))), Proven)
        assert not found.still_holds()


async def test_a_key_file_that_goes_bad_later_leaves_what_was_known(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    async with proving(in_file(path, public(RSA))) as proof:
        for spoil in (
            lambda: path.write_text("{"),
            lambda: path.chmod(0o666),
            path.unlink,
            path.mkdir,
        ):
            spoil()
            await proof.refresh()
            (problem,) = proof.problems()
            assert str(path) in problem
            assert isinstance(await proof.prove(bearing(signed(claims(n=str(spoil))))), Proven)
        path.rmdir()
        in_file(path, public(RSA))
        await proof.refresh()
        assert proof.problems() == ()


async def test_a_key_file_that_is_bad_at_the_start_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    for spoil, words in (
        (lambda: None, "cannot be read"),
        (lambda: path.write_text("[]"), "is not a key set"),
        (lambda: path.write_text(json.dumps(public(RSA))) and path.chmod(0o664), "written by others"),
        (lambda: path.write_bytes(b" " * 300_000), "is larger than"),
        (lambda: (path.unlink(), os.mkfifo(path)), "no regular file"),
    ):
        spoil()
        with pytest.raises(UnsafeDoor, match=words):
            async with proving(config(jwt=(jwt_config(jwks=str(path)),))):
                pass
        if path.exists():
            path.chmod(0o600)
