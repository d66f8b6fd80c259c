"""The public suite over all three stores; and the suite itself, which must find what is wrong."""

from __future__ import annotations

import ast
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

import afpool.artifacts
from afpool import Identity
from afpool.artifacts import ArtifactPage, MemoryArtifacts, Retention, testing
from afpool.artifacts.testing import CASES, CaseFailed, StoreHarness, run_case, run_store_conformance
from tests.artifacts.store_kit import Clock, memory_harness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

STREAMS = {case.name for case in CASES if case.streams}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_store_does_what_the_port_says(harness: StoreHarness, case: Any) -> None:
    result = await run_case(harness, case)
    wanted = "not-applicable" if case.streams and harness.name != "redis" else "passed"
    assert (result.outcome, result.detail if wanted == "passed" else "") == (wanted, "")


def test_the_suite_has_the_cases_that_were_promised() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names)) == 30
    assert {"streamed-put", "streamed-get", "streams-expire", "streams-make-room"} == STREAMS


# The suite finds what is wrong: each of these stores breaks one law.


def _broken(change: Callable[[MemoryArtifacts], None]) -> StoreHarness:
    harness = memory_harness()

    @asynccontextmanager
    async def open_store(limits: Retention | None = None) -> AsyncIterator[Any]:
        async with harness.open_store(*(() if limits is None else (limits,))) as store:  # type: ignore[call-arg]
            stand_in = StandIn(store)
            change(stand_in)  # type: ignore[arg-type]
            yield stand_in

    return attrs.evolve(harness, open_store=open_store, open_bounded=open_store, corrupt=_corrupt(harness))


def _corrupt(harness: StoreHarness) -> Any:
    def corrupt(store: Any, scope: Identity, ref: str) -> None:
        assert harness.corrupt is not None
        harness.corrupt(store.inner, scope, ref)

    return corrupt


class StandIn:
    """Passes all verbs on; a test replaces some."""

    def __init__(self, inner: MemoryArtifacts) -> None:
        self.inner = inner
        for verb in ("put", "head", "get", "delete", "list"):
            setattr(self, verb, getattr(inner, verb))


def folds_case(store: Any) -> None:
    inner = store.inner

    def fold(scope: Identity) -> Identity:
        return Identity(*(field and field.lower() for field in attrs.astuple(scope)))

    async def put(scope: Identity, new: Any, **options: Any) -> Any:
        return await inner.put(fold(scope), new, **options)

    async def list_(scope: Identity, **options: Any) -> Any:
        return await inner.list(fold(scope), **options)

    async def get(scope: Identity, ref: Any) -> Any:
        return await inner.get(fold(scope), ref)

    store.put, store.list, store.get = put, list_, get


def forgets_the_scope(store: Any) -> None:
    inner, scopes = store.inner, {}

    async def put(scope: Identity, new: Any, **options: Any) -> Any:
        meta = await inner.put(scope, new, **options)
        scopes[meta.ref] = scope
        return meta

    async def get(scope: Identity, ref: Any) -> Any:
        return await inner.get(scopes.get(ref, scope) if isinstance(ref, str) else scope, ref)

    store.put, store.get = put, get


def raises_for_absence(store: Any) -> None:
    inner = store.inner

    async def get(scope: Identity, ref: Any) -> Any:
        found = await inner.get(scope, ref)
        if found is None:
            raise KeyError(ref)
        return found

    store.get = get


def loses_the_last_page(store: Any) -> None:
    inner = store.inner

    async def list_(scope: Identity, **options: Any) -> Any:
        page = await inner.list(scope, **options)
        return page if page.cursor else ArtifactPage(page.items[:-1])

    store.list = list_


def sweeps_in_silence(store: Any) -> None:
    inner = store.inner

    async def put(scope: Identity, new: Any, **options: Any) -> Any:
        del options
        return await inner.put(scope, new)

    store.put = put


def checks_no_digest(store: Any) -> None:
    inner = store.inner

    async def get(scope: Identity, ref: Any) -> Any:
        try:
            return await inner.get(scope, ref)
        except Exception:
            return None

    store.get = get


def works_without_a_checkpoint(store: Any) -> None:
    async def head(scope: Identity, ref: Any) -> Any:
        del scope, ref

    store.head = head


