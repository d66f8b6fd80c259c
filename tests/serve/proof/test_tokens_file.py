"""The file of tokens: what is in it, who may read it, and what it is like after two writers or a crash."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import threading
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afpool import Identity
from afpool._base.secret import Secret
from afpool.serve._tokens import REMEMBERED, TokenFile
from afpool.serve._tokens_file import TokenEntry, TokenFileError, _entries, read_entries
from afpool.serve._tokens_text import SCANNER, digest_of, draw_token, id_of
from tests.serve.proof.proof_kit import NOW, Wall

if TYPE_CHECKING:
    from pathlib import Path

ALICE = Identity("acme", "alice")


def made(path: Path, wall: Wall | None = None) -> TokenFile:
    date = Wall() if wall is None else wall
    return TokenFile(path / "tokens.json", now=lambda: date.now)


# ------------------------------------------------------------------ how a token is spelled


def test_a_token_is_found_by_a_pattern_and_told_by_its_checksum() -> None:
    for _ in range(200):
        number, token = draw_token()
        text = token.reveal()
        assert re.fullmatch(SCANNER, text)
        assert len(text) == 64
        assert id_of(token) == number
        assert re.search(SCANNER, f'{{"token":"{text}"}}')


@given(st.integers(4, 63), st.sampled_from("0aZ_-"))
def test_one_wrong_character_is_no_token(at: int, other: str) -> None:
    _, token = draw_token()
    text = token.reveal()
    if text[at] != other:
        assert id_of(Secret(text[:at] + other + text[at + 1 :])) is None


@given(st.text(max_size=80))
def test_no_other_text_is_one(text: str) -> None:
    assert id_of(Secret(text)) is None
    assert id_of(Secret("afp_" + text)) is None


@pytest.mark.parametrize("odd", ["\n", " ", "\0", "="])
def test_nothing_stands_around_it(odd: str) -> None:
    text = draw_token()[1].reveal()
    for around in (odd + text, text + odd):
        assert id_of(Secret(around)) is None


def test_tokens_differ_in_all_that_is_drawn() -> None:
    drawn = [draw_token() for _ in range(100)]
    assert len({number for number, _ in drawn}) == 100
    assert len({token.reveal()[15:58] for _, token in drawn}) == 100


# ------------------------------------------------------------------ what the file holds


def test_the_file_holds_a_digest_and_never_the_token(tmp_path: Path) -> None:
    file = made(tmp_path)
    new = file.new(ALICE, "laptop", NOW + 60)
    text = file.path.read_text()
    secret = new.token.reveal()
    assert secret not in text
    assert secret[15:] not in text
    document = json.loads(text)
    assert document == {
        "version": 1,
        "tokens": [
            {
                "id": new.entry.id,
                "name": "laptop",
                "tenant": "acme",
                "principal": "alice",
                "sha256": hashlib.sha256(secret.encode()).hexdigest(),
                "created": "2030-03-17T17:46:40Z",
                "expires": "2030-03-17T17:47:40Z",
            }
        ],
    }
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert file.list() == (new.entry,)
    for shown in (repr(new), repr(new.entry), str(file.list()), repr(file)):
        assert secret[15:] not in shown
        assert "alice" not in shown
        assert digest_of(new.token) not in shown


def test_revoking_drops_the_digest_for_ever(tmp_path: Path) -> None:
    wall = Wall()
    file = made(tmp_path, wall)
    kept, gone = file.new(ALICE, "kept"), file.new(ALICE, "gone")
    wall.now += 5
    entry = file.revoke(gone.entry.id)
    assert entry.revoked == NOW + 5
    assert not entry.is_good(wall.now)
    assert digest_of(gone.token) not in file.path.read_text()
    assert digest_of(kept.token) in file.path.read_text()
    wall.now += 5
    assert file.revoke(gone.entry.id) == entry, "again, nothing changes"
    assert [one.is_good(wall.now) for one in file.list()] == [True, False]


def test_a_name_revokes_where_it_says_which(tmp_path: Path) -> None:
    file = made(tmp_path)
    one = file.new(ALICE, "ci")
    file.revoke("ci")
    two, three = file.new(ALICE, "ci"), file.new(ALICE, "ci")
    with pytest.raises(TokenFileError, match="2 tokens have that name") as caught:
        file.revoke("ci")
    assert two.entry.id in str(caught.value)
    assert one.entry.id not in str(caught.value)
    file.revoke(two.entry.id)
    assert file.revoke("ci").id == three.entry.id
    with pytest.raises(TokenFileError, match="no token has that id or name") as caught:
        file.revoke(one.token.reveal())
    assert one.token.reveal() not in str(caught.value), "somebody may give the token itself"


@pytest.mark.parametrize(
    ("identity", "name", "expires", "words"),
    [
        (Identity(), "x", None, "names neither"),
        (Identity(conversation_id="c"), "x", None, "names neither"),
        (ALICE, "", None, "1 to 200 printable"),
        (ALICE, "x" * 201, None, "1 to 200 printable"),
        (ALICE, "a\nb", None, "1 to 200 printable"),
        (ALICE, "\x1b[2J", None, "1 to 200 printable"),
        (ALICE, "x", NOW, "in the future"),
        (ALICE, "x", float("nan"), "in the future"),
        (ALICE, "x", float("inf"), "in the future"),
    ],
)
def test_what_no_token_is_made_of(
    tmp_path: Path, identity: Identity, name: str, expires: float | None, words: str
) -> None:
    file = made(tmp_path)
    with pytest.raises(TokenFileError, match=words):
        file.new(identity, name, expires)
    assert not file.path.exists()


def test_what_is_long_over_is_listed_no_more_once_somebody_writes(tmp_path: Path) -> None:
    wall = Wall()
    file = made(tmp_path, wall)
    file.new(ALICE, "expires", NOW + 60)
    file.new(ALICE, "revoked")
    file.revoke("revoked")
    file.new(ALICE, "good")
    wall.now += REMEMBERED + 59
    file.new(ALICE, "later")
    assert [entry.name for entry in file.list()] == ["expires", "good", "later"]
    wall.now += 2
    file.new(ALICE, "last")
    assert [entry.name for entry in file.list()] == ["good", "later", "last"]


TEXT = st.text(min_size=1, max_size=20).filter(
    lambda text: not any("\ud800" <= char <= "\udfff" for char in text)
)


@given(
    tenant=TEXT,
    principal=st.none() | TEXT,
    conversation=st.none() | TEXT,
    life=st.none() | st.integers(1, 10**9),
)
def test_an_identity_comes_back_as_it_went_in(
    tmp_path_factory: pytest.TempPathFactory,
    tenant: str,
    principal: str | None,
    conversation: str | None,
    life: int | None,
) -> None:
    file = made(tmp_path_factory.mktemp("tokens"))
    identity = Identity(tenant, principal, conversation)
    new = file.new(identity, "x", None if life is None else NOW + life)
    (found,) = file.list()
    assert found == new.entry
    assert found.identity == identity
    assert found.expires == (None if life is None else NOW + life)


# ------------------------------------------------------------------ who may read it, and what is none


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o666, 0o610, 0o601, 0o777])
def test_a_file_that_others_may_read_or_write_is_not_read(tmp_path: Path, mode: int) -> None:
    file = made(tmp_path)
    file.new(ALICE, "x")
    file.path.chmod(mode)
    for use in (file.list, lambda: file.new(ALICE, "y"), lambda: file.revoke("x")):
        with pytest.raises(TokenFileError, match="can be read or written by others"):
            use()
    for fine in (0o600, 0o400):
        file.path.chmod(fine)
        assert len(file.list()) == 1


def test_a_file_of_somebody_else_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = made(tmp_path)
    file.new(ALICE, "x")
    os.chown(file.path, 12345, -1) if os.geteuid() == 0 else monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(TokenFileError, match="belongs to another user"):
        file.list()


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    file = made(tmp_path)
    if kind == "pipe":
        os.mkfifo(file.path, 0o600)
    elif kind == "folder":
        file.path.mkdir(0o700)
    else:
        file.path.symlink_to("/dev/zero")
    with pytest.raises(TokenFileError, match=r"no regular file|cannot be read"):
        file.list()


def test_a_link_leads_to_the_file_and_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real = made(tmp_path / "real")
    real.new(ALICE, "x")
    link = made(tmp_path)
    link.path.symlink_to(real.path)
    link.new(ALICE, "y")
    assert link.path.is_symlink()
    assert [entry.name for entry in real.list()] == ["x", "y"]


GOOD = {
    "id": "0123456789",
    "name": "x",
    "tenant": "acme",
    "sha256": "0" * 64,
    "created": "2030-01-01T00:00:00Z",
}
BAD_ENTRIES: dict[str, Any] = {
    "an unknown member": GOOD | {"scope": "all"},
    "no id": {key: value for key, value in GOOD.items() if key != "id"},
    "another id": GOOD | {"id": "short"},
    "an id that is a number": GOOD | {"id": 1234567890},
    "no digest": {key: value for key, value in GOOD.items() if key != "sha256"},
    "a digest in capitals": GOOD | {"sha256": "A" * 64},
    "a short digest": GOOD | {"sha256": ""},
    "a tenant that is a number": GOOD | {"tenant": 7},
    "an empty tenant": GOOD | {"tenant": ""},
    "half a character": GOOD | {"tenant": "\ud800"},
    "no date": GOOD | {"created": "yesterday"},
    "a date of no zone": GOOD | {"created": "2030-01-01T00:00:00"},
    "an end that cannot be read": GOOD | {"expires": "soon"},
    "an end that is a number": GOOD | {"expires": 1},
    "an end that is nothing": GOOD | {"expires": ""},
    "revoked with its digest": GOOD | {"revoked": "2030-01-01T00:00:00Z"},
    "revoked by a word": GOOD | {"revoked": True},
    "no object": "x",
}


@pytest.mark.parametrize("kind", BAD_ENTRIES)
def test_an_entry_that_cannot_be_read_is_never_a_token_of_another_kind(kind: str) -> None:
    document = {"version": 1, "tokens": [GOOD, BAD_ENTRIES[kind]]}
    found = _entries(json.dumps(document).encode())
    assert found == "its entry 2 is not one of a token"


@pytest.mark.parametrize(
    "raw",
    [b"", b"{}", b"[]", b"\xff", b'{"version":1}', b'{"version":2,"tokens":[]}', b'{"tokens":[],"tokens":[]}',
     b'{"version":true,"tokens":{}}', b'{"version":1,"tokens":[],"x":1}'],
)  # fmt: skip
def test_what_is_no_such_file_is_none(raw: bytes) -> None:
    assert isinstance(_entries(raw), str)
    assert _entries(b'{"version":1,"tokens":[]}') == ()
    assert isinstance(_entries(json.dumps({"version": 1, "tokens": [GOOD, GOOD]}).encode()), str)


def test_a_file_that_was_just_written_is_read_again(tmp_path: Path) -> None:
    """Written twice within one tick of the file system's clock, it may look the same."""
    file = made(tmp_path)
    file.new(ALICE, "x")
    written = file.path.stat().st_mtime
    young = read_entries(file.path, now=written + 1)
    assert young is not None
    assert young[0] is None
    old = read_entries(file.path, now=written + 3)
    assert old is not None
    assert read_entries(file.path, old[0], now=written + 3) is None
    file.path.chmod(0o644)
    with pytest.raises(TokenFileError):
        read_entries(file.path, old[0], now=written + 3)


# ------------------------------------------------------------------ writers


def test_no_writer_loses_what_another_has_written(tmp_path: Path) -> None:
    def write(number: int) -> None:
        file = made(tmp_path)
        for step in range(5):
            file.new(ALICE, f"{number}-{step}")
        file.revoke(f"{number}-0")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    entries = made(tmp_path).list()
    assert len(entries) == 30
    assert sum(entry.revoked is not None for entry in entries) == 6
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == ["tokens.json"]


@pytest.mark.parametrize("at", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    file = made(tmp_path)
    new = file.new(ALICE, "x")
    before = file.path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, at, fail)
        for use in (lambda: file.new(ALICE, "y"), lambda: file.revoke("x")):
            with pytest.raises(TokenFileError, match="No space left on device"):
                use()
    assert file.path.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [".tokens.json.lock", "tokens.json"]
    assert file.list() == (attrs.evolve(new.entry),)


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "nowhere" / "tokens.json")
    assert file.list() == ()
    with pytest.raises(TokenFileError, match="cannot be written"):
        file.new(ALICE, "x")
    assert isinstance(TokenEntry("0123456789", "x", ALICE, NOW), TokenEntry)
