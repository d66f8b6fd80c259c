"""What a tool gives back holds no secret, and everything else in it stays as it was."""

from __future__ import annotations

import base64
import copy
import json
import pickle
import re
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afpool import Progress, Secret, ToolResult, bearer
from afpool.tools._scrub import HOST_FILLED_PLACEHOLDER, SLICE, Scrubber
from tests.turns import turns_of_another

KEY = "sk-live-51Hx/9+a="
GONE = HOST_FILLED_PLACEHOLDER


def scrubber(*secrets: str) -> Scrubber:
    return Scrubber([Secret(secret) for secret in secrets or (KEY,)])


def result(document: Any, **dumps: Any) -> ToolResult:
    return ToolResult(json.dumps(document, **dumps).encode(), "c1")


# -- results


async def test_a_result_without_a_secret_is_the_same_object() -> None:
    for document in ({"content": []}, {"a": 'x\n\\ \u00e9 "q" / \ud83d'}, {"sk": "live"}, [1, 2.5, None]):
        one = result(document)
        assert await scrubber().result(one) is one


async def test_every_place_of_a_result_is_scrubbed() -> None:
    document = {
        "content": [
            {"type": "text", "text": f"used {KEY}, twice {KEY}", "annotations": {"title": KEY}},
            {
                "type": "resource",
                "resource": {"uri": f"https://x/{KEY}", "text": KEY, "mimeType": "text/plain"},
            },
            {"type": "resource_link", "uri": f"https://x/?k={KEY}", "name": KEY},
        ],
        "structuredContent": {KEY: [{"deep": {f"a {KEY} b": KEY}}]},
        "_meta": {"trace": KEY},
        "isError": True,
    }
    clean = await scrubber().result(result(document))
    assert KEY not in json.dumps(clean.document)
    assert json.loads(json.dumps(document).replace(KEY, GONE)) == clean.document
    assert (clean.call_id, clean.is_error, clean.delivery) == ("c1", True, "answered")


@pytest.mark.parametrize(
    "written",
    [
        KEY,
        KEY.replace("/", "\\/"),
        "".join(f"\\u{ord(char):04x}" for char in KEY),
        "".join(f"\\u{ord(char):04X}" for char in KEY),
        "sk\\u002dlive-51Hx\\/9\\u002Ba=",
        # JSON in JSON, to three levels
        KEY.replace("/", "\\\\/"),
        KEY.replace("/", "\\\\\\/"),
        KEY.replace("s", "\\\\u0073", 1),
        KEY.replace("s", "\\\\\\\\u0073", 1),
        KEY.replace("=", "\\\\\\\\\\\\\\\\u003D", 1),
        # in a URL, in HTML
        "sk-live-51Hx%2F9%2Ba%3D",
        "sk-live-51Hx%2f9%2ba%3d",
        "sk-live-51Hx/9%2Ba%3D",
    ],
)
async def test_it_is_found_however_it_is_written(written: str) -> None:
    raw = b'{"text":"<' + written.encode() + b'>"}'
    clean = await scrubber().result(ToolResult(raw, "c1"))
    assert clean.raw == b'{"text":"<' + GONE.encode() + b'>"}'
    if "\\" in written:
        assert scrubber().text(json.loads(raw)["text"]) == f"<{GONE}>"


async def test_secrets_of_signs_are_found_in_json_and_in_json_in_json() -> None:
    secret = 'p"w\\n/é\n😀'
    for ascii_only in (True, False):
        inner = json.dumps({"x": secret}, ensure_ascii=ascii_only)
        for document in ({"x": secret}, {"x": inner}, {"x": json.dumps({"y": inner})}):
            clean = await scrubber(secret).result(result(document, ensure_ascii=ascii_only))
            left = clean.document["x"]
            while isinstance(left, str) and left.startswith("{"):
                left = next(iter(json.loads(left).values()))
            assert left == GONE, document


