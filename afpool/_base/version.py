"""Which afpool this is."""

from __future__ import annotations

import functools


@functools.cache
def own_version(missing: str = "0") -> str:
    """This version of afpool; it is looked up on the disk once.

    Args:
        missing: What is said where it runs without having been installed.
    """
    from importlib import metadata  # start-up does not pay for it

    try:
        return metadata.version("afpool")
    except metadata.PackageNotFoundError:
        return missing
