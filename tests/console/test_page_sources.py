"""The page is put together from sources that fit together, and its policy names exactly what is in it."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pytest

import afpool.console.page as package
from afpool.console.page import _inline, headers, page, policy

FOLDER = Path(package.__file__).parent
SOURCES = sorted([*FOLDER.glob("js/*.js"), *FOLDER.glob("css/*.css"), FOLDER / "page.html"])
MODULES = sorted(FOLDER.glob("js/*.js"))


def _inside(tag: str) -> str:
    found = re.findall(rf"<{tag}(?: [^>]*)?>(.*?)</{tag}>", page().decode(), re.DOTALL)
    assert len(found) == 1
    return str(found[0])


@pytest.mark.parametrize("tag", ["script", "style"])
def test_the_policy_names_what_is_inlined_by_its_hash(tag: str) -> None:
    digest = base64.b64encode(hashlib.sha256(_inside(tag).encode()).digest()).decode()
    assert f"{tag}-src 'sha256-{digest}'" in policy()
    assert "unsafe" not in policy()


def test_headers_hold_the_policy_and_no_line_break() -> None:
    found = dict(headers())
    assert found[b"content-security-policy"].decode() == policy()
    assert all(b"\n" not in value and b"\r" not in value for value in found.values())


def test_every_module_and_style_is_in_the_page() -> None:
    text = page().decode()
    for module in MODULES:
        assert f"// {module.name}\n" in text, f"nobody imports {module.name}"
    assert {f"css/{name}" for name in _inline._STYLES} == {
        str(one.relative_to(FOLDER)) for one in FOLDER.glob("css/*.css")
    }


def test_the_page_asks_for_nothing_elsewhere() -> None:
    text = page().decode()
    addresses = set(re.findall(r"https?://[^\s\"'`)]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of a language, asked for by nobody
    assert not re.search(r"url\((?!#)", _inside("style"))
    assert "@import" not in text


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_no_module_makes_markup_or_code_of_text(module: Path) -> None:
    text = module.read_text("utf-8")
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
        "srcdoc",
    ):
        assert word not in text
    assert "localStorage" not in text or module.name == "theme.js"  # the token is in none of it
    assert len(text.splitlines()) <= 400


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_sources_say_what_they_are_first(source: Path) -> None:
    if source.suffix == ".js":
        assert source.read_text("utf-8").startswith("// ")
    elif source.suffix == ".css":
        assert source.read_text("utf-8").startswith("/* ")


def _put(folder: Path, **modules: str) -> Path:
    for name, text in modules.items():
        (folder / f"{name}.js").write_text(text, "utf-8")
    return folder


def test_modules_are_inlined_in_order_and_keep_their_own_names(tmp_path: Path) -> None:
    folder = _put(
        tmp_path,
        main='// First.\nimport { one } from "./other.js";\n\nconst kept = one;\n',
        other="// Second.\nconst kept = 1;\nexport function one() {}\n",
    )
    script = _inline._script(folder)
    assert script.index("$other = (() =>") < script.index("$main = (() =>")
    assert "const { one } = $other;" in script
    assert "return { one };" in script
    assert "import" not in script
    assert "export" not in script


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        ({"main": 'import { a } from "./b.js";\n', "b": 'import { c } from "./main.js";\n'}, "circle"),
        ({"main": 'import { a } from "./b.js";\n', "b": "const a = 1;\n"}, "doesn't export"),
        ({"main": 'import { a } from "./b.js";\n'}, "needs b.js"),
        ({"main": 'import a from "./b.js";\n'}, "not a form"),
        ({"main": "export default 1;\n"}, "not a form"),
        ({"main": 'const a = "</script>";\n'}, "would end it"),
    ],
)
def test_what_does_not_fit_together_is_refused(tmp_path: Path, modules: dict[str, str], said: str) -> None:
    with pytest.raises(_inline.PageError, match=said):
        _inline._script(_put(tmp_path, **modules))
