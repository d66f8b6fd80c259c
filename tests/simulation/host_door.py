"""Steps by which a host changes what stands around its calls, and one by which a server changes what its
tools declare. See `steps.py`.
"""

from __future__ import annotations

from typing import Literal

import attrs

from tests.simulation.step import Host
from tests.simulation.world_door import HookMood  # noqa: TC001 -- read at run time, when a file is read


@attrs.frozen(kw_only=True)
class ChangeHook(Host):
    """A hook behaves otherwise from now on."""

    hook: int = 0
    how: HookMood = "passes"


@attrs.frozen(kw_only=True)
class ChangeShelf(Host):
    """The artifact store behaves otherwise from now on.

    Args:
        how: It is in order; raises what it is meant to raise, or anything; answers late, or never; what it
            stores is damaged; it answers with what is none; its lists hold rows of other scopes.
    """

    how: Literal["good", "fails", "raises", "slow", "hangs", "damaged", "rubbish", "strays", "closed"] = (
        "good"
    )


@attrs.frozen(kw_only=True)
class ChangeVault(Host):
    """Who vends credentials for the door behaves otherwise from now on.

    Args:
        who: For whom; None for everybody.
        how: `new`: another value from now on; `several`: a credential without a single value.
    """

    who: str | None = None
    how: Literal[
        "good", "new", "raises", "slow", "hangs", "needs-consent", "anonymous", "rubbish", "several", "short",
        "refuses",
    ] = "good"  # fmt: skip


@attrs.frozen(kw_only=True)
class ChangeSchema(Host):
    """A server lists its filled tool with another schema.

    Args:
        server: The server.
        how: As in the beginning; without an argument that is filled; with that one under another name; with a
            schema that it cannot be taken out of; with a schema that is none; with one by chance.
        notify: Whether it is announced.
        seed: Of the one by chance.
    """

    server: str
    how: Literal["restore", "lose", "rename", "uncuttable", "broken", "other"] = "lose"
    notify: bool = True
    seed: int = 0


@attrs.frozen(kw_only=True)
class ReconfigureDoor(Host):
    """Another configuration of the runtime comes into force.

    Args:
        how: Fewer fills, or all of them again; without `wants`; without redaction; other tools of the host's
            own under the names of the old ones; fewer of them; without hooks; other limits of results; names
            that are always qualified, or not; nothing that differs; one that is wrong.
        server: Whose rules.
    """

    server: str
    how: Literal[
        "unfill", "refill", "wants", "redact", "tools", "fewer-tools", "hooks", "results", "qualify",
        "nothing", "wrong", "fixed",
    ] = "nothing"  # fmt: skip
