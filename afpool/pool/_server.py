"""What the app says about one server, and the limits of a pool."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs

from .._base.identity import FIELDS, Identity, check_keyed_on

if TYPE_CHECKING:
    from ..client import Plan

PlanFunction: TypeAlias = Callable[[str, Identity], "Plan | Awaitable[Plan]"]
ShareFunction: TypeAlias = Callable[[str, Identity], "str | None"]


def _pointers(value: Any) -> tuple[str, ...]:
    pointers = tuple(value)
    for pointer in pointers:
        if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
            raise ValueError(f"compare_without takes JSON pointers such as '/_meta', not {pointer!r}")
    return pointers


_META_NAME = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9.-]*/)?[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_RESERVED = re.compile(
    r"(?:[^./]+\.)*(?:modelcontextprotocol|mcp)(?:\.[^./]+)*/"
    r"|(?:progressToken|traceparent|tracestate|baggage)\Z"
)


def _meta_key(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str) or not _META_NAME.fullmatch(value):
        raise ValueError(f"{field.name} is a name such as 'com.example/callId', not {value!r}")
    if _RESERVED.match(value):
        raise ValueError(f"{field.name} {value!r} is MCP's own")


@attrs.frozen(kw_only=True)
class Server:
    """One MCP server, or one family of them reached by a plan.

    Attributes:
        name: Unique in the pool; a model sees it where tool names collide.
        plan: A fixed plan for everybody. Without one the pool's `plan` function is asked.
        keyed_on: Identity fields that a connection belongs to. `()` is a server for everybody.
        on_list_change: `refuse` ends every binding of a list that changed; `recheck` only those whose own
            definition did.
        pins: Tool name to definition digest; a tool listed with another digest is refused `not-approved`.
        compare_without: JSON pointers left out when definitions are compared, for request-scoped values.
        call_id_key: Under which `_meta` key the call's id goes out, the same on every attempt, such as
            `com.example/callId`; `None` sends it nowhere.
        repeat: `never`, or `recognised`: the server promises to know a call id again and to answer a repeat
            with what the first run answered, instead of running the tool a second time. Only then, and only
            where the pool's `on_in_doubt` says so, is a tool call that ended in doubt asked for again.
        max_repeats: How often at most.
        validate_output: Whether each result is validated against its tool's output schema. See
            `BoundTool.validate_output`, which does it for one.
    """

    name: str = attrs.field(validator=attrs.validators.instance_of(str))
    plan: Plan | None = None
    keyed_on: tuple[str, ...] = attrs.field(default=FIELDS, converter=check_keyed_on)
    on_list_change: Literal["refuse", "recheck"] = attrs.field(
        default="refuse", validator=attrs.validators.in_(("refuse", "recheck"))
    )
    pins: Mapping[str, str] = attrs.field(factory=dict)
    compare_without: tuple[str, ...] = attrs.field(default=(), converter=_pointers)
    call_id_key: str | None = attrs.field(default=None, validator=_meta_key)
    repeat: Literal["never", "recognised"] = attrs.field(
        default="never", validator=attrs.validators.in_(("never", "recognised"))
    )
    max_repeats: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    validate_output: bool = False

    def __attrs_post_init__(self) -> None:
        if self.repeat == "recognised" and self.call_id_key is None:
            raise ValueError(
                f"server {self.name!r} cannot recognise repeats of calls whose id it is not told: "
                "name its call_id_key"
            )
        if not self.name:
            raise ValueError("a server needs a name")
        if self.plan is not None:
            self.check_plan(self.plan)

    def check_plan(self, plan: Plan) -> None:
        """Refuse a plan whose credential belongs to a user on a server that is not keyed on users.

        Raises:
            ValueError: One user's credential would serve others on the same connection.
        """
        if (
            plan.credential is not None
            and plan.credential.mode == "user"
            and "principal" not in self.keyed_on
        ):
            raise ValueError(
                f"server {self.name!r} has a credential per user and must be keyed on 'principal', "
                f"not on {self.keyed_on!r}"
            )


def _positive(_: object, field: attrs.Attribute[Any], value: float) -> None:
    if not value > 0:
        raise ValueError(f"{field.name} must be positive, not {value!r}")


@attrs.frozen(kw_only=True)
class Limits:
    """What a pool may hold and how long it waits. Seconds are floats, sizes bytes.

    Attributes:
        max_operations: Calls at once per key.
        max_waiting: Waiters per key, then `overloaded`.
        max_waiting_total: Waiters in all.
        max_in_flight: Calls at once per server and in all.
        max_share: The part of `max_in_flight`, `max_waiting_total`, `max_clients` and `max_connecting` that
            one tenant may have, and of `max_in_flight` one server, where there are several. Places are never
            taken back from what holds them, so that the rest is what a hung server leaves to everybody else.
            Limits below 8 are not divided, and identities without a tenant have no such bound.
        max_clients: Clients open at once; idle ones are evicted, least recently used first.
        max_connecting: Openings at once per endpoint.
        deadline: Of a call, over queue, plan, credential, connect, write and answer.
        open_timeout: Of an opening; its wait for a turn at its endpoint (`max_connecting`) does not count.
        idle_timeout: A client is closed this long after its last place was given back.
        max_age: A client older than this, less up to a tenth of jitter, is replaced once nothing runs on it.
        close_timeout: Of leaving, and of closing one client.
        settle_timeout: How long an answer that nobody waits for is waited for.
        cancel_grace: On a shared stream: how long a cancelled call's place stays taken.
        ping_timeout: How long a suspect client may be silent.
        min_list_ttl: A list is believed at least this long, whatever time to live the server sends.
        list_ttl: A list without a time to live of its own is believed this long.
        max_subscriptions: Resource subscriptions at once per key.
        max_message: The largest answer that is read; of a list of several pages, all of them together.
        max_pages: Pages of one list.
        keepalive_expiry: A kept connection idle longer than this is not used.
        backoff: First delay after a failed opening, doubling up to `backoff_max`.
        records: Uses kept in the ring; 0 switches the record off, and nothing is kept.
        record_bytes: What the kept uses may take, as estimated.
    """

    max_operations: int = attrs.field(default=16, validator=_positive)
    max_waiting: int = attrs.field(default=256, validator=_positive)
    max_waiting_total: int = attrs.field(default=4096, validator=_positive)
    max_in_flight: int = attrs.field(default=256, validator=_positive)
    max_share: float = attrs.field(default=0.5, validator=[_positive, attrs.validators.le(1)])
    max_clients: int = attrs.field(default=1000, validator=_positive)
    max_connecting: int = attrs.field(default=8, validator=_positive)
    deadline: float = attrs.field(default=60.0, validator=_positive)
    open_timeout: float = attrs.field(default=30.0, validator=_positive)
    idle_timeout: float = attrs.field(default=300.0, validator=_positive)
    max_age: float = attrs.field(default=3600.0, validator=_positive)
    close_timeout: float = attrs.field(default=5.0, validator=_positive)
    settle_timeout: float = attrs.field(default=30.0, validator=_positive)
    cancel_grace: float = attrs.field(default=5.0, validator=_positive)
    ping_timeout: float = attrs.field(default=5.0, validator=_positive)
    min_list_ttl: float = attrs.field(default=60.0, validator=_positive)
    list_ttl: float = attrs.field(default=300.0, validator=_positive)
    max_subscriptions: int = attrs.field(default=64, validator=_positive)
    max_message: int = attrs.field(default=16 * 1024 * 1024, validator=_positive)
    max_pages: int = attrs.field(default=100, validator=_positive)
    keepalive_expiry: float = attrs.field(default=4.0, validator=_positive)
    backoff: float = attrs.field(default=0.5, validator=_positive)
    backoff_max: float = attrs.field(default=30.0, validator=_positive)
    records: int = attrs.field(default=4096, validator=attrs.validators.ge(0))
    record_bytes: int = attrs.field(default=16 * 1024 * 1024, validator=_positive)
