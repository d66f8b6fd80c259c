"""Put in place what a make target needs, and nothing that is there already.

    python3 scripts/prepare.py [run | test | dev] [redis] [nginx] [peers] [conformance]
                               [northbound] [frameworks] [comparison] [browser] [interop | interop-quick]

Rules:

* Each component has a stamp: a digest of everything that decides its content (lock file, interpreter, place).
  A stamp goes away before work on its component starts and comes back when the work is done, so that an
  interrupted run is repeated and a finished one costs nothing.
* What only root can install is checked before anything is installed. Root on Debian gets it from apt-get;
  everybody else is told what is missing, and the exit code is 3.
* Python packages come from locked files with hashes, npm packages from a lock file. Nothing is resolved here.
* One run at a time works in a checkout: a second one waits for the first.
"""

from __future__ import annotations

import concurrent.futures
import fcntl
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import tomllib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
PEERS = CACHE / "peers"
SERVERS = ROOT / "tests" / "peers" / "servers"
CONFORMANCE = ROOT / "tests" / "conformance"
BROWSER = ROOT / "tests" / "browser"
INTEROP = CACHE / "interop"
FRAMEWORKS = ROOT / "tests" / "frameworks" / "frameworks.txt"
INTEROP_PACKAGES = ROOT / "tests" / "interop" / "packages"
COMPARISON = ROOT / "benchmarks" / "comparison"
LAYERS = ("run", "test", "dev")
NEEDS_NODE = ("browser", "peers", "conformance", "interop", "interop-quick")
OTHERS = ("redis", "nginx", "northbound", "frameworks", "comparison", *NEEDS_NODE)
OLDEST_NODE = 18
OLDEST_REDIS = 6  # the first that speaks the protocol of its clients today
SUITE_NODE = 22  # the oldest that the conformance suite runs on
AT_ONCE = 6  # installations
MISSING = 3
FAILED = 2


class PrepareError(Exception):
    """Something could not be put in place; the message says what, for a person."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


def say(message: str) -> None:
    """Print one line about the set-up, at once."""
    print(f"prepare: {message}", flush=True)


def run_logged(
    what: str,
    command: Sequence[str | Path],
    log: Path,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> None:
    """Run a command with its output in a log file; on failure raise with the end of that log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        out.write(f"\n$ {' '.join(map(str, command))}\n".encode())
        out.flush()
        done = subprocess.run(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
            cwd=cwd,
            env=env,
        )
    if done.returncode:
        tail = log.read_text(errors="replace").splitlines()[-15:]
        lines = "\n".join(f"    {line}" for line in tail)
        raise PrepareError(f"{what}: exit code {done.returncode}. The end of {log}:\n{lines}")


def digest(*parts: str | Path) -> str:
    """Digest of strings and of the contents of files."""
    total = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else part.encode()
        total.update(len(data).to_bytes(8, "big") + data)
    return total.hexdigest()


class Stamp:
    """A file beside a component that names what the component was made from."""

    def __init__(self, path: Path, value: str) -> None:
        self.path = path
        self.value = value

    def holds(self) -> bool:
        """Whether the component is there as wanted."""
        try:
            return self.path.read_text() == self.value
        except OSError:
            return False

    def drop(self) -> None:
        """Forget the component before working on it."""
        self.path.unlink(missing_ok=True)

    def write(self) -> None:
        """Record the finished component."""
        self.path.write_text(self.value)


