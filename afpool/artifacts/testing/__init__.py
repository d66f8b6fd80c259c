"""What a store of one's own is tested with: the conformance suite, and a store that misbehaves.

    report = await run_store_conformance(StoreHarness(name="mine", open_store=open_mine, ...))
    report.raise_for_failures()

No test framework is imported. `CASES` are the single cases, for a framework that wants to show each.
"""

from __future__ import annotations

from typing import Final

from . import _cases_basic as basic
from . import _cases_keeping as keeping
from . import _cases_scopes as scopes
from . import _cases_streams as streams
from ._bad_store import BadStore
from ._suite import Case, CaseFailed, CaseResult, ConformanceReport, StoreHarness, run_case, run_cases

CASES: Final = (
    Case("put-head-get", basic.put_head_get),
    Case("round-trip", basic.round_trip),
    Case("refs-are-minted", basic.refs_are_minted),
    Case("scopes-are-apart", scopes.scopes_are_apart),
    Case("confusable-scopes", scopes.confusable_scopes),
    Case("absence-is-one-answer", basic.absence_is_one_answer),
    Case("expiry-only-tightens", keeping.expiry_only_tightens, ("advance_time", "open_bounded")),
    Case("delete-is-agreement", basic.delete_is_agreement),
    Case("list-pages", scopes.list_pages),
    Case("awkward-scopes", scopes.awkward_scopes),
    Case("oversized-is-refused", keeping.oversized_is_refused, ("open_bounded",)),
    Case("parents-are-proven", basic.parents_are_proven),
    Case("malformed-is-refused", basic.malformed_is_refused),
    Case("refusals-quote-nothing", basic.refusals_quote_nothing),
    Case("digest-is-kept", basic.digest_is_kept),
    Case("corruption-is-found", basic.corruption_is_found, ("corrupt",)),
    Case("streaming-members-are-detected", streams.members_are_detected),
    Case("streamed-put", streams.streamed_put, streams=True),
    Case("streamed-get", streams.streamed_get, ("corrupt",), streams=True),
    Case("streams-expire", streams.streams_expire, ("advance_time",), streams=True),
    Case("streams-make-room", streams.streams_make_room, ("open_bounded",), streams=True),
    Case("age-is-swept", keeping.age_is_swept, ("advance_time", "open_bounded")),
    Case("room-is-made-in-order", keeping.room_is_made_in_order, ("open_bounded",)),
    Case("deleting-makes-room", keeping.deleting_makes_room, ("open_bounded",)),
    Case("limits-hold-at-once", keeping.limits_hold_at_once, ("open_bounded",)),
    Case("stored-is-detached", basic.stored_is_detached),
    Case("lists-by-kind", scopes.lists_by_kind),
    Case("pages-hold-while-things-change", scopes.pages_hold_while_things_change),
    Case("many-at-once", scopes.many_at_once),
    Case("verbs-are-checkpoints", basic.verbs_are_checkpoints),
)
"""The cases of the suite, in order; names are stable."""


async def run_store_conformance(harness: StoreHarness) -> ConformanceReport:
    """Run every case on a store of its own.

    Args:
        harness: How to get at the stores.

    Raises:
        ValueError: The harness declares a case that there is not.
    """
    return await run_cases(harness, CASES)


__all__ = [
    "CASES",
    "BadStore",
    "Case",
    "CaseFailed",
    "CaseResult",
    "ConformanceReport",
    "StoreHarness",
    "run_case",
    "run_store_conformance",
]
