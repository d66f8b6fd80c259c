"""A change made to modules that are imported already: the code of functions is put in the place of theirs.

That costs milliseconds, where importing everything anew costs seconds. It works for what stands in functions.
What a module or a class does when it is made (a constant, a field, a default, a decorator) has run already,
and a function that closes over other names than before can't take the code: such a change has to be imported.

The file itself stays as it is. So a test that reads sources sees no mutant: what it would notice is the form
of the code, and the question here is what the code does.
"""

from __future__ import annotations

import ast
import gc
import importlib.machinery
import inspect
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import trio

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

Place = tuple[str, str, int]  # file, qualified name, first line


class NotAlive(Exception):
    """This change can't be made to what is imported."""


def functions(tree: Path, parts: Iterable[str] = ("afpool", "actors")) -> dict[Place, list[FunctionType]]:
    """Every function there is whose code stands in those parts of the tree, by its place."""
    roots = tuple(f"{tree / part}/" for part in parts)
    found: dict[Place, list[FunctionType]] = {}
    gc.unfreeze()  # what is frozen is listed nowhere, and the tests' set-up freezes all that is collected
    for thing in gc.get_objects():
        if type(thing) is FunctionType and thing.__code__.co_filename.startswith(roots):
            found.setdefault(_place(thing.__code__), []).append(thing)
    gc.freeze()
    return found


def _place(code: CodeType) -> Place:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def make(text: str, changed: str, path: Path, known: dict[Place, list[FunctionType]]) -> None:
    """Let this process run another text of a file.

    Args:
        text: What the file holds, and what is imported.
        changed: What it is to be.
        path: The file.
        known: The functions that there are.

    Raises:
        NotAlive: It has to be imported.
        SyntaxError: It is no Python.
    """
    before = compile(text, str(path), "exec", dont_inherit=True)
    after = compile(changed, str(path), "exec", dont_inherit=True)
    swaps: list[tuple[FunctionType, CodeType]] = []
    for function in _changed(before, after):
        if _place(function[0]) not in known:
            raise NotAlive
        swaps += [(live, new) for old, new in _pairs(*function) for live in known.get(_place(old), ())]
    if not swaps or any(len(live.__code__.co_freevars) != len(new.co_freevars) for live, new in swaps):
        raise NotAlive
    protected = _protected(text)
    for live, new in swaps:
        line = live.__code__.co_firstlineno
        live.__code__ = new
        if line in protected:
            trio.lowlevel.enable_ki_protection(live)


def _changed(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The outermost functions that are not what they were."""
    if _shape(old) == _shape(new):
        return
    if old.co_flags & inspect.CO_OPTIMIZED:
        yield old, new
    elif _shape(old, deep=False) == _shape(new, deep=False):
        for one, two in zip(_inner(old), _inner(new), strict=True):
            yield from _changed(one, two)
    else:
        raise NotAlive  # something that a module or a class does when it is made


def _shape(code: CodeType, *, deep: bool = True) -> tuple[Any, ...]:
    """All that a code does, and nothing of where its lines are; not `deep`: of what is in it the names."""
    constants = tuple(
        ((_shape(value) if deep else value.co_qualname) if isinstance(value, CodeType) else repr(value))
        for value in code.co_consts
    )
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return code.co_qualname, code.co_code, code.co_exceptiontable, constants, names, counts


def _inner(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _pairs(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    yield old, new
    for code in _inner(old):
        same = [other for other in _inner(new) if other.co_qualname == code.co_qualname]
        if len(same) == 1:
            yield from _pairs(code, same[0])


def _protected(text: str) -> set[int]:
    """The first lines of functions that ^C does not interrupt."""
    return {
        min(part.lineno for part in node.decorator_list)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and any("enable_ki_protection" in ast.unparse(part) for part in node.decorator_list)
    }


def imported(path: Path, changed: str) -> None:
    """Let this process import a file with another text, from now on."""
    loader: Any = importlib.machinery.SourceFileLoader
    original = loader.get_code

    def get_code(self: Any, fullname: str) -> Any:
        if self.path == str(path):
            return compile(changed, str(path), "exec", dont_inherit=True)
        return original(self, fullname)

    loader.get_code = get_code
