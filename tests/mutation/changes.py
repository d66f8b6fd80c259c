"""What can be changed in a source file, one small change at a time, each with its exact place in the text.

Rules:

* Only what runs is changed: no annotation, docstring, assertion, decorator, import, or `TYPE_CHECKING` block.
* Prose is left alone: a text with a blank in it is for people, and no test compares its words. A text of one
  word is a name, a code or a stage, and counts.
* An `await` stays: what waits goes on to wait, and a statement that only waits becomes a bare checkpoint.
* A change is named by what stands in the file: function, lines before, lines after. So its name holds when
  something else in the file moves, and says to a reader what it is.
"""

from __future__ import annotations

import ast
import hashlib
import io
import itertools
import re
import tokenize
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKPOINT = 'await __import__("trio").lowlevel.checkpoint()'

Function = ast.FunctionDef | ast.AsyncFunctionDef

BOUNDARIES = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
OPPOSITES = {
    "==": "!=",
    "!=": "==",
    "is": "is not",
    "is not": "is",
    "in": "not in",
    "not in": "in",
}
ARITHMETIC = {"+": "-", "-": "+", "*": "//", "/": "*", "//": "*", "%": "*", "|": "&", "&": "|"}


class Change(NamedTuple):
    """One change of one file: `start` and `end` are places in its text, in characters."""

    file: str
    start: int
    end: int
    new: str
    operator: str
    scope: str
    line: int
    was: str
    becomes: str
    nth: int = 0

    @property
    def name(self) -> str:
        parts = (self.file, self.scope, self.was, self.becomes, str(self.nth))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]

    def applied(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]


def changes_of(file: str, text: str) -> list[Change]:
    """Every change of a file, in the order of their places; the same text gives the same changes."""
    found = _Finder(text).found()
    seen: Counter[tuple[str, str, str]] = Counter()
    done: set[tuple[int, int, str]] = set()
    changes = []
    for start, end, new, operator, scope in sorted(found):
        if (start, end, new) in done or text[start:end] == new:
            continue
        done.add((start, end, new))
        was, becomes = _lines(text, start, end, new)
        nth = seen[scope, was, becomes]
        seen[scope, was, becomes] += 1
        line = text.count("\n", 0, start) + 1
        changes.append(Change(file, start, end, new, operator, scope, line, was, becomes, nth))
    return changes


