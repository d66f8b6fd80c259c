"""What is done in a town: every way to give a secret back, every refusal, every failure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import trio

import afpool.tools
from afpool import CredentialRequest, CredentialRequirement, Issued, Secret, ToolContext, api_key
from afpool.artifacts import NewArtifact
from afpool.testing import Drop, Hang, JsonRpcError, RawBytes, Sse, Status, echo_tool
from afpool.tools import (
    RedactionPolicy,
    binding_of,
    define_tool,
    from_credential,
    host_filled,
    host_fills_of,
    redacted,
)
from tests.canary.forms import CANARIES, CONNECTION, canary
from tests.canary.town import ALICE, DEEP_ARGS, HIDDEN_ARGS, SCHEMA, Town, credential, served
from tests.tools.test_host_filled_nowhere import (
    BLOCKS,
    COVERED,
    TEXTS,
    bug,
    chained,
    dumped,
    echoing,
    grouped,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.canary.collecting import Collected


# ------------------------------------------------------------------ the host's own tools


def raising(fails: Callable[[str], Any]) -> Any:
    async def tool(token: str) -> str:
        await trio.lowlevel.checkpoint()
        fails(token)
        return token

    return tool


FAILURES = {"bug": bug, "echoing": echoing, "chained": chained, "grouped": grouped, "dumped": dumped}


def local_tools(collected: Collected) -> tuple[Any, ...]:
    """Tools of the host's own that give away what they have."""

    def keep(args: Any, ctx: ToolContext) -> str:
        collected.thing("arguments of a tool", args)
        collected.text("context of a tool", f"{ctx!r} {ctx} {ctx.credential!r} {attrs.fields(type(ctx))}")
        return json.dumps(dict(args))

    async def pull(form: str, ctx: ToolContext) -> Any:
        """Ask for a credential by itself, pass it on to another tool, and give it back."""
        assert ctx.credentials is not None
        issued = await ctx.credentials.get(CredentialRequest("asked", identity=ALICE))
        token = issued.credential.token
        ctx.progress({"with": token})
        inner = await ctx.tools.call("bearer__repeat", {"form": token, "person": {token: token}})
        if form == "raise":
            raise LookupError(token, inner.text)
        return {"inner": inner.text, token: TEXTS[form](token)}

    async def label(ctx: ToolContext) -> str:
        """Write a credential on an artifact."""
        assert ctx.credentials is not None
        token = (await ctx.credentials.get(CredentialRequest("asked", identity=ALICE))).credential.token
        meta = await ctx.artifacts.put(
            NewArtifact(kind="note", media_type="text/plain", data="x", label=f"made with {token}")
        )
        return str(meta.ref)

    async def store(ctx: ToolContext) -> str:
        meta = await ctx.artifacts.put(
            NewArtifact(kind="note", media_type="text/plain", data=CANARIES["stored by a tool"])
        )
        return str(meta.ref)

    def charge(card: str, fails: str) -> str:
        if fails == "quietly":
            raise LookupError("the card was refused")
        if fails == "typed":
            return int(fails)  # type: ignore[return-value]
        return f"charged {card[-2:]}"

    schema = {"type": "object", "properties": {"form": {}, "token": {"type": "string"}}}
    hidden = RedactionPolicy(keys=["card"])
    return (
        host_filled(
            define_tool(execute=keep, name="keep", input_schema=schema),
            {"token": from_credential("fill bearer")},
        ),
        define_tool(pull),
        define_tool(store),
        define_tool(label),
        redacted(define_tool(charge), hidden),
        redacted(
            define_tool(lambda card: card, name="rows", input_schema={
                "type": "object", "properties": {"card": {"type": "string"}}, "required": ["card"],
            }, wants={"card": "note"}), hidden,
        ),
        *(
            host_filled(
                define_tool(raising(fails), name=f"raise_{name}"), {"token": from_credential("fill api_key")}
            )
            for name, fails in FAILURES.items()
        ),
        *(
            define_tool(lambda: "never", name=name, input_schema={}, needs=CredentialRequirement(name))
            for name in ("broken", "refusing")
        ),
        define_tool(
            lambda: "never",
            name="consent",
            input_schema={},
            needs=CredentialRequirement("consent", mode="user"),
        ),
    )  # fmt: skip


