"""The CRM of `examples/tenants.py` on the official SDK, lines 1 and 2, over Streamable HTTP and stdio.

Run with the interpreter of `.cache/peers/mcp1` or `mcp2`: `crm_server.py http PORT` or `... stdio`.
"""

from __future__ import annotations

import json
import sys

from peer_process import serve_http, wanted_transport

try:
    from mcp.server.mcpserver import MCPServer as HighLevel
except ImportError:
    from mcp.server.fastmcp import FastMCP as HighLevel

server = HighLevel("crm")
TOKENS = {"acme": "acme-t0ken-5f2c", "globex": "globex-t0ken-91ab"}
ORDERS = {"acme": [120, 80, 45], "globex": [7]}


@server.tool()
async def orders(customer: str, tenant_id: str, token: str, card: str | None = None) -> str:
    """The orders of a customer, to a tenant who has the tenant's token."""
    if token != TOKENS[tenant_id]:
        return "wrong token"
    return json.dumps({"tenant": tenant_id, "asked_with": token, "orders": ORDERS[tenant_id]})


def main() -> None:
    """Serve on the transport that the command line names."""
    transport, port = wanted_transport(sys.argv)
    if transport == "stdio":
        server.run("stdio")
    else:
        serve_http(server.streamable_http_app(), port)


main()
