"""What a model may send that is odd: each with the refusal that is promised for it."""

from __future__ import annotations

from typing import Any

import attrs

from tests.runtime.bad_input_kit import HIDDEN


def nested(levels: int, how: str = "list") -> Any:
    value: Any = HIDDEN
    for _ in range(levels):
        value = [value] if how == "list" else {"a": value}
    return value


def ring() -> dict[str, Any]:
    value: dict[str, Any] = {"q": "x"}
    value["again"] = value
    return value


class Unprintable:
    """A key of a host that passes on more than JSON."""

    def __str__(self) -> str:
        raise RuntimeError(HIDDEN)

    __repr__ = __str__


@attrs.frozen
class Row:
    """One odd thing.

    Attributes:
        tool: Which tool it is sent to.
        args: Makes it.
        code: Of the refusal; `ok` where it is not odd at all for that tool.
        says: What the model reads, in part.
        direct: Of the refusal where the tool is executed without a door; `None` where only a door refuses it.
    """

    tool: str
    args: Any
    code: str
    says: str
    direct: str | None = None


FILL, BAD, WANT = "ERR_HOST_FILLED_ARGUMENT", "invalid-arguments", "wants-refused"
TEACH = "nobody else can set it; the tool was not run; call it again without"
ACCENTS = "\u0315\u0300" * 250_000
MANY = {f"k{number}": number for number in range(10_000)}

