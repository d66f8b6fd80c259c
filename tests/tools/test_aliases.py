"""Spellings of filled arguments, and names that are made to be dear to read."""

from __future__ import annotations

import unicodedata
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from afpool import CredentialRequirement
from afpool.tools import HostFilledArgumentError, from_credential, host_filled
from afpool.tools import _supplied as supplied
from afpool.tools._supplied import Filled, fold
from tests.tools.door_kit import Ran

NAMES = ("token", "api_key", "\ufb01le", "\u1f40\u03b4\u03cd\u03bd\u03b7", "a")
PIECES = [
    *"tokenTOKENapi_-keyKEY",
    "\ufb01",
    "\uff54",
    "\uff4f",
    "\uff3f",
    "\uff0d",
    "\ufe63",
    "\ufe33",
    "\u017f",
    "K",
    "\u0301",
    "\u0345",
    "\u1f87",
    "\u1f40",
    "\u00c5",
    "\u200b",
]


def spelled(name: str) -> Any:
    """Ways to write a name, with anything in between."""
    forms = ("NFC", "NFD", "NFKC", "NFKD")
    return st.builds(
        lambda form, upper, joins: unicodedata.normalize(form, joins.join(name.upper() if upper else name)),
        st.sampled_from(forms),
        st.booleans(),
        st.text(alphabet="-_\uff0d\uff3f", max_size=4),
    )


@given(st.one_of(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), *map(spelled, NAMES)))
@example("t" + "-" * 500 + "oken")
@example("\uff3f" * 500 + "token")
def test_a_name_is_recognised_as_if_it_was_read_whole(name: str) -> None:
    whole = {fold(one): one for one in NAMES}
    filled = Filled(dict.fromkeys(NAMES, from_credential("crm")), frozenset())
    meant = name if name in NAMES else whole.get(fold(name))
    assert filled.supplied({name: 1}) == ({} if meant is None else {name: meant})


@pytest.mark.parametrize(
    "name",
    ["\u0315\u0300" * 500_000, "token" + "\u0315\u0300" * 500_000, "\ufdfa" * 300_000, "k" * 1_000_000],
    ids=["accents", "accents behind the name", "long forms", "plain"],
)
def test_a_name_that_cannot_be_a_filled_one_is_never_normalized(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # in accents out of order, normalizing takes a time that grows with the square of their number
    read: list[int] = []
    real = unicodedata.normalize
    monkeypatch.setattr(
        supplied.unicodedata, "normalize", lambda form, text: (read.append(len(text)), real(form, text))[1]
    )
    work = Ran(input_schema={"properties": {"token": {"type": "string"}}})
    tool = host_filled(work.tool, {"token": from_credential("crm")})
    filled = supplied.fact(tool, supplied.FILLS)
    read.clear()
    assert filled.supplied({name: 1}) == {}  # type: ignore[union-attr]
    assert max(read, default=0) <= 16 * len("token")


def test_what_is_short_enough_is_read() -> None:
    work = Ran(input_schema={"properties": {"token": {"type": "string"}}}, needs=CredentialRequirement("crm"))
    tool = host_filled(work.tool, {"token": from_credential()})
    with pytest.raises(HostFilledArgumentError):
        supplied.refuse_supplied(tool, {"\uff34" + "-" * 1_000_000 + "\uff4f\uff4b\uff45\uff4e": None})
