"""Tokens of the service's own: whom they prove, for how long, and what a revocation stops."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

import afpool
from afpool import (
    CredentialRequirement,
    Identity,
    IdentityMismatch,
    IdentityMissing,
    Issued,
    ScriptedCredentials,
    bearer,
)
from afpool.config import TokensConfig
from afpool.serve import _tokens
from afpool.serve._proof_types import Proven
from afpool.serve._tokens import CHECK_EVERY, TokenFile
from afpool.serve._tokens_file import TokenFileError
from afpool.serve._tokens_text import draw_token
from tests.pool.kit import until
from tests.pool.kit import world as pool_world
from tests.serve.proof.proof_kit import (
    NOW,
    Wall,
    bearing,
    config,
    head,
    header_of,
    is_refused,
    proving,
)

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from afpool.serve._tokens import NewToken

ALICE = Identity("acme", "alice", "c-1")
UNKNOWN = "not one of this service, or was revoked"


def tokens(path: Path, wall: Wall | None = None) -> tuple[TokenFile, Any]:
    date = Wall() if wall is None else wall
    file = TokenFile(path / "tokens.json", now=lambda: date.now)
    return file, config(jwt=(), tokens=TokensConfig(file=str(file.path)))


def by(new: NewToken) -> Any:
    return bearing(new.token.reveal())


async def test_a_token_proves_whom_it_was_made_for(tmp_path: Path) -> None:
    file, identity = tokens(tmp_path)
    new, other = file.new(ALICE, "laptop"), file.new(Identity("globex"), "service", NOW + 9)
    async with proving(identity) as proof:
        found = await proof.prove(by(new))
        assert isinstance(found, Proven)
        assert found.identity == ALICE
        assert found.subject == f"token {new.entry.id}"
        assert found.expires_at is None
        found = await proof.prove(by(other))
        assert isinstance(found, Proven)
        assert found.identity == Identity("globex")
        assert found.expires_at == NOW + 9
        for scheme in ("bearer", "BEARER", "bEaReR", "Bearer "):
            again = await proof.prove(head(("Authorization", f"{scheme} {new.token.reveal()}")))
            assert isinstance(again, Proven)


async def test_what_is_no_token_of_ours_proves_nobody(tmp_path: Path) -> None:
    file, identity = tokens(tmp_path)
    text = file.new(ALICE, "laptop").token.reveal()
    file.new(ALICE, "gone")
    file.revoke("gone")
    async with proving(identity) as proof:
        for wrong in (
            draw_token()[1].reveal(),
            text[:-1] + ("0" if text[-1] != "0" else "1"),
            text[:4] + text[4:].swapcase(),
            text[:15] + draw_token()[1].reveal()[15:],
            text + "=",
            "afp_",
        ):
            is_refused(await proof.prove(bearing(wrong)), 401, UNKNOWN)
        for other in (text[4:], "x", "a.b.c", text.upper()):
            is_refused(await proof.prove(bearing(other)), 401, "no kind")


async def test_a_digest_is_compared_in_constant_time_also_for_an_id_that_nobody_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, identity = tokens(tmp_path)
    new = file.new(ALICE, "laptop")
    compared: list[tuple[int, int]] = []
    really = hmac.compare_digest

    def compare(one: str, other: str) -> bool:
        compared.append((len(one), len(other)))
        return really(one, other)

    monkeypatch.setattr(_tokens.hmac, "compare_digest", compare)
    async with proving(identity) as proof:
        await proof.prove(by(new))
        await proof.prove(bearing(draw_token()[1].reveal()))
    assert compared == [(64, 64), (64, 64)]


async def test_a_token_ends_when_it_expires(tmp_path: Path) -> None:
    wall = Wall()
    file, identity = tokens(tmp_path, wall)
    new = file.new(ALICE, "laptop", NOW + 60)
    async with proving(identity, wall=wall) as proof:
        found = await proof.prove(by(new))
        assert isinstance(found, Proven)
        wall.now = NOW + 59.9
        assert found.caller() is found.identity
        wall.now = NOW + 60
        with pytest.raises(IdentityMissing, match="holds no longer"):
            found.caller()
        is_refused(await proof.prove(by(new)), 401, "has expired")


async def test_a_revocation_in_the_file_is_seen_within_its_time(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    file, identity = tokens(tmp_path)
    new, other = file.new(ALICE, "gone"), file.new(ALICE, "kept")
    async with proving(identity) as proof:
        gone, kept = await proof.prove(by(new)), await proof.prove(by(other))
        assert isinstance(gone, Proven)
        assert isinstance(kept, Proven)
        file.revoke("gone")
        late = file.new(ALICE, "late")
        assert gone.still_holds(), "nobody has looked yet"
        await trio.sleep(CHECK_EVERY * 1.01)
        assert not gone.still_holds()
        assert kept.still_holds()
        is_refused(await proof.prove(by(new)), 401, UNKNOWN)
        assert isinstance(await proof.prove(by(late)), Proven)


async def test_an_entry_that_says_somebody_else_now_takes_back_what_it_said(tmp_path: Path) -> None:
    file, identity = tokens(tmp_path)
    new = file.new(Identity("acme", "alice"), "x")
    async with proving(identity) as proof:
        found = await proof.prove(by(new))
        assert isinstance(found, Proven)
        file.path.write_text(file.path.read_text().replace('"alice"', '"mallory"'))
        await proof.refresh()
        assert not found.still_holds()
        again = await proof.prove(by(new))
        assert isinstance(again, Proven)
        assert again.identity.principal == "mallory"


async def test_a_file_that_is_gone_takes_its_tokens_and_one_that_is_spoilt_does_not(tmp_path: Path) -> None:
    file, identity = tokens(tmp_path)
    new = file.new(ALICE, "x")
    raw = file.path.read_bytes()
    async with proving(identity) as proof:
        found = await proof.prove(by(new))
        assert isinstance(found, Proven)
        for spoil, words in (
            (lambda: file.path.chmod(0o644), "can be read"),
            (
                lambda: (file.path.chmod(0o600), file.path.write_bytes(raw[:-9])),
                "none that `afpool token` writes",
            ),
        ):
            spoil()
            await proof.refresh()
            assert words in proof.problems()[0]
            assert found.still_holds()
            assert isinstance(await proof.prove(by(new)), Proven)
        file.path.write_bytes(raw)
        await proof.refresh()
        assert proof.problems() == ()
        file.path.unlink()
        await proof.refresh()
        assert "is not there" in proof.problems()[0]
        assert not found.still_holds()
        is_refused(await proof.prove(by(new)), 401, UNKNOWN)


async def test_at_the_start_there_has_to_be_a_file(tmp_path: Path) -> None:
    file, identity = tokens(tmp_path)
    with pytest.raises(TokenFileError, match=r"is not there; `afpool token new` makes one"):
        async with proving(identity):
            pass
    file.new(ALICE, "x")
    file.path.chmod(0o640)
    with pytest.raises(TokenFileError, match="chmod 600"):
        async with proving(identity):
            pass


async def test_a_watcher_that_breaks_begins_again(
    tmp_path: Path,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file, identity = tokens(tmp_path)
    new = file.new(ALICE, "x")
    async with proving(identity) as proof:
        found = await proof.prove(by(new))
        assert isinstance(found, Proven)
        with monkeypatch.context() as patched:
            patched.setattr(_tokens, "read_entries", lambda *_, **__: 1 / 0)
            await trio.sleep(CHECK_EVERY * 3)
        assert "watching what proves callers raised ZeroDivisionError" in caplog.text
        file.revoke("x")
        await trio.sleep(5)
        assert not found.still_holds()


@pytest.mark.parametrize("keyed_on", [("tenant", "principal"), ()])
async def test_a_call_whose_token_is_revoked_while_it_waits_for_a_credential_leaves_no_byte(
    tmp_path: Path, keyed_on: tuple[str, ...]
) -> None:
    """Also on a server that is the same for everybody, which would be listed for nobody in particular."""
    file, identity = tokens(tmp_path)
    new = file.new(Identity("acme", "alice"), "x")
    hold = trio.Event()
    provider = ScriptedCredentials(lambda _: Issued(bearer("secret")))
    async with (
        proving(identity) as proof,
        pool_world(
            credential=CredentialRequirement("files"),
            pool={"credentials": provider},
            server={"keyed_on": keyed_on},
        ) as w,
    ):
        found = await proof.prove(by(new))
        assert isinstance(found, Proven)
        tool = (await w.pool.tools(found.caller))["echo"]
        await tool.call({"text": "before"}, identity=found.caller)
        assert w.sent() == 1
        provider._hold = hold
        asked = len(provider.requests)
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                with pytest.raises(IdentityMismatch) as caught:
                    await tool.call({"text": "after"}, identity=found.caller)
                assert caught.value.delivery == "not-sent"

            nursery.start_soon(call)
            await until(lambda: len(provider.requests) > asked)
            file.revoke("x")
            await proof.refresh()
            hold.set()
        assert w.sent() == 1
        assert w.server.executions["echo"] == 1
        with pytest.raises(IdentityMissing):
            await w.pool.tools(found.caller)


async def test_without_a_token_it_is_said_that_one_is_needed_and_no_error(tmp_path: Path) -> None:
    file, identity = tokens(tmp_path)
    file.new(ALICE, "x")
    for resource, metadata in (
        (None, ""),
        (
            "https://tools.example",
            ', resource_metadata="https://tools.example/.well-known/oauth-protected-resource"',
        ),
        (
            "https://t.example:8/mcp",
            ', resource_metadata="https://t.example:8/.well-known/oauth-protected-resource/mcp"',
        ),
    ):
        async with proving(attrs.evolve(identity, resource=resource)) as proof:
            for odd in (
                (),
                (("authorization", "Basic YTpi"),),
                (("authorization", ""),),
                (("cookie", "a=b"),),
            ):
                found = is_refused(await proof.prove(head(*odd)), 401)
                assert found.code == "unauthenticated"
                assert header_of(found, b"www-authenticate") == f'Bearer realm="afpool"{metadata}'
            found = is_refused(await proof.prove(bearing("afp_x")), 401)
            assert header_of(found, b"www-authenticate") == (
                f'Bearer realm="afpool"{metadata}, error="invalid_token", '
                'error_description="the token is not one of this service, or was revoked"'
            )


@pytest.mark.parametrize(
    "values",
    [("Bearer",), ("Bearer ",), ("Bearer a b",), ("Bearer a,Bearer b",), ("Bearer\ta",), ("Bearer a\t",),
     ("Bearer ä",), ("Bearer =a",), ("Bearer a", "Bearer a"), ("Bearer a", "Basic b"), ("Basic a", "Basic b"),
     ("Bearer " + "a" * 17_000,)],
)  # fmt: skip
async def test_a_header_that_is_not_one_token_is_a_bad_request(
    tmp_path: Path, values: tuple[str, ...]
) -> None:
    file, identity = tokens(tmp_path)
    file.new(ALICE, "x")
    async with proving(attrs.evolve(identity, anonymous=Identity("public"))) as proof:
        found = await proof.prove(head(*(("authorization", value) for value in values)))
        assert 'error="invalid_request"' in (header_of(is_refused(found, 400), b"www-authenticate") or "")


def test_the_pool_takes_a_proof_for_a_caller() -> None:
    proven = Proven(ALICE, "token x")
    assert callable(proven.caller)
    assert proven.caller() is ALICE
    assert isinstance(afpool.Identity("a"), Identity)
