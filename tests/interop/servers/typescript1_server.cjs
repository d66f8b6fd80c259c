// A server on the TypeScript SDK, line 1: `stdio`, `http PORT` or `sse PORT`.
// Run with NODE_PATH at the packages of `.cache/interop/node`. It keeps sessions, as the SDK's own examples do.
"use strict";

const http = require("node:http");
const { randomUUID } = require("node:crypto");
const { McpServer } = require("@modelcontextprotocol/sdk/server/mcp.js");
const { SSEServerTransport } = require("@modelcontextprotocol/sdk/server/sse.js");
const { StdioServerTransport } = require("@modelcontextprotocol/sdk/server/stdio.js");
const { StreamableHTTPServerTransport } = require("@modelcontextprotocol/sdk/server/streamableHttp.js");
const { z } = require("zod");

function makeServer() {
  const server = new McpServer({ name: "typescript1-peer", version: "1.0.0" });
  server.registerTool("echo", { inputSchema: { text: z.string() } }, async ({ text }) => ({
    content: [{ type: "text", text }],
  }));
  server.registerTool("add", { inputSchema: { a: z.number(), b: z.number() } }, async ({ a, b }) => ({
    content: [{ type: "text", text: String(a + b) }],
  }));
  return server;
}

const sessions = new Map();

function refuse(response) {
  const error = { code: -32001, message: "Session not found" };
  response.writeHead(404, { "content-type": "application/json" });
  response.end(JSON.stringify({ jsonrpc: "2.0", error, id: null }));
}

async function streamable(request, response) {
  const named = request.headers["mcp-session-id"];
  let transport = sessions.get(named);
  if (named !== undefined && transport === undefined) {
    return refuse(response);
  }
  if (transport === undefined) {
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => sessions.set(id, transport),
    });
    transport.onclose = () => sessions.delete(transport.sessionId);
    await makeServer().connect(transport);
  }
  await transport.handleRequest(request, response);
}

async function overSse(request, response) {
  if (request.method === "GET" && request.url === "/sse") {
    const transport = new SSEServerTransport("/messages", response);
    sessions.set(transport.sessionId, transport);
    response.on("close", () => sessions.delete(transport.sessionId));
    return makeServer().connect(transport);
  }
  const url = new URL(request.url, "http://127.0.0.1");
  const transport = sessions.get(url.searchParams.get("sessionId"));
  if (request.method !== "POST" || transport === undefined) {
    return refuse(response);
  }
  return transport.handlePostMessage(request, response);
}

const [kind, port] = process.argv.slice(2);
if (kind === "stdio") {
  makeServer().connect(new StdioServerTransport());
} else {
  // The preload keeps it on loopback, says when it is ready, and ends it with its stdin.
  http.createServer(kind === "sse" ? overSse : streamable).listen(Number(port));
}