def still_python(change: Change, text: str) -> bool:
    """Whether the change leaves something that compiles, and is not the same program in other letters."""
    try:
        after = compile(change.applied(text), change.file, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return ast.dump(after) != ast.dump(ast.parse(text))


def _lines(text: str, start: int, end: int, new: str) -> tuple[str, str]:
    """The lines that a change touches, before and after, as they are written in lists: on one line."""
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", end)
    last = len(text) if last < 0 else last
    was, becomes = text[first:last], text[first:start] + new + text[end:last]
    return " ".join(was.split()), " ".join(becomes.split())


Found = tuple[int, int, str, str, str]  # start, end, new text, operator, scope


class _Finder(ast.NodeVisitor):
    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.splitlines(keepends=True)
        starts = [0]
        for line in self.lines:
            starts.append(starts[-1] + len(line))
        self.starts = starts
        self.tokens = [
            (self.starts[token.start[0] - 1] + token.start[1], token.string)
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type in {tokenize.OP, tokenize.NAME}
        ]
        self.scope: list[str] = []
        self.functions = 0
        self.out: list[Found] = []

    def found(self) -> list[Found]:
        self.visit(ast.parse(self.text))
        return self.out

    # ------------------------------------------------------------------------------------------- places

    def at(self, line: int, column: int) -> int:
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def source(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    def put(self, start: int, end: int, new: str, operator: str) -> None:
        self.out.append((start, end, new, operator, ".".join(self.scope)))

    def replace(self, node: ast.expr | ast.stmt, new: str, operator: str) -> None:
        self.put(*self.span(node), new, operator)

    def between(self, left: ast.expr, right: ast.expr) -> Iterator[tuple[int, str]]:
        """The operators and words that stand between two expressions."""
        start, end = self.span(left)[1], self.span(right)[0]
        return ((at, word) for at, word in self.tokens if start <= at < end and word not in "()")

    # --------------------------------------------------------------------------------------- what is left out

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def _function(self, node: Function) -> None:
        for default in (*node.args.defaults, *(value for value in node.args.kw_defaults if value)):
            self.scope.append(node.name)
            self.visit(default)
            self.scope.pop()
        self.scope.append(node.name)
        self.functions += 1
        for statement in node.body:
            self.visit(statement)
        self.functions -= 1
        self.scope.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.scope.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self.scope.pop()

    def visit_Assert(self, node: ast.Assert) -> None:
        """What is asserted cannot be otherwise."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A text for people."""

    def visit_Import(self, node: ast.Import) -> None:
        """Names only."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Names only."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and "TypeAlias" not in self.source(node.annotation):
            self._assigned(node, [node.target], node.value)

    # -------------------------------------------------------------------------------------------- statements

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        if isinstance(node.value, ast.Await):
            self.replace(node, CHECKPOINT, "statement")
        elif isinstance(node.value, ast.Call):
            self.replace(node, "pass", "statement")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if not self.functions and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name.startswith("__") or "TypeVar" in self.source(node.value):
                return
        self._assigned(node, node.targets, node.value)

    def _assigned(self, node: ast.stmt, targets: list[ast.expr], value: ast.expr) -> None:
        holds = all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)
        if holds and not any(isinstance(part, ast.Await) for part in ast.walk(value)):
            self.replace(node, "pass", "statement")
        for target in targets:
            self.visit(target)
        self.visit(value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        at, word = next(self.between(node.target, node.value))
        if word[:-1] in ARITHMETIC and word in {"+=", "-=", "|=", "&=", "*="}:
            self.put(at, at + len(word), ARITHMETIC[word[:-1]] + "=", "arithmetic")
        self.replace(node, "pass", "statement")
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        if not isinstance(node.targets[0], ast.Name):
            self.replace(node, "pass", "statement")

    def visit_Raise(self, node: ast.Raise) -> None:
        self.replace(node, "pass", "statement")
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        self.replace(node, "continue", "statement")

    def visit_Continue(self, node: ast.Continue) -> None:
        self.replace(node, "pass", "statement")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self.replace(node, "pass", "statement")
            return
        waits = any(isinstance(part, ast.Await) for part in ast.walk(node.value))
        if not waits and not _empty(node.value):
            self.replace(node.value, "None", "return")
        self.visit(node.value)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        first, last = node.body[0], node.body[-1]
        if not (len(node.body) == 1 and isinstance(first, ast.Raise) and first.exc is None):
            self.put(self.span(first)[0], self.span(last)[1], "raise", "handler")
        for statement in node.body:
            self.visit(statement)

    # ------------------------------------------------------------------------------------------- conditions

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in ast.unparse(node.test):
            return
        self._condition(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self._condition(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self.replace(test, "True", "condition")
        self.generic_visit(node)

    def _condition(self, test: ast.expr) -> None:
        single = isinstance(test, ast.Compare) and type(test.ops[0]) in {
            ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn,
        }  # fmt: skip
        if single or (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
            return  # turned round by its own operator
        self.replace(test, f"(not ({self.source(test)}))", "condition")

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self.replace(node, f"bool({self.source(node.operand)})", "condition")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for left, right in itertools.pairwise(sides):
            words = list(self.between(left, right))
            at, end = words[0][0], words[-1][0] + len(words[-1][1])
            word = " ".join(word for _, word in words)
            if word in BOUNDARIES:
                self.put(at, end, BOUNDARIES[word], "boundary")
            elif word in OPPOSITES:
                self.put(at, end, OPPOSITES[word], "comparison")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        word = "and" if isinstance(node.op, ast.And) else "or"
        other = "or" if word == "and" else "and"
        for left, right in itertools.pairwise(node.values):
            at = next(at for at, found in self.between(left, right) if found == word)
            self.put(at, at + len(word), other, "connective")
        for left_out in range(len(node.values)):
            rest = [self.source(value) for at, value in enumerate(node.values) if at != left_out]
            self.replace(node, "(" + f" {word} ".join(map(_bracketed, rest)) + ")", "operand")
        self.generic_visit(node)

    # ------------------------------------------------------------------------------------------- expressions

    def visit_BinOp(self, node: ast.BinOp) -> None:
        texts = (ast.JoinedStr, ast.List, ast.Tuple)
        sides = (node.left, node.right)
        textual = any(
            isinstance(side, texts)
            or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
            for side in sides
        )
        at, word = next(self.between(node.left, node.right))
        if word in ARITHMETIC and not textual:
            self.put(at, at + len(word), ARITHMETIC[word], "arithmetic")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self.replace(node, str(not value), "constant")
        elif isinstance(value, int | float) and (isinstance(value, int) or value > 1e-6):
            self.replace(node, repr(value + 1), "constant")
            if value > 0:
                self.replace(node, repr(value - 1 if isinstance(value, int) else value / 2), "constant")
        elif isinstance(value, str) and re.fullmatch(r"[\w./$-]+", value) and self.functions:
            self.replace(node, repr(value + "_"), "constant")

    def visit_Call(self, node: ast.Call) -> None:
        called = ast.unparse(node.func)
        if called in {"cast", "TypeVar", "isinstance", "getattr"} or called.endswith(".cast"):
            for argument in node.args[:1] if called in {"isinstance", "getattr"} else node.args[1:]:
                self.visit(argument)
            return
        pairs = itertools.pairwise(node.args)
        for left, right in () if called in {"min", "max"} else pairs:
            if isinstance(left, ast.Starred) or isinstance(right, ast.Starred):
                continue
            start, end = self.span(left)[0], self.span(right)[1]
            gap = self.text[self.span(left)[1] : self.span(right)[0]]
            one, two = self.source(left), self.source(right)
            if one != two and "(" not in gap and ")" not in gap:
                self.put(start, end, two + gap + one, "arguments")
        self.generic_visit(node)


def _bracketed(text: str) -> str:
    return f"({text})"


def _empty(value: ast.expr) -> bool:
    """Whether only its name tells it from `None`: nothing in it, or a truth that is turned elsewhere."""
    if isinstance(value, ast.Constant):
        return not value.value or value.value is True
    if isinstance(value, ast.Dict):
        return not value.keys
    return isinstance(value, ast.List | ast.Tuple) and not value.elts
