"""Whatever comes of a proof, no token, no claim and no header's value is shown: not logged, not answered, not
in what is raised, locals of our frames included.
"""

from __future__ import annotations

import contextlib
import logging
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

import afpool
from afpool import Identity
from afpool.config import Claim, ServeConfig, TokensConfig
from afpool.serve import _jwt, _proof
from afpool.serve._guard import Guard
from afpool.serve._proof_types import Proven, Refused, RequestHead
from afpool.serve._tokens import NewToken, TokenFile
from afpool.serve._tokens_file import TokenEntry
from tests.credentials.test_secrets_nowhere import shown
from tests.serve.proof.proof_kit import (
    RSA2,
    Issuer,
    bearing,
    claims,
    config,
    head,
    jwt_config,
    proving,
    proxy_config,
    signed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

CANARY = "canary-51c7e"
OURS = Path(afpool.__file__).parent
PAYLOAD = claims(sub=CANARY, org={"id": CANARY}, email=f"{CANARY}@example.com")
NAMED = {"tenant": Claim(name="org.id"), "principal": Claim(name="sub")}


def clean(caplog: pytest.LogCaptureFixture, *things: Any, secrets: tuple[str, ...] = ()) -> None:
    """Neither the canary nor any of these is in what can be seen of a thing, or in what was logged."""
    texts = [record.getMessage() for record in caplog.records]
    texts += [str(record.exc_info) for record in caplog.records if record.exc_info]
    for thing in things:
        if isinstance(thing, Refused):
            texts += [str(attrs.asdict(thing)), thing.body.decode(), str(thing.headers)]
        # What holds the values by its purpose does not show them by itself.
        holds = isinstance(thing, Proven | RequestHead | NewToken | TokenEntry)
        texts += [repr(thing), str(thing), f"{thing}"] if holds else shown(thing)
        texts += [thing.subject] if isinstance(thing, Proven) else []
    for text in texts:
        for secret in (CANARY, *secrets):
            assert secret not in text, text


@pytest.fixture(autouse=True)
def _everything_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.DEBUG):
        yield


@pytest.mark.parametrize(
    "token",
    [
        signed(PAYLOAD),
        signed(PAYLOAD, key=RSA2, header={"kid": CANARY}),
        signed(PAYLOAD, key=RSA2, header={"kid": "rsa-1"}),
        signed(PAYLOAD | {"exp": 0}),
        signed(PAYLOAD | {"aud": CANARY}),
        signed(PAYLOAD | {"iss": CANARY}),
        signed(PAYLOAD | {"sub": [CANARY]}),
        signed(PAYLOAD, header={"typ": CANARY}),
        signed(PAYLOAD, header={"alg": CANARY}),
        signed(PAYLOAD, header={"crit": [CANARY]}),
        signed(f'{{"sub":"{CANARY}","sub":1}}'.encode()),
        CANARY,
        f"afp_{CANARY}",
        f"{CANARY}.{CANARY}.{CANARY}",
        CANARY * 2000,
        f"{CANARY} {CANARY}",
    ],
)
async def test_a_token_is_shown_nowhere(token: str, caplog: pytest.LogCaptureFixture) -> None:
    async with proving(config(jwt=(jwt_config(claims=NAMED),))) as proof:
        found = await proof.prove(bearing(token))
        clean(caplog, found, proof, bearing(token), secrets=(token[:80],))


async def test_an_identity_that_was_proven_is_not_in_what_is_logged_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    new = file.new(Identity(CANARY, CANARY), "laptop")
    everything = config(
        jwt=(jwt_config(claims=NAMED),), proxy=proxy_config(), tokens=TokensConfig(file=str(file.path))
    )
    async with proving(everything) as proof:
        by_proxy = head(("x-tenant", CANARY), ("x-user", CANARY), peer="10.0.0.9")
        for made in (bearing(new.token.reveal()), bearing(signed(PAYLOAD)), by_proxy):
            found = await proof.prove(made)
            assert isinstance(found, Proven)
            assert found.identity.tenant == CANARY
            clean(caplog, found, made, secrets=(new.token.reveal()[15:],))
    clean(caplog, new, new.entry, file, *file.list(), secrets=(new.token.reveal()[15:],))


