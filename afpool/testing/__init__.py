"""A scripted MCP server to test agents with: over loopback HTTP, WebSocket or stdio, in-process or alone.

```python
from afpool.testing import Drop, FakeServer, FakeTool

async with FakeServer.http(era="both", tools=[FakeTool("pay")]) as server:
    server.on("tools/call", Drop(after_execution=True), tool="pay", times=1)
    ...  # let the agent talk to server.url
    assert server.executions["pay"] == 1  # it ran, and nobody ran it again
```

What is claimed about a client is read from the server's own log, never from the client. Names are loaded when
they are first touched: a child that plays a server loads nothing that only its client needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_exports

if TYPE_CHECKING:
    from ._actions import REQUEST_ID as REQUEST_ID
    from ._actions import SAME_ID as SAME_ID
    from ._actions import Action as Action
    from ._actions import Body as Body
    from ._actions import BreakOff as BreakOff
    from ._actions import CloseFrame as CloseFrame
    from ._actions import Delay as Delay
    from ._actions import Drop as Drop
    from ._actions import Flood as Flood
    from ._actions import Hang as Hang
    from ._actions import Hold as Hold
    from ._actions import HoldStream as HoldStream
    from ._actions import JsonRpcError as JsonRpcError
    from ._actions import RawBytes as RawBytes
    from ._actions import Result as Result
    from ._actions import Sse as Sse
    from ._actions import Status as Status
    from ._actions import Truncate as Truncate
    from ._asking import ask_tool as ask_tool
    from ._asking import input_required as input_required
    from ._asking import input_tool as input_tool
    from ._authorization import FakeAuthorizationServer as FakeAuthorizationServer
    from ._authorization import OAuthArrival as OAuthArrival
    from ._exchange import Advertise as Advertise
    from ._ledger import Arrival as Arrival
    from ._ledger import ChildLog as ChildLog
    from ._ledger import Execution as Execution
    from ._memory import in_memory as in_memory
    from ._offers import FakePrompt as FakePrompt
    from ._offers import FakeResource as FakeResource
    from ._offers import Offers as Offers
    from ._proxy import FakeProxy as FakeProxy
    from ._proxy import Tunnel as Tunnel
    from ._rules import Rule as Rule
    from ._script import RuleSpec as RuleSpec
    from ._script import Script as Script
    from ._script import StdioScript as StdioScript
    from ._script import ToolSpec as ToolSpec
    from ._server import FakeServer as FakeServer
    from ._tools import Ask as Ask
    from ._tools import FakeTool as FakeTool
    from ._tools import Notice as Notice
    from ._tools import Progress as Progress
    from ._tools import big_tool as big_tool
    from ._tools import counter_tool as counter_tool
    from ._tools import echo_tool as echo_tool
    from ._tools import fail_tool as fail_tool
    from ._tools import progress_tool as progress_tool
    from ._tools import sleep_tool as sleep_tool
    from ._tools import text_result as text_result
    from ._tools import whoami_tool as whoami_tool
    from ._websocket import WebSocketManners as WebSocketManners

_HOMES = {
    "_actions": (
        "REQUEST_ID", "SAME_ID", "Action", "Body", "BreakOff", "CloseFrame", "Delay", "Drop", "Flood",
        "Hang", "Hold", "HoldStream", "JsonRpcError", "RawBytes", "Result", "Sse", "Status", "Truncate",
    ),
    "_asking": ("ask_tool", "input_required", "input_tool"),
    "_authorization": ("FakeAuthorizationServer", "OAuthArrival"),
    "_exchange": ("Advertise",),
    "_ledger": ("Arrival", "ChildLog", "Execution"),
    "_memory": ("in_memory",),
    "_offers": ("FakePrompt", "FakeResource", "Offers"),
    "_proxy": ("FakeProxy", "Tunnel"),
    "_rules": ("Rule",),
    "_script": ("RuleSpec", "Script", "StdioScript", "ToolSpec"),
    "_server": ("FakeServer",),
    "_tools": (
        "Ask", "FakeTool", "Notice", "Progress", "big_tool", "counter_tool", "echo_tool", "fail_tool",
        "progress_tool", "sleep_tool", "text_result", "whoami_tool",
    ),
    "_websocket": ("WebSocketManners",),
}  # fmt: skip

__all__ = [
    "REQUEST_ID",
    "SAME_ID",
    "Action",
    "Advertise",
    "Arrival",
    "Ask",
    "Body",
    "BreakOff",
    "ChildLog",
    "CloseFrame",
    "Delay",
    "Drop",
    "Execution",
    "FakeAuthorizationServer",
    "FakePrompt",
    "FakeProxy",
    "FakeResource",
    "FakeServer",
    "FakeTool",
    "Flood",
    "Hang",
    "Hold",
    "HoldStream",
    "JsonRpcError",
    "Notice",
    "OAuthArrival",
    "Offers",
    "Progress",
    "RawBytes",
    "Result",
    "Rule",
    "RuleSpec",
    "Script",
    "Sse",
    "Status",
    "StdioScript",
    "ToolSpec",
    "Truncate",
    "Tunnel",
    "WebSocketManners",
    "ask_tool",
    "big_tool",
    "counter_tool",
    "echo_tool",
    "fail_tool",
    "in_memory",
    "input_required",
    "input_tool",
    "progress_tool",
    "sleep_tool",
    "text_result",
    "whoami_tool",
]  # fmt: skip

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
