"""The bar between a server's name and its fields: neither can spell the other's part of a key."""

from __future__ import annotations

import pytest

from afpool._base.identity import Identity, decode_key, encode_key

NEIGHBOURS = [
    (("a|b", Identity(tenant="c")), ("a", Identity(tenant="b|c"))),
    (("a%7Cb", Identity(tenant="c")), ("a|b", Identity(tenant="c"))),
    (("a/b", Identity(tenant="c")), ("a%2Fb", Identity(tenant="c"))),
]


@pytest.mark.parametrize(("one", "other"), NEIGHBOURS, ids=["bar", "escaped-bar", "slash"])
def test_server_and_fields_never_flow_into_each_other(one, other):
    assert encode_key(*one) != encode_key(*other)
    for pair in (one, other):
        assert decode_key(encode_key(*pair)) == pair