ROWS: dict[str, Row] = {
    # ---- arguments that the host fills
    "a filled field": Row("filled", {"q": "x", "token": "mine"}, FILL, TEACH, FILL),
    "a filled field, null": Row(
        "filled", {"q": "x", "token": None}, FILL, f"'token' of the tool 'filled' itself, and {TEACH}", FILL
    ),
    "a filled field, nested": Row("filled", {"q": "x", "token": {"a": ["mine"]}}, FILL, TEACH, FILL),
    "two filled fields": Row("filled", {"token": "a", "tenant": "b"}, FILL, "nobody else can set them", FILL),
    "an alias by case and dashes": Row(
        "filled", {"q": "x", "TO-ken_": 1}, FILL, "'token' (sent as 'TO-ken_')", FILL
    ),
    "an alias by width": Row(
        "filled", {"q": "x", "\uff54\uff4f\uff4b\uff45\uff4e": 1}, FILL, "'token' (sent as", FILL
    ),
    "an alias by wide joiners": Row(
        "filled", {"q": "x", "to\uff3fk\uff0den": 1}, FILL, "'token' (sent as", FILL
    ),
    "an alias by the Kelvin sign": Row("filled", {"q": "x", "to\u212aen": 1}, FILL, "'token' (sent as", FILL),
    "an alias of a megabyte": Row(
        "filled", {"q": "x", "t" + "-" * 1_000_000 + "oken": 1}, FILL, "'token' (sent as", FILL
    ),
    "a filled field of a server's": Row("server_filled", {"q": "x", "token": "mine"}, FILL, TEACH, FILL),
    "an alias at a server's": Row(
        "server_filled", {"q": "x", "Token": "mine"}, FILL, "'token' (sent as 'Token')", FILL
    ),
    "a name of accents": Row("filled", {"q": 1, ACCENTS: 1}, BAD, "q: expected string, got integer"),
    # ---- the schema
    "an extra key": Row("closed", {"q": "x", "z": HIDDEN}, BAD, 'not known: "z"; known are "q"'),
    "a missing key": Row("closed", {}, BAD, "q: required but missing"),
    "a wrong type": Row("closed", {"q": 3}, BAD, "q: expected string, got integer"),
    "a wrong type at a server's": Row("server", {"q": [HIDDEN]}, BAD, "q: expected string, got array"),
    "null for what is needed": Row("closed", {"q": None}, BAD, "q: expected string, got null"),
    "ten thousand keys": Row("closed", MANY, BAD, 'known are "q"'),
    "ten thousand keys beside the right one": Row("closed", {"q": "x", **MANY}, BAD, "and 9990 more"),
    "a key of a megabyte": Row("closed", {"q": "x", "k" * 1_000_000: 1}, BAD, "not known"),
    "a value that is hidden": Row(
        "hides", {"secret": HIDDEN}, BAD, "secret: expected at most 5 characters, got string"
    ),
    # ---- nesting
    "nested a few hundred deep": Row("closed", {"q": "x", "d": nested(600)}, BAD, "nested too deeply"),
    "nested a few hundred deep in members": Row(
        "closed", {"q": "x", "d": nested(600, "dict")}, BAD, "nested too deeply"
    ),
    "nested a hundred thousand deep": Row(
        "closed", {"q": nested(100_000)}, BAD, "nested too deeply, or a cycle"
    ),
    "nested a hundred thousand deep in members": Row(
        "hides", {"pass": nested(100_000, "dict")}, BAD, "nested too deeply, or a cycle"
    ),
    "deep at a server's": Row(
        "server", {"q": "x", "d": nested(100_000)}, BAD, "nested too deeply, or a cycle", BAD
    ),
    "within itself": Row("closed", ring(), BAD, "nested too deeply, or a cycle"),
    "within itself, beside what is filled": Row("filled", ring(), BAD, "nested too deeply, or a cycle"),
    "within itself, under a view": Row("hides", ring(), BAD, "nested too deeply, or a cycle"),
    # ---- what is no JSON
    "not a number": Row(
        "closed", {"q": "x", "n": float("nan")}, BAD, "not JSON at $.n: a float that is not finite"
    ),
    "infinity": Row("server", {"q": float("-inf")}, BAD, "not JSON at $.q: a float that is not finite", BAD),
    "half a character": Row(
        "server", {"q": "\ud800"}, BAD, "not JSON at $.q: a string with a lone surrogate", BAD
    ),
    "half a character as a key": Row("filled", {"q": "x", "\udfff": 1}, BAD, "a key with a lone surrogate"),
    "half a character under a view": Row("hides", {"secret": "\ud800"}, BAD, "not JSON at $.secret"),
    "a key that is a number": Row("closed", {1: 2}, BAD, "a key of type int"),
    "a key that is nothing": Row("filled", {None: 1, "q": "x"}, BAD, "a key of type NoneType"),
    "a key that cannot be written": Row("closed", {Unprintable(): 1}, BAD, "a key of type Unprintable"),
    "a value that cannot be written": Row("hides", {"a": Unprintable()}, BAD, "not JSON at $.a: Unprintable"),
    "a number of five thousand digits": Row(
        "closed", {"q": 10**5_000}, BAD, "an int of more than 4300 digits"
    ),
    "a number of four thousand digits": Row(
        "closed", {"q": 10**4_000}, BAD, "q: expected string, got integer"
    ),
    "bytes": Row("server", {"q": HIDDEN.encode()}, BAD, "not JSON at $.q: bytes", BAD),
    "a set": Row("closed", {"q": {1}}, BAD, "not JSON at $.q: set"),
    # ---- no object at all
    "a list": Row("filled", [HIDDEN], BAD, "a JSON object, not an array of 1", BAD),
    "a text": Row("server", HIDDEN, BAD, f"a JSON object, not a string of {len(HIDDEN)} characters", BAD),
    "a text of a hundred thousand brackets": Row(
        "closed", "[" * 100_000, BAD, "not a string of 100000 characters"
    ),
    "a number": Row("wanting", 5, BAD, "a JSON object, not a number"),
    "a generator": Row("closed", (one for one in [HIDDEN]), BAD, "a JSON object, not a generator"),
    # ---- references
    "a ref of a megabyte": Row("wanting", {"rows": "art_" + "a" * 1_000_000}, WANT, "was not run"),
    "a ref of another tenant's": Row(
        "wanting", {"rows": "REF foreign"}, WANT, "named nothing that was stored"
    ),
    "a ref of another kind": Row("wanting", {"rows": "REF other kind"}, WANT, 'an artifact of kind "text"'),
    "a ref that has expired": Row("wanting", {"rows": "REF expired"}, WANT, "named nothing that was stored"),
    "a ref with half a character": Row(
        "wanting", {"rows": "art_\ud800"}, BAD, "a string with a lone surrogate"
    ),
    "no ref": Row("wanting", {"rows": 7}, BAD, "rows: expected string, got integer"),
    "an empty ref": Row("wanting", {"rows": " "}, WANT, "was not run"),
    "a path": Row("wanting", {"rows": "../../etc/passwd"}, WANT, "was not run"),
}
