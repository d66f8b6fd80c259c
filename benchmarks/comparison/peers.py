"""What is compared: libraries, their environments, their adapters, and what is looked up in them."""

from __future__ import annotations

import re
from pathlib import Path

import attrs

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENVIRONMENTS = ROOT / ".cache" / "comparison"


@attrs.frozen
class Peer:
    """One library.

    Attributes:
        name: As it is installed, and as its files here are called.
        package: The distribution whose version counts; the name where it is the same.
        imports: The statement that its user begins with; what it costs is measured.
    """

    name: str
    imports: str
    package: str = ""

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        return ENVIRONMENTS / self.name / "bin" / "python"

    @property
    def adapter(self) -> Path:
        return HERE / "adapters" / f"with_{self.name.replace('-', '_')}.py"

    @property
    def script(self) -> Path:
        """The shortest program that makes one call with it."""
        return HERE / "scripts" / f"one_call_{self.name.replace('-', '_')}.py"

    @property
    def version(self) -> str:
        """As locked; of this project, as it is."""
        if self.name == "afpool":
            found = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
        else:
            lock = (HERE / f"{self.name}.txt").read_text()
            found = re.search(rf"^{self.package or self.name}==(\S+)", lock, re.MULTILINE)
        assert found is not None, self.name
        return found[1]

    @property
    def way(self) -> str:
        """How its adapter uses it: the docstring of the adapter, in one line."""
        text = self.adapter.read_text(encoding="utf-8").split('"""')[1]
        return " ".join(text.split())


PEERS = (
    # its package is lazy: `import afpool` alone would load next to nothing
    Peer("afpool", "from afpool import HttpTransport, Identity, Plan, Server, open_pool"),
    Peer("mcp", "from mcp.client import Client"),
    Peer("fastmcp", "from fastmcp import Client"),
    Peer("openai-agents", "from agents.mcp import MCPServerStreamableHttp"),
    Peer("pydantic-ai", "from pydantic_ai.mcp import MCPToolset", "pydantic-ai-slim"),
    Peer("google-adk", "from google.adk.tools.mcp_tool import McpToolset"),
    Peer("langchain-mcp-adapters", "from langchain_mcp_adapters.client import MultiServerMCPClient"),
    Peer("mcp-use", "from mcp_use import MCPClient"),
    Peer("mcp-pool", "from mcpool import MCPPool"),
)
