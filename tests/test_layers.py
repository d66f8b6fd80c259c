"""Imports point one way: the contracts in pyproject.toml hold, and they can fail.

import-linter belongs to the tools of `make lint`. Where only the tests' own packages are there, the order of
the layers is still checked here, by the imports in each file, late ones and those for types included.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
WITHIN = 100.0


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts of a tree with the tree's own code."""
    if importlib.util.find_spec("importlinter") is None:
        pytest.skip("import-linter is not installed; `make lint` installs it")
    run = "import sys; from importlinter.cli import lint_imports_command as run; sys.exit(run())"
    return subprocess.run(
        [sys.executable, "-c", run, "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )


def test_the_layers_hold() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broken" in done.stdout


def test_an_import_the_wrong_way_is_found(tmp_path: Path) -> None:
    for package in ("afpool", "actors"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "actors" / "_errors.py").open("a", encoding="utf-8") as file:
        file.write("\nimport afpool.pool\n")
    done = lint_imports(tmp_path)
    assert done.returncode != 0
    assert "BROKEN" in done.stdout


def _imported(file: Path, tree: ast.AST) -> set[str]:
    """The absolute names of the modules that a file imports."""
    package = file.relative_to(ROOT).parent.parts
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module or "") if part)
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return found


def test_no_file_imports_from_a_higher_layer() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]

    def layer_of(module: str) -> int | None:
        return next(
            (n for n, top in enumerate(layers) if module == top or module.startswith(f"{top}.")), None
        )

    wrong, seen = [], set()
    for top in ("afpool", "actors"):
        for file in (ROOT / top).rglob("*.py"):
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            own = layer_of(name)
            if own is None:
                continue  # the package itself, which exports what lies above
            seen.add(own)
            for module in _imported(file, ast.parse(file.read_text(encoding="utf-8"))):
                other = layer_of(module)
                if other is not None and other < own:
                    wrong.append(f"{name} imports {module}")
    assert not wrong
    assert seen == set(range(len(layers))), "every layer has files"
