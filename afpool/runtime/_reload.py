"""Another configuration while a runtime is open: what its pool cannot know of.

Rules:

* All or nothing, in one step: what cannot be changed, and what is wrong, is raised before anything changes.
* What is done to a server's tools (`wants`, `redact`, `ceilings`) is done at each listing: it holds from the
  next one on. What the host fills is another matter: an argument that is filled now was the model's to say in
  an older listing, or the other way round. So tools that were listed under other fills are refused. What a
  server has declared before is remembered as long as it is configured with the same fills.
* A tool of the host's own is the object that was offered. Another one under its name is another tool.
* Calls that run keep the hooks and limits that they began with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from .._base.errors import NOT_SENT, PoolClosed
from ..pool import Limits
from ._config import ServerRules

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..pool import Reconfigured
    from ._config import RuntimeConfig
    from ._runtime import Runtime

FIXED: Final = (
    "signer", "secret", "artifacts", "record", "on_use", "on_authorization", "console", "seams",
)  # fmt: skip
"""What a runtime is opened with for good."""

_LIMITS: Final = frozenset(field.name for field in attrs.fields(Limits))


def reconfigure(runtime: Runtime, config: RuntimeConfig, replan: Iterable[str] | None) -> Reconfigured:
    """See `Runtime.reconfigure`."""
    if runtime.closed:
        raise PoolClosed("the runtime is closed; its configuration is what it was", delivery=NOT_SENT)
    old = runtime.config
    _check_fixed(old, config)
    refilled = [
        server.name
        for server in config.servers
        if server.name in runtime.served and _rules(old, server.name).fill != _rules(config, server.name).fill
    ]
    door = runtime.make_door(config)
    served = {
        server.name: runtime.served[server.name].under(_rules(config, server.name))
        if server.name in runtime.served
        else runtime.serve(server.name, config)
        for server in config.servers
    }
    done = runtime.pool.reconfigure(
        config.servers,
        plan=config.plan,
        share=config.share,
        credentials=config.credentials,
        limits=Limits(**{name: value for name, value in config.pool.items() if name in _LIMITS}),
        replan=replan,
        rebind=refilled,
    )
    runtime.put(config, door, served, done)
    return done


def _rules(config: RuntimeConfig, server: str) -> ServerRules:
    return config.rules.get(server) or ServerRules()


def _check_fixed(old: RuntimeConfig, new: RuntimeConfig) -> None:
    fixed = [name for name in FIXED if getattr(old, name) != getattr(new, name)]
    fixed += [
        f"pool[{name!r}]"
        for name in {**old.pool, **new.pool}
        if name not in _LIMITS and _given(old.pool, name) != _given(new.pool, name)
    ]
    if fixed:
        raise ValueError(f"{', '.join(fixed)} cannot be changed while the runtime is open")


def _given(options: Mapping[str, Any], name: str) -> Any:
    return options.get(name)
