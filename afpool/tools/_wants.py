"""Arguments that are passed by reference: a model passes a ref, the tool gets the data that it names.

Rules:

* A declaration that cannot be honoured is refused where it is made, not at the first call.
* A ref is redeemed in the scope of the run and nowhere else, and the artifact's kind is compared exactly.
* All declared arguments are judged before an answer is given, so that one refusal teaches the whole
  correction. Exactly one of two things comes of it: everything resolved, or what was wrong with each.
* What the tool's own schema requires is required; anything else may be left out. `null` was not left out.
* Nothing is put into the caller's arguments: what was resolved stands in a copy.
* A store that fails or hangs is no refusal: nobody's argument was wrong. It is raised, and nothing has run.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

import attrs
import trio

from .._base.errors import NOT_SENT, AfpoolError, DeadlineExceeded, Delivery
from ..artifacts._facts import ArtifactRefused, ArtifactResolved
from ..artifacts._sound import artifact_or_none
from ..artifacts._types import ArtifactIntegrityError, ArtifactStoreError, UnreadableArtifactError
from . import _wants_words as words
from ._filled_arguments import FilledArguments
from ._live_refs import Redeemer, Scoped, live_refs

if TYPE_CHECKING:
    from .._base.model import JsonObject
    from ..artifacts._types import Artifact, ArtifactMeta, ArtifactScope, ArtifactStore

WantsReason: TypeAlias = Literal["invalid-input", "missing-or-expired", "kind-mismatch", "digest-mismatch"]

WITHIN: Final = 30.0
"""Seconds that redeeming the refs of one call may take."""
TEACHING: Final = 2.0
"""Seconds that finding out what could have been passed may take."""
_MAX_REF: Final = 64
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_ABSENT: Final = object()


class WantsRefusedError(AfpoolError):
    """Arguments that should name stored artifacts did not. `refusals` holds one `WantsRefusal` for each."""

    code: ClassVar[str] = "wants-refused"
    deliveries: ClassVar[tuple[Delivery, ...]] = (NOT_SENT,)

    refusals: tuple[WantsRefusal, ...] = ()


@attrs.frozen
class WantsRefusal:
    """What was wrong with one argument.

    Attributes:
        arg_name: The argument.
        kind: The kind that its declaration wants.
        reason: `invalid-input` (required and left out, or no ref), `missing-or-expired`, `kind-mismatch` or
            `digest-mismatch` (what is stored is damaged).
        ref: The ref that the model passed, where it passed what looks like one.
        detail: The sentence that teaches.
    """

    arg_name: str
    kind: str
    reason: WantsReason
    ref: str | None = None
    detail: str = ""


@attrs.frozen
class WantsResolved:
    """Every declared argument that was passed became data.

    Attributes:
        ok: True.
        args: The arguments with the data in place of the refs; the caller's own object where there were none.
        wanted: Argument name to the ticket of what stands there, for `ToolContext.wanted`; empty where
            nothing was passed.
        resolved: The same as pairs, in the order of the declaration.
    """

    args: JsonObject = attrs.field(repr=False)
    wanted: Mapping[str, ArtifactMeta]
    resolved: tuple[tuple[str, ArtifactMeta], ...]
    ok: Literal[True] = attrs.field(default=True, init=False)

    def facts(self) -> tuple[ArtifactResolved, ...]:
        """Give what goes on the record: one fact for each argument that resolved."""
        return tuple(ArtifactResolved(meta.ref, "get", meta.kind, meta.bytes) for _, meta in self.resolved)


@attrs.frozen
class WantsRefused:
    """At least one argument did not; nothing runs.

    Attributes:
        ok: False.
        refusals: One for each argument that failed, in the order of the declaration.
        refusal: All of it in one text, for the model.
    """

    refusals: tuple[WantsRefusal, ...]
    refusal: str
    ok: Literal[False] = attrs.field(default=False, init=False)

    def facts(self) -> tuple[ArtifactRefused, ...]:
        """Give what goes on the record: one fact for each argument that failed."""
        return tuple(
            ArtifactRefused("dispatch", refused.reason, refused.ref, refused.detail)
            for refused in self.refusals
        )

    def to_error(self) -> WantsRefusedError:
        """Give the refusal as an error."""
        error = WantsRefusedError(self.refusal)
        error.refusals = self.refusals
        return error


WantsResolution: TypeAlias = WantsResolved | WantsRefused


def assert_tool_wants(
    tool_name: str, wants: Mapping[str, str] | None, input_schema: Mapping[str, Any] | bool | None = None
) -> None:
    """Refuse a declaration that could not be honoured.

    Args:
        tool_name: For the message.
        wants: Argument name to the kind of artifact that it takes; `None` declares nothing.
        input_schema: The schema that a model sees. Where it lists `properties`, each argument must be one of
            them and of the type `string` (or of none): what a model passes is a ref.

    Raises:
        TypeError: The declaration is empty or no mapping, a kind is blank, an argument is not offered to
            the model, or its schema asks for something else than a string.
    """
    if wants is None:
        return
    who = f"the tool {tool_name!r}"
    if not isinstance(wants, Mapping):
        raise TypeError(f"{who} declares wants that map no argument to a kind: {type(wants).__name__}")
    if not wants:
        raise TypeError(
            f"{who} declares empty wants, which read as if they did something; name an argument and the kind "
            "of artifact that it takes, or leave them out"
        )
    properties = input_schema.get("properties") if isinstance(input_schema, Mapping) else None
    for arg, kind in wants.items():
        if not isinstance(arg, str):
            raise TypeError(f"{who} wants something for an argument whose name is no string: {arg!r}")
        if not isinstance(kind, str) or not kind.strip():
            raise TypeError(
                f"{who} wants {kind!r} for {arg!r}, which is no kind of artifact; a kind is the word that "
                "artifacts are stored under, such as 'dataset/rows'"
            )
        if isinstance(properties, Mapping):
            if arg not in properties:
                raise TypeError(
                    f"{who} wants an artifact for {arg!r}, which its input schema does not list, so no model "
                    "could ever pass it; add it to `properties` as a string"
                )
            _check_type(who, arg, properties[arg])


def _check_type(who: str, arg: str, declared: object) -> None:
    if isinstance(declared, Mapping) and "type" in declared and declared["type"] != "string":
        raise TypeError(
            f"{who} wants an artifact for {arg!r}, whose schema has the type {declared['type']!r}: a model "
            "passes the ref there and never the data, so its type is 'string'"
        )


def wants_needs_store_refusal(tool_name: str, wants: Mapping[str, str]) -> str:
    """Give the refusal of a tool that wants artifacts where no store is attached."""
    return words.needs_store(tool_name, wants)


async def resolve_wants(
    store: ArtifactStore,
    scope: ArtifactScope,
    tool_name: str,
    wants: Mapping[str, str],
    args: JsonObject,
    input_schema: Mapping[str, Any] | bool | None = None,
    *,
    deadline: float | None = None,
) -> WantsResolution:
    """Redeem the refs in a call's arguments.

    Args:
        store: Where artifacts are.
        scope: Whose; the run's own.
        tool_name: For the sentences.
        wants: Argument name to kind, as declared.
        args: The call's arguments. They are not changed.
        input_schema: The tool's schema, whose `required` says what may not be left out. Without one
            everything may.
        deadline: Absolute, seconds on trio's clock; 30 s from now at most. `math.inf` says that the caller
            bounds the time itself, which spares a cancel scope.

    Returns:
        `WantsResolved` or `WantsRefused`; `ok` tells them apart.

    Raises:
        DeadlineExceeded: The store did not answer in time. The tool did not run.
        ArtifactError: The store failed. The tool did not run.

    A checkpoint for every ref that is passed, and none where none is.
    """
    return await resolve_in(Scoped(store, scope), tool_name, wants, args, input_schema, deadline=deadline)


async def resolve_in(
    artifacts: Redeemer,
    tool_name: str,
    wants: Mapping[str, str],
    args: JsonObject,
    input_schema: Mapping[str, Any] | bool | None = None,
    *,
    deadline: float | None = None,
) -> WantsResolution:
    """Do what `resolve_wants` does with artifacts that are seen from one scope already."""
    resolved: list[tuple[str, ArtifactMeta]] = []
    failed: list[WantsRefusal] = []
    data: dict[str, Any] = {}
    if deadline == inf:
        data = await _judge(artifacts, wants, args, input_schema, resolved, failed)
    else:
        latest = trio.current_time() + WITHIN
        with trio.move_on_at(latest if deadline is None else min(latest, deadline)) as within:
            data = await _judge(artifacts, wants, args, input_schema, resolved, failed)
        if within.cancelled_caught:
            raise DeadlineExceeded(
                "the artifact store did not answer in time when the refs in the arguments were looked up; "
                "the tool was not run; it may be called again",
                delivery=NOT_SENT,
            )
    if failed:
        return await _refused(artifacts, tool_name, failed, deadline)
    if not resolved:
        return WantsResolved(args, _NOTHING, ())
    # what the host has filled already stays hidden in the copy
    complete: dict[str, Any] = args.copy() if isinstance(args, FilledArguments) else dict(args)
    complete.update(data)
    return WantsResolved(complete, dict(resolved), tuple(resolved))


async def _judge(
    artifacts: Redeemer,
    wants: Mapping[str, str],
    args: JsonObject,
    input_schema: Mapping[str, Any] | bool | None,
    resolved: list[tuple[str, ArtifactMeta]],
    failed: list[WantsRefusal],
) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for arg, kind in wants.items():
        given = args.get(arg, _ABSENT) if args else _ABSENT
        if given is _ABSENT:
            if arg in _required(input_schema):
                failed.append(WantsRefusal(arg, kind, "invalid-input", None, words.not_given(arg, kind)))
            continue
        found = await _redeem(artifacts, arg, kind, given)
        if isinstance(found, WantsRefusal):
            failed.append(found)
        else:
            resolved.append((arg, found.meta))
            data[arg] = found.data
    return data


def _required(input_schema: Mapping[str, Any] | bool | None) -> list[Any] | tuple[Any, ...]:
    required = input_schema.get("required") if isinstance(input_schema, Mapping) else None
    return required if isinstance(required, list | tuple) else ()


async def _redeem(artifacts: Redeemer, arg: str, kind: str, given: Any) -> Artifact | WantsRefusal:
    if not isinstance(given, str) or not given.strip():
        return WantsRefusal(arg, kind, "invalid-input", None, words.no_string(arg, kind, given))
    told = words.like_a_ref(given)
    try:
        # nothing of that length is a ref; no store needs to be asked
        found = artifact_or_none(await artifacts.get(given)) if len(given) <= _MAX_REF else None
    except (ArtifactIntegrityError, UnreadableArtifactError):
        return WantsRefusal(arg, kind, "digest-mismatch", told, words.damaged(arg, given))
    except AfpoolError:
        raise
    except Exception as error:
        raise ArtifactStoreError(
            f"the artifact store failed ({type(error).__name__}) when the ref in {words.told_name(arg)} was "
            "looked up; the tool was not run; it may be called again",
            delivery=NOT_SENT,
        ) from error
    if found is None or found.meta.ref != given:
        return WantsRefusal(arg, kind, "missing-or-expired", told, words.gone(arg, given))
    if found.meta.kind != kind:
        detail = words.other_kind(arg, given, kind, found.meta.kind)
        return WantsRefusal(arg, kind, "kind-mismatch", told, detail)
    return found


async def _refused(
    artifacts: Redeemer, tool_name: str, failed: list[WantsRefusal], deadline: float | None
) -> WantsRefused:
    until = trio.current_time() + TEACHING
    if deadline is not None and deadline < until:
        until = deadline
    # one look for each kind, however many arguments want it
    there: dict[str, str] = {}
    refusals: list[WantsRefusal] = []
    for refusal in failed:
        if refusal.reason != "digest-mismatch":  # there the ref was the right one
            kind = refusal.kind
            if kind not in there:
                there[kind] = words.there_were(kind, await live_refs(artifacts, kind, until))
            refusal = attrs.evolve(refusal, detail=f"{refusal.detail} {there[kind]}")  # noqa: PLW2901 -- the same, said in full
        refusals.append(refusal)
    return WantsRefused(tuple(refusals), words.refused(tool_name, [refusal.detail for refusal in refusals]))
