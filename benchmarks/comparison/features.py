"""What other libraries have and this one does not: each named here, and looked up in the library's
environment.

A line of the page says only what was found there. What is looked up is a name that a library exports.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Final

from child import environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peers import Peer

FEATURES: Final[Mapping[str, Mapping[str, str]]] = {
    "mcp": {"a framework to write servers with": "mcp.server:MCPServer"},
    "fastmcp": {
        "a framework to write servers with": "fastmcp:FastMCP",
        "a server out of an OpenAPI description": "fastmcp:FastMCP.from_openapi",
    },
    "openai-agents": {
        "an agent's loop": "agents:Runner",
        "guardrails on what goes in and comes out": "agents:InputGuardrail",
    },
    "pydantic-ai": {
        "an agent's loop": "pydantic_ai:Agent",
    },
    "google-adk": {
        "an agent's loop": "google.adk.runners:Runner",
        "a server made of an agent": "google.adk.tools.mcp_tool._agent_to_mcp:to_mcp_server",
    },
    "langchain-mcp-adapters": {
        "prompts and resources as the framework's own messages and blobs": (
            "langchain_mcp_adapters.prompts:load_mcp_prompt"
        ),
    },
    "mcp-use": {
        "an agent's loop": "mcp_use:MCPAgent",
        "tools called by code that the model writes": "mcp_use.client.code_executor:CodeExecutor",
        "children in a sandbox of a vendor": "mcp_use.client.connectors.sandbox:SandboxConnector",
    },
    "mcp-pool": {
        "a pool that grows and shrinks with the load": "mcpool.autoscaler:AutoScaler",
        "a rate limit": "mcpool.rate_limiter:TokenBucketLimiter",
        "several endpoints with failover": "mcpool:MCPPoolManager",
        "metrics for CloudWatch": "mcpool.metrics:PoolMetrics.publish",
    },
}
LOOKED_UP = """
import importlib, json, operator, sys
found = []
for name in json.loads(sys.argv[1]):
    module, _, attribute = name.partition(":")
    try:
        operator.attrgetter(attribute)(importlib.import_module(module))
    except Exception:
        continue
    found.append(name)
print("\\n" + json.dumps(found))
"""


def found(peer: Peer) -> list[str]:
    """What of it is there, in words."""
    wanted = FEATURES.get(peer.name, {})
    if not wanted:
        return []
    done = subprocess.run(
        [str(peer.python), "-c", LOOKED_UP, json.dumps(list(wanted.values()))],
        capture_output=True, text=True, check=True, timeout=60, env=environment(),
    )  # fmt: skip
    there = set(json.loads(done.stdout.splitlines()[-1]))
    return [words for words, name in wanted.items() if name in there]