async def test_what_only_looks_like_it_among_escapes_stays() -> None:
    # the document spells a line break, an é, a quote; none of these is the secret's first character
    for raw, secret in (
        (rb'{"a":"\n123"}', "n123"),
        (rb'{"a":"\u0061bcd"}', "0061bcd"),
        (rb'{"a":"\u00e9bcd"}', "e9bcd"),
        (rb'{"a":"x","b":"y"}', 'x","b'),
        (rb'{"a":"x\\"}', 'x\\"}'),
        (rb'{"a":true,"b":null}', "true,"),
    ):
        one = ToolResult(raw, "c1")
        assert await scrubber(secret).result(one) is one, raw


async def test_a_quote_or_backslash_at_its_edge_takes_none_of_the_documents() -> None:
    for secret in ('abcd"', "abcd\\", '"abcd', "\\abcd", "ab\\\\cd", '""""'):
        for around in ("", '"', "\\", "\\\\", "n"):
            document = {"a": around + secret + around, "b": 1}
            clean = (await scrubber(secret).result(result(document))).document
            assert secret not in clean["a"]
            assert GONE in clean["a"]
            assert clean["b"] == 1


async def test_the_rest_of_a_document_stays_byte_for_byte() -> None:
    raw = (
        b'{ "n" : 1.0e2,"big":123456789012345678901234567890, "n":2, "t":"'
        + KEY.encode()
        + b'\\u00e9\\/" }\n'
    )
    clean = await scrubber().result(ToolResult(raw, "c1"))
    assert clean.raw == raw.replace(KEY.encode(), GONE.encode())


async def test_replacements_never_make_two_keys_one() -> None:
    document = {"a": {f"{KEY}": 1, f"{KEY}{KEY}": 2}, "b": {KEY: 3, GONE: 4}, "c": {KEY: 5}}
    clean = (await scrubber().result(result(document))).document
    assert clean["a"] == {GONE: 1, GONE + GONE: 2}
    assert sorted(clean["b"].values()) == [3, 4]
    assert set(clean["b"]) == {GONE, f"{GONE}-2"}
    assert clean["c"] == {GONE: 5}
    two = (await scrubber("secret-a", "secret-b").result(result({"secret-a": 1, "secret-b": 2}))).document
    assert two == {GONE: 1, f"{GONE}-2": 2}


async def test_a_number_that_is_the_secret_or_holds_it_becomes_words() -> None:
    numbers = [48151623, 148151623, 2148151623, 48151623.25]
    document = {"a": 48151623, "b": -148151623.5, "c": numbers, "d": "no 48151623", "e": 4815162}
    clean = (await scrubber("48151623").result(result(document))).document
    assert clean == {"a": GONE, "b": GONE, "c": [GONE] * 4, "d": f"no {GONE}", "e": 4815162}
    assert scrubber("48151623").value(document) == clean
    compact = result(document, separators=(",", ":"))
    assert (await scrubber("48151623").result(compact)).document == clean


def test_a_truth_is_no_number_and_no_word() -> None:
    document = {"a": True, "b": False, "c": None, "d": "True", "e": 48151623}
    assert scrubber("True", "48151623").value(document) == {**document, "d": GONE, "e": GONE}


async def test_binary_contents_of_a_resource_are_looked_into() -> None:
    inside = base64.b64encode(b"\x00\xff" + KEY.encode() + b" tail").decode()
    for block in (
        {"type": "resource", "resource": {"uri": "u", "blob": inside}},
        {"type": "image", "data": inside, "mimeType": "image/png"},
        {"type": "audio", "data": inside.replace("/", "\\/"), "mimeType": "audio/wav"},
    ):
        raw = json.dumps({"content": [block]}).replace("\\\\/", "\\/").encode()
        clean = (await scrubber().result(ToolResult(raw, "c1"))).document["content"][0]
        data = clean["resource"]["blob"] if "resource" in clean else clean["data"]
        assert base64.b64decode(data) == b"\x00\xff" + GONE.encode() + b" tail"
    broken = result({"content": [{"resource": {"blob": "A"}}, {"resource": {"blob": "ab=c"}}]})
    assert await scrubber().result(broken) is broken