class Venv:
    """A virtual environment that holds exactly the locked packages, or is made anew."""

    def __init__(self, place: Path, python: str = sys.executable) -> None:
        self.place = place
        self.python = python
        self.log = CACHE / "logs" / f"{place.name.lstrip('.')}.log"

    @property
    def interpreter(self) -> Path:
        """The Python inside."""
        return self.place / "bin" / "python"

    def _made(self) -> Stamp:
        real = os.path.realpath(self.python)
        return Stamp(self.place / ".made", digest(real, str(self.place)))

    def _make(self) -> None:
        made = self._made()
        if made.holds() and self.interpreter.exists():
            return
        if self.place.exists():
            shutil.rmtree(self.place)
        run_logged(
            f"could not create the virtual environment {self.place}",
            [self.python, "-m", "venv", self.place],
            self.log,
        )
        made.write()

    def _pip(self, what: str, *args: str | Path) -> None:
        command: list[str | Path] = [
            self.interpreter,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--no-input",
            "install",
        ]
        run_logged(what, [*command, "--no-deps", "--quiet", *args], self.log, cwd=ROOT)

    def holding(self, stamp_name: str, lock: Path) -> Stamp:
        """The stamp for the packages of one lock file."""
        return Stamp(self.place / stamp_name, digest(self._made().value, lock))

    def install(self, stamp_name: str, lock: Path) -> None:
        """Install the locked packages, unless they are there."""
        stamp = self.holding(stamp_name, lock)
        if stamp.holds():
            return
        started = time.monotonic()
        self._make()
        stamp.drop()
        what = f"could not install the packages of {lock.relative_to(ROOT)} from PyPI"
        self._pip(what, "--require-hashes", "--only-binary=:all:", "-r", lock)
        stamp.write()
        say(f"{self.place.relative_to(ROOT)}: {lock.name} installed in {time.monotonic() - started:.1f} s")

    def install_project(self) -> None:
        """Install this project in editable form, with the build back end that the lock file brought."""
        stamp = Stamp(self.place / ".project", digest(self._made().value, ROOT / "pyproject.toml"))
        if stamp.holds():
            return
        stamp.drop()
        self._pip("could not install the project itself", "--no-build-isolation", "-e", ROOT)
        stamp.write()


def requirements(layer: str) -> Path:
    """The lock file of a layer of the development environment."""
    return ROOT / "requirements" / f"{layer}.txt"


def install_layer(layer: str, venv: Venv) -> None:
    """Install one layer of the development environment and the project."""
    # A larger layer holds the smaller ones, pinned to the same versions.
    larger = LAYERS[LAYERS.index(layer) :]
    if not any(venv.holding(f".{name}", requirements(name)).holds() for name in larger):
        venv.install(f".{layer}", requirements(layer))
    venv.install_project()


def install_python_peer(name: str) -> None:
    """Install the packages of one Python peer server in its own environment."""
    Venv(PEERS / name).install(".packages", SERVERS / f"{name}.txt")


def install_interop(name: str) -> None:
    """Install the packages of one environment of the interop servers; they are clients, too."""
    Venv(INTEROP / name).install(".packages", INTEROP_PACKAGES / f"{name}.txt")


def interop_jobs(quick: bool) -> list[Callable[[], None]]:
    """What `make servers` needs beside the peers: an environment for each lock file of its folder.

    With `quick` only those that its short run uses. Packages of npm that need a newer Node.js than the one
    here are left out; `make servers` says so.
    """
    with (INTEROP_PACKAGES.parent / "servers.toml").open("rb") as source:
        servers = tomllib.load(source)["server"]
    wanted = {server["installed"] for server in servers if server.get("quick") or not quick}
    jobs: list[Callable[[], None]] = [
        partial(install_interop, lock.stem)
        for lock in sorted(INTEROP_PACKAGES.glob("*.txt"))
        if f"interop/{lock.stem}" in wanted
    ]
    for manifest in sorted(INTEROP_PACKAGES.glob("*/package.json")):
        if f"interop/{manifest.parent.name}" not in wanted:
            continue
        oldest = re.search(r'"node": ">=(\d+)"', manifest.read_text())
        if oldest is None or (node_version() or 0) >= int(oldest[1]):
            jobs.append(partial(install_npm, manifest.parent, INTEROP / manifest.parent.name))
    return jobs


