"""Steps 6 and 7 of the door: what a tool wants becomes data, then what it needs is fetched.

In this order, so that no secret is fetched for a call that does not run. Whoever calls bounds the time.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from ..artifacts import ArtifactRefused, NoArtifactStoreError
from ._asked_credentials import credential_for
from ._derive import held_input_schema
from ._live_refs import Scoped
from ._wants import WantsRefused, resolve_in, wants_needs_store_refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._base.identity import Identity
    from .._base.model import JsonObject, Tool
    from ._asking import Asking
    from ._dispatch import Door
    from ._execute import Executing
    from ._known import KnownTool
    from ._record import CallRecord


async def prepared(
    name: str,
    tool: Tool,
    known: KnownTool,
    args: JsonObject,
    door: Door,
    scope: Identity | None,
    record: CallRecord,
    executing: Executing,
    asking: Asking,
) -> JsonObject:
    """Give the arguments with data where references stood; what is fetched goes to `executing`.

    Raises:
        NoArtifactStoreError: It wants an artifact, and there is no store.
        WantsRefusedError: A reference did not resolve.
        CredentialFailed: There is no credential.
        AuthorizationRequired: Somebody has to authorize first.
        IdentityMismatch: The caller is not who asked any more.
    """
    if known.wants is not None:
        with record.stage("wants"):
            args = await _redeemed(name, tool, known.wants, args, door, scope, record, executing)
        asking.check_caller()
    if known.needs is not None:
        with record.stage("credential"):
            credential = await credential_for(
                name, known.needs, door.credentials, record.identity, record, door.on_authorization
            )
        asking.check_caller()
        executing.use_credential(credential)
    return args


async def _redeemed(
    name: str,
    tool: Tool,
    wants: Mapping[str, str],
    args: JsonObject,
    door: Door,
    scope: Identity | None,
    record: CallRecord,
    executing: Executing,
) -> JsonObject:
    store = door.store
    if store is None or scope is None:
        refusal = wants_needs_store_refusal(name, wants)
        record.artifact(ArtifactRefused("dispatch", "no-store", None, refusal))
        raise NoArtifactStoreError(refusal)
    found = await resolve_in(Scoped(store, scope), name, wants, args, held_input_schema(tool), deadline=inf)
    for fact in found.facts():
        record.artifact(fact)
    if isinstance(found, WantsRefused):
        raise found.to_error()
    executing.wanted = found.wanted or None
    return found.args