async def test_the_error_that_a_result_tells_of_is_scrubbed_too() -> None:
    from afpool import ServerRefused

    refused = ServerRefused(f"no {KEY}")
    one = ToolResult(b"{}", "c1", code="server-refused", delivery="refused", error=refused)
    clean = await scrubber().result(one)
    assert isinstance(clean.error, ServerRefused)
    assert clean.error.message == f"no {GONE}"
    assert (clean.code, clean.delivery, clean.call_id) == ("server-refused", "refused", "c1")


async def test_a_large_result_lets_others_go_first(autojump_clock: Any) -> None:
    filler = "x" * (SLICE * 3 - 50)
    document = {"a": [filler + KEY + filler, KEY], "b": filler + "\\u0073" + KEY[1:]}
    raw = json.dumps(document).replace("\\\\u", "\\u").encode()
    async with turns_of_another() as turns:
        clean = await scrubber().result(ToolResult(raw, "c1"))
        assert turns.had >= len(raw) // SLICE - 3
    assert clean.document == {"a": [filler + GONE + filler, GONE], "b": filler + GONE}


async def test_many_hits_let_others_go_first(autojump_clock: Any) -> None:
    document = {"a": ["pin-7f3a"] * 40_000}
    raw = json.dumps(document, separators=(",", ":")).encode()
    assert len(raw) < SLICE * 2, "hardly a slice of it: it is the hits that take long"
    async with turns_of_another() as turns:
        clean = await scrubber("pin-7f3a").result(ToolResult(raw, "c1"))
        assert turns.had >= 30
    assert clean.document == {"a": [GONE] * 40_000}


@pytest.mark.parametrize("at", range(-40, 40, 3))
async def test_it_is_found_across_the_edge_of_a_slice(at: int) -> None:
    for written in (KEY, "\\u0073" + KEY[1:], KEY.replace("/", "\\/")):
        raw = b'{"a":"' + b"x" * (SLICE + at) + written.encode() + b"y" * SLICE + b'"}'
        clean = await scrubber().result(ToolResult(raw, "c1"))
        assert clean.document["a"] == "x" * (SLICE + at) + GONE + "y" * SLICE


@pytest.mark.parametrize("at", range(-9, 10))
async def test_an_escape_across_the_edge_of_a_slice_is_no_beginning_of_one(at: int) -> None:
    for written, secret in ((rb"\u0061bcd", "0061bcd"), (rb"\n123", "n123"), (rb"\\\n123", "n123")):
        raw = b'{"a":"' + b"x" * (SLICE - 6 + at) + written + b"y" * SLICE + b'"}'
        one = ToolResult(raw, "c1")
        assert await scrubber(secret).result(one) is one


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("signs", [200, 201])
async def test_a_long_run_of_backslashes_is_read_from_its_beginning(at: int, signs: int) -> None:
    """An even number of them are so many signs; an odd one makes a new line of the letter that follows."""
    raw = b'{"a":"' + b"x" * (SLICE - 180 + at) + b"\\" * signs + b"n123" + b"y" * SLICE + b'"}'
    one = ToolResult(raw, "c1")
    clean = await scrubber("n123").result(one)
    assert clean.raw == (raw if signs % 2 else raw.replace(b"n123", GONE.encode()))


@pytest.mark.parametrize("at", range(-30, 10))
async def test_it_is_found_across_the_steps_through_binary_contents(at: int) -> None:
    data = b"x" * (48 * 1024 + at) + KEY.encode() + b"y" * 1000
    document = {"content": [{"type": "image", "data": base64.b64encode(data).decode()}]}
    clean = (await scrubber().result(result(document))).document["content"][0]["data"]
    assert base64.b64decode(clean) == data.replace(KEY.encode(), GONE.encode())


