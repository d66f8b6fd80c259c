"""Another configuration under way: what stays, what is withdrawn, and what a bad one leaves as it was."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from afpool import Identity
from afpool.config import Claim, TokensConfig
from afpool.serve import _proof
from afpool.serve._proof import open_proof
from afpool.serve._proof_resource import metadata, metadata_url
from afpool.serve._proof_types import Proven, UnsafeDoor
from afpool.serve._tokens import TokenFile
from afpool.serve._tokens_file import TokenFileError
from tests.serve.proof.proof_kit import (
    EC,
    Issuer,
    bearing,
    claims,
    config,
    head,
    is_refused,
    jwt_config,
    proving,
    proxy_config,
    signed,
    world,
)

if TYPE_CHECKING:
    from pathlib import Path

BY_PROXY = head(("x-tenant", "acme"), ("x-user", "alice"), peer="10.0.0.9")


async def test_what_stays_in_the_configuration_is_kept_and_the_rest_takes_back_what_it_proved(
    tmp_path: Path,
) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    new = file.new(Identity("acme", "alice"), "x")
    tokens = TokensConfig(file=str(file.path))
    everything = config(tokens=tokens, proxy=proxy_config())
    issuer = Issuer()
    heads = {"tokens": bearing(new.token.reveal()), "jwt": bearing(signed()), "proxy": BY_PROXY}
    for gone, more in (
        ("tokens", {"tokens": None}),
        ("jwt", {"jwt": ()}),
        ("jwt", {"jwt": (jwt_config(claims={"principal": Claim(name="sub")}),)}),
        ("jwt", {"jwt": (jwt_config(leeway=5.0),)}),
        ("proxy", {"proxy": None}),
        ("proxy", {"proxy": proxy_config(trusted=("10.0.0.8",))}),
        (None, {"resource": "https://tools.example/mcp"}),
        (None, {"anonymous": Identity("public")}),
    ):
        async with proving(everything, issuer) as proof:
            found = {name: await proof.prove(one) for name, one in heads.items()}
            asked = issuer.asked
            await proof.reconfigure(attrs.evolve(everything, **more))
            await trio.testing.wait_all_tasks_blocked()
            for name, one in found.items():
                assert isinstance(one, Proven)
                assert one.still_holds() == (name != gone), (name, gone)
                if name != gone:
                    assert isinstance(await proof.prove(heads[name]), Proven)
            assert issuer.asked == asked, "keys that are known are not fetched again"


async def test_what_was_prepared_changes_nothing_until_it_is_taken() -> None:
    async with proving(config()) as proof:
        found = await proof.prove(bearing(signed()))
        assert isinstance(found, Proven)
        other = config(jwt=(), proxy=proxy_config())
        change, late = await proof.prepare(other), await proof.prepare(config(resource="https://t.example"))
        assert found.still_holds()
        is_refused(await proof.prove(BY_PROXY), 401)
        change()
        assert not found.still_holds()
        assert isinstance(await proof.prove(BY_PROXY), Proven)
        with pytest.raises(RuntimeError, match="in between"):
            late()


async def test_a_configuration_that_cannot_be_leaves_everything_as_it_was(tmp_path: Path) -> None:
    bad: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"tokens": TokensConfig(file=str(tmp_path / "nowhere"))}, TokenFileError),
        ({"jwt": (jwt_config(algorithms=("none",)),)}, UnsafeDoor),
        ({"jwt": (jwt_config(), jwt_config(audience=("x",)))}, UnsafeDoor),
        ({"jwt": (jwt_config(jwks=str(tmp_path / "nowhere")),)}, UnsafeDoor),
        ({"jwt": (), "proxy": proxy_config(trusted=())}, UnsafeDoor),
        ({"jwt": ()}, UnsafeDoor),
    ]
    async with proving(config()) as proof:
        found = await proof.prove(bearing(signed()))
        assert isinstance(found, Proven)
        for more, error in bad:
            with pytest.raises(error):
                await proof.reconfigure(attrs.evolve(config(), **more))
            assert found.still_holds()
            assert isinstance(await proof.prove(bearing(signed(claims(n=str(more))))), Proven)


async def test_a_request_under_way_is_judged_by_what_stands_when_it_ends() -> None:
    """Its keys come when its issuer has left the configuration: nothing that it proves would hold."""
    issuer = Issuer(hold=trio.Event())
    async with proving(config(), issuer) as proof, trio.open_nursery() as nursery:
        found: list[Any] = []

        async def ask() -> None:
            found.append(await proof.prove(bearing(signed())))

        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        await proof.reconfigure(config(jwt=(), anonymous=Identity("public")))
        await trio.testing.wait_all_tasks_blocked()
        is_refused(found[0], 503)


async def test_an_exception_of_the_block_leaves_as_itself() -> None:
    with pytest.raises(KeyError):
        async with open_proof(config(), seams=world(), transport=Issuer().transport):
            raise KeyError


async def test_what_was_judged_once_is_remembered_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_proof, "REMEMBERED", 3)
    async with proving(config()) as proof:
        tokens = [signed(claims(sub=f"user-{number}"), key=EC, algorithm="ES256") for number in range(5)]
        found = [await proof.prove(bearing(token)) for token in tokens]
        assert len(proof._judged) == 3
        assert await proof.prove(bearing(tokens[4])) is found[4]
        assert await proof.prove(bearing(tokens[0])) is not found[0]
        assert len({one.subject for one in found if isinstance(one, Proven)}) == 5
    again = signed(claims(sub="user-1", jti="another token"))
    async with proving(config()) as proof:
        one, other = [await proof.prove(bearing(token)) for token in (tokens[1], again)]
        assert isinstance(one, Proven)
        assert isinstance(other, Proven)
        assert one.subject == other.subject, "another token of the same caller"


@pytest.mark.parametrize(
    ("resource", "url"),
    [
        ("https://tools.example", "https://tools.example/.well-known/oauth-protected-resource"),
        ("https://tools.example/", "https://tools.example/.well-known/oauth-protected-resource"),
        ("https://tools.example:8/mcp", "https://tools.example:8/.well-known/oauth-protected-resource/mcp"),
    ],
)
def test_the_document_that_says_where_tokens_come_from(resource: str, url: str) -> None:
    assert metadata_url(resource) == url
    found = metadata(config(resource=resource))
    assert found is not None
    path, body = found
    assert url.endswith(path)
    assert json.loads(body) == {
        "resource": resource,
        "bearer_methods_supported": ["header"],
        "authorization_servers": ["https://login.example"],
    }
    assert metadata(config()) is None
    assert b"authorization_servers" not in (metadata(config(jwt=(), resource=resource)) or ("", b""))[1]


def test_without_joserfc_it_is_said_what_to_install() -> None:
    program = """
import sys, trio
sys.modules["joserfc"] = None
from afpool.config import IdentityConfig, JwtConfig
from afpool.serve._proof import open_proof
from afpool.serve._proof_types import UnsafeDoor
async def main():
    jwt = JwtConfig(issuer="i", audience=("a",), jwks="https://i.example/k")
    try:
        async with open_proof(IdentityConfig(jwt=(jwt,))):
            pass
    except UnsafeDoor as error:
        print(error.message)
trio.run(main)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    assert "pip install 'afpool[serve]'" in done.stdout