@pytest.mark.parametrize(
    ("name", "value", "peer"),
    [("x-tenant", CANARY, "192.0.2.1"), ("x_tenant", CANARY, "10.0.0.9"), ("x-user", CANARY, "10.0.0.9"),
     ("x-user", f"{CANARY}\n", "10.0.0.9"), ("x-user", CANARY * 80, "10.0.0.9"),
     ("authorization", CANARY, None),
     ("authorization", f"Bearer {CANARY} x", None), (f"x-{CANARY}", CANARY, None)],
)  # fmt: skip
async def test_a_header_is_shown_nowhere(
    name: str, value: str, peer: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with proving(config(proxy=proxy_config())) as proof:
        clean(caplog, await proof.prove(head((name, value), peer=peer)))


@pytest.mark.parametrize(
    "headers",
    [(("host", CANARY),), (("host", f"{CANARY} x"),), (("host", "localhost"), ("origin", f"https://{CANARY}")),
     (("host", "localhost"), (CANARY, "x\0")), (("host", "localhost"), ("mcp-session-id", f"{CANARY} ")),
     (("host", "localhost"), ("content-type", CANARY)), ((CANARY, CANARY),) * 200,
     (("host", "localhost"), ("content-length", CANARY), ("content-length", CANARY))],
)  # fmt: skip
def test_the_guard_repeats_nothing(headers: Any, caplog: pytest.LogCaptureFixture) -> None:
    for method in ("POST", CANARY):
        found = Guard(ServeConfig()).check(head(*headers, method=method))
        assert found is not None
        clean(caplog, found)


async def test_a_fault_of_ours_is_told_by_its_kind_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise LookupError(CANARY)

    for module, name in ((_proof, "take_apart"), (_jwt, "_judge"), (_proof, "bearer_of")):
        with monkeypatch.context() as patched:
            patched.setattr(module, name, fail)
            async with proving(config()) as proof:
                found = await proof.prove(bearing(signed(PAYLOAD)))
                assert isinstance(found, Refused)
                assert found.status == 500
                assert found.code == "proof-failed"
                clean(caplog, found)
    assert caplog.text.count("proving who calls raised LookupError") == 3


async def test_a_caller_who_goes_while_he_waits_leaves_no_value_in_the_frames() -> None:
    issuer = Issuer(hold=trio.Event())
    caught: list[BaseException] = []

    async def wait() -> None:
        try:
            await proof.prove(bearing(signed(PAYLOAD)))
        except trio.Cancelled as error:
            caught.append(error)
            raise

    async with (
        proving(config(jwt=(jwt_config(claims=NAMED),)), issuer) as proof,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    (error,) = caught
    stack = traceback.TracebackException.from_exception(error, capture_locals=True).stack
    ours = [frame for frame in stack if Path(frame.filename).is_relative_to(OURS)]
    assert {"prove", "keys"} <= {frame.name for frame in ours}
    for frame in ours:
        assert CANARY not in str(frame.locals)
        assert signed(PAYLOAD)[:80] not in str(frame.locals)


def test_a_file_that_cannot_be_read_is_told_without_what_stands_in_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    new = file.new(Identity(CANARY), CANARY)
    good = file.path.read_text()
    for spoilt in (good[:-5], good.replace('"id"', '"scope"'), good.replace('"2', '"x2')):
        file.path.write_text(spoilt)
        for use in (file.list, lambda: file.new(Identity("acme"), "x"), lambda: file.revoke(new.entry.id)):
            with pytest.raises(afpool.AfpoolError) as caught:
                use()
            clean(caplog, caught.value)
    with contextlib.suppress(afpool.AfpoolError):
        file.revoke(new.token.reveal())