# -- values, progress


def test_values_are_scrubbed_with_their_keys() -> None:
    value = {"a": [KEY, (1, KEY), {f"<{KEY}>": None}], "b": f"x{KEY}".encode(), "c": True, "d": 1.5}
    assert scrubber().value(value) == {
        "a": [GONE, (1, GONE), {f"<{GONE}>": None}],
        "b": f"x{GONE}".encode(),
        "c": True,
        "d": 1.5,
    }
    harmless = {"a": [1, "x", (2,)], "b": b"y", "c": {"d": object}}
    assert scrubber().value(harmless) is harmless
    assert scrubber().value({KEY: 1, GONE: 2}) == {f"{GONE}-2": 1, GONE: 2}


def test_objects_are_given_on_without_what_they_hide() -> None:
    @attrs.frozen
    class Answer:
        status: int
        body: str

    @attrs.define
    class Client:
        token: str

        def __repr__(self) -> str:
            return "<Client>"

    @attrs.define
    class Private:
        _token: str
        _made: int = attrs.field(init=False, default=1)

    class Loose:
        def __init__(self, held: Any) -> None:
            self.held = held

    assert scrubber().value(Private(KEY)) == Private(GONE)
    assert scrubber().value(Answer(200, f"ok {KEY}")) == Answer(200, f"ok {GONE}")
    quiet = Answer(200, "ok")
    assert scrubber().value(quiet) is quiet
    assert scrubber().value(Client(KEY)).token == GONE
    assert scrubber().value({"x": Loose([{"deep": Loose({KEY: 1})}])}) == {"x": GONE}
    plain = Loose([{"deep": Loose({"k": 1})}])
    assert scrubber().value(plain) is plain
    credential = bearer("tok-" + KEY)
    held = Loose(credential)
    assert scrubber("tok-" + KEY).value(held) is held, "a credential shows nothing of itself"


def test_what_has_no_end_is_not_given_on() -> None:
    circle: list[Any] = [KEY]
    circle.append({"again": circle})
    assert scrubber().value(circle) == [GONE, {"again": GONE}]
    wide: list[Any] = [KEY]
    for _ in range(60):
        wide = [wide, wide]
    for _ in range(60):
        wide = scrubber().value(wide)[0]
    assert wide == [GONE]
    deep: Any = KEY
    for _ in range(3000):
        deep = [deep]
    assert GONE in repr(scrubber().value(deep))


def test_progress_is_scrubbed() -> None:
    quiet = Progress(1, 2, "half")
    assert scrubber().progress(quiet) is quiet
    assert scrubber().progress(Progress(1, None, f"with {KEY}")) == Progress(1, None, f"with {GONE}")
    assert scrubber().progress({"note": KEY}) == {"note": GONE}


# -- short ones, several ones


def test_an_empty_secret_is_not_looked_for() -> None:
    assert scrubber("").text("abc") == "abc"
    assert scrubber("", KEY).text(f"a{KEY}") == f"a{GONE}"


def test_a_short_secret_is_found_only_where_it_stands_alone() -> None:
    assert (
        scrubber("ab").text("ab cab abc (ab) ab_ ab\nab") == f"{GONE} cab abc ({GONE}) {GONE}_ {GONE}\n{GONE}"
    )
    assert scrubber("7").value({"a": 7, "b": 17, "c": "7"}) == {"a": GONE, "b": 17, "c": GONE}
    assert scrubber("7").raw(b'{"a":7,"b":17,"c":"7"}') == b'{"a":"%b","b":17,"c":"%b"}' % (
        (GONE.encode(),) * 2
    )


