"""Whatever stands where a file is expected: one clear sentence each, soon, and without what stands in it."""

from __future__ import annotations

import errno
import os
import random
import string
from typing import TYPE_CHECKING

import hypothesis
import hypothesis.strategies as st
import pytest

from afpool.config import ConfigError, load_config
from afpool.config._files import MOST_BYTES
from tests.config.config_kit import CANARY, ENV, FULL, write

if TYPE_CHECKING:
    from pathlib import Path

CANARY_ENV = {**ENV, "AFPOOL_INPUT_X": CANARY}


def said(path, **given) -> str:
    """The one thing that is wrong with a file."""
    with pytest.raises(ConfigError) as caught:
        load_config(path, env=CANARY_ENV, **given)
    (problem,) = caught.value.problems
    assert problem.file == os.fspath(path)
    assert CANARY not in str(problem)
    behind = caught.value.__cause__ or caught.value.__context__
    assert behind is None, "nothing behind it quotes the file"
    return f"{problem.line or ''}:{problem.what}"


BYTES = [
    (b"", ":it is empty"),
    (b"  \n\t\n", ":it is empty"),
    (b"\xef\xbb\xbf", ":it is empty"),
    (b"\x00\x01\x02", "1:it holds zero bytes"),
    (b"a=1\n\n\x00", "3:it holds zero bytes"),
    (b"\x7fELF\xff\xfe\x80", "1:it is no text in UTF-8"),
    (b"a = 1\nb = '\xff'\n", "2:it is no text in UTF-8"),
    (b"\xed\xa0\x80", "1:it is no text in UTF-8"),
    ("[serve]\n".encode("utf-16"), ":it is written in UTF-16"),
    (b"x" * (MOST_BYTES + 1), ":it has 1048577 bytes"),
    (b"[" * 100_000, "1:it is no TOML: a key was expected"),
    (b"a = " + b"[" * 100_000, ":it nests deeper than 64"),
    (b"a = " + b"[" * 200 + b"]" * 200, ":it nests deeper than 64"),
    (b"a." * 100_000 + b"a = 1", "1:a key has more than 64 parts"),
    (b"a = " + b"9" * 10_000, ":it is no TOML: a number has too many digits"),
    (b"a = 1\na = 2\n", "2:it is no TOML: one key stands there twice"),
    (b"[a]\n[a]\n", "2:it is no TOML: one key stands there twice"),
    (b"a = 1\na.b = 2\n", "2:it is no TOML: one key stands there twice"),
    (b"a = { b = 1, b = 2 }\n", "1:it is no TOML: one key stands there twice"),
    (b"\na = cAnArY-5f3a\n", "2:it is no TOML: a value was expected; a string stands in quotes"),
    (b"cAnArY-5f3a\n", "1:it is no TOML: a key is followed by = and a value"),
    (b"a = 'cAnArY-5f3a\n", "1:it is no TOML: a string is not closed"),
    (b'a = "cAnArY\\5f3a"\n', "1:it is no TOML: a backslash in a string begins an escape"),
    (b"a = [cAnArY-5f3a\n", "1:it is no TOML: a value was expected"),
    (b"a = [1, 2\n", "1:it is no TOML: a list is not closed"),
    (b"[a\n", "1:it is no TOML: the name of a table is not closed"),
    (b"a = { b = 1\n }", "1:it is no TOML: an inline table is not closed"),
    (b"a = 1 b = 2\n", "1:it is no TOML: a key and its value stand on a line of their own"),
    (b"{}", "1:it is no TOML: a key or a [table] was expected"),
    (b"a = '''\nx", "2:it is no TOML: a string is not closed"),
    (b"a = 2026-13-45\n", "1:it is no TOML: a key and its value stand on a line"),
    (b"a = 2026-02-31\n", "1:it is no TOML: a date or time is none"),
    (b"a = '\x01'\n", "1:it is no TOML: a control character"),
    (b'a = "\\ud800"\n', "1:it is no TOML: an escape in a string is none"),
]

JSON = [
    (b"", ":it is empty"),
    (b"{", "1:it is no JSON: it ends too early"),
    (b'{"a": 1}\n// no\n', "2:it is no JSON: JSON has no comments"),
    (b'{\n/* no */ "a": 1}', "2:it is no JSON: JSON has no comments"),
    (b'{"a": 1,\n}', "2:it is no JSON: a comma stands before a closing bracket"),
    (b'{"a": [1,]}', "1:it is no JSON: a comma stands before a closing bracket"),
    (b"{'a': 1}", "1:it is no JSON: strings stand in double quotes"),
    (b"{a: 1}", "1:it is no JSON: keys stand in double quotes"),
    (b'{"a": NaN}', ":it is no JSON: NaN and Infinity"),
    (b'{"a": 1} x', "1:it is no JSON: something else was expected"),
    (b'{"a": 1,\n"a": 2}', "2:the key 'a' stands there twice, first on line 1"),
    (b"[" * 100_000, ":it nests deeper than 64"),
    (b"[" * 100 + b"]" * 100, ":it nests deeper than 64"),
    (b'{"a": ' + b"9" * 10_000 + b"}", ":a number has too many digits"),
    (b"\x00", "1:it holds zero bytes"),
    (b"x" * (MOST_BYTES + 1), ":it has 1048577 bytes"),
]


