"""How the packages export their public names: each is loaded from its module when it is first touched.

So `import afpool` costs nothing that is not used; type checkers read the imports under `TYPE_CHECKING`.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def lazy_exports(
    package: str, homes: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the `__getattr__` and `__dir__` of a package (PEP 562).

    Args:
        package: Its `__name__`.
        homes: Module, relative to the package, to the names that it holds.
    """
    home_of = {name: module for module, names in homes.items() for name in names}
    namespace = vars(sys.modules[package])

    def load(name: str) -> Any:
        module = home_of.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{module}"), name)
        namespace[name] = value
        return value

    def names() -> list[str]:
        return [*namespace, *home_of]

    return load, names
