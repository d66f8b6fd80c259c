"""Kinds of numbers: counts, seconds, bytes; with units where people write them so."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ._kinds import EXPANDED, Kind, Unfit, compiled, named

if TYPE_CHECKING:
    from ._place import Place

_NOT_WORTH_SAYING: Final = 10.0**9


class Number(Kind):
    """A finite number.

    Args:
        least: The smallest that may stand there.
        above: It is greater than this.
        most: The largest.
        whole: It is an integer.
        units: Endings that may stand behind it in a string, and what they multiply it with.
        unit: What it counts, in words.
    """

    telling = True
    _MOST: ClassVar[float] = 2.0**53

    def __init__(
        self,
        *,
        least: float | None = None,
        above: float | None = None,
        most: float | None = None,
        whole: bool = False,
        units: dict[str, float] | None = None,
        unit: str = "",
    ) -> None:
        self._least, self._above, self._whole = least, above, whole
        self._most = self._MOST if most is None else most
        self._units = units or {}
        kind = "a whole number" if whole else "a number"
        bounds = [
            f"{word} {bound:g}"
            for word, bound in (("of at least", least), ("greater than", above), ("of at most", most))
            if bound is not None and abs(bound) < _NOT_WORTH_SAYING
        ]
        self.expects = " ".join([kind + unit, " and ".join(bounds)]).strip()
        if units:
            self.expects += f", or a string such as {self._example()!r}"
        self._pattern = rf"^(?:0|[1-9][0-9]{{0,14}}) ?(?:{'|'.join(self._units)})$" if units else None
        self._look = None if self._pattern is None else compiled(self._pattern)

    def _example(self) -> str:
        return "16MiB" if "MiB" in self._units else "90s"

    def fits(self, raw: Any) -> Any:
        """See `Kind.fits`."""
        if isinstance(raw, str) and self._look is not None:
            if self._look.search(raw) is None:
                raise Unfit(f"expected {self.expects}")
            return self._in_units(raw)
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            raise Unfit(f"expected {self.expects}, not {named(raw)}")
        return self._bounded(raw)

    def parse(self, text: str) -> Any:
        """See `Kind.parse`."""
        text = text.strip()
        if self._look is not None and self._look.search(text) is not None:
            return self._in_units(text)
        if re.fullmatch(r"[+-]?[0-9]{1,15}(?:\.[0-9]{1,15})?", text) is None:
            raise Unfit(f"expected {self.expects}")
        return self._bounded(float(text) if "." in text else int(text))

    def _in_units(self, text: str) -> Any:
        digits = re.match(r"[0-9]+", text)
        assert digits is not None
        return int(digits[0]) * self._units[text[digits.end() :].strip()]

    def _bounded(self, value: float) -> float:
        if isinstance(value, float) and (
            not math.isfinite(value) or (self._whole and not value.is_integer())
        ):
            raise Unfit(f"expected {self.expects}")
        self._check_bounds(value)
        return value

    def _check_bounds(self, value: float) -> None:
        low = (self._least is not None and value < self._least) or (
            self._above is not None and value <= self._above
        )
        if low or value > self._most or value < -self._most:
            raise Unfit(f"expected {self.expects}")

    def check(self, value: float, place: Place) -> Any:  # noqa: ARG002 -- as the port says
        """See `Kind.check`."""
        self._check_bounds(value)
        return int(value) if self._whole else float(value)

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        number: dict[str, Any] = {"type": "integer" if self._whole else "number"}
        if self._least is not None:
            number["minimum"] = self._least
        elif self._above is not None:
            number["exclusiveMinimum"] = self._above
        else:
            number["minimum"] = -int(self._most)
        number["maximum"] = int(self._most) if float(self._most).is_integer() else self._most
        texts = [{"type": "string", "pattern": self._pattern}] if self._pattern else []
        return {"anyOf": [number, *texts, EXPANDED]}


def seconds(*, above: float | None = 0.0, least: float | None = None) -> Number:
    """Seconds, or a string such as `"90s"`, `"5m"`, `"250ms"`."""
    return Number(
        above=above if least is None else None,
        least=least,
        most=10.0**9,
        units={"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400},
        unit=" of seconds",
    )


def size(*, least: int = 1) -> Number:
    """Bytes, or a string such as `"16MiB"`."""
    return Number(
        least=least,
        whole=True,
        units={
            "B": 1, "kB": 1000, "KiB": 1024, "MB": 10**6, "MiB": 2**20, "GB": 10**9, "GiB": 2**30,
        },
        unit=" of bytes",
    )  # fmt: skip


def count(*, least: int = 1) -> Number:
    """A whole number."""
    return Number(least=least, whole=True)
