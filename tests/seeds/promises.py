"""The promises that the project grew from: read from the lists beside this file, written as a page.

Each `*.toml` is one document of promises, restated one by one: a number, a sentence, and either the tests
that hold it or the reason why it is not held. A promise with neither, or with both, is a fault of the list.
What is held in another way than was meant there says so beside its tests.

There are two kinds of document: what was said (`part = "said"`, the default) and what was tested
(`part = "tested"`: the behaviours that the tests of the other system pin down, each a single claim).
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT: Final = Path(__file__).resolve().parents[2]
HERE: Final = Path(__file__).resolve().parent
PAGE: Final = ROOT / "docs" / "coverage-of-the-seeds.md"
NODE_ID: Final = re.compile(r"tests/[\w/.-]+\.py(?:::\w+)+(?:\[.+\])?")

PARTS: Final = ("said", "tested")

HEAD: Final = """# The promises, and what holds them

This project grew from four documents that describe parts of another system: what a host may fill in, what is
passed by reference, what a record may show, and how a tool stays bound to its connection. Here is what they
promise, in our own words and one by one, and the tests that hold each here. `make seeds` runs exactly these
tests, fails where one is missing, left out or failing, or where a promise has none and no reason, and then
writes this page.

Names and codes are those of this project. A promise that is not held says why; one that is held in another
way says how, and its tests hold that.
"""

HEADS: Final = {
    "said": """
## What was said

The four documents, sentence by sentence.
""",
    "tested": """
## What was tested

The behaviours that the tests of the other system pin down, where they concern what this project has: tools,
artifacts, credentials, redaction, the client, identities, the pool.
""",
}


class ListError(Exception):
    """A list of promises is not what it has to be; says which promise and what about it."""


@attrs.frozen
class Promise:
    """One promise.

    Attributes:
        number: Its place in the document.
        text: What is promised.
        held_by: Node ids of the tests that hold it; one without parameters means all of its variants.
        not_held: Why no test does, where none does.
        differs: How it is otherwise here, where it is; the tests hold that.
    """

    number: int
    text: str
    held_by: tuple[str, ...] = ()
    not_held: str | None = None
    differs: str | None = None


@attrs.frozen
class Document:
    """One document: its name here, its title, its promises, and which part of the page it is in."""

    name: str
    title: str
    promises: tuple[Promise, ...]
    part: str = "said"


def read(folder: Path = HERE) -> list[Document]:
    """Read all lists.

    Raises:
        ListError: There is none, or one is not what it has to be.
    """
    documents = [read_document(path) for path in sorted(folder.glob("*.toml"))]
    if not documents:
        raise ListError(f"there is no list of promises in {folder}")
    return documents


def read_document(path: Path) -> Document:
    """Read one list.

    Raises:
        ListError: It is not what it has to be.
    """
    with path.open("rb") as source:
        content = tomllib.load(source)
    promises = tuple(_promise(path.stem, entry) for entry in content.get("promise", []))
    numbers = [promise.number for promise in promises]
    if not promises or numbers != list(range(1, len(promises) + 1)):
        raise ListError(f"{path.stem}: promises are numbered from 1 on, in order; there are {numbers}")
    if not isinstance(content.get("title"), str):
        raise ListError(f"{path.stem}: there is no title")
    part = content.get("part", PARTS[0])
    if part not in PARTS or set(content) - {"title", "part", "promise"}:
        raise ListError(f"{path.stem}: a document has title, part ({' or '.join(PARTS)}) and promises")
    return Document(path.stem, content["title"], promises, part)


def _promise(document: str, entry: Mapping[str, Any]) -> Promise:
    promise = Promise(
        entry.get("number", 0),
        entry.get("text", "").strip(),
        tuple(entry.get("held_by", ())),
        entry.get("not_held"),
        entry.get("differs"),
    )
    which = f"{document} {promise.number}"
    unknown = set(entry) - {field.name for field in attrs.fields(Promise)}
    if unknown or not promise.text:
        raise ListError(
            f"{which}: a promise has number, text, and held_by (also differs) or not_held; there is "
            f"{sorted(entry)}"
        )
    if bool(promise.held_by) == (promise.not_held is not None):
        raise ListError(f"{which}: either tests hold it, or a reason says why none does")
    if any(reason is not None and not reason.strip() for reason in (promise.not_held, promise.differs)):
        raise ListError(f"{which}: the reason says nothing")
    if promise.differs is not None and not promise.held_by:
        raise ListError(f"{which}: what is otherwise here is held by tests as well")
    odd = [test for test in promise.held_by if not NODE_ID.fullmatch(test)]
    if odd or len(set(promise.held_by)) != len(promise.held_by):
        raise ListError(f"{which}: not the id of a test, or named twice: {odd or list(promise.held_by)}")
    return promise


def named(documents: Iterable[Document]) -> list[str]:
    """Give the tests that hold anything, each once."""
    return sorted(
        {test for document in documents for promise in document.promises for test in promise.held_by}
    )


def build(documents: Iterable[Document]) -> str:
    """Write the page."""
    parts = [HEAD]
    listed = list(documents)
    for part in PARTS:
        here = [document for document in listed if document.part == part]
        if here:
            parts.append(HEADS[part])
        for document in here:
            parts.append(f"\n### {document.title}\n\n| | what is promised | held by |\n| --- | --- | --- |\n")
            parts += [
                f"| {promise.number} | {promise.text} | {_held(promise)} |\n" for promise in document.promises
            ]
    return "".join(parts)


def _held(promise: Promise) -> str:
    if promise.not_held is not None:
        return f"**not held:** {promise.not_held.strip()}"
    by_file: dict[str, list[str]] = {}
    for test in promise.held_by:
        file, _, name = test.partition("::")
        by_file.setdefault(file, []).append(name)
    tests = "<br>".join(
        f"`{file}`: {', '.join(f'`{name}`' for name in names)}" for file, names in by_file.items()
    )
    return tests if promise.differs is None else f"**otherwise here:** {promise.differs.strip()}<br>{tests}"
