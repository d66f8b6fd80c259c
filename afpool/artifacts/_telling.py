"""Telling the host something through a function of the host's, which may fail."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("afpool")


def tell(sink: Callable[..., object] | None, *what: object) -> None:
    """Call `sink`. One that raises misses what it was told; what it was told has happened all the same."""
    if sink is None:
        return
    try:
        sink(*what)
    except Exception as error:  # noqa: BLE001 -- the host's code, which may raise anything
        logger.warning("a function that is told about artifacts raised %s", type(error).__name__)
