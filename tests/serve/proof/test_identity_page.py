"""The page on identities: what it shows of a configuration is one, and its table is what the code says."""

from __future__ import annotations

import re
from pathlib import Path

from afpool.config import Claim, load_config
from afpool.serve import _proof_answers
from afpool.serve._tokens_text import SCANNER, draw_token

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "identity.md").read_text(encoding="utf-8")


def test_the_configuration_of_the_page_is_one(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    path = tmp_path / "afpool.toml"
    path.write_text(text)
    identity = load_config(path, env={}).serve.identity
    assert identity.resource == "https://tools.example.com/mcp"
    assert identity.tokens is not None
    assert identity.tokens.file == str(tmp_path / "tokens.json")
    (issuer,) = identity.jwt
    assert issuer.leeway == 30.0
    assert dict(issuer.claims) == {
        "tenant": Claim(name="org.id"),
        "principal": Claim(name="sub"),
        "conversation_id": Claim(name="thread", required=False),
    }
    assert identity.proxy is not None
    assert identity.proxy.required == ("tenant", "principal")


def test_the_ways_to_name_a_claim_are_read(tmp_path: Path) -> None:
    for written in re.findall(r"\{ (?:path|value) = [^}]+\}", PAGE):
        path = tmp_path / "afpool.toml"
        path.write_text(
            '[[serve.identity.jwt]]\nissuer = "i"\naudience = "a"\njwks = "https://i.example/keys"\n'
            f"claims = {{ tenant = {written} }}\n"
        )
        (issuer,) = load_config(path, env={}).serve.identity.jwt
        assert issuer.claims["tenant"] in (
            Claim(path=("kubernetes.io", "namespace")),
            Claim(value="acme"),
        )


def test_every_code_of_a_refused_proof_is_in_the_table() -> None:
    codes = {
        value for name, value in vars(_proof_answers).items() if name.isupper() and isinstance(value, str)
    }
    told = set(re.findall(r"`([a-z]+-[a-z-]+|unauthenticated|overloaded)`", PAGE))
    assert codes - {"proof-failed"} <= told


def test_the_pattern_of_the_page_finds_tokens() -> None:
    (pattern,) = re.findall(r"`(afp_\[[^`]+)`", PAGE)
    assert pattern in SCANNER
    assert re.fullmatch(pattern, draw_token()[1].reveal())
