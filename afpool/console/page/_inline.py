"""From the page's sources to one document, and the policy that lets a browser run that document only.

Rules:

* All modules become one script, each a function of its own that returns what it exports, after those that it
  imports. A circle of imports, and an import of what isn't exported, are refused here, so that a page which
  can't work is never served.
* An import is one line, `import { a, b } from "./name.js";`, without renaming; an export is a declaration
  with `export` before it. What goes beyond that is refused.
* The document holds no other script, no style attribute, and nothing that is fetched. The policy allows the
  two inlined blocks by their hashes and a WebSocket to where the page came from, and refuses everything else:
  what a server says is a stranger's text, and even text that got through as markup could run or load nothing.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_FIRST: Final = "main.js"
_STYLES: Final = ("base.css", "shell.css", "parts.css", "views.css")
_IMPORT: Final = re.compile(r'^import \{ ([\w$, ]+) \} from "\./([\w-]+\.js)";\n', re.MULTILINE)
_EXPORTED: Final = re.compile(
    r"^export (?=(?:async )?(?:function\*?|class|const|let) ([\w$]+))", re.MULTILINE
)
_LEFT: Final = re.compile(r"^\s*(?:import|export)\b.*$", re.MULTILINE)
_HEADER: Final = re.compile(r"\A(?://[^\n]*\n)+")


class PageError(Exception):
    """The page's sources don't fit together; a fault of the installation or of who changed them."""


def _here() -> Traversable:
    return files(__name__.rpartition(".")[0])


def _in_order(folder: Traversable) -> list[tuple[str, str]]:
    """Read the modules that the first one needs, each after all that it imports itself."""
    texts: dict[str, str] = {}
    done: list[str] = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise PageError(f"a circle of imports: {' > '.join((*path, name))}")
        if name in texts:
            return
        try:
            texts[name] = folder.joinpath(name).read_text("utf-8")
        except OSError as error:
            raise PageError(f"{path[-1] if path else 'the page'} needs {name}: {error}") from None
        for names, other in _IMPORT.findall(texts[name]):
            visit(other, (*path, name))
            exported = set(_EXPORTED.findall(texts[other]))
            missing = {word.strip() for word in names.split(",")} - exported
            if missing:
                raise PageError(f"{name} imports {', '.join(sorted(missing))}, which {other} doesn't export")
        done.append(name)

    visit(_FIRST, ())
    return [(name, texts[name]) for name in done]


def _taken(name: str) -> str:
    return f"${name.removesuffix('.js')}"


def _script(folder: Traversable) -> str:
    parts = ['"use strict";\n']
    for name, text in _in_order(folder):
        exports = ", ".join(_EXPORTED.findall(text))
        body = _IMPORT.sub(lambda found: f"const {{ {found[1]} }} = {_taken(found[2])};\n", text)
        body = _EXPORTED.sub("", _HEADER.sub("", body)).strip()
        left = _LEFT.search(body)
        if left is not None:
            raise PageError(f"{name}: not a form of import or export that is understood: {left[0]}")
        parts.append(
            f"// {name}\nconst {_taken(name)} = (() => {{\n{body}\nreturn {{ {exports} }};\n}})();\n"
        )
    script = "\n".join(parts)
    if "</script" in script.lower() or "<!--" in script:
        raise PageError("a script holds text that would end it")
    return script


@cache
def _made() -> tuple[bytes, str]:
    here = _here()
    script = _script(here.joinpath("js"))
    style = "\n".join(here.joinpath("css", name).read_text("utf-8").strip() for name in _STYLES) + "\n"
    document = here.joinpath("page.html").read_text("utf-8")
    for mark, text in (("/* style */", style), ("/* script */", script)):
        if document.count(mark) != 1:
            raise PageError(f"page.html holds {mark!r} {document.count(mark)} times")
        document = document.replace(mark, text)

    def hashed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    rules = (
        "default-src 'none'",
        f"script-src {hashed(script)}",
        f"style-src {hashed(style)}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
    return document.encode(), "; ".join(rules)


def page() -> bytes:
    """Return the page, UTF-8 HTML.

    It is put together at the first call, from files that are installed with the package.

    Raises:
        PageError: Its sources don't fit together.
    """
    return _made()[0]


def policy() -> str:
    """Return the `Content-Security-Policy` that belongs to `page()`."""
    return _made()[1]


def headers() -> list[tuple[bytes, bytes]]:
    """Return all headers that the page is served with, except its length."""
    return [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", policy().encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
        (b"cache-control", b"no-store"),
    ]
