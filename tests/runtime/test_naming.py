"""What servers have listed before is remembered, up to a bound, and costs as much as there are names."""

from __future__ import annotations

from afpool.runtime._naming import _NAMES_KEPT, Namings


class Name(str):
    """A name that counts how often it is compared."""

    __slots__ = ()

    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_ten_thousand_names_are_not_compared_with_ten_thousand_each() -> None:
    namings = Namings()
    half = _NAMES_KEPT // 2
    namings._remember("crm", tuple(Name(f"a{n}") for n in range(half)))
    Name.compared = 0
    namings._remember("crm", tuple(Name(f"b{n}") for n in range(_NAMES_KEPT)))
    assert Name.compared < _NAMES_KEPT
    assert len(namings._known["crm"]) == _NAMES_KEPT
    assert namings._known["crm"][half] == "b0"
    namings._remember("crm", ("c",))
    assert "c" not in namings._known["crm"]