@pytest.mark.parametrize(("data", "what"), BYTES, ids=[str(number) for number in range(len(BYTES))])
def test_what_is_no_toml(tmp_path, data, what) -> None:
    file = tmp_path / "afpool.toml"
    file.write_bytes(data)
    assert said(file).startswith(what)


@pytest.mark.parametrize(("data", "what"), JSON, ids=[str(number) for number in range(len(JSON))])
def test_what_is_no_json(tmp_path, data, what) -> None:
    file = tmp_path / "mcp.json"
    file.write_bytes(data)
    assert said(file).startswith(what)


def test_what_is_no_file(tmp_path) -> None:
    assert said(tmp_path / "none.toml") == ":there is no such file"
    assert said(tmp_path) == ":it is a folder, and a file is expected"
    loop = tmp_path / "loop.toml"
    loop.symlink_to(loop)
    assert said(loop).startswith(":it cannot be read: Too many levels of symbolic links")
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    assert said(pipe).startswith(":it is no regular file")
    assert said("/dev/null").startswith(":it is no regular file")
    assert said(tmp_path / "x" / "y.toml") == ":there is no such file"
    assert said(write(tmp_path, FULL) / "y.toml").startswith(":it cannot be read: Not a directory")
    assert said("/" + "x" * 5000).startswith(":it cannot be read: File name too long")
    assert said("a\0b").startswith(":it cannot be read")
    huge = tmp_path / "huge.toml"
    huge.touch()
    os.truncate(huge, 50 * 1024 * 1024)
    assert said(huge) == ":it has 52428800 bytes; a configuration has at most 1048576"


def test_what_may_not_be_read(tmp_path, monkeypatch) -> None:
    # not by its mode: whoever runs as root may read everything
    file = write(tmp_path, FULL)

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("os.open", refuse)
    assert said(file) == ":it cannot be read: Permission denied"


def test_two_files_that_cannot_be_read(tmp_path) -> None:
    one, other = write(tmp_path, "=", "a.toml"), write(tmp_path, "{", "b.json")
    with pytest.raises(ConfigError) as caught:
        load_config(one, mcp_config=[other, tmp_path / "c.json"], env={})
    assert [problem.file for problem in caught.value.problems] == [
        str(one),
        str(other),
        str(tmp_path / "c.json"),
    ]


def test_marks_and_line_ends_of_other_systems(tmp_path) -> None:
    plain = load_config(write(tmp_path, "[serve]\ndrain = 3\n\n[serve.limits]\nheaders = 7\n"), env={})
    for number, data in enumerate([
        b"\xef\xbb\xbf[serve]\ndrain = 3\n\n[serve.limits]\nheaders = 7\n",
        b"[serve]\r\ndrain = 3\r\n\r\n[serve.limits]\r\nheaders = 7\r\n",
    ]):  # fmt: skip
        file = tmp_path / f"other{number}.toml"
        file.write_bytes(data)
        config = load_config(file, env={})
        assert config == plain
        assert config.origins["serve.limits.headers"].line == 5


SIGNS = string.printable + "é\u2028\x00\x1b\ufeff"


@st.composite
def edited(draw: st.DrawFn) -> str:
    """The file that says everything, with a few random edits."""
    text = FULL
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        end = min(len(text), at + draw(st.integers(0, 30)))
        how = draw(st.sampled_from(["cut", "put", "twice", "swap"]))
        if how == "cut":
            text = text[:at] + text[end:]
        elif how == "put":
            text = text[:at] + draw(st.text(SIGNS, max_size=4)) + text[at:]
        elif how == "twice":
            text = text[:end] + text[at:end] + text[end:]
        else:
            text = text[:at] + text[end:] + text[at:end]
    return text


@hypothesis.given(text=edited())
@hypothesis.settings(max_examples=400, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_no_edit_raises_anything_else_or_tells_a_secret(text, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "afpool.toml"
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    env = {**ENV, "TOKEN": "eNvIrOnMeNt-9c1d"}
    try:
        config = load_config(file, env=env)
    except ConfigError as error:
        told = str(error) + repr(error.problems)
    else:
        told = repr(config) + repr(config.shown) + repr(config.origins) + repr(config.warnings)
        config.runtime_config(credentials=object(), artifacts=object())
    assert "eNvIrOnMeNt" not in told, "what a variable gave is nowhere"


def test_a_secret_that_stands_anywhere_is_not_told(tmp_path, monkeypatch) -> None:
    """Every value of the file in turn is a secret in the wrong place."""
    monkeypatch.chdir(tmp_path)
    lines = FULL.splitlines()
    values = [f'"{CANARY}"', f'["{CANARY}"]', f'{{ x = "{CANARY}" }}', '"${TOKEN}"', f'"${{X:-{CANARY}}}"']
    refused = 0
    for number, line in enumerate(lines):
        key, mark, _ = line.partition(" = ")
        for value in values if mark else ():
            text = "\n".join([*lines[:number], f"{key} = {value}", *lines[number + 1 :]])
            told = _told(write(tmp_path, text))
            assert CANARY not in told, (line, value)
            refused += bool(told)
    assert refused > 200


def _told(file: Path) -> str:
    try:
        load_config(file, env=ENV)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("seed", range(5))
def test_noise(tmp_path, seed) -> None:
    noise = random.Random(seed).randbytes(MOST_BYTES)
    for name in ("afpool.toml", "mcp.json"):
        file = tmp_path / name
        file.write_bytes(noise)
        said(file)
        file.write_text("".join(random.Random(seed).choices(string.printable, k=200_000)), encoding="utf-8")
        said(file)
