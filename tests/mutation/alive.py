"""A change made to modules that are imported already: the code of functions is put in the place of theirs.

That costs milliseconds, where importing everything anew costs seconds. It works for what stands in a
function. A change outside of one, or one after which a function closes over other names, has to be imported:
`imported`.

The file itself stays as it is. So a test that reads sources sees no mutant: what it would notice is the form
of the code, and the question here is what the code does.
"""

from __future__ import annotations

import ast
import gc
import importlib.machinery
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import trio

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.mutation.changes import Change

Place = tuple[str, str, int]  # file, qualified name, first line

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class NotAlive(Exception):
    """This change can't be made to what is imported."""


def functions(tree: Path, part: str = "afpool") -> dict[Place, list[FunctionType]]:
    """Every function there is whose code stands in that part of the tree, by its place."""
    root = str(tree / part)
    found: dict[Place, list[FunctionType]] = {}
    for thing in gc.get_objects():
        if type(thing) is FunctionType and thing.__code__.co_filename.startswith(root):
            found.setdefault(_place(thing.__code__), []).append(thing)
    return found


def _place(code: CodeType) -> Place:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def make(change: Change, text: str, path: Path, known: dict[Place, list[FunctionType]]) -> None:
    """Make the change in this process.

    Raises:
        NotAlive: It has to be imported.
    """
    before = compile(text, str(path), "exec", dont_inherit=True)
    after = compile(change.applied(text), str(path), "exec", dont_inherit=True)
    function = _around(ast.parse(text), change.line)
    if function is None:
        raise NotAlive
    first = min([function.lineno, *(part.lineno for part in function.decorator_list)])
    olds = list(_codes(before))
    at = next(number for number, code in enumerate(olds) if code.co_firstlineno == first and _bare(code))
    same = [code for code in olds if code.co_qualname == olds[at].co_qualname]
    news = [code for code in _codes(after) if code.co_qualname == olds[at].co_qualname]
    if len(same) != len(news):
        raise NotAlive
    pairs = list(_pairs(same[same.index(olds[at])], news[same.index(olds[at])]))
    swaps = [(live, new) for old, new in pairs for live in known.get(_place(old), ())]
    if not swaps:
        raise NotAlive
    if any(len(live.__code__.co_freevars) != len(new.co_freevars) for live, new in swaps):
        raise NotAlive
    protected = any("enable_ki_protection" in ast.unparse(part) for part in function.decorator_list)
    for live, new in swaps:
        live.__code__ = new
        if protected:
            trio.lowlevel.enable_ki_protection(live)


def _bare(code: CodeType) -> bool:
    return not code.co_name.startswith("<")


def _around(tree: ast.Module, line: int) -> _Function | None:
    """The outermost function whose body holds a line; none where the line is of its head."""

    def look(body: list[ast.stmt]) -> _Function | None:
        for node in body:
            if node.end_lineno is None or not node.lineno <= line <= node.end_lineno:
                continue
            if isinstance(node, _Function):
                return node if line >= node.body[0].lineno else None
            inner = [getattr(node, name, []) for name in ("body", "orelse", "finalbody", "handlers")]
            return look([statement for part in inner for statement in part])
        return None

    return look(tree.body)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _pairs(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    yield old, new
    inner = [code for code in new.co_consts if isinstance(code, CodeType)]
    for code in old.co_consts:
        if isinstance(code, CodeType):
            same = [other for other in inner if other.co_qualname == code.co_qualname]
            if len(same) == 1:
                yield from _pairs(code, same[0])


def imported(change: Change, path: Path) -> None:
    """Let this process import the file as changed, from now on."""
    loader: Any = importlib.machinery.SourceFileLoader
    original = loader.get_code

    def get_code(self: Any, fullname: str) -> Any:
        if self.path == str(path):
            return compile(change.applied(path.read_text()), str(path), "exec", dont_inherit=True)
        return original(self, fullname)

    loader.get_code = get_code
