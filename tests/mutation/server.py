"""A pytest plugin that runs no test itself: it collects once, and forks for each mutant.

Rules:

* A mutant lives in a child, which makes the change, runs its tests one by one and ends at the first that
  fails.
* Before each test the child says so; the parent gives it a time by what the test takes on the unbroken code.
  A child that says nothing for longer has a mutant that hangs, and that is noticed, too.
* A change that has to be imported is run by a process of its own (`alone.py`): it costs seconds.
* Children are in a session of their own, which is ended whole.
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

ROOT = Path.cwd()
FIRST = 20.0  # seconds for what comes before the first test
TIMES = 12.0  # how much longer than usual a test may take
AT_LEAST = 12.0
IN_CONTROL = 300  # tests that are run with no change first
UNFIT = 10  # of them may fail, and are left out: more, and something is wrong with this process
MEMORY = 6 << 30

# what a child says, a line each; the last one it says is its verdict
CONTROL = "no change"
TEST, ALONE, KILLED, SURVIVED, INVALID = "test", "alone", "killed", "survived", "invalid"


class Child(NamedTuple):
    job: dict[str, Any]
    pid: int
    out: int
    began: float
    heard: list[bytes]
    until: list[float]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutation-jobs")
    parser.addoption("--mutation-workers", type=int)
    parser.addoption("--mutation-out", type=int, help="a descriptor")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    options: Any = session.config.option
    listed = Path(options.mutation_jobs)
    jobs = [json.loads(line) for line in listed.read_text().splitlines()]
    items = {item.nodeid: item for item in session.items}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell runs in the background
    known = functions(ROOT)
    capture: Any = session.config.pluginmanager.getplugin("capturemanager")
    capture.suspend_global_capture(in_=True)
    gc.collect()
    gc.freeze()
    with os.fdopen(options.mutation_out, "w") as out:
        server = _Server(session, items, known, out)
        workers = options.mutation_workers
        # without any change the tests pass here, too: what is noticed later is the change
        for _ in range(UNFIT):
            server.serve([_control(jobs)], 1)
            unfit = server.noticed_by
            if not unfit:
                break
            for job in jobs:
                job["tests"] = [test for test in job["tests"] if test != unfit]
        server.serve(jobs, workers)
    return True


def _control(jobs: list[dict[str, Any]]) -> dict[str, Any]:
    turns = (job["tests"][turn : turn + 1] for turn in range(3) for job in jobs)
    tests = list(dict.fromkeys(test for turn in turns for test in turn))
    return {"name": CONTROL, "change": None, "tests": tests[:IN_CONTROL], "seconds": {}, "imports": False}


class _Server:
    def __init__(self, session: Any, items: dict[str, pytest.Item], known: Any, out: Any) -> None:
        self.session, self.items, self.known, self.out = session, items, known, out
        self.selector = selectors.DefaultSelector()
        self.killers: dict[str, list[str]] = {}
        self.noticed_by = ""  # by which test what was run last was noticed

    def serve(self, jobs: list[dict[str, Any]], workers: int) -> None:
        waiting = list(reversed(jobs))
        running = 0
        while waiting or running:
            while waiting and running < workers:
                self._start(waiting.pop())
                running += 1
            for key, _ in self.selector.select(0.5):
                running -= self._hear(key.data)
            now = time.monotonic()
            late = [key.data for key in list(self.selector.get_map().values()) if key.data.until[0] < now]
            for child in late:
                self._end(child, KILLED, "hang")
                running -= 1

    # ----------------------------------------------------------------------- the parent's side

    def _ordered(self, job: dict[str, Any]) -> list[str]:
        """First what noticed its neighbours: it is likely to notice this one, too."""
        before = self.killers.get(_near(job), [])
        tests = job["tests"]
        front = [test for test in before if test in tests]
        return [*front, *(test for test in tests if test not in front)]

    def _start(self, job: dict[str, Any]) -> None:
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
        now = time.monotonic()
        child = Child(job, pid, read, now, [b""], [now + FIRST])
        self.selector.register(read, selectors.EVENT_READ, child)

    def _hear(self, child: Child) -> int:
        data = os.read(child.out, 65536)
        child.heard[0] += data
        lines = child.heard[0].split(b"\n")
        child.heard[0] = lines.pop()
        for line in lines:
            word, _, rest = line.decode().partition(" ")
            if word == TEST:
                usual = child.job["seconds"].get(rest, 1.0)
                child.until[0] = time.monotonic() + AT_LEAST + TIMES * usual
                child.job["at"] = rest
            elif word == ALONE:
                child.until[0] = time.monotonic() + float(rest)
            else:
                self._end(child, word, rest)
                return 1
        if not data:
            self._end(child, KILLED, f"end of process in {child.job.get('at')}")
            return 1
        return 0

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
        self.noticed_by = by if word == KILLED else ""
        seconds = round(time.monotonic() - child.began, 2)
        said = {"name": child.job["name"], "verdict": word, "by": by, "seconds": seconds}
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
                make(change, path.read_text(), path, self.known)
        except NotAlive:
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
    usual: dict[str, float] = job["seconds"]
    return FIRST + 60 + sum(AT_LEAST / 4 + TIMES * usual.get(test, 1.0) for test in job["order"])


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
