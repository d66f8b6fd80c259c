"""A pytest plugin that runs no test itself: it collects once, and forks for each mutant.

Rules:

* A mutant lives in a child, which makes the change, runs its tests one by one and ends at the first that
  fails.
* Before each test the child says so; the parent then allows it what the test takes on the unbroken code,
  many times over (`hangs.py`). A child that says nothing for longer hangs, and that is noticed, too.
* A child that has nothing to do does not keep the next one from being started.
* A change that has to be imported is run by a process of its own (`alone.py`): it costs seconds. Who does
  that in another way asks for `IMPORTED` in its place.
* Children are in a session of their own, which is ended whole.
* First there is a child with no change. A test that fails in it twice is left out, and said.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.mutation.alive import NotAlive, functions, make
from tests.mutation.changes import Change
from tests.mutation.hangs import AT_LEAST, TIMES, Limit

ROOT = Path.cwd()
FIRST = 20.0  # seconds of work for what comes before the first test
UNKNOWN = (20.0, 5.0)  # seconds of a test, and of work in them, where nobody has measured them
TOGETHER = 6  # children that have nothing to do, at most
UNFIT = 10  # of them may fail, and are left out: more, and something is wrong with this process
MEMORY = 6 << 30

# what a child says, a line each; the last one it says is its verdict
CONTROL = "no change"
TEST, ALONE, KILLED, SURVIVED, INVALID = "test", "alone", "killed", "survived", "invalid"
IMPORTED = "has to be imported"


class Child(NamedTuple):
    job: dict[str, Any]
    pid: int
    out: int
    began: float
    heard: list[bytes]
    limit: list[Limit]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutation-jobs")
    parser.addoption("--mutation-workers", type=int)
    parser.addoption("--mutation-control", type=int, help="tests that are run with no change first")
    parser.addoption("--mutation-not-alone", action="store_true", help="import nothing anew")
    parser.addoption("--mutation-out", type=int, help="a descriptor")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    if session.testsfailed:
        raise session.Interrupted(f"{session.testsfailed} errors in collecting")
    options: Any = session.config.option
    listed = Path(options.mutation_jobs)
    jobs = [json.loads(line) for line in listed.read_text().splitlines()]
    items = {item.nodeid: item for item in session.items}
    named: dict[str, list[str]] = {}  # a test without its parameters is all of its variants
    for name in items:
        named.setdefault(name, []).append(name)
        if "[" in name:
            named.setdefault(name.partition("[")[0], []).append(name)
    for job in jobs:
        job["tests"] = [item for name in job["tests"] for item in named.get(name, ())]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell runs in the background
    known = functions(ROOT)
    capture: Any = session.config.pluginmanager.getplugin("capturemanager")
    capture.suspend_global_capture(in_=True)
    gc.collect()
    gc.freeze()
    with os.fdopen(options.mutation_out, "w") as out:
        server = _Server(session, items, known, out)
        unfit = server.unfit(_control(jobs)[: options.mutation_control], options.mutation_workers)
        if len(unfit) < UNFIT:
            for job in jobs:
                job["tests"] = [test for test in job["tests"] if test not in unfit]
            server.serve(jobs, options.mutation_workers)
    return True


def _control(jobs: list[dict[str, Any]]) -> list[str]:
    """The tests that are asked most, those of each mutant that go first in front."""
    most = max(len(job["tests"]) for job in jobs)
    turns = (job["tests"][turn : turn + 1] for turn in range(most) for job in jobs)
    return list(dict.fromkeys(test for turn in turns for test in turn))


class _Server:
    def __init__(self, session: Any, items: dict[str, pytest.Item], known: Any, out: Any) -> None:
        self.session, self.items, self.known, self.out = session, items, known, out
        self.selector = selectors.DefaultSelector()
        self.killers: dict[str, list[str]] = {}
        self.verdicts: dict[str, tuple[str, str]] = {}
        self.usual: dict[str, tuple[float, float]] = {}  # seconds and work, as seen with no change

    def unfit(self, tests: list[str], workers: int) -> list[str]:
        """The tests that fail though nothing is changed, each tried a second time."""
        found: list[str] = []
        shares = [tests[turn::workers] for turn in range(workers)]
        while any(shares) and len(found) < UNFIT:
            jobs = [_unchanged(f"{CONTROL} {turn}", share) for turn, share in enumerate(shares) if share]
            self.serve(jobs, workers)
            noticed = [(job["tests"], _test(self.verdicts[job["name"]][1])) for job in jobs]
            failed = [test for _, test in noticed if test]
            self.serve([_unchanged(f"{CONTROL} {test}", [test]) for test in failed], 1)
            again = [test for test in failed if self.verdicts[f"{CONTROL} {test}"][0] == KILLED]
            found += again
            for test in again:
                self._say({"name": CONTROL, "verdict": KILLED, "by": test, "seconds": 0.0})
            shares = [share[share.index(test) + 1 :] if test in share else [] for share, test in noticed]
        return found

    def serve(self, jobs: list[dict[str, Any]], workers: int) -> None:
        waiting = list(reversed(jobs))
        children: dict[int, Child] = {}
        while waiting or children:
            quiet = sum(child.limit[0].quiet() for child in children.values())
            while waiting and len(children) < workers + min(quiet, TOGETHER):
                child = self._start(waiting.pop())
                children[child.pid] = child
            for key, _ in self.selector.select(0.5):
                if self._hear(key.data):
                    del children[key.data.pid]
            for child in [child for child in children.values() if child.limit[0].over()]:
                self._end(child, KILLED, "hang")
                del children[child.pid]

    # ----------------------------------------------------------------------- the parent's side

    def _ordered(self, job: dict[str, Any]) -> list[str]:
        """First what noticed its neighbours: it is likely to notice this one, too."""
        before = self.killers.get(_near(job), [])
        tests = job["tests"]
        front = [test for test in before if test in tests]
        return [*front, *(test for test in tests if test not in front)]

    def _start(self, job: dict[str, Any]) -> Child:
        job["order"] = self._ordered(job)
        read, write = os.pipe()
        self.out.flush()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            try:
                self._live(job, write)
            finally:
                os._exit(1)
        os.close(write)
        limit = Limit(pid, work=FIRST, idle=FIRST)
        child = Child(job, pid, read, time.monotonic(), [b""], [limit])
        self.selector.register(read, selectors.EVENT_READ, child)
        return child

    def _hear(self, child: Child) -> bool:
        """Whether that was its last word."""
        data = os.read(child.out, 65536)
        child.heard[0] += data
        lines = child.heard[0].split(b"\n")
        child.heard[0] = lines.pop()
        for line in lines:
            word, _, rest = line.decode().partition(" ")
            if word == TEST:
                self._passed(child)
                seconds, work = child.job["usual"].get(rest) or self.usual.get(rest, UNKNOWN)
                child.limit[0] = Limit.of_test(child.pid, work, seconds)
                child.job["at"] = rest
            elif word == ALONE:
                child.limit[0] = Limit(child.pid, work=float(rest), idle=float(rest))
            else:
                self._passed(child)
                self._end(child, word, rest)
                return True
        if not data:
            self._end(child, KILLED, f"end of process in {child.job.get('at')}")
            return True
        return False

    def _passed(self, child: Child) -> None:
        """Of a test with no change what it took is kept."""
        if child.job["change"] is None and "at" in child.job:
            took = child.limit[0].took()
            self.usual[child.job["at"]] = took.clock, took.worked

    def _end(self, child: Child, word: str, by: str) -> None:
        self.selector.unregister(child.out)
        os.close(child.out)
        for target in (-child.pid, child.pid):
            try:
                os.kill(target, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        os.waitpid(child.pid, 0)
        if word == KILLED and by == "hang":
            by = f"hang in {child.job.get('at')}"
        elif word == KILLED:
            killers = self.killers.setdefault(_near(child.job), [])
            if by in killers:
                killers.remove(by)
            killers.insert(0, by)
            del killers[6:]
        self.verdicts[child.job["name"]] = word, by
        if child.job["change"] is not None:
            seconds = round(time.monotonic() - child.began, 2)
            self._say({"name": child.job["name"], "verdict": word, "by": by, "seconds": seconds})

    def _say(self, said: dict[str, Any]) -> None:
        self.out.write(json.dumps(said) + "\n")
        self.out.flush()

    # ------------------------------------------------------------------------ the child's side

    def _live(self, job: dict[str, Any], write: int) -> None:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

        def say(*words: str) -> None:
            os.write(write, (" ".join(words) + "\n").encode())

        try:
            if job["change"] is not None:
                change = Change(**job["change"])
                path = ROOT / change.file
                if job["imports"]:
                    raise NotAlive  # noqa: TRY301 -- as `make` says it
                text = path.read_text()
                make(text, change.applied(text), path, self.known)
        except NotAlive:
            if self.session.config.option.mutation_not_alone:
                say(IMPORTED)
                os._exit(0)
            budget = _budget(job)
            say(ALONE, str(budget))
            say(*_alone(job, budget))
            os._exit(0)
        except SyntaxError as error:
            say(INVALID, str(error).replace("\n", " "))
            os._exit(0)
        failed: list[str] = []
        self.session.config.pluginmanager.register(_Reports(failed))
        items = [self.items[name] for name in job["order"] if name in self.items]
        for item, following in zip(items, [*items[1:], None], strict=True):
            say(TEST, item.nodeid)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if failed:
                say(KILLED, item.nodeid)
                os._exit(0)
        say(SURVIVED)
        os._exit(0)


def _unchanged(name: str, tests: list[str]) -> dict[str, Any]:
    return {"name": name, "change": None, "tests": tests, "usual": {}, "imports": False}


def _test(by: str) -> str:
    """The test in what noticed: it failed, or it hung, or the process ended in it."""
    return by.removeprefix("hang in ").removeprefix("end of process in ")


def _near(job: dict[str, Any]) -> str:
    change = job["change"]
    return f"{change['file']} {change['scope']}" if change else ""


class _Reports:
    def __init__(self, failed: list[str]) -> None:
        self.failed = failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def _budget(job: dict[str, Any]) -> float:
    usual: dict[str, tuple[float, float]] = job["usual"]
    return FIRST + 60 + sum(AT_LEAST / 4 + TIMES * usual.get(test, (1.0,))[0] for test in job["order"])


def _alone(job: dict[str, Any], budget: float) -> tuple[str, str]:
    """Run a mutant that has to be imported."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command += ["-p", "tests.mutation.alone", "--timeout=0", "-rfE", "--tb=no", *job["order"]]
    environment = {**os.environ, "AFPOOL_MUTANT": json.dumps(job["change"])}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=budget, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode == 0:
        return SURVIVED, ""
    names = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return KILLED, names[0] if names else f"pytest exit {done.returncode}"