def install_npm(manifests: Path, place: Path, *options: str) -> None:
    """Install the npm packages of a folder's lock file in a place of their own."""
    files = [manifests / "package.json", manifests / "package-lock.json"]
    stamp = Stamp(place / ".packages", digest(*files, *options))
    if stamp.holds():
        return
    started = time.monotonic()
    place.mkdir(parents=True, exist_ok=True)
    stamp.drop()
    for file in files:
        shutil.copy(file, place)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", *options]
    what = f"could not install the npm packages of {manifests.relative_to(ROOT)}"
    run_logged(what, command, CACHE / "logs" / f"npm-{place.name}.log", cwd=place)
    stamp.write()
    say(f"{place.relative_to(ROOT)}: npm packages installed in {time.monotonic() - started:.1f} s")


def install_conformance() -> None:
    """Install the conformance suite, with a Node.js of its own where the system's is too old for it."""
    place = CACHE / "conformance"
    if (node_version() or 0) >= SUITE_NODE:
        install_npm(CONFORMANCE, place, "--omit=optional")
        return
    install_npm(CONFORMANCE, place, "--include=optional")
    if not (place / "node_modules" / ".bin" / "node").exists():
        raise PrepareError(
            f"something is missing that cannot be installed from here:\n"
            f"    missing: node {SUITE_NODE} or newer, which the conformance suite needs; the one on PATH is "
            f"{node_version()}, and npm has one for Linux on x86_64 and aarch64 only (this is "
            f"{platform.system()} on {platform.machine()}). Install it another way; then run `make` again.",
            MISSING,
        )


def node_version() -> int | None:
    """The major version of the Node.js on PATH, if there is one that says it."""
    if shutil.which("node") is None:
        return None
    shown = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False)
    version = re.match(r"v(\d+)\.", shown.stdout)
    return None if version is None else int(version[1])


def node_fault() -> str | None:
    """What is wrong with the Node.js on PATH, if anything."""
    absent = [name for name in ("node", "npm") if shutil.which(name) is None]
    if absent:
        return f"{' and '.join(absent)} not found (Debian packages: nodejs npm)"
    version = node_version()
    if version is None or version < OLDEST_NODE:
        return f"node {OLDEST_NODE} or newer not found; the version of the one on PATH is {version}"
    return None


def redis_fault() -> str | None:
    """What is wrong with the Redis server on PATH, if anything."""
    if shutil.which("redis-server") is None:
        return "redis-server not found (Debian package: redis-server)"
    shown = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=False)
    version = re.search(r"\bv=(\d+)\.", shown.stdout)
    if version is None or int(version[1]) < OLDEST_REDIS:
        said = shown.stdout.strip()
        return f"redis-server {OLDEST_REDIS} or newer not found; the one on PATH says {said!r}"
    return None


def nginx_fault() -> str | None:
    """What is wrong with nginx, if anything; Debian keeps it where only root's PATH looks."""
    if shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
        return "nginx not found (Debian package: nginx)"
    return None


def chromium_fault() -> str | None:
    """What is wrong with Chromium, if anything."""
    if shutil.which("chromium") is None:
        return "chromium not found (Debian package: chromium)"
    return None


def venv_fault() -> str | None:
    """Whether this Python can make virtual environments."""
    if importlib.util.find_spec("ensurepip") is None:
        return f"the venv module of {sys.executable} not found (Debian package: python3-venv)"
    return None