# ------------------------------------------------------------------ the tour


def label(*parts: str) -> str:
    return "/".join(parts).replace(" ", "-")


async def everything(town: Town) -> None:
    """Do all of it."""
    await consent_first(town)
    await listings(town)
    for kind in (*CONNECTION, "oauth"):
        await results(town, kind)
        await refusals(town, kind)
        await failures(town, kind)
    await on_stdio(town)
    await of_the_hosts_own(town)
    await providers(town)
    await shapes(town)
    await shown_arguments(town)
    await town.call("own/label", "label")
    await mirrored(town)
    await stored(town)
    await openings(town)


async def consent_first(town: Town) -> None:
    """A user consents, the tokens are refused, and renewed by the refresh token."""
    toolset = await town.runtime.toolset(ALICE)
    town.collected.thing("problems", dict(toolset.problems))
    assert "oauth" in toolset.problems
    (_, needs) = next(need for need in town.needs if need[0] == "oauth")
    url = town.login.consent(needs.authorization_url)
    await town.attempt("completed", lambda: town.oauth.complete_redirect(url, identity=ALICE))
    assert (await town.call("oauth/first", "oauth__repeat", {"form": "x"})).code == "ok"
    town.login.revoke()
    assert (await town.call("oauth/refreshed", "oauth__repeat", {"form": "x"})).code == "ok"
    assert any(arrival.form.get("grant_type") == "refresh_token" for arrival in town.login.asked("/token"))


async def listings(town: Town) -> None:
    toolset = await town.runtime.toolset(ALICE)
    assert set(toolset.problems) == {"unplanned"}, toolset.problems
    town.collected.thing("toolset", toolset)
    for name, tool in toolset.items():
        town.collected.thing(f"tool {name}", tool)
        town.collected.text(f"tool {name}", f"{binding_of(tool)!r} {host_fills_of(tool)!r} {tool.needs!r}")
        town.collected.text(f"tool {name}", json.dumps([tool.input_schema, tool.description]))
    for form in (getattr(afpool.tools, name) for name in afpool.tools.__all__ if name.isupper()):
        if isinstance(form, str):
            continue  # a placeholder; the others are formats
        town.collected.text("export", json.dumps(form.tools(toolset)))


async def results(town: Town, kind: str) -> None:
    """A server gives back what it has, in every form and place."""
    for what in ("token", "connection"):
        for form in TEXTS:
            args = {"form": form, "what": what}
            await gives(town, label(kind, what, "text", form), f"{kind}__give", args)
        for block in BLOCKS:
            for form in (COVERED[1], COVERED[3]):
                args = {"form": form, "what": what, "block": block}
                await gives(town, label(kind, what, block, form), f"{kind}__give", args)
        for tool in ("report", "say", "fail", "large"):
            for form in (COVERED[0], COVERED[2], "reversed"):
                if tool != "say" or form == COVERED[0]:
                    args = {"form": form, "what": what}
                    await gives(town, label(kind, what, tool, form), f"{kind}__{tool}", args)
        if kind != "basic":
            town.servers[kind].on("tools/call", Sse(split=3, before=b": x\n\n"), times=1)
            args = {"form": COVERED[0], "what": what}
            await gives(town, label(kind, what, "in pieces"), f"{kind}__give", args)


async def gives(town: Town, called: str, name: str, args: dict[str, Any]) -> None:
    """Make a call whose tool gives a secret back, and take note where it is not covered."""
    result = await town.call(called, name, args)
    assert result.code in {"ok", "tool-error"}, (called, result.text)
    form = args["form"]
    if form not in COVERED:
        if name.endswith("__large"):
            return  # it is in the store, and there alone
        # what is made of a token as a whole cannot be told to be made of the canary in it
        if not (form in {"hashed", "compressed"} and called.startswith("oauth/connection")):
            town.uncovered.add((called, form))
    elif name.endswith("__give") and args.get("block") != "an embedded resource's bytes":
        assert "[host-filled]" in result.raw.decode(), called


