"""What it costs to open a client and make its first call, beside the official SDK, over TLS and plain.

    python benchmarks/openings.py [--rounds N] [--openings N] [--no-pin]

Both sides find the protocol version out by themselves, as they do where nothing is configured, from the same
server process; both have one SSL context for all their openings. Rounds are interleaved; a figure is the
median of the ratios within a round. `afpool` opens a client for an identity that was not there before and
calls a tool of a list that it shares with others; `afpool-lists` also asks for a list of its own first, which
the SDK's client does not; `afpool-crowd` is as `afpool`, with 500 other clients of the pool open. What is
timed ends with the answer: closing is left out on both sides.

Exit code 1 when `afpool` takes more than 0.45 of the SDK's time over TLS, or 0.35 plain, or when the other
clients make it slower by more than a quarter.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import attrs
from compare import SDK_PYTHON, Subject, environment, responder
from figures import Figure, tell

MOST = {"https": 0.45, "http": 0.35}
CROWDED = 1.25
KINDS = ("open-afpool", "open-afpool-crowd", "open-afpool-lists", "open-sdk")


@attrs.frozen
class Row:
    """One client over one scheme; `ratio` is its time against the SDK's, `alone` against plain `afpool`'s."""

    scheme: str
    kind: str
    p50_us: float
    cpu_us: float
    ratio: float
    alone: float

    @property
    def judged(self) -> Figure | None:
        """What is judged of it."""
        if self.kind == "open-afpool":
            what = f"first call of a new key over {self.scheme}, of the official SDK's"
            return Figure(what, self.ratio, "x", MOST[self.scheme])
        if self.kind == "open-afpool-crowd":
            what = f"first call over {self.scheme} while 500 clients are open, of while none is"
            return Figure(what, self.alone, "x", CROWDED)
        return None


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 with its key, and the authority to trust it by."""
    import trustme

    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    return folder / "server.pem", folder / "ca.pem"


def measure(scheme: str, rounds: int, openings: int, *, pin: bool) -> list[Row]:
    """Compare the clients over one scheme."""
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    cpu: dict[str, list[float]] = {kind: [] for kind in KINDS}
    client_cpu, server_cpu = (0, 1) if pin else (None, None)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server, authority = certificate(folder)
        tls = server if scheme == "https" else None
        url = stack.enter_context(responder(server_cpu, tls))
        subjects = {kind: stack.enter_context(Subject(kind, url, client_cpu, authority)) for kind in KINDS}
        for subject in subjects.values():
            subject.read()
        for _ in range(rounds):
            for kind, subject in subjects.items():
                found = subject.window(openings, 0)
                times[kind].append(found["p50_us"])
                cpu[kind].append(found["cpu_us"])
    return [
        Row(
            scheme,
            kind,
            statistics.median(times[kind]),
            statistics.median(cpu[kind]),
            *(
                statistics.median(a / b for a, b in zip(times[kind], times[base], strict=True))
                for base in ("open-sdk", "open-afpool")
            ),
        )
        for kind in KINDS
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare openings with the official SDK's.")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--openings", type=int, default=40, help="in each round, by each client")
    parser.add_argument("--no-pin", action="store_true", help="leave processes where the system puts them")
    options = parser.parse_args()
    if not SDK_PYTHON.exists():
        print("the official SDK is not installed here: `make peers` does it")
        return 1
    what = environment()
    print(f"Python {what['python']}, {what['processors']} processors, load {what['load']:.1f}; ", end="")
    print(f"{options.rounds} interleaved rounds of {options.openings} openings, medians")
    print(f"\n{'scheme':<8}{'client':<16}{'ms':>8}{'CPU ms':>9}{'x SDK':>8}{'x alone':>9}")
    rows = [
        row
        for scheme in MOST
        for row in measure(scheme, options.rounds, options.openings, pin=not options.no_pin)
    ]
    for row in rows:
        print(
            f"{row.scheme:<8}{row.kind.removeprefix('open-'):<16}{row.p50_us / 1e3:>8.2f}"
            f"{row.cpu_us / 1e3:>9.2f}{row.ratio:>8.2f}{row.alone:>9.2f}"
        )
    print()
    return tell((row.judged for row in rows if row.judged is not None), "openings")


if __name__ == "__main__":
    sys.exit(main())
