"""The law is a form of writing: a wait on behalf of a call is written through its recheck, or not at all."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import afpool

ROOT = Path(afpool.__file__).parent
OPERATION = ROOT / "pool" / "_operation.py"
ATTEMPT = ROOT / "client" / "_attempt.py"
SIGNING = ROOT / "client" / "_signing.py"
ROUNDS = ROOT / "client" / "_rounds.py"
ERRAND = ROOT / "client" / "_errand.py"
AGAIN = ROOT / "pool" / "_again.py"

# function -> the names that it may await (of a call: what is called), beside the helper itself
ALLOWED = {
    OPERATION: {
        # the way in, and the one checkpoint that every refusal passes
        "execute": {
            "trio.lowlevel.checkpoint_if_cancelled",
            "trio.lowlevel.cancel_shielded_checkpoint",
            "_steps",
        },
        "_steps": {"_relist", "_on_client"},
        "_on_client": {"_relist", "_admitted", "_seated", "_adopt", "client.call", "client.errand"},
        "_relist": {"through"},
        "_admitted": {"through"},
        "_seated": {"through"},
        "_adopt": {"_relist"},
        # the helper
        "through": {"waiting"},
    },
    ATTEMPT: {
        "attempts": {"attempt", "boundary"},
        "attempt": {"boundary", "cross"},
        # the helpers: one asks the gate after the wait, in the other the wire asks it
        "boundary": {"waiting"},
        "cross": {"trip.run"},
        # what is awaited through `boundary`: the app's own code
        "credential_headers": {"provider.get"},
    },
    ROUNDS: {
        # all of it is awaited through `boundary`; between two questions the gate is asked
        "next_round": {"_responses", "trio.sleep"},
        "_responses": {"_answer"},
        "_answer": {"offers.answer"},
    },
    SIGNING: {"signature": {"added"}},
    ERRAND: {
        "run_errand": {"_as_a_wish", "boundary", "_ask", "_walk"},
        "_walk": {"_ask"},
        "_ask": {"client.operate"},
        "_as_a_wish": {"boundary"},
    },
    AGAIN: {
        # what looks at the result of a call that is over: nothing of it is sent any more
        "execute_recognised": {"_passes", "check"},
        # a pass is a whole operation, and what follows the wait between two is the next one
        "_passes": {"execute", "trio.sleep_forever"},
    },
}


def awaits(path: Path, source: str | None = None) -> list[tuple[str, str, int]]:
    """Every await of a module: the function it stands in, what is awaited, the line."""
    found = []

    class Visitor(ast.NodeVisitor):
        def __init__(self) -> None:
            self.inside = "<module>"

        def _function(self, node: ast.AsyncFunctionDef | ast.FunctionDef) -> None:
            outer, self.inside = self.inside, node.name
            self.generic_visit(node)
            self.inside = outer

        def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
            self._function(node)

        def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
            self._function(node)

        def visit_Await(self, node: ast.Await) -> None:
            awaited = node.value.func if isinstance(node.value, ast.Call) else node.value
            found.append((self.inside, ast.unparse(awaited), node.lineno))
            self.generic_visit(node)

        def _other(self, node: ast.AST) -> None:
            found.append((self.inside, type(node).__name__, node.lineno))
            self.generic_visit(node)

        def visit_AsyncWith(self, node: ast.AsyncWith) -> None:
            self._other(node)

        def visit_AsyncFor(self, node: ast.AsyncFor) -> None:
            self._other(node)

        def visit_comprehension(self, node: ast.comprehension) -> None:
            if node.is_async:
                found.append((self.inside, "comprehension", 0))
            self.generic_visit(node)

    Visitor().visit(ast.parse(path.read_text() if source is None else source))
    return found


def broken(path: Path, source: str | None = None) -> list[tuple[str, str, int]]:
    allowed = ALLOWED[path]
    return [wait for wait in awaits(path, source) if wait[1] not in allowed.get(wait[0], set())]


@pytest.mark.parametrize("path", ALLOWED, ids=lambda path: path.name)
def test_no_wait_without_a_recheck(path):
    assert not broken(path), "an await that does not come back through a recheck"


@pytest.mark.parametrize("path", ALLOWED, ids=lambda path: path.name)
def test_every_allowed_form_is_in_use(path):
    seen = {(inside, what) for inside, what, _ in awaits(path)}
    assert {(inside, what) for inside, names in ALLOWED[path].items() for what in names} <= seen


@pytest.mark.parametrize(
    ("path", "inside"),
    [(OPERATION, "async def _adopt("), (ATTEMPT, "async def attempt(")],
    ids=["operation", "attempt"],
)
@pytest.mark.parametrize(
    "wait",
    [
        "await trio.sleep(0)",
        "async with lock: pass",
        "async for _ in pages: pass",
        "[x async for x in pages]",
    ],
)
def test_a_further_wait_is_found(path, inside, wait):
    lines = path.read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(inside))
    at = next(number for number in range(at, len(lines)) if lines[number].endswith(":"))
    lines.insert(at + 1, f"    {wait}")
    assert broken(path, "\n".join(lines))


@pytest.mark.parametrize("helper", ["through", "boundary"])
def test_the_helpers_ask_after_every_wait(helper):
    """On each way out of a helper, with a value or with an error, the gate is asked."""
    path = OPERATION if helper == "through" else ATTEMPT
    tree = ast.parse(path.read_text())
    function = next(node for node in ast.walk(tree) if getattr(node, "name", None) == helper)
    asking = {"recheck", "ask", "failed"}

    def asks(statements: list[ast.stmt]) -> bool:
        calls = [
            node for statement in statements for node in ast.walk(statement) if isinstance(node, ast.Call)
        ]
        return any(isinstance(call.func, ast.Attribute) and call.func.attr in asking for call in calls)

    position = next(number for number, node in enumerate(function.body) if isinstance(node, ast.Try))
    attempt = function.body[position]
    assert attempt.handlers
    assert all(asks(handler.body) for handler in attempt.handlers)
    assert asks(function.body[position + 1 :])


WRITES = {"send", "sendall", "sendmsg", "sendto", "sendfile", "write", "writev", "send_all"}


def writes(path: Path) -> list[tuple[int, str]]:
    """Calls that hand bytes to a descriptor: `os.write(...)`, and `.send(...)` on a socket."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if (
            not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Attribute)
            or node.func.attr not in WRITES
        ):
            continue
        holder = ast.unparse(node.func.value)
        if holder == "os" or "sock" in holder.lower() or node.func.attr in {"send_all", "sendall"}:
            found.append((node.lineno, ast.unparse(node.func)))
    return found


def test_one_module_hands_bytes_to_the_kernel():
    wire = ROOT / "transports" / "_wire.py"
    others = {
        str(path.relative_to(ROOT)): writes(path)
        for part in ("_base", "protocol", "transports", "client", "pool")
        for path in (ROOT / part).rglob("*.py")
        if path != wire and writes(path)
    }
    assert not others
    assert {call for _, call in writes(wire)} == {"self._sock.send", "os.write"}
