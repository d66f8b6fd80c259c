"""The conformance suite for artifact stores: what a case is, how one is run, what is said of it.

Rules:

* No test framework is imported: the suite runs wherever there is a trio loop.
* Every case has a store of its own, and closes whatever it opened.
* Time is the store's: it is read from what the store mints, and moved by the harness.
* A hook that a case needs and the harness lacks fails that case, unless the case is declared. A declared case
  is run all the same: one that passes is reported as stale. Whether a case applies is asked before all that.
* An error is the right one by its class or by its `code`, so that stores need not be built on these classes.
"""

from __future__ import annotations

import inspect
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs
import trio

from ..._base.identity import Identity
from .._retention import Retention
from .._types import ArtifactMeta, ArtifactScope, ArtifactStore, NewArtifact, StreamingArtifactStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

Hook: TypeAlias = Literal["advance_time", "corrupt", "open_bounded"]
Outcome: TypeAlias = Literal["passed", "failed", "declared", "stale", "not-applicable"]

SCOPE: Final = Identity("acme", "ada", "c1")
OTHER: Final = Identity("acme", "bob", "c1")
WITHIN: Final = 60.0
"""Seconds that a case takes at most."""


class CaseFailed(AssertionError):
    """A store does not do what the port says; the message says what it did instead."""


@attrs.frozen(kw_only=True)
class StoreHarness:
    """How the suite gets at a store.

    Attributes:
        name: For the report.
        open_store: Opens an empty store without limits, for one case.
        open_bounded: Opens an empty store with these limits.
        advance_time: Moves the clock of the stores that it opened by seconds; may be async.
        corrupt: Changes the stored payload of one artifact behind the store's back; may be async.
        declared: Names of cases that this store is known to fail, each with the reason.
    """

    name: str
    open_store: Callable[[], AbstractAsyncContextManager[Any]]
    open_bounded: Callable[[Retention], AbstractAsyncContextManager[Any]] | None = None
    advance_time: Callable[[float], object] | None = None
    corrupt: Callable[[Any, ArtifactScope, str], object] | None = None
    declared: Mapping[str, str] = attrs.field(factory=dict)


class World:
    """What a case works with: its store, and the harness's hooks."""

    def __init__(self, harness: StoreHarness, store: ArtifactStore, opened: AsyncExitStack) -> None:
        self.store = store
        self._harness = harness
        self._opened = opened

    async def bounded(
        self, *, ttl: float | None = None, max_bytes: int | None = None, max_count: int | None = None
    ) -> ArtifactStore:
        """Open another store, with limits."""
        assert self._harness.open_bounded is not None
        limits = Retention(ttl=ttl, max_bytes_per_scope=max_bytes, max_count_per_scope=max_count)
        store: ArtifactStore = await self._opened.enter_async_context(self._harness.open_bounded(limits))
        return store

    async def advance(self, seconds: float) -> None:
        """Move the store's clock."""
        assert self._harness.advance_time is not None
        await _maybe_await(self._harness.advance_time(seconds))

    async def corrupt(self, store: ArtifactStore, scope: ArtifactScope, ref: str) -> None:
        """Change a stored payload."""
        assert self._harness.corrupt is not None
        await _maybe_await(self._harness.corrupt(store, scope, ref))

    async def now(self, store: ArtifactStore | None = None) -> float:
        """Read the store's clock off a probe that is taken away again."""
        store = self.store if store is None else store
        probe_scope = Identity("afpool", "probe")
        probe = await store.put(probe_scope, new("probe"))
        await store.delete(probe_scope, probe.ref)
        return probe.created_at


async def _maybe_await(value: object) -> None:
    if inspect.isawaitable(value):
        await value


@attrs.frozen
class Case:
    """One thing that every store does.

    Attributes:
        name: Stable, for `declared`.
        run: Raises `CaseFailed`, or whatever the store raises.
        needs: The hooks that it needs.
        streams: Whether it is about what only some stores offer.
    """

    name: str
    run: Callable[[World], Awaitable[None]]
    needs: tuple[Hook, ...] = ()
    streams: bool = False


@attrs.frozen
class CaseResult:
    """What came of one case.

    Attributes:
        name: Of the case.
        outcome: `passed`; `failed`; `declared`, failed as announced; `stale`, announced and passed;
            `not-applicable`, about something that the store does not offer.
        detail: Why, where that is not clear.
    """

    name: str
    outcome: Outcome
    detail: str = ""


