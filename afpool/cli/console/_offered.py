"""What a shell offers while somebody types: processes, and what the console of the only one shows."""

from __future__ import annotations

import re
from typing import Final

from .._failures import Failure
from ._link import Link
from ._places import running
from ._target import of_process

_PATIENCE: Final = 0.5
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,40}")


def processes() -> list[str]:
    """Give the processes that run: by name, or by number where several have that name."""
    found = running()
    names = [process.name for process in found]
    return [process.name if names.count(process.name) == 1 else str(process.pid) for process in found]


def tables() -> list[str]:
    """Give what `show` shows at the only process; nothing where there are several, or it does not answer."""
    found = running()
    if len(found) != 1:
        return []
    try:
        link = Link(of_process(found[0]), timeout=_PATIENCE)
    except Failure:
        return []
    link.close()
    told = link.hello.get("tables")
    names = [table.get("name") for table in told if isinstance(table, dict)] if isinstance(told, list) else []
    return ["actor", *(name for name in names if isinstance(name, str) and _NAME.fullmatch(name))]
