"""One call with afpool."""

import sys

import trio

from afpool import CredentialRequirement, HttpTransport, Identity, Plan, Server, StaticCredentials, open_pool


async def main(url: str, token: str) -> None:
    alice = Identity(tenant="acme", principal="alice")
    plan = Plan(transport=HttpTransport(url=url), credential=CredentialRequirement("lab"))
    async with open_pool(
        [Server(name="lab", plan=plan)], credentials=StaticCredentials({"lab": token})
    ) as pool:
        tools = await pool.tools(alice)
        print((await tools["echo"].call({"n": 1}, identity=alice)).text)


trio.run(main, *sys.argv[1:])
