"""The store in a file: what it opens and refuses, who waits for what, what is written when."""

from __future__ import annotations

import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from afpool import Identity, Seams
from afpool.artifacts import (
    ArtifactStoreClosedError,
    ArtifactStoreError,
    InvalidArtifactError,
    NewArtifact,
    SqliteArtifacts,
    Swept,
    UnreadableArtifactError,
    UnreadableArtifactStoreError,
)
from afpool.artifacts._paging import read_cursor
from afpool.artifacts._sqlite_turns import _LEAST_USED, listing
from afpool.artifacts._sqlite_writer import Job
from tests.artifacts.store_kit import ADA, BOB, Clock

if TYPE_CHECKING:
    from collections.abc import Callable


def note(data: Any = "x", **facts: Any) -> NewArtifact:
    return NewArtifact(kind="note", media_type="text/plain", data=data, **facts)


async def refs(store: SqliteArtifacts, scope: Identity) -> list[str]:
    return [meta.ref for meta in (await store.list(scope, limit=500)).items]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "artifacts.db"


# Opening.


async def test_what_was_put_is_there_when_the_file_is_opened_again(file: Path) -> None:
    async with SqliteArtifacts(file) as store:
        meta = await store.put(ADA, note({"a": [1]}, digest="sha-256", label="l", expires_at=4e9))
        assert repr(store) == f"<SqliteArtifacts {str(file)!r}: open>"
    async with SqliteArtifacts(str(file)) as store:
        assert await store.head(ADA, meta.ref) == meta
        found = await store.get(ADA, meta.ref)
        assert found is not None
        assert found.data == {"a": [1]}
    assert [*contents(file.parent)] == [file.name], "the log is written back when the last one closes"


async def test_the_file_is_its_owners_alone_durable_and_marked_as_a_store(file: Path) -> None:
    async with SqliteArtifacts(file) as store:
        await store.put(ADA, note())
        for one in file.parent.iterdir():
            assert stat.S_IMODE(one.stat().st_mode) == 0o600, one
        assert store._writer is not None
        connection = store._writer._connection
        modes = [
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "application_id", "user_version", "trusted_schema")
        ]
        assert modes == ["wal", 2, 0x41465041, 1, 0]


