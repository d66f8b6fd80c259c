"""The console's page: one self-contained HTML document, put together from the sources beside this file.

The sources are plain: `page.html`, the style sheets in `css/`, JavaScript modules in `js/`. There is no build
step that somebody could forget: `page()` reads them once and inlines them, and `policy()` names exactly what
was inlined by its hash. See `_inline.py` for the rules.
"""

from __future__ import annotations

from ._inline import headers, page, policy

__all__ = ["headers", "page", "policy"]