async def refusals(town: Town, kind: str) -> None:
    secret, name = canary(f"connection {kind}"), f"{kind}__give"
    hidden = DEEP_ARGS if kind == "api_key" else HIDDEN_ARGS
    form = {"form": COVERED[0], **hidden}
    for spelled in ("token", "Token", "TO-KEN"):
        await town.call(
            label(kind, "supplied", spelled), name, {**form, spelled: CANARIES["redacted by key"]}
        )
    await town.call(label(kind, "invalid"), name, {**hidden, "form": 7})
    await town.call(label(kind, "not json"), name, {**form, "rows": object()})
    await town.call(label(kind, "no object"), name, [secret])
    await town.call(label(kind, "unknown"), f"{kind}__nothing", form)
    denied = label(kind, "denied")
    town.denies.append(denied)
    await town.call(denied, name, form)
    await asked_who(town, label(kind, "nobody"), name, form)
    await town.call(label(kind, "late"), name, form, deadline=trio.current_time() - 1)
    expected = {
        "supplied/token": "ERR_HOST_FILLED_ARGUMENT",
        "invalid": "invalid-arguments",
        "denied": "denied",
        "unknown": "unknown-tool",
        "late": "deadline-exceeded",
    }
    for what, code in expected.items():
        assert town.codes[label(kind, what)] == code


async def asked_who(town: Town, called: str, name: str, args: Any) -> None:
    """A caller who cannot be asked who it is."""

    def who() -> Any:
        held = HIDDEN_ARGS["card"]
        raise LookupError(f"nobody knows, of {len(held)} characters")

    result = await town.runtime.dispatch(who, name, args, call_id=called)
    town.see(called, result)


async def failures(town: Town, kind: str) -> None:
    """A server fails and says why, with what it was sent."""
    server, name = town.servers[kind], f"{kind}__give"
    held = [canary(f"connection {kind}")] if kind in CONNECTION else []
    if kind in CONNECTION:
        held.append(canary(f"fill {CONNECTION[(CONNECTION.index(kind) + 1) % len(CONNECTION)]}"))
    else:
        held += [[*town.login.scopes][-1], CANARIES["fill from a file"]]
    hidden = {} if kind == "api_key" else HIDDEN_ARGS
    said = " ".join(held)
    scripted: dict[str, Any] = {
        "rpc error": JsonRpcError(-32000, f"denied {said}", {"request": {"token": held, said: said}}),
        "escaped": JsonRpcError(-32602, "".join(f"\\u{ord(char):04x}" for char in said)),
    }
    if kind != "basic":
        challenge = {"www-authenticate": f'Bearer error="invalid", error_description="{held[0]}"'}
        scripted |= {
            "500": Status(500, body=said.encode()),
            "400": Status(400, json={"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": said}}),
            "401": Status(401, headers=challenge, body=said.encode()),
            "403": Status(403, headers=challenge, body=said.encode()),
            "429": Status(429, headers={"retry-after": "999", "x-said": held[0]}, body=said.encode()),
            "404": Status(404, body=said.encode()),
            "redirected": Status(307, headers={"location": f"https://x.example/{held[0]}"}),
            "unreadable": RawBytes(b"HTTP/1.1 200 " + said.encode() + b"\r\n\r\n" + said.encode()),
            "cut": Drop(),
        }  # fmt: skip
    for what, action in scripted.items():
        server.on("tools/call", action, times=2 if what in {"401", "403"} else 1)
        result = await town.call(label(kind, "fails", what), name, {"form": COVERED[0], **hidden})
        assert result.code != "ok", what
        server.clear_rules()
        if kind == "oauth":
            town.login.protect(server, scope="read")
    assert "denied [host-filled]" in await directly(town, kind, held[0])
    server.on("tools/call", Hang())
    await town.call(
        label(kind, "time-out"), name, {"form": COVERED[0], **hidden}, deadline=trio.current_time() + 0.1
    )
    assert town.codes[label(kind, "time-out")] == "deadline-exceeded"
    for how in ("withdrawn", "cancelled", "killed"):
        await ended(town, kind, how, hidden)
    server.clear_rules()
    if kind == "oauth":
        town.login.protect(server, scope="read")
    assert (await town.call(label(kind, "well again"), name, {"form": COVERED[0]})).code == "ok"