@pytest.mark.parametrize("bad", ["", "  ", ":memory:", "file:x?mode=memory", "a\0b", b"bytes.db"])
def test_what_is_no_file_is_refused_before_anything_is_opened(bad: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        SqliteArtifacts(bad)


def test_dials_are_checked_before_anything_is_opened(file: Path) -> None:
    with pytest.raises(TypeError):
        SqliteArtifacts(None)  # type: ignore[arg-type]
    for dial in ("ttl", "max_bytes_per_scope", "max_count_per_scope", "timeout", "busy_timeout", "readers"):
        with pytest.raises(ValueError, match=dial):
            SqliteArtifacts(file, **{dial: 0})
    assert not file.exists()


async def problem_of(file: Path) -> str:
    store = SqliteArtifacts(file)
    with pytest.raises(UnreadableArtifactStoreError) as caught:
        await store.aopen()
    await store.aclose()
    assert str(file) in str(caught.value)
    return caught.value.problem


def stranger(file: Path, *statements: str, mode: str = "delete") -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def contents(folder: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}


async def test_what_cannot_be_opened_is_said_so(file: Path, tmp_path: Path) -> None:
    assert await problem_of(tmp_path) == "cannot-open"
    assert await problem_of(tmp_path / "missing" / "x.db") == "cannot-open"
    await trio.Path(file).write_bytes(b"this is no database, and somebody needs it" * 100)
    before = contents(tmp_path)
    assert await problem_of(file) == "cannot-open"
    assert contents(tmp_path) == before


@pytest.mark.parametrize("mode", ["delete", "wal"])
@pytest.mark.parametrize(
    ("statements", "problem"),
    [
        (["CREATE TABLE artifacts (mine)", "INSERT INTO artifacts VALUES (1)"], "not-our-schema"),
        (["CREATE TABLE other (x)", "PRAGMA user_version = 1"], "not-our-schema"),
        (["PRAGMA application_id = 77"], "not-our-schema"),
        (["PRAGMA application_id = 1095127105", "PRAGMA user_version = 2"], "newer-schema"),
        (["PRAGMA application_id = 1095127105", "PRAGMA user_version = 1"], "not-our-schema"),
        (["PRAGMA application_id = 1095127105", "PRAGMA user_version = 1", "CREATE TABLE artifacts (ref)"],
         "not-our-schema"),
    ],
)  # fmt: skip
async def test_a_file_of_strangers_or_of_a_later_version_stays_as_it_is(
    file: Path, mode: str, statements: list[str], problem: str
) -> None:
    stranger(file, *statements, mode=mode)
    before = contents(file.parent)
    assert await problem_of(file) == problem
    assert contents(file.parent) == before


async def test_a_stranger_that_is_open_elsewhere_with_a_log_stays_as_it_is(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("CREATE TABLE theirs (x)")
        connection.execute("INSERT INTO theirs VALUES (1)")
        connection.commit()
        assert await problem_of(file) == "not-our-schema"
        assert connection.execute("SELECT count(*) FROM theirs").fetchone() == (1,)


async def test_an_empty_file_becomes_a_store(file: Path) -> None:
    await trio.Path(file).touch()
    async with SqliteArtifacts(file) as store:
        await store.put(ADA, note())


async def test_a_store_that_cannot_be_written_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = sqlite3.connect

    class NoLog(sqlite3.Connection):
        def execute(self, statement: str, *args: Any) -> Any:
            if statement == "PRAGMA journal_mode = WAL":
                return super().execute("PRAGMA journal_mode = DELETE")
            return super().execute(statement, *args)

    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: real(*args, **options, factory=NoLog))
    assert await problem_of(file) == "cannot-open"


async def test_a_store_is_opened_once_and_refuses_before_and_after(file: Path) -> None:
    store = SqliteArtifacts(file)
    with pytest.raises(ArtifactStoreClosedError, match="not open yet"):
        await store.head(ADA, "no ref")
    async with store:
        meta = await store.put(ADA, note())
        with pytest.raises(ArtifactStoreClosedError, match="opened once"):
            await store.aopen()
    await store.aclose()
    await store.aclose()
    verbs: list[Callable[[], Any]] = [
        lambda: store.put(ADA, note()), lambda: store.head(ADA, meta.ref), lambda: store.get(ADA, meta.ref),
        lambda: store.delete(ADA, "no ref"), lambda: store.list(ADA), store.aopen,
    ]  # fmt: skip
    for verb in verbs:
        with pytest.raises(ArtifactStoreClosedError):
            await verb()
    assert repr(store).endswith("closed>")


async def test_closing_leaves_no_thread_and_no_descriptor(file: Path) -> None:
    def held() -> tuple[int, list[str]]:
        names = [one.name for one in threading.enumerate() if "artifacts" in one.name]
        return len([*Path("/proc/self/fd").iterdir()]), names

    before = held()
    async with SqliteArtifacts(file) as store:
        await store.put(ADA, note())
        await store.list(ADA)
        assert held() != before
    store._writer._thread.join(10)  # type: ignore[union-attr]
    assert held() == before


# Who waits for what.


async def stalled(store: SqliteArtifacts) -> tuple[threading.Event, Job[None]]:
    """Hold the writer inside a transaction until the event is set."""
    entered, go_on = trio.Event(), threading.Event()
    token = trio.lowlevel.current_trio_token()

    def hold(*_: object) -> None:
        token.run_sync_soon(entered.set)
        assert go_on.wait(30)

    job: Job[None] = Job(hold)
    assert store._writer is not None
    store._writer.submit(job)
    await entered.wait()
    return go_on, job


async def test_what_waits_is_committed_together(file: Path) -> None:
    async with SqliteArtifacts(file) as store:
        commits: list[int] = []
        assert store._writer is not None
        inner = store._writer._commit

        def counted(batch: list[Any]) -> Any:
            commits.append(len(batch))
            return inner(batch)

        store._writer._commit = counted  # type: ignore[method-assign]
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                go_on, _ = await stalled(store)
                for n in range(20):
                    nursery.start_soon(store.put, ADA, note(str(n)))
                await wait_all_tasks_blocked()
                go_on.set()
        assert commits == [1, 20]
        assert len(await refs(store, ADA)) == 20


async def test_one_refusal_does_not_touch_the_others_of_its_commit(file: Path) -> None:
    failed: list[Exception] = []

    async def bad() -> None:
        try:
            await store.put(ADA, note(parent_refs=["art_" + "0" * 22]))
        except ArtifactStoreError:
            raise
        except Exception as error:
            failed.append(error)

    async with SqliteArtifacts(file) as store:
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                go_on, _ = await stalled(store)
                for n in range(6):
                    if n % 2:
                        nursery.start_soon(bad)
                    else:
                        nursery.start_soon(store.put, ADA, note(str(n)))
                await wait_all_tasks_blocked()
                go_on.set()
        assert len(failed) == 3
        assert len(await refs(store, ADA)) == 3


async def test_a_put_that_is_cancelled_before_it_is_taken_is_never_done(file: Path) -> None:
    async with SqliteArtifacts(file) as store:
        with trio.fail_after(20):
            go_on, job = await stalled(store)
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(store.put, ADA, note())
                    await wait_all_tasks_blocked()
                    scope.cancel()
            go_on.set()
            await job.done.wait()
            await store.put(BOB, note())
            assert not await refs(store, ADA)


async def test_a_put_that_is_cancelled_while_it_is_written_is_taken_away_again(file: Path) -> None:
    async with SqliteArtifacts(file) as store:
        entered, go_on = trio.Event(), threading.Event()
        token = trio.lowlevel.current_trio_token()
        assert store._writer is not None
        inner = store._writer._commit

        def held(batch: list[Any]) -> Any:
            token.run_sync_soon(entered.set)
            assert go_on.wait(30)
            return inner(batch)

        store._writer._commit = held  # type: ignore[method-assign]
        with trio.fail_after(20):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(store.put, ADA, note())
                    await entered.wait()
                    scope.cancel()
            go_on.set()
            # closing waits for what has to be undone
            await store.aclose()
    async with SqliteArtifacts(file) as store:
        assert not await refs(store, ADA)
        assert store._writer is not None
        assert store._writer._connection.execute("SELECT count(*) FROM artifacts").fetchone() == (0,)


async def test_a_wait_ends_and_says_whether_anything_may_have_happened(
    file: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with SqliteArtifacts(file, timeout=3) as store:
        # A mock clock jumps whenever all tasks wait, also for threads: so the writer is replaced by nobody.
        class Nobody:
            taken: Job[Any] | None = None
            stopped = False

            def submit(self, job: Job[Any]) -> None:
                self.taken = job
                if self.claims:
                    assert job.claim()

            claims = False

        nobody: Any = Nobody()
        writer, store._writer = store._writer, nobody
        began = trio.current_time()
        with pytest.raises(ArtifactStoreError, match="nothing was changed") as caught:
            await store.put(ADA, note())
        assert caught.value.delivery == "not-sent"
        assert trio.current_time() - began == 3
        nobody.claims = True
        with pytest.raises(ArtifactStoreError, match="may yet be done") as caught:
            await store.delete(ADA, "art_" + "0" * 22)
        assert caught.value.delivery == "in-doubt"

        async def in_thread(fn: Any, limiter: Any) -> Any:
            del fn, limiter
            await trio.sleep_forever()

        store._seams = Seams(in_thread=in_thread)
        for verb in (store.list(ADA), store.head(ADA, "art_" + "0" * 22), store.get(ADA, "art_" + "0" * 22)):
            began = trio.current_time()
            with pytest.raises(ArtifactStoreError, match="nothing could be read"):
                await verb
            assert trio.current_time() - began == 3
        store._writer = writer
        autojump_clock.autojump_threshold = float("inf")  # the rest takes real threads


async def test_only_the_stores_own_threads_touch_the_database(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = threading.get_ident()
    touched: set[int] = set()
    real = sqlite3.connect

    class Watched(sqlite3.Connection):
        def execute(self, *args: Any) -> Any:
            touched.add(threading.get_ident())
            return super().execute(*args)

    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: real(*args, **options, factory=Watched))
    async with SqliteArtifacts(file, max_count_per_scope=2, readers=1) as store:
        meta = await store.put(ADA, note())
        await store.get(ADA, meta.ref)
        await store.head(ADA, meta.ref)
        await store.list(ADA)
        await store.delete(ADA, meta.ref)
        assert store._reading.total_tokens == 1
    assert touched
    assert loop not in touched


# What is written when.


async def test_what_was_read_least_recently_goes_also_after_the_file_was_opened_again(file: Path) -> None:
    clock = Clock()
    async with SqliteArtifacts(file, max_count_per_scope=3, seams=clock.seams) as store:
        first, second, third = [await store.put(ADA, note(str(n))) for n in range(3)]
        await store.get(ADA, first.ref)
    swept: list[Swept] = []
    async with SqliteArtifacts(file, max_count_per_scope=3, seams=clock.seams) as store:
        await store.put(ADA, note(), on_swept=swept.append)
        assert [one.ref for one in swept] == [second.ref]
        await store.head(ADA, third.ref)
        await store.put(ADA, note(), on_swept=swept.append)
        assert [one.ref for one in swept] == [second.ref, first.ref]


async def test_many_uses_are_written_down_without_a_put(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("afpool.artifacts._sqlite._NOTED", 3)
    async with SqliteArtifacts(file, max_count_per_scope=3) as store:
        meta = await store.put(ADA, note())
        for _ in range(4):
            await store.head(ADA, meta.ref)
        await store.delete(BOB, "art_" + "0" * 22)  # behind it in the queue
        assert not store._uses._by_scope
        assert store._writer is not None
        used, created = store._writer._connection.execute(
            "SELECT used, created FROM uses JOIN artifacts USING (id)"
        ).fetchone()
        assert used > created


async def test_without_a_limit_nothing_is_noted(file: Path) -> None:
    async with SqliteArtifacts(file) as store:
        meta = await store.put(ADA, note())
        await store.get(ADA, meta.ref)
        assert not store._uses._by_scope


async def test_the_totals_are_those_of_the_rows(file: Path) -> None:
    clock = Clock()
    async with SqliteArtifacts(file, max_bytes_per_scope=100, ttl=50, seams=clock.seams) as store:
        for n in range(30):
            meta = await store.put([ADA, BOB][n % 2], note("x" * (n % 40)))
            if n % 7 == 0:
                await store.delete(ADA, meta.ref)
            clock.advance(7)
    with closing(sqlite3.connect(file)) as connection:
        counted = connection.execute(
            "SELECT scope, count(*), sum(bytes) FROM artifacts GROUP BY scope ORDER BY scope"
        ).fetchall()
        noted = connection.execute("SELECT id, count, bytes FROM scopes ORDER BY id").fetchall()
        assert noted == counted
        orphans = "SELECT count(*) FROM uses WHERE id NOT IN (SELECT id FROM artifacts)"
        assert connection.execute(orphans).fetchone() == (0,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_limits_hold_for_what_a_store_without_limits_left(file: Path) -> None:
    async with SqliteArtifacts(file) as store:
        metas = [await store.put(ADA, note("x" * 10)) for _ in range(4)]
        await store.get(ADA, metas[0].ref)
    for turn in range(2):
        swept: list[Swept] = []
        async with SqliteArtifacts(file, max_count_per_scope=3, max_bytes_per_scope=25) as store:
            metas.append(await store.put(ADA, note("x" * 10), on_swept=swept.append))
            # the oldest ones: where no limit was, no use was noted
            gone = (metas[0:3], metas[3:5])[turn]
            assert [one.ref for one in swept] == [meta.ref for meta in gone]
            assert await refs(store, ADA) == [meta.ref for meta in metas[:-3:-1]]
        async with SqliteArtifacts(file) as store:
            metas.append(await store.put(ADA, note("x" * 10)))
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT count, bytes FROM scopes").fetchall() == [(None, None)]


async def test_a_scope_without_artifacts_is_forgotten_with_and_without_limits(file: Path) -> None:
    for limits in ({}, {"max_count_per_scope": 3}):
        async with SqliteArtifacts(file, **limits) as store:
            metas = [await store.put(ADA, note()) for _ in range(2)]
            for meta in metas:
                await store.delete(ADA, meta.ref)
            assert store._writer is not None
            for table in ("scopes", "artifacts", "uses"):
                assert store._writer._connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


async def test_what_expired_elsewhere_is_cleared_away_and_only_the_host_is_told(file: Path) -> None:
    clock, told = Clock(), []
    async with SqliteArtifacts(
        file, ttl=10, seams=clock.seams, on_given_up=lambda *what: told.append(what)
    ) as store:
        old = [await store.put(BOB, note()) for _ in range(3)]
        clock.advance(20)
        swept: list[Swept] = []
        await store.put(ADA, note(), on_swept=swept.append)
        assert not swept
        assert [(scope, one.ref, one.reason) for scope, one in told] == [(BOB, one.ref, "ttl") for one in old]
        assert store._writer is not None
        assert store._writer._connection.execute("SELECT name FROM scopes").fetchall() == [("acme/ada/c1",)]


async def test_two_objects_share_a_file_and_their_limits_hold(file: Path) -> None:
    async with (
        SqliteArtifacts(file, max_count_per_scope=5) as one,
        SqliteArtifacts(file, max_count_per_scope=5) as two,
    ):
        swept: list[Swept] = []
        minted: list[str] = []

        async def work(store: SqliteArtifacts) -> None:
            for n in range(15):
                meta = await store.put(ADA, note(str(n)), on_swept=swept.append)
                minted.append(meta.ref)

        async with trio.open_nursery() as nursery:
            for store in (one, two, one, two):
                nursery.start_soon(work, store)
        left = await refs(one, ADA)
        assert left == await refs(two, ADA)
        assert len(left) == 5
        assert sorted(left + [each.ref for each in swept]) == sorted(minted)


async def test_what_is_larger_than_a_row_is_refused_by_name(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("afpool.artifacts._sqlite.LARGEST", 10)
    async with SqliteArtifacts(file) as store:
        await store.put(ADA, note("x" * 10))
        with pytest.raises(InvalidArtifactError, match="SQLite holds 10 in one row"):
            await store.put(ADA, note("x" * 11))


async def test_closing_waits_so_long_and_no_longer_for_a_disk_that_hangs(file: Path) -> None:
    store = await SqliteArtifacts(file, timeout=0.2).aopen()
    with trio.fail_after(20):
        go_on, job = await stalled(store)
        await store.aclose()
        assert store._writer is not None
        assert not store._writer.ended.is_set()
        go_on.set()
        await store._writer.ended.wait()
        assert job.done.is_set()


async def test_a_store_that_could_not_be_opened_can_be_once_it_can(tmp_path: Path) -> None:
    store = SqliteArtifacts(tmp_path / "folder" / "x.db")
    with pytest.raises(UnreadableArtifactStoreError):
        await store.aopen()
    await trio.Path(tmp_path / "folder").mkdir()
    async with store:
        await store.put(ADA, note())


async def test_of_two_openings_at_once_one_is_refused(file: Path) -> None:
    store, refused = SqliteArtifacts(file), []

    async def open_it() -> None:
        try:
            await store.aopen()
        except ArtifactStoreClosedError as error:
            refused.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(open_it)
        nursery.start_soon(open_it)
    await store.aclose()
    assert len(refused) == 1


# What the database does wrong.


async def test_a_full_disk_refuses_one_write_and_says_so(file: Path) -> None:
    async with SqliteArtifacts(file) as store:
        meta = await store.put(ADA, note("kept"))
        assert store._writer is not None
        connection = store._writer._connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 3}")
        with trio.fail_after(20):
            outcomes: list[str] = []

            async def put(data: Any) -> None:
                try:
                    await store.put(ADA, note(data))
                except ArtifactStoreError as error:
                    outcomes.append(f"{error.delivery} {'SQLITE_FULL' in str(error)}")
                else:
                    outcomes.append("stored")

            async with trio.open_nursery() as nursery:
                go_on, _ = await stalled(store)
                for data in (b"x" * 100_000, "small", b"x" * 200_000):
                    nursery.start_soon(put, data)
                await wait_all_tasks_blocked()
                go_on.set()
        assert sorted(outcomes) == ["not-sent True", "not-sent True", "stored"]
        connection.execute("PRAGMA max_page_count = 1000000")
        await store.put(ADA, note(b"x" * 100_000))
        assert len(await refs(store, ADA)) == 3
        assert await store.head(ADA, meta.ref) == meta


async def test_another_process_that_holds_the_file_is_waited_for_and_then_named(file: Path) -> None:
    async with SqliteArtifacts(file, busy_timeout=0.01) as store:
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(ArtifactStoreError, match="SQLITE_BUSY") as caught:
                await store.put(ADA, note("secret-4711"))
            assert "4711" not in str(caught.value)
            other.execute("ROLLBACK")
        await store.put(ADA, note())


async def test_a_commit_that_fails_is_in_doubt(file: Path) -> None:
    async with SqliteArtifacts(file) as store:
        assert store._writer is not None
        real = store._writer._connection

        class Fails:
            in_transaction = True

            def __getattr__(self, name: str) -> Any:
                return getattr(real, name)

            def execute(self, statement: str, *args: Any) -> Any:
                if statement == "COMMIT":
                    raise sqlite3.OperationalError("disk I/O error, secret-4711")
                return real.execute(statement, *args)

        store._writer._connection = Fails()  # type: ignore[assignment]
        with pytest.raises(ArtifactStoreError, match="not known") as caught:
            await store.put(ADA, note())
        assert caught.value.delivery == "in-doubt"
        assert "4711" not in str(caught.value)
        store._writer._connection = real
        meta = await store.put(ADA, note())
        assert await refs(store, ADA) == [meta.ref]


async def test_a_row_that_somebody_damaged_is_unreadable_and_not_missing(file: Path) -> None:
    async with SqliteArtifacts(file) as store:
        metas = [await store.put(ADA, note(data)) for data in ("text", {"a": 1}, "other")]
        with closing(sqlite3.connect(file)) as connection:
            damage = [
                "UPDATE artifacts SET data = x'ff' WHERE id = 1",
                "UPDATE artifacts SET data = '{\"a\":1' WHERE id = 2",
                "UPDATE artifacts SET created = 'yesterday', parents = '{' WHERE id = 3",
            ]
            for statement in damage:
                connection.execute(statement)
            connection.commit()
        for meta in metas:
            with pytest.raises(UnreadableArtifactError, match=meta.ref):
                await store.get(ADA, meta.ref)
        assert await store.head(ADA, metas[0].ref) == metas[0]
        with pytest.raises(UnreadableArtifactError):
            await store.list(ADA)
        await store.delete(ADA, metas[2].ref)
        assert await refs(store, ADA) == [metas[1].ref, metas[0].ref]


async def test_reading_that_fails_says_so(file: Path) -> None:
    async with SqliteArtifacts(file) as store:
        meta = await store.put(ADA, note())
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("ALTER TABLE artifacts RENAME TO elsewhere")
        with pytest.raises(ArtifactStoreError, match="failed while reading"):
            await store.get(ADA, meta.ref)


async def test_a_page_costs_the_same_wherever_it_starts(file: Path) -> None:
    async with SqliteArtifacts(file) as store:
        async with trio.open_nursery() as nursery:
            for n in range(300):
                nursery.start_soon(store.put, ADA, note(str(n)))
        assert store._writer is not None
        connection = store._writer._connection
        page = await store.list(ADA, limit=200)
        for kind in (None, "note"):
            statement, parameters = listing("acme/ada/c1", kind, read_cursor(page.cursor), 51, 1)
            plan = " ".join(
                row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + statement, parameters)
            )
            assert "TEMP B-TREE" not in plan
            assert "created<?" in plan
        plan = " ".join(row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + _LEAST_USED, (1, 1)))
        assert "TEMP B-TREE" not in plan
        assert "uses_by_age (scope=?)" in plan
