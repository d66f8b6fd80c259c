"""`afpool serve` between real servers and real clients: its servers, its tokens, its configuration.

Two servers on the official SDK stand behind it, one of each line and era, in environments of their own. Each
identity has a plan of its own: a header says whose it is, which the servers log.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from afpool import Identity
from afpool.serve import TokenFile
from tests.conformance.service import ROOT, started

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HERE: Final = Path(__file__).resolve().parent
PEERS: Final = ROOT / ".cache" / "peers"
INTEROP: Final = ROOT / ".cache" / "interop"
BEHIND: Final = {"one": "mcp1", "two": "mcp2"}

CONFIG: Final = """\
[servers.one]
url = "{one}"
keyed_on = ["tenant", "principal"]
headers = {{ X-Tenant = "${{identity.tenant}}" }}

[servers.two]
url = "{two}"
keyed_on = ["tenant", "principal"]
headers = {{ X-Tenant = "${{identity.tenant}}" }}

[serve]
bind = "127.0.0.1:0"
drain = "1s"
reload = false

[serve.identity.tokens]
file = "{tokens}"
"""


@attrs.frozen
class Place:
    """What runs.

    Attributes:
        url: Of the service.
        tokens: Tenant to token.
        logs: Server to its log.
    """

    url: str
    tokens: dict[str, str] = attrs.field(repr=False)
    logs: dict[str, Path]


def python_of(name: str) -> str:
    """The interpreter of an environment that `make northbound` installs."""
    folder = INTEROP if name.startswith("fastmcp") else PEERS
    return str(folder / name / "bin" / "python")


@contextlib.contextmanager
def running(folder: Path, tenants: Iterable[str]) -> Iterator[Place]:
    """Run the servers and the service, for the time of the block.

    Args:
        folder: Where their logs, tokens and the configuration go; it is there.
        tenants: Who has a token.

    Raises:
        NotReadyError: One of them did not start.
    """
    paths = {
        "PYTHONPATH": os.pathsep.join([str(HERE / "servers"), str(ROOT / "tests" / "peers" / "servers")])
    }
    with contextlib.ExitStack() as stack:
        urls, logs = {}, {}
        for name, environment in BEHIND.items():
            logs[name] = folder / f"{name}.log"
            command = [python_of(environment), str(HERE / "servers" / f"{name}.py"), str(logs[name])]
            said = stack.enter_context(started(command, folder / f"{name}.err", "ready ", paths))
            urls[name] = said
        file = TokenFile(folder / "tokens.json")
        tokens = {who: file.new(Identity(who, "alice"), who).token.reveal() for who in tenants}
        config = folder / "afpool.toml"
        config.write_text(CONFIG.format(**urls, tokens=folder / "tokens.json"), encoding="utf-8")
        service = [sys.executable, "-m", "afpool", "serve", "--config", str(config)]
        url = stack.enter_context(started(service, folder / "service.err", "serving "))
        yield Place(url, tokens, logs)
