"""A service in front of the town: who calls from outside, who reads its metrics, and what is answered.

Its callers prove themselves by a token that is a canary of this run.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import trio

from afpool._base.secret import Secret
from afpool.config import IdentityConfig, MetricsConfig, ServeConfig, TokensConfig
from afpool.record import prometheus_text
from afpool.serve import TokenFile, open_service
from tests.canary.forms import CANARIES
from tests.canary.town import ALICE, HIDDEN_ARGS
from tests.serve.serve_kit import Caller
from tests.tools.test_host_filled_nowhere import COVERED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from afpool.serve import Service
    from tests.canary.town import Town

METRICS = {"host": "127.0.0.1:8765", "accept": None, "content-type": None}
OPEN_METRICS = "application/openmetrics-text;version=1.0.0"
TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "vendor=1"}


@contextlib.asynccontextmanager
async def served(here: Town, folder: Path) -> AsyncIterator[None]:
    """Serve the town for the time of the block, and call it from outside at its end."""
    tokens = TokenFile(folder / "tokens")
    token = tokens.new(ALICE, "tour").token.reveal()
    here.more["token of a caller"] = token
    config = ServeConfig(
        bind="127.0.0.1:8765",
        identity=IdentityConfig(tokens=TokensConfig(file=str(folder / "tokens"))),
        metrics=MetricsConfig(token=Secret(CANARIES["metrics token"])),
    )
    async with open_service(here.runtime, config, listen=False) as service, trio.open_nursery() as nursery:
        here.collected.text("service", f"{service!r} {config!r} {service.app!r}")
        yield
        caller = Caller(service.app, token, nursery)
        await _call(here, caller)
        await _refused(here, service, nursery)
        await _scraped(here, service, nursery)
        nursery.cancel_scope.cancel()


async def _call(here: Town, caller: Any) -> None:
    """Call as clients of both eras do, with all that may be said beside a call."""
    told: list[Any] = [await caller.open(), await caller.tools()]
    form = {"form": COVERED[0]}
    for name, args in (
        ("bearer__give", form), ("bearer__give", form | HIDDEN_ARGS), ("bearer__report", form),
        ("bearer__fail", form), ("bearer__give", {"form": 7, **HIDDEN_ARGS}),
        (f"bearer__{CANARIES['made up']}", form), ("keep", {"form": "x"}), ("charge", {"fails": "quietly"}),
        ("bearer__give", form | {"token": CANARIES["made up"]}), ("bearer__large", form),
    ):  # fmt: skip
        told.append(await caller.rpc("tools/call", {"name": name, "arguments": args}, headers=TRACE))
    for method, params in (
        ("resources/list", {}), ("resources/read", {"uri": f"artifact://{CANARIES['made up']}"}),
        ("prompts/get", {"name": CANARIES["made up"]}), (CANARIES["made up"], {}),
        ("logging/setLevel", {"level": CANARIES["made up"]}),
    ):  # fmt: skip
        told.append(await caller.rpc(method, params))
    answer = await caller.modern_rpc(
        "tools/call",
        {"name": "bearer__give", "arguments": form},
        meta={**TRACE, "baggage": CANARIES["made up"]},
    )
    told.append(answer.json)
    for one in told:
        here.collected.text("answer of the service", json.dumps(one))
    here.more["session of a caller"] = caller.session
    caller.session = None


async def _refused(here: Town, service: Service, nursery: trio.Nursery) -> None:
    wrong = CANARIES["typed token"]
    for headers in (
        {"authorization": f"Bearer {wrong}"}, {"authorization": f"Basic {wrong}"}, {"authorization": wrong},
        {"authorization": None, "cookie": f"token={wrong}"}, {"mcp-session-id": wrong}, {"host": wrong},
        {"origin": f"https://{wrong[1:9]}.example"}, {"mcp-protocol-version": wrong},
    ):  # fmt: skip
        caller = Caller(service.app, here.more["token of a caller"], nursery)
        answer = await caller.ask(message=caller.request("tools/list"), headers=headers)
        assert answer.status >= 400
        here.collected.text(
            "refusal of the service", f"{answer.status} {answer.headers} {answer.body.decode()}"
        )


async def _scraped(here: Town, service: Service, nursery: trio.Nursery) -> None:
    """Read the metrics at the service, with the token and without, and of the runtime itself."""
    collected = here.collected
    ask = Caller(service.app, None, nursery)
    for accept in (None, OPEN_METRICS):
        said = {**METRICS, "accept": accept, "authorization": f"Bearer {CANARIES['metrics token']}"}
        answer = await ask.ask("GET", "/metrics", headers=said)
        assert answer.status == 200
        assert b'afpool_calls_total{outcome="ok",server="bearer"' in answer.body.replace(b'",tool="give', b"")
        assert b"afpool_tenant_calls_total{" in answer.body
        collected.text("prometheus", answer.body.decode())
        body, kind = prometheus_text(here.runtime, accept)
        collected.text("prometheus", f"{kind} {body.decode()}")
    for wrong in (CANARIES["typed token"], CANARIES["metrics token"] + "x"):
        answer = await ask.ask("GET", "/metrics", headers={**METRICS, "authorization": f"Bearer {wrong}"})
        assert answer.status == 401
        collected.text("refusal of the service", f"{answer.headers} {answer.body.decode()}")
