// A server on the TypeScript SDK, line 2, which serves both eras: `stdio` or `http PORT`.
// Run with NODE_PATH at the packages of `.cache/interop/node2`. Over HTTP it keeps no sessions, as the SDK's handler.
"use strict";

const http = require("node:http");
const { toNodeHandler } = require("@modelcontextprotocol/node");
const { McpServer, createMcpHandler } = require("@modelcontextprotocol/server");
const { serveStdio } = require("@modelcontextprotocol/server/stdio");
const { z } = require("zod");

function makeServer() {
  const server = new McpServer({ name: "typescript2-peer", version: "1.0.0" });
  server.registerTool("echo", { inputSchema: z.object({ text: z.string() }) }, async ({ text }) => ({
    content: [{ type: "text", text }],
  }));
  server.registerTool("add", { inputSchema: z.object({ a: z.number(), b: z.number() }) }, async ({ a, b }) => ({
    content: [{ type: "text", text: String(a + b) }],
  }));
  return server;
}

const [kind, port] = process.argv.slice(2);
if (kind === "stdio") {
  serveStdio(makeServer);
} else {
  // The preload keeps it on loopback, says when it is ready, and ends it with its stdin.
  http.createServer(toNodeHandler(createMcpHandler(makeServer))).listen(Number(port));
}
