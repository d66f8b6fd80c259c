"""Whom claims are for: found where the configuration says, compared exactly, never made up."""

from __future__ import annotations

from typing import Any

import pytest

from afpool.config import Claim
from afpool.serve._proof_types import Proven
from tests.serve.proof.proof_kit import claims, is_refused, proven, signed

CONFUSABLE = [
    "\u0430cme", "\uff41cme", "acm\u00e9", "acme\u0301", "ac\u200bme",
    "acme\u00ad", "acme ", " acme", "Acme", "ACME",
]  # fmt: skip


@pytest.mark.parametrize("name", CONFUSABLE)
async def test_a_tenant_that_looks_like_another_is_another_or_is_refused(name: str) -> None:
    found = await proven(signed(claims(org={"id": name})))
    if isinstance(found, Proven):
        assert found.identity.tenant == name != "acme"
    else:
        is_refused(found, 401, "`tenant` is not one text")
        assert not name.isprintable()


@pytest.mark.parametrize("odd", [7, True, None, ["acme"], {"id": "acme"}, "", "a" * 513, "a\nb", "a\0", 1.0])
async def test_a_claim_that_is_no_text_is_never_made_one(odd: Any) -> None:
    is_refused(await proven(signed(claims(org={"id": odd}))), 401, "`tenant` is not one text")
    optional = {"tenant": Claim(name="org.id", required=False), "principal": Claim(name="sub")}
    is_refused(
        await proven(signed(claims(org={"id": odd})), claims=optional), 401, "`tenant` is not one text"
    )


async def test_claims_are_found_where_the_configuration_says() -> None:
    payload = claims(**{
        "https://acme.example/tenant": "by-url", "kubernetes.io": {"namespace": "by-path"}, "org.id": "flat",
    })  # fmt: skip
    for claim, tenant in (
        (Claim(name="org.id"), "acme"),
        (Claim(name="https://acme.example/tenant"), "by-url"),
        (Claim(path=("kubernetes.io", "namespace")), "by-path"),
        (Claim(path=("org.id",)), "flat"),
        (Claim(value="fixed"), "fixed"),
        (Claim(name="org.missing", required=False), None),
        (Claim(name="sub.id", required=False), None),
    ):
        found = await proven(signed(payload), claims={"tenant": claim, "principal": Claim(name="sub")})
        assert isinstance(found, Proven)
        assert found.identity.tenant == tenant
    for claim in (Claim(name="org.missing"), Claim(name="sub.id"), Claim(name="aud.0")):
        is_refused(await proven(signed(payload), claims={"tenant": claim}), 401, "no claim for `tenant`")
    nobody = {"conversation_id": Claim(name="sub"), "tenant": Claim(name="t", required=False)}
    is_refused(await proven(signed(payload), claims=nobody), 401, "neither a tenant nor a principal")
