"""What a credential provider of one's own is tested with: the conformance suite of the port.

    report = await run_provider_conformance(ProviderHarness(name="vault", open_provider=open_vault, ...))
    report.raise_for_failures()

No test framework is imported. `CASES` are the single cases, for a framework that wants to show each.
"""

from __future__ import annotations

from typing import Final

from . import _cases as cases
from ._suite import Bench, Case, CaseFailed, CaseResult, ConformanceReport, ProviderHarness, run_case

CASES: Final = (
    Case("answers-are-typed", cases.answers_are_typed),
    Case("unknown-services-are-refused", cases.unknown_services_are_refused),
    Case("nothing-is-shown", cases.nothing_is_shown),
    Case("asking-is-a-checkpoint", cases.asking_is_a_checkpoint),
    Case("principals-are-apart", cases.principals_are_apart, ("per_principal",)),
    Case("principals-are-apart-at-once", cases.principals_are_apart_at_once, ("per_principal",)),
    Case("one-flight", cases.one_flight, ("single_flight",), ("asked",)),
    Case("a-cancelled-asker-ends-nobody", cases.a_cancelled_asker_ends_nobody, (), ("hold",)),
    Case("failures-show-nothing", cases.failures_show_nothing, (), ("fail",)),
    Case("consent-is-an-outcome", cases.consent_is_an_outcome, (), ("consent",)),
    Case("refused-ones-are-not-given-again", cases.refused_ones_are_not_given_again, ("renews",)),
    Case("what-is-dropped-is-asked-for-anew", cases.what_is_dropped_is_asked_for_anew, (), ("asked", "drop")),
)
"""The cases of the suite, in order; names are stable."""


async def run_provider_conformance(harness: ProviderHarness) -> ConformanceReport:
    """Run every case on a provider of its own.

    Args:
        harness: How to get at the providers, and what they promise.

    Never raises for what a provider does. A checkpoint.
    """
    return ConformanceReport(harness.name, tuple([await run_case(harness, case) for case in CASES]))


__all__ = [
    "CASES",
    "Bench",
    "Case",
    "CaseFailed",
    "CaseResult",
    "ConformanceReport",
    "ProviderHarness",
    "run_case",
    "run_provider_conformance",
]
