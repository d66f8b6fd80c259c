"""The tools of a runtime in the shape that other agent frameworks take.

Each function loads its framework when it is called; none of them is needed to import this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_exports

if TYPE_CHECKING:
    from ._frameworks import langchain_tools as langchain_tools
    from ._frameworks import openai_agents_tools as openai_agents_tools
    from ._frameworks import pydantic_ai_toolset as pydantic_ai_toolset
    from ._message_loop import TooManyRounds as TooManyRounds
    from ._message_loop import message_loop as message_loop

_HOMES = {
    "_frameworks": ("langchain_tools", "openai_agents_tools", "pydantic_ai_toolset"),
    "_message_loop": ("TooManyRounds", "message_loop"),
}

__all__ = [
    "TooManyRounds", "langchain_tools", "message_loop", "openai_agents_tools", "pydantic_ai_toolset",
]  # fmt: skip

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