def test_the_longest_of_several_goes_whole() -> None:
    both = scrubber("secret", "secret-more", "host")
    assert both.text("a secret-more, a secret, a host") == f"a {GONE}, a {GONE}, a {GONE}"
    assert both.raw(b'{"a":"secret-more secret"}').decode() == f'{{"a":"{GONE} {GONE}"}}'
    assert scrubber("abab").text("xabababx") == f"x{GONE}x"


# -- what holds the secrets


def test_a_scrubber_shows_nothing_of_them() -> None:
    one = scrubber()
    one.text(KEY)
    one.raw(json.dumps({"a": KEY.replace("s", "\\u0073")}).encode())
    for shown in (repr(one), str(one), f"{one}"):
        assert KEY not in shown
    for doing in (pickle.dumps, copy.copy, copy.deepcopy, json.dumps):
        with pytest.raises(TypeError) as caught:
            doing(one)
        assert KEY not in str(caught.value)
    assert not any(KEY in str(pattern) for pattern in getattr(re, "_cache", ())), (
        "a pattern outlives its secret"
    )


# -- any document, any way of writing it


_secrets = st.text(min_size=4, max_size=12).filter(lambda text: GONE.find(text) < 0 and text.strip())
_texts = st.text(max_size=12)
_documents = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), _texts, st.just("\0SECRET"), st.just("a\0SECRETb")),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(_texts, st.just("k\0SECRET")), inner, max_size=4),
    ),
    max_leaves=12,
)


def _filled(value: Any, secret: str) -> Any:
    if isinstance(value, str):
        return value.replace("\0SECRET", secret)
    if isinstance(value, list):
        return [_filled(one, secret) for one in value]
    if isinstance(value, dict):
        return {_filled(key, secret): _filled(one, secret) for key, one in value.items()}
    return value


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for one in value for text in _strings(one)]
    if isinstance(value, dict):
        return [text for pair in value.items() for one in pair for text in _strings(one)]
    return []


def _escaped(text: str, data: Any) -> str:
    """Write a document with some of its characters escaped, where they may be."""
    out, inside, skip = [], False, 0
    for at, char in enumerate(text):
        if skip:
            skip -= 1
        elif char == "\\":
            skip = 5 if text[at + 1] == "u" else 1
        elif char == '"':
            inside = not inside
        elif inside and ord(char) < 0x10000 and data.draw(st.booleans()):
            out.append(f"\\u{ord(char):04x}")
            continue
        out.append(char)
    return "".join(out)


@settings(max_examples=200, deadline=None)
@given(secret=_secrets, document=_documents, ascii_only=st.booleans(), data=st.data())
def test_no_string_of_any_document_keeps_it(secret: str, document: Any, ascii_only: bool, data: Any) -> None:
    whole = {"d": _filled(document, secret)}
    raw = _escaped(json.dumps(whole, ensure_ascii=ascii_only), data).encode("utf-8", "surrogatepass")
    one = scrubber(secret)
    clean = one.raw(raw)
    found = json.loads(clean)
    assert not [text for text in _strings(found) if secret in text]
    if not any(secret in text for text in _strings(whole)) and not any(map(one.finds, _strings(whole))):
        numbers = re.findall(r"-?\d[\d.eE+-]*", json.dumps(whole))
        assert clean is raw or any(secret in number for number in numbers)
    else:
        before, after = _strings(whole), _strings(found)
        if len(before) == len(after):
            kept = [pair for pair in zip(before, after, strict=True) if not one.finds(pair[0])]
            assert all(left == right for left, right in kept)


@settings(max_examples=200, deadline=None)
@given(secret=_secrets, before=_texts, after=_texts)
def test_a_text_keeps_what_stands_around_it(secret: str, before: str, after: str) -> None:
    clean = scrubber(secret).text(before + secret + after)
    assert secret not in clean.replace(GONE, "\0")
    if secret not in before + after and clean.count(GONE) == 1 and "\\" not in before + secret + after:
        assert len(clean) <= len(before + GONE + after)
