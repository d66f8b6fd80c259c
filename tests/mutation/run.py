"""Change the code in every small way there is, and see how many of the changes a test notices.

    python tests/mutation/run.py [--all | --part K/N | --file F ...] [--jobs N]

Without a choice it takes a sample, which is the same in every run: a change is in it by the digest of what it
is and where, so that changes elsewhere leave it as it was. Prints what was noticed, by file and by operator,
and every survivor. Exit code 1: less than nine of ten were noticed, a survivor is not explained in
`survivors.toml`, or an explanation there belongs to nothing any more.

Works on a copy of the tree that is made once, at the start.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.mutation import forking, running, survivors  # noqa: E402 -- it is started as a script
from tests.mutation.changes import Change, changes_of  # noqa: E402

PARTS = ("pool", "client", "tools")
SAMPLE = 0.05  # of all changes; a quarter of an hour on two cores
AT_LEAST = 0.9
NOTICED = ("killed",)


class Verdict(NamedTuple):
    change: Change
    verdict: str
    by: str
    seconds: float


def all_changes(tree: Path) -> list[Change]:
    changes = []
    for part in PARTS:
        for path in sorted((tree / "afpool" / part).rglob("*.py")):
            changes += changes_of(str(path.relative_to(tree)), path.read_text())
    return changes


def chosen(changes: list[Change], options: argparse.Namespace) -> list[Change]:
    if options.parts:
        folders = tuple(f"afpool/{part}/" for part in options.parts)
        changes = [change for change in changes if change.file.startswith(folders)]
    if options.file:
        changes = [change for change in changes if any(name in change.file for name in options.file)]
    if options.scope:
        changes = [change for change in changes if options.scope in change.scope]
    if options.part:
        part, parts = map(int, options.part.split("/"))
        return [change for change in changes if int(change.name, 16) % parts == part - 1]
    if options.all or options.file:
        return changes
    return in_sample(changes, options.sample)


def in_sample(changes: list[Change], share: float) -> list[Change]:
    return [change for change in changes if int(change.name, 16) < share * 16**12]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--all", action="store_true", help="every change; hours")
    parser.add_argument("--part", help="K/N: the K-th of N equal parts of all")
    parser.add_argument(
        "--file", action="append", default=[], help="every change of the files with this in their path"
    )
    parser.add_argument("--in", action="append", dest="parts", choices=PARTS, help="of these parts alone")
    parser.add_argument("--scope", default="", help="only in functions with this in their name")
    parser.add_argument("--sample", type=float, default=SAMPLE, help="share of all changes")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--budget", type=float, default=240.0, help="seconds of tests for one change at most")
    parser.add_argument("--explained", action="store_true", help="run those of survivors.toml, too")
    parser.add_argument("--again", type=Path, help="without what an earlier --out says was noticed")
    parser.add_argument(
        "--tests", action="append", default=[], help="only test files with this in their path"
    )
    parser.add_argument("--out", type=Path, help="add every verdict to it, a line of JSON each")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        tree = Path(folder).resolve()
        forking.copy_tree(ROOT, tree)
        changes = all_changes(tree)
        reasons, wrong = survivors.explained(survivors.load(), changes)
        picked = chosen(changes, options)
        if options.again:
            rows = map(json.loads, options.again.read_text().splitlines())
            done = {row["name"] for row in rows if row["verdict"] in NOTICED}
            picked = [change for change in picked if change.name not in done]
        explained = [change for change in picked if change.name in reasons]
        if not options.explained:
            picked = [change for change in picked if change.name not in reasons]
        print(f"{len(picked)} of {len(changes)} changes, {len(explained)} more explained", flush=True)
        verdicts = list(_verdicts(tree, picked, options))
    return _report(verdicts, explained, reasons, wrong, began)


def _verdicts(tree: Path, picked: list[Change], options: argparse.Namespace) -> list[Verdict]:
    by_name = {change.name: change for change in picked}
    verdicts = []
    for said in running.run(
        tree, ROOT / ".cache" / "mutation", picked,
        jobs=options.jobs, budget=options.budget, only=options.tests,
    ):  # fmt: skip
        verdict = Verdict(by_name[said["name"]], said["verdict"], said["by"], said["seconds"])
        verdicts.append(verdict)
        if options.out:
            _write(options.out, verdict)
        if verdict.verdict not in NOTICED:
            print(_shown(verdict), flush=True)
        elif len(verdicts) % 100 == 0:
            print(f"  {len(verdicts)} of {len(picked)}", flush=True)
    return [verdict for verdict in verdicts if verdict.verdict != "invalid"]


def _shown(verdict: Verdict) -> str:
    change = verdict.change
    where = f"{change.file}:{change.line} {change.scope}"
    lines = [f"{verdict.verdict}: {where} ({change.operator}, {verdict.seconds} s)"]
    return "\n".join([*lines, f"    - {change.was}", f"    + {change.becomes}"])


def _write(out: Path, verdict: Verdict) -> None:
    change, word, by, seconds = verdict
    row = {**change._asdict(), "name": change.name, "verdict": word, "by": by, "seconds": seconds}
    with out.open("a") as file:
        file.write(json.dumps(row) + "\n")


def _report(
    verdicts: list[Verdict], explained: list[Change], reasons: dict[str, str], wrong: list[str], began: float
) -> int:
    for title, key in (("file", attrgetter("file")), ("operator", attrgetter("operator"))):
        noticed = Counter(key(verdict.change) for verdict in verdicts if verdict.verdict in NOTICED)
        survived = Counter(key(verdict.change) for verdict in verdicts if verdict.verdict not in NOTICED)
        known = Counter(key(change) for change in explained)
        print(f"\n{title:<44} killed  explained  survived")
        for name in sorted({*noticed, *survived, *known}):
            print(f"{name:<44} {noticed[name]:>6}  {known[name]:>9}  {survived[name]:>8}")
    killed = [verdict for verdict in verdicts if verdict.verdict in NOTICED]
    left = [v for v in verdicts if v.verdict not in NOTICED and v.change.name not in reasons]
    stale = [verdict for verdict in killed if verdict.change.name in reasons]
    wrong += [
        f"is noticed, though it is said that it can't be: {v.change.file}: {v.change.becomes}" for v in stale
    ]
    whole = len({*(v.change.name for v in verdicts), *(change.name for change in explained)})
    share = len(killed) / whole if whole else 1.0
    if left:
        print("\nnot explained:")
        print("\n".join(map(_shown, sorted(left))))
    print("\n".join(["", *wrong]))
    seconds = time.monotonic() - began
    print(f"{len(killed)} of {whole} killed ({share:.1%}), {len(explained)} explained, in {seconds:.0f} s")
    return 1 if left or wrong or share < AT_LEAST else 0


if __name__ == "__main__":
    sys.exit(main())