def shows_the_payload(store: Any) -> None:
    inner = store.inner

    async def put(scope: Identity, new: Any, **options: Any) -> Any:
        try:
            return await inner.put(scope, new, **options)
        except Exception as error:
            error.args = (f"{error.args[0]} {new.data!r}",)
            raise

    store.put = put


@pytest.mark.parametrize(
    ("change", "fails"),
    [
        (folds_case, "confusable-scopes"),
        (forgets_the_scope, "scopes-are-apart"),
        (raises_for_absence, "absence-is-one-answer"),
        (loses_the_last_page, "list-pages"),
        (sweeps_in_silence, "room-is-made-in-order"),
        (sweeps_in_silence, "limits-hold-at-once"),
        (checks_no_digest, "corruption-is-found"),
        (works_without_a_checkpoint, "verbs-are-checkpoints"),
        (shows_the_payload, "refusals-quote-nothing"),
    ],
)
async def test_the_suite_finds_a_store_that_breaks_a_law(change: Any, fails: str) -> None:
    (case,) = (case for case in CASES if case.name == fails)
    assert (await run_case(_broken(lambda _: None), case)).outcome == "passed"
    result = await run_case(_broken(change), case)
    assert result.outcome == "failed"
    assert result.detail


# The runner.


async def test_a_hook_that_is_missing_fails_the_cases_that_need_it() -> None:
    report = await run_store_conformance(attrs.evolve(memory_harness(), advance_time=None, corrupt=None))
    assert not report.ok
    assert {result.name for result in report.failed} == {
        "expiry-only-tightens", "age-is-swept", "corruption-is-found"
    }  # fmt: skip
    assert all("advance_time" in one.detail or "corrupt" in one.detail for one in report.failed)
    with pytest.raises(CaseFailed, match=r"memory failed 3 of 30 cases:\n  expiry-only-tightens"):
        report.raise_for_failures()


async def test_a_declared_case_is_run_and_said_to_be_stale_when_it_passes() -> None:
    declared = {
        "age-is-swept": "there is no clock to move", "put-head-get": "it was broken once",
        "streamed-put": "it never streams",
    }  # fmt: skip
    harness = attrs.evolve(memory_harness(), advance_time=None, declared=declared)
    report = await run_store_conformance(harness)
    outcomes = {result.name: result.outcome for result in report.results}
    assert outcomes["age-is-swept"] == "declared"
    assert outcomes["put-head-get"] == "stale"
    assert outcomes["streamed-put"] == "not-applicable"  # asked before what is declared
    assert [result.name for result in report.stale] == ["put-head-get"]
    assert [result.name for result in report.failed] == ["expiry-only-tightens"]
    assert "stale          put-head-get: declared (it was broken once), and passes" in str(report)


async def test_declaring_a_case_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="no-such-case"):
        await run_store_conformance(attrs.evolve(memory_harness(), declared={"no-such-case": "?"}))


async def test_a_report_without_failures_gives_itself() -> None:
    report = await run_store_conformance(memory_harness())
    assert report.raise_for_failures() is report
    assert report.ok
    assert not report.stale


async def test_every_store_that_a_case_opens_is_closed() -> None:
    clock, opened = Clock(), []

    @asynccontextmanager
    async def open_store(limits: Retention | None = None) -> AsyncIterator[MemoryArtifacts]:
        given = {} if limits is None else attrs.asdict(limits, filter=lambda _, value: value is not None)
        async with MemoryArtifacts(**given, seams=clock.seams) as store:
            opened.append(store)
            yield store

    harness = StoreHarness(name="counted", open_store=open_store, open_bounded=open_store)
    await run_store_conformance(harness)
    assert len(opened) > len(CASES)
    assert all(store._closed for store in opened)


def test_the_suite_needs_no_test_framework_and_the_shared_files_no_vendor() -> None:
    program = (
        "import sys, afpool.artifacts.testing, afpool.artifacts.testing._suite; "
        "print(sorted({'pytest', 'hypothesis', 'unittest', 'coredis', 'sqlite3'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    for module in (afpool.artifacts, testing):
        for file in Path(module.__file__ or "").parent.glob("*.py"):
            if file.name.startswith(("_redis", "_sqlite")):
                continue
            imported = {
                name.name.split(".")[0]
                for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
                if isinstance(node, ast.Import)
                for name in node.names
            }
            assert not imported & {"coredis", "sqlite3", "pytest", "hypothesis", "unittest"}, file