@attrs.frozen
class ConformanceReport:
    """What came of all cases.

    Attributes:
        store: The harness's name.
        results: In the order of the cases.
    """

    store: str
    results: tuple[CaseResult, ...]

    @property
    def failed(self) -> tuple[CaseResult, ...]:
        """The cases that failed and were not declared."""
        return tuple(result for result in self.results if result.outcome == "failed")

    @property
    def stale(self) -> tuple[CaseResult, ...]:
        """The cases that were declared and passed: their declarations can go."""
        return tuple(result for result in self.results if result.outcome == "stale")

    @property
    def ok(self) -> bool:
        """Whether no case failed that was not declared."""
        return not self.failed

    def raise_for_failures(self) -> ConformanceReport:
        """Return self, or raise.

        Raises:
            CaseFailed: A case failed; the message lists all that did.
        """
        if self.failed:
            lines = "\n".join(f"  {result.name}: {result.detail}" for result in self.failed)
            raise CaseFailed(f"{self.store} failed {len(self.failed)} of {len(self.results)} cases:\n{lines}")
        return self

    def __str__(self) -> str:
        lines = [
            f"{result.outcome:15}{result.name}{': ' if result.detail else ''}{result.detail}"
            for result in self.results
        ]
        return "\n".join([f"{self.store}:", *lines])


def check(condition: object, failure: str) -> None:
    """Fail the case unless `condition` holds."""
    if not condition:
        raise CaseFailed(failure)


def new(data: Any = "payload", **facts: Any) -> NewArtifact:
    """Make something to put."""
    return NewArtifact(**{"kind": "note", "media_type": "text/plain", "data": data, **facts})


async def refused(code: str, verb: Awaitable[object]) -> BaseException:
    """Await `verb`, which has to raise an error of this code; give the error."""
    try:
        answer = await verb
    except Exception as error:
        if getattr(error, "code", None) == code:
            return error
        raise CaseFailed(
            f"expected an error with code {code}, got {type(error).__name__}: {error}"
        ) from error
    raise CaseFailed(f"expected an error with code {code}, got {type(answer).__name__}")


async def listed(store: ArtifactStore, scope: ArtifactScope, **options: Any) -> list[ArtifactMeta]:
    """List all pages."""
    found: list[ArtifactMeta] = []
    cursor: str | None = None
    for _ in range(1000):
        page = await store.list(scope, cursor=cursor, **options)
        found += page.items
        if page.cursor is None:
            return found
        check(page.items, "a page without tickets has a cursor")
        cursor = page.cursor
    raise CaseFailed("the pages of a list come to no end")


async def run_case(harness: StoreHarness, case: Case) -> CaseResult:
    """Run one case on a store of its own. Never raises for what the store does."""
    declared = harness.declared.get(case.name)
    try:
        with trio.fail_after(WITHIN):
            async with AsyncExitStack() as opened:
                store = await opened.enter_async_context(harness.open_store())
                if case.streams and not isinstance(store, StreamingArtifactStore):
                    return CaseResult(case.name, "not-applicable", "the store does not stream")
                lacking = [hook for hook in case.needs if getattr(harness, hook) is None]
                check(not lacking, f"needs the harness's {' and '.join(lacking)}, which it does not have")
                await case.run(World(harness, store, opened))
    except Exception as error:  # noqa: BLE001 -- whatever a store raises is this case's failure
        while isinstance(error, ExceptionGroup):  # out of a case's own nursery
            error = error.exceptions[0]
        words = str(error) if isinstance(error, CaseFailed) else f"{type(error).__name__}: {error}"
        if declared is not None:
            return CaseResult(case.name, "declared", declared)
        return CaseResult(case.name, "failed", words)
    if declared is not None:
        return CaseResult(case.name, "stale", f"declared ({declared}), and passes")
    return CaseResult(case.name, "passed")


async def run_cases(harness: StoreHarness, cases: tuple[Case, ...]) -> ConformanceReport:
    """Run cases one after the other.

    Raises:
        ValueError: `declared` names a case that there is not.
    """
    unknown = set(harness.declared) - {case.name for case in cases}
    if unknown:
        raise ValueError(f"declared names cases that there are not: {', '.join(sorted(unknown))}")
    results = [await run_case(harness, case) for case in cases]
    return ConformanceReport(harness.name, tuple(results))
