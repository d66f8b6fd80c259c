"""Whether what is locked, or may be installed, is known to be vulnerable or was withdrawn.

    python scripts/audit.py [--offline]

Rules:

* Every version in a lock file of ours, and the lowest version that each range of `pyproject.toml` admits, is
  held against `requirements/advisories.toml`. A range that admits an affected version is a finding: who
  installs afpool beside something old gets it.
* The package index is asked about every locked version: one that was withdrawn (yanked), or for which it
  tells a vulnerability that is not in our list, is a finding. An index that answers without telling either
  is counted as such. One that cannot be reached fails the run, unless it was not to be asked (`--offline`).
* Servers that tests start are old on purpose: their locks are under `tests/interop` and `tests/peers`. What
  is known of those is printed and fails nothing.

Exit code 1 on a finding, 2 where the index could not be asked.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT: Final = Path(__file__).resolve().parent.parent
PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)", re.MULTILINE)
OLD_ON_PURPOSE: Final = ("tests/interop/", "tests/peers/")
AT_ONCE: Final = 8
SECONDS: Final = 20.0
TRIES: Final = 3
UNREACHED: Final = 2


class Advisory(NamedTuple):
    """What is known of some versions of a package."""

    package: str
    id: str
    affected: SpecifierSet
    what: str


class Pin(NamedTuple):
    """A version of a package, and the files that lock it."""

    package: str
    version: Version
    files: tuple[str, ...]

    @property
    def ours(self) -> bool:
        """Whether anything but an old server of the tests runs with it."""
        return not all(file.startswith(OLD_ON_PURPOSE) for file in self.files)


def advisories(path: Path = ROOT / "requirements" / "advisories.toml") -> list[Advisory]:
    """Read the list."""
    with path.open("rb") as source:
        return [
            Advisory(
                str(canonicalize_name(each["package"])),
                each["id"],
                SpecifierSet(each["affected"]),
                each["what"],
            )
            for each in tomllib.load(source)["advisory"]
        ]


def locked(root: Path = ROOT) -> list[Pin]:
    """Give every version in a lock file under a folder, each once."""
    found: dict[tuple[str, Version], list[str]] = {}
    for path in sorted(root.glob("**/*.txt")):
        place = path.relative_to(root)
        if any(part.startswith(".") or part == "node_modules" for part in place.parts):
            continue
        for name, version in PIN.findall(path.read_text()):
            found.setdefault((str(canonicalize_name(name)), Version(version)), []).append(place.as_posix())
    return [Pin(name, version, tuple(files)) for (name, version), files in sorted(found.items())]


def floors(path: Path = ROOT / "pyproject.toml") -> list[Pin]:
    """Give the lowest version that each of our requirements admits; for those that name none, 0."""
    with path.open("rb") as source:
        project = tomllib.load(source)["project"]
    asked = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
    ]
    lowest = {}
    for each in map(Requirement, asked):
        named = [Version(one.version) for one in each.specifier if one.operator in (">=", "~=", "==")]
        lowest[str(canonicalize_name(each.name))] = max(named, default=Version("0"))
    return [Pin(name, version, ("pyproject.toml",)) for name, version in sorted(lowest.items())]


def known(pins: list[Pin], of: list[Advisory]) -> list[tuple[Pin, Advisory]]:
    """Give those that are affected by something."""
    return [
        (pin, each)
        for pin in pins
        for each in of
        if each.package == pin.package and each.affected.contains(pin.version, prereleases=True)
    ]


class Heard(NamedTuple):
    """What an index says of a version.

    `told` is whether it tells vulnerabilities at all; `vulnerable` are their names.
    """

    yanked: bool
    told: bool
    vulnerable: tuple[str, ...]


def index_addresses() -> tuple[str, str]:
    """Give where the index lists a package's files, and where it describes a version: pip's own."""
    from pip._internal.models.index import PyPI

    return PyPI.simple_url, PyPI.pypi_url


def ask(client: httpx.Client, pin: Pin) -> Heard:
    """Ask the index about a version."""
    simple, described = index_addresses()
    listing = _get(client, f"{simple}/{pin.package}/", "application/vnd.pypi.simple.v1+json")
    yanked = False
    if listing is not None:
        files = [one for one in listing["files"] if _is_of(one["filename"], pin)]
        yanked = bool(files) and all(one.get("yanked") for one in files)
    told = _get(client, f"{described}/{pin.package}/{pin.version}/json", "application/json")
    if told is None or "vulnerabilities" not in told:
        return Heard(yanked, told=False, vulnerable=())
    names = [
        one["id"] if not one.get("aliases") else f"{one['id']} ({', '.join(one['aliases'])})"
        for one in told["vulnerabilities"]
        if not one.get("withdrawn")
    ]
    return Heard(yanked, told=True, vulnerable=tuple(names))


def _is_of(filename: str, pin: Pin) -> bool:
    stem = filename.removesuffix(".tar.gz").removesuffix(".zip")
    parts = stem.split("-")
    if filename.endswith(".whl"):
        name, version = parts[0], parts[1]
    else:
        name, version = "-".join(parts[:-1]), parts[-1]
    try:
        return canonicalize_name(name) == pin.package and Version(version) == pin.version
    except ValueError:
        return False


def _get(client: httpx.Client, address: str, form: str) -> Any:
    """Fetch JSON; `None` where the index has none of it."""
    for _ in range(TRIES - 1):
        try:
            return _got(client.get(address, headers={"accept": form}))
        except httpx.TransportError:
            continue
    return _got(client.get(address, headers={"accept": form}))


def _got(answer: httpx.Response) -> Any:
    if answer.status_code == httpx.codes.NOT_FOUND:
        return None
    answer.raise_for_status()
    return answer.json()


def of_the_index(pins: list[Pin]) -> tuple[list[str], int]:
    """Give what an index says against these versions, and of how many it tells vulnerabilities."""
    with (
        httpx.Client(timeout=SECONDS, follow_redirects=True) as client,
        ThreadPoolExecutor(AT_ONCE) as threads,
    ):
        heard = list(threads.map(lambda pin: ask(client, pin), pins))
    said = []
    for pin, of in zip(pins, heard, strict=True):
        if of.yanked:
            said.append(f"{pin.package} {pin.version} was withdrawn from the index: {', '.join(pin.files)}")
        said += [f"{pin.package} {pin.version} has {name}: {', '.join(pin.files)}" for name in of.vulnerable]
    return said, sum(of.told for of in heard)


def main(arguments: list[str] | None = None) -> int:
    """Run it; gives the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--offline", action="store_true", help="do not ask the package index")
    options = parser.parse_args(arguments)
    listed, pins, lowest = advisories(), locked(), floors()
    ours = [pin for pin in pins if pin.ours]
    findings = [
        f"{pin.package} {pin.version}: {each.id}, {each.what}: {', '.join(pin.files)}"
        for pin, each in known([*ours, *lowest], listed)
    ]
    for pin, each in known([pin for pin in pins if not pin.ours], listed):
        print(f"old on purpose: {pin.package} {pin.version} ({each.id}), {', '.join(pin.files)}")
    print(f"{len(ours)} locked versions and {len(lowest)} ranges held against {len(listed)} advisories")
    unreached = False
    if not options.offline:
        try:
            said, told = of_the_index(ours)
        except httpx.HTTPError as error:
            print(f"the package index could not be asked ({type(error).__name__})")
            unreached = True
        else:
            findings += said
            print(f"the index was asked about {len(ours)} of them; of {told} it tells vulnerabilities")
    for finding in findings:
        print(f"FOUND: {finding}")
    if findings:
        return 1
    return UNREACHED if unreached else 0


if __name__ == "__main__":
    sys.exit(main())