def check_system(
    wants_node: bool, wants_redis: bool = False, wants_nginx: bool = False, wants_browser: bool = False
) -> None:
    """See that what PyPI and npm cannot bring is here; as root install it, else say what is missing."""
    wanted: list[tuple[Callable[[], str | None], list[str]]] = [(venv_fault, ["python3-venv"])]
    if wants_node:
        wanted.append((node_fault, ["nodejs", "npm"]))
    if wants_redis:
        wanted.append((redis_fault, ["redis-server"]))
    if wants_nginx:
        wanted.append((nginx_fault, ["nginx"]))
    if wants_browser:
        wanted.append((chromium_fault, ["chromium"]))
    faulty = [(fault(), packages) for fault, packages in wanted]
    if not any(fault for fault, _ in faulty):
        return
    if os.geteuid() == 0 and shutil.which("apt-get") is not None:
        packages = [package for fault, names in faulty if fault for package in names]
        apt_install(packages)
        importlib.invalidate_caches()
    left = [fault for fault, _ in wanted if fault() is not None]
    if left:
        lines = "\n".join(f"    missing: {fault()}" for fault in left)
        raise PrepareError(
            f"something is missing that cannot be installed from here:\n{lines}\n"
            f"    This needs root and apt-get. Run `make` as root on Debian, or install it another way; "
            f"then run `make` again.",
            MISSING,
        )


def apt_install(names: Sequence[str]) -> None:
    """Install Debian packages as root."""
    log = CACHE / "logs" / "apt.log"
    # at run level 1 no package starts a service: the tests start what they need themselves
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    started = time.monotonic()
    say(f"installing {', '.join(names)} with apt-get (about a minute)")
    run_logged("apt-get update failed", ["apt-get", "update", "-q"], log, env=environment)
    command = ["apt-get", "install", "-qy", "--no-install-recommends", *names]
    run_logged(f"apt-get could not install {' '.join(names)}", command, log, env=environment)
    say(f"{', '.join(names)} installed in {time.monotonic() - started:.1f} s")


def prepare(components: Sequence[str]) -> None:
    """Put the named components in place: at most one layer, and any of the others."""
    unknown = [name for name in components if name not in (*LAYERS, *OTHERS)]
    if unknown or not components:
        raise PrepareError(
            f"usage: prepare.py [{' | '.join(LAYERS)}] {' '.join(f'[{name}]' for name in OTHERS)}"
        )
    check_system(
        wants_node=any(name in components for name in NEEDS_NODE),
        wants_redis="redis" in components,
        wants_nginx="nginx" in components,
        wants_browser="browser" in components,
    )
    jobs: list[Callable[[], None]] = []
    layers = [layer for layer in LAYERS if layer in components]
    if layers:
        jobs.append(partial(install_layer, layers[-1], Venv(ROOT / ".venv")))
    if "peers" in components:
        jobs += [
            partial(install_python_peer, "mcp2"),
            partial(install_python_peer, "mcp1"),
            partial(install_npm, SERVERS, PEERS / "node"),
        ]
    if "northbound" in components:
        jobs.append(partial(install_interop, "fastmcp4"))
    if "frameworks" in components:
        jobs.append(partial(Venv(CACHE / "frameworks").install, ".packages", FRAMEWORKS))
    if "comparison" in components:
        for lock in sorted(COMPARISON.glob("*.txt")):
            jobs.append(partial(Venv(CACHE / "comparison" / lock.stem).install, ".packages", lock))
    if "conformance" in components:
        jobs.append(install_conformance)
    if "browser" in components:
        jobs.append(partial(install_npm, BROWSER, CACHE / "browser"))
    if "interop" in components or "interop-quick" in components:
        jobs += interop_jobs(quick="interop" not in components)
    with concurrent.futures.ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        running = [pool.submit(job) for job in jobs]
    faults = [error for error in (job.exception() for job in running) if error is not None]
    for error in faults:
        if not isinstance(error, PrepareError):
            raise error
    if faults:
        raise PrepareError("\n".join(map(str, faults)))


def main() -> int:
    """Run from the command line; the exit code is 0, 2 for a failed installation, 3 for something missing."""
    try:
        CACHE.mkdir(exist_ok=True)
        with (CACHE / "prepare.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            prepare(sys.argv[1:])
    except PrepareError as error:
        print(f"prepare: {error}", file=sys.stderr)
        return error.code
    except OSError as error:
        print(f"prepare: {error}", file=sys.stderr)
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
