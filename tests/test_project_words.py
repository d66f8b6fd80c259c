"""The project speaks of itself alone: no path of a machine, nothing of a workplace, nothing unfinished."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Each begins with a class of one letter, so that this file does not find itself.
PATHS = re.compile(r"/[w]ork/|/[r]oot/\.pyenv|/[t]mp/(?:peer|brief)|[s]hared/(?:contract|bench|design)")
WORDS = re.compile(
    r"(?<![\w./-])(?i:[s]eeds/|[i]ssue \d|[d]esign\.md|[D]EVELOPERS\.md|[f]ield_notes|[s]ubagent)"
    r"|\b(?:[T]ODO|[F]IXME|[X]XX|[H]ACK)\b"
)
# The vendor of a model, who has no place here but as the name of the format of an API: in these files.
VENDOR = re.compile(r"(?i:[a]nthropic)")
OF_THE_FORMATS = {
    "CHANGELOG.md",
    "afpool/adapters/_message_loop.py",
    "afpool/aio/_steps.py",
    "afpool/tools/__init__.py",
    "afpool/tools/_formats_vendors.py",
    "docs/asyncio.md",
    "docs/frameworks.md",
    "docs/tools.md",
    "tests/aio/test_aio_calls.py",
    "tests/frameworks/frameworks.in",
    "tests/frameworks/frameworks.txt",
    "tests/frameworks/test_message_loop.py",
    "tests/runtime/bad_input_kit.py",
    "tests/runtime/test_seams.py",
    "tests/simulation/door_models.py",
    "tests/test_exports.py",
    "tests/tools/test_formats.py",
}
# What a checkout without git (an unpacked sdist) is looked through in.
FOLDERS = ("actors", "afpool", "benchmarks", "docs", "examples", "scripts", "tests")
BINARY = {".png", ".gif", ".ico"}


def tracked() -> list[Path]:
    """The files that belong to the project; all that git would not ignore."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        files = [
            file for top in FOLDERS for file in (ROOT / top).rglob("*") if "__pycache__" not in file.parts
        ]
        files += [
            file for file in ROOT.iterdir() if file.suffix in {".md", ".toml"} or file.name == "Makefile"
        ]
    else:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=ROOT, capture_output=True, check=True, timeout=30,
        )  # fmt: skip
        files = [ROOT / name.decode() for name in listed.stdout.split(b"\0") if name]
    return [file for file in files if file.is_file() and file.suffix not in BINARY]


def test_there_is_something_to_read() -> None:
    names = {file.relative_to(ROOT).as_posix() for file in tracked()}
    assert {"README.md", "pyproject.toml", "afpool/__init__.py"} <= names


def hits(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for file in tracked():
        name = file.relative_to(ROOT).as_posix()
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            found += [f"{name}:{number}: {hit[0]}" for hit in pattern.finditer(line)]
    return found


def test_no_path_of_a_machine() -> None:
    assert not hits(PATHS)


def test_no_word_of_a_workplace_and_nothing_unfinished() -> None:
    assert not hits(WORDS)


def test_a_vendor_is_named_as_a_format_only() -> None:
    named = {hit.partition(":")[0] for hit in hits(VENDOR)}
    assert named <= OF_THE_FORMATS
    assert "afpool/tools/_formats_vendors.py" in named


def test_the_patterns_find_what_they_are_for() -> None:
    assert PATHS.search("/wor" + "k/main/afpool")
    assert WORDS.search("see desig" + "n.md")
    assert WORDS.search("# TO" + "DO: later")
    assert not WORDS.search("an issue of the server, in its own words")
