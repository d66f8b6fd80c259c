// The client of the official TypeScript SDK, as two tenants at once; see scenario.py, whose report it prints.
// Run from the folder whose node_modules has the SDK: node ts_client.mjs '{"url": ..., "tenants": {...}}'

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const installed = createRequire(pathToFileURL(`${process.cwd()}/`));
const { Client } = installed("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = installed("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { ToolListChangedNotificationSchema } = installed("@modelcontextprotocol/sdk/types.js");

const WITHIN = 20_000;
const SERVERS = ["one", "two"];
const EXTRA = "extra";

class Changes {
  count = 0;
  waiting = [];

  tell() {
    this.count += 1;
    for (const wake of this.waiting.splice(0)) wake();
  }

  async after(count) {
    while (this.count <= count) await new Promise((wake) => this.waiting.push(wake));
  }
}

class Meeting {
  here = [];

  constructor(number) {
    this.number = number;
  }

  async meet() {
    if (this.here.length + 1 < this.number) {
      await new Promise((wake) => this.here.push(wake));
      return;
    }
    for (const wake of this.here.splice(0)) wake();
  }
}

async function play(url, who, token, leads, meeting) {
  const changed = new Changes();
  const client = new Client({ name: "northbound", version: "1.0.0" });
  client.setNotificationHandler(ToolListChangedNotificationSchema, () => changed.tell());
  const requestInit = { headers: { Authorization: `Bearer ${token}` } };
  const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit });
  await client.connect(transport);

  const tools = async () => (await client.listTools()).tools.map((tool) => tool.name);
  const call = async (name, args, options) => {
    const result = await client.callTool({ name, arguments: args }, undefined, options);
    if (result.isError) throw new Error(JSON.stringify(result));
    return result.content[0].text;
  };
  const cancelled = async (name, args) => {
    const giveUp = new AbortController();
    try {
      return await call(name, args, { signal: giveUp.signal, onprogress: () => giveUp.abort("enough") });
    } catch (error) {
      if (!giveUp.signal.aborted) throw error;
      return "given up";
    }
  };

  const seen = { tools: await tools(), echo: {}, progress: {}, cancelled: {}, after: {}, lists: [] };
  for (const server of SERVERS) seen.echo[server] = await call(`${server}__echo`, { text: who });
  await meeting.meet();
  for (const server of SERVERS) {
    const steps = [];
    const onprogress = ({ progress, total }) => steps.push([progress, total]);
    const text = await call(`${server}__steps`, { number: 3 }, { onprogress });
    seen.progress[server] = { text, steps };
  }
  for (const server of SERVERS) {
    seen.cancelled[server] = await cancelled(`${server}__linger`, { who });
    seen.after[server] = await call(`${server}__echo`, { text: `${who} again` });
  }
  for (const present of [true, false]) {
    let heard = changed.count;
    await meeting.meet();
    if (leads) await call("set_extra", { present });
    let names;
    do {
      await changed.after(heard);
      heard = changed.count;
      names = await tools();
    } while (names.includes(EXTRA) !== present);
    seen.lists.push(names);
    await meeting.meet();
  }
  seen.heard = changed.count;
  await transport.terminateSession();
  await client.close();
  return seen;
}

const given = JSON.parse(process.argv[2]);
const tenants = Object.entries(given.tenants);
const meeting = new Meeting(tenants.length);
const late = setTimeout(() => {
  console.error(`not done within ${WITHIN} ms`);
  process.exit(1);
}, WITHIN);
const reports = await Promise.all(
  tenants.map(async ([who, token], number) => [who, await play(given.url, who, token, number === 0, meeting)]),
);
clearTimeout(late);
console.log(JSON.stringify(Object.fromEntries(reports)));
