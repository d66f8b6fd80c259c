// Preload for npm servers that listen on every interface: whatever host they ask for, they get 127.0.0.1.
// Prints `ready URL` on stdout once the socket listens and ends the process when its stdin closes.
"use strict";

const net = require("node:net");

// Node 18, which Debian 12 brings, keeps Web Crypto out of the globals; the server takes it for granted.
globalThis.crypto ??= require("node:crypto").webcrypto;

const listen = net.Server.prototype.listen;

net.Server.prototype.listen = function (...args) {
  const callback = typeof args[args.length - 1] === "function" ? args.pop() : undefined;
  const first = args[0];
  const port = first !== null && typeof first === "object" ? first.port : first;
  if (!/^\d+$/.test(String(port))) {
    throw new Error(`this preload only knows TCP ports, not ${String(port)}`);
  }
  this.once("listening", () => {
    process.stdout.write(`ready http://127.0.0.1:${this.address().port}/mcp\n`);
  });
  return listen.call(this, { port: Number(port), host: "127.0.0.1", backlog: 511 }, callback);
};

process.stdin.on("end", () => process.exit(0));
process.stdin.resume();