async def directly(town: Town, kind: str, held: str) -> str:
    """The pool's own tools, without the door: their results are the server's, their errors hold no secret."""
    server, pool = town.servers[kind], town.runtime.pool
    assert pool is not None
    tool = (await pool.tools(ALICE, server=kind))["give"]
    server.on("tools/call", JsonRpcError(-32000, f"denied {held}", {"sent": [held]}), times=1)
    error = await town.attempt(label(kind, "direct"), lambda: tool.call({}, identity=ALICE))
    server.clear_rules()
    if kind == "oauth":
        town.login.protect(server, scope="read")
    return str(error)


async def ended(town: Town, kind: str, how: str, hidden: Any) -> None:
    """A call is ended from outside while its server works."""
    server, called = town.servers[kind], label(kind, how)
    pool = town.runtime.pool
    assert pool is not None
    toolset = await town.runtime.toolset(ALICE)
    before = len(server.arrivals("tools/call", "give"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(town.call, called, f"{kind}__give", {"form": COVERED[0], **hidden})
        await server.wait_for("tools/call", tool="give", count=before + 1)
        if how == "withdrawn":
            pool.cancel(called)
        elif how == "cancelled":
            nursery.cancel_scope.cancel()
        else:
            binding = binding_of(toolset[f"{kind}__give"])
            assert binding is not None
            assert binding.client_id is not None
            pool.kill(binding.client_id)


async def on_stdio(town: Town) -> None:
    await town.call("desk/echo", "desk__give", {"form": "x"})
    await town.call("desk/fail", "desk__fail", {"form": "x"})
    await town.call("desk/supplied", "desk__give", {"form": "x", "token": None})
    await town.call(
        "desk/late", "desk__sleep", {"form": "x", "seconds": 60}, deadline=trio.current_time() + 0.1
    )
    assert town.codes["desk/late"] == "deadline-exceeded"


async def of_the_hosts_own(town: Town) -> None:
    await town.call("own/keep", "keep", {"form": "x"})
    for form in (COVERED[0], COVERED[2], "raise"):
        await town.call(label("own", "pull", form), "pull", {"form": form})
    for name in FAILURES:
        await town.call(f"own/{name}", f"raise_{name}")
        assert town.codes[f"own/{name}"] == "tool-failed"
    await town.call("own/store", "store")
    token = CANARIES["fill api_key"]
    (tool,) = [tool for tool in town.runtime.config.tools if tool.name == "raise_echoing"]
    error = await town.attempt("own/direct", lambda: tool.execute({}, ToolContext(credential=api_key(token))))
    assert error is not None


async def providers(town: Town) -> None:
    """A provider fails, wants consent; a signer fails."""
    await town.call("own/broken", "broken")
    await town.call("own/consent", "consent")
    await town.call("own/refusing", "refusing")
    town.uncovered.add(("own/refusing", COVERED[0]))  # who speaks as afpool does is passed on
    assert (town.codes["own/broken"], town.codes["own/consent"]) == (
        "credential-failed", "authorization-required",
    )  # fmt: skip
    town.signer.fails = True
    await town.call("signer", "bearer__give", {"form": COVERED[0]})
    assert town.codes["signer"] == "credential-failed"
    town.signer.fails = False
    town.vault.fails = True
    pool = town.runtime.pool
    assert pool is not None
    pool.invalidate(server="ticket")
    await town.call("no credential", "ticket__give", {"form": COVERED[0]})
    toolset = await town.runtime.toolset(ALICE, refresh=True)
    town.collected.thing("problems", dict(toolset.problems))
    town.vault.fails = False
    held(town)


def held(town: Town) -> None:
    """Credentials and secrets by themselves."""
    for kind in CONNECTION:
        for use in ("connection", "fill"):
            town.collected.thing(f"a credential {kind}", Issued(credential(kind, use)))
            town.collected.thing("a secret", [Secret(canary(f"{use} {kind}"))])


async def shapes(town: Town) -> None:
    """Runs and their checkpoints."""
    run = town.runtime.run(ALICE, "run-1")
    town.collected.thing("problems", dict((await run.toolset()).problems))
    town.see("run", await run.call("bearer__give", {"form": COVERED[0]}, call_id="run"))
    saved = run.checkpoint()
    again = town.runtime.resume(json.dumps(saved))
    for thing in (run, again, saved):
        town.collected.thing("run", thing)
    try:
        town.runtime.resume(json.dumps({**saved, "proof": "0"}))
    except ValueError as error:
        town.collected.raised("resume", error)


async def shown_arguments(town: Town) -> None:
    """Arguments that are redacted: in calls that run, are refused, fail."""
    for fails in ("no", "quietly", "typed"):
        args = {"card": CANARIES["redacted by key"], "fails": fails}
        await town.call(f"hidden/{fails}", "charge", args)
    await town.call("hidden/no ref", "rows", {"card": CANARIES["redacted by key"]})
    assert town.codes["hidden/no ref"] == "wants-refused"
    await town.call("hidden/repeated", "bearer__repeat", {"form": COVERED[0], **HIDDEN_ARGS})
    town.uncovered.add(("hidden/repeated", COVERED[0]))  # a policy is about arguments and touches no result


async def openings(town: Town) -> None:
    """A server refuses to be opened, and repeats what it was sent."""
    pool = town.runtime.pool
    assert pool is not None
    for kind in CONNECTION:
        held = canary(f"connection {kind}")
        pool.invalidate(server=kind)
        if kind == "basic":
            town.servers[kind].on("GET", Status(403, body=held.encode(), headers={"www-authenticate": held}))
        else:
            town.servers[kind].on("*", JsonRpcError(-32000, f"no {held}", {"held": held}))
    toolset = await town.runtime.toolset(ALICE, refresh=True)
    assert set(toolset.problems) >= set(CONNECTION)
    for kind, error in toolset.problems.items():
        town.collected.raised(f"problem of {kind}", error)
    for kind in CONNECTION:
        town.servers[kind].clear_rules()


async def mirrored(town: Town) -> None:
    """A server changes a tool so that its definition repeats what it was sent; a call finds out."""
    server, pool = town.servers["bearer"], town.runtime.pool
    assert pool is not None
    held = canary("connection bearer")
    tool = (await pool.tools(ALICE, server="bearer"))["repeat"]
    heard = trio.Event()
    forget = pool.records.tap(on_event=lambda event: heard.set() if event.kind == "list-changed" else None)
    named = {**SCHEMA, "properties": {**SCHEMA["properties"], held: {"enum": [held], "description": held}}}
    server.set_tools([*served()[:-2], echo_tool("repeat", input_schema=named)])
    with trio.move_on_after(10):
        await heard.wait()
    forget()
    assert heard.is_set()
    await pool.tools(ALICE, server="bearer")
    error = await town.attempt(
        "bearer/mirrored", lambda: tool.call({"form": "x"}, identity=ALICE, call_id="bearer/mirrored")
    )
    assert getattr(error, "code", None) == "stale-tools"
    server.set_tools(served())
    await pool.tools(ALICE, server="bearer")


async def stored(town: Town) -> None:
    """What the runtime has put into the store: large results, without what they gave back."""
    run = town.runtime.run(ALICE)
    assert run.artifacts is not None
    cursor, found = None, 0
    while found == 0 or cursor is not None:
        page = await run.artifacts.list(cursor=cursor)
        cursor = page.cursor
        for meta in page.items:
            kept = await run.artifacts.get(meta.ref)
            assert kept is not None
            found += 1
            town.collected.text("artifact of the-store", f"{meta!r} {kept.data!r}")
    assert found > len(CONNECTION)


async def briefly(town: Town) -> None:
    """A little of it, in a moment."""
    kind = "bearer"
    for what in ("token", "connection"):
        await town.call(label(kind, what, "text"), "bearer__give", {"form": COVERED[0], "what": what})
        await town.call(label(kind, what, "report"), "bearer__report", {"form": COVERED[0], "what": what})
    await town.call("bearer/invalid", "bearer__give", {**HIDDEN_ARGS, "form": 7})
    town.denies.append("bearer/denied")
    await town.call("bearer/denied", "bearer__give", {**HIDDEN_ARGS, "form": COVERED[0]})
    await directly(town, kind, canary("connection bearer"))
    await town.call("own/keep", "keep", {"form": "x"})
    await town.call("own/label", "label")
    await mirrored(town)
    await town.call("own/chained", "raise_chained")
    await town.call("own/broken", "broken")
    held(town)
    await shapes(town)
