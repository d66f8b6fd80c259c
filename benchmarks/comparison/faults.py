"""Scenarios about a server that fails: what the caller learns, what it costs the next call, and what ran
twice.
"""

from __future__ import annotations

import re

import trio
from lab import BAD, Bench, Row, Scenario, numbered, seconds, word

from afpool.testing import (
    Body,
    BreakOff,
    Drop,
    FakeServer,
    FakeTool,
    Hang,
    Hold,
    Result,
    Status,
)

LARGE = 64 * 1024 * 1024
LONG_LINE = 32 * 1024 * 1024
LINE_WITHIN = 6.0
RETRY_AFTER = "7321"  # seconds; a number that stands nowhere else
REALM = "realm-of-the-lab"


async def _recovery(bench: Bench, key: str) -> None:
    hit = await bench.call("alice", timeout=3)
    following = await bench.call("alice", timeout=3)
    text, score = f"{word(hit)}, then {word(following)}", 0.0 if hit.ok else 1.0
    if not following.ok:
        last = await bench.again("alice")
        text += "; opened again: " + word(last)
        score = 2.0 if last.ok else 3.0
    bench.cell(key, text, score)


async def forgotten(bench: Bench) -> None:
    await bench.opened("alice")
    bench.server.forget_sessions("404")
    await _recovery(bench, "forgotten")


async def forgotten_in_words(bench: Bench) -> None:
    await bench.opened("alice")
    bench.server.forget_sessions("404-text")
    await _recovery(bench, "forgotten-in-words")


async def forgotten_unseen(bench: Bench) -> None:
    bench.server.get_stream = False  # nothing but the call itself tells that the session is gone
    await bench.opened("alice")
    bench.server.forget_sessions("404")
    await _recovery(bench, "forgotten-unseen")


async def restarted(bench: Bench) -> None:
    await bench.opened("alice")
    await bench.server.restart()
    await _recovery(bench, "restarted")


async def dropped(bench: Bench) -> None:
    await bench.opened("alice")
    sibling = await bench.begin("alice", "sleep", seconds=1)
    await bench.seen(lambda: bench.server.executions["sleep"] == 1)
    bench.server.on("tools/call", Drop(after_execution=True), tool="pay")
    n = next(bench.numbers)
    hit = await bench.begin("alice", "pay", n=n, timeout=3)
    beside = await sibling.said()
    struck = await hit.said()
    following = await bench.call("alice", timeout=3)
    runs = bench.runs(n)
    bench.cell("sibling", word(beside), 0 if beside.ok else 1)
    text = word(following)
    if not following.ok:
        text += "; opened again: " + word(await bench.again("alice"))
    bench.cell("after-drop", text, 0 if following.ok else 1)
    bench.cell("drop-runs", f"{runs}x ({word(struck)})", runs - 1 if runs else BAD)


async def statuses(bench: Bench) -> None:
    told, later, retry, realm = [], 0, "no", "no"
    codes = (401, 403, 429, 500, 503)
    for code in codes:
        user = f"u{code}"
        await bench.afresh()
        await bench.opened(user)
        n = next(bench.numbers)
        headers = {"retry-after": RETRY_AFTER} if code == 429 else {}
        if code == 401:
            headers = {"www-authenticate": f'Bearer realm="{REALM}"'}
        bench.server.on("tools/call", Status(code, headers=headers, body=b"no"), when=numbered(n))
        said = await bench.call(user, n=n, timeout=3)
        # a number of its own: a port or an address may hold the same digits
        if re.search(rf"(?<!\d){code}(?!\d)", said.learned) and not said.ok:
            told.append(str(code))
        if code == 429 and RETRY_AFTER in said.learned:
            retry = "yes"
        if code == 401 and REALM in said.learned:
            realm = "yes"
        later += (await bench.call(user, timeout=3)).ok
    bench.cell("status-told", "all 5" if len(told) == 5 else " ".join(told) or "none", 5 - len(told))
    bench.cell("retry-after-told", retry, retry == "no")
    bench.cell("challenge-told", realm, realm == "no")
    bench.cell("after-status", f"{later} of {len(codes)} ok", len(codes) - later)


async def throttled(bench: Bench) -> None:
    await bench.opened("alice")
    n = next(bench.numbers)
    rule = Status(429, headers={"retry-after": "0"})
    bench.server.on("tools/call", rule, when=numbered(n), times=1)
    said = await bench.call("alice", n=n, timeout=3)
    bench.cell("throttled", f"{word(said)}, ran {bench.runs(n)}x", 0 if said.ok else 1)


async def ran_and_failed(bench: Bench) -> None:
    most = 0
    for code in (500, 502, 503):
        user = f"u{code}"
        await bench.afresh()
        await bench.opened(user)
        n = next(bench.numbers)
        bench.server.on("tools/call", Status(code, body=b"oops", after_execution=True), when=numbered(n))
        await bench.call(user, n=n, timeout=3)
        most = max(most, bench.runs(n))
    bench.cell("failed-runs", f"{most}x", most - 1 if most else BAD)


async def silent(bench: Bench) -> None:
    await bench.opened("alice")
    n = next(bench.numbers)
    bench.server.on("tools/call", Hang(), when=numbered(n))
    said = await bench.call("alice", n=n, timeout=2, within=10)
    following = await bench.call("alice", timeout=3)
    bench.cell("silent", "no (10 s)" if said.ended == "late" else seconds(said.seconds), said.seconds)
    bench.cell("after-silent", word(following), 0 if following.ok else 1)
    ended = await bench.child.ask("shutdown", 8)
    text = "no (8 s)" if ended.ended == "late" else f"{ended.seconds:.1f} s"
    bench.cell("close-silent", text if ended.ok or ended.ended == "late" else f"{text}, error", ended.seconds)


async def _cancelled(bench: Bench) -> tuple[float, bool]:
    n = next(bench.numbers)
    bench.server.on("tools/call", Hang(), when=numbered(n))
    asked = await bench.begin("alice", n=n, timeout=20)
    await bench.seen(lambda: bench.arrived(n) > 0)
    await trio.sleep(0.5)
    await asked.cancel()
    said = await asked.said(within=10)
    told = await bench.seen(lambda: bench.server.count("notifications/cancelled") > 0, 1)
    return float(said.fields.get("back", BAD)), told


async def cancelled(bench: Bench) -> None:
    await bench.opened("alice")
    back, told = await _cancelled(bench)
    bench.cell("back", "no (10 s)" if back == BAD else f"{back * 1e3:.0f} ms", back)
    bench.cell("cancel-told", "yes" if told else "no", not told)


async def stuck_notice(bench: Bench) -> None:
    await bench.opened("alice")
    bench.server.on("notifications/cancelled", Hang())
    back, told = await _cancelled(bench)
    following = await bench.call("alice", timeout=3, within=5)
    text = "no (10 s)" if back == BAD else f"{back * 1e3:.0f} ms"
    then = (
        f"{word(following)} after {following.seconds:.1f} s" if following.seconds > 0.1 else word(following)
    )
    score = back + following.seconds + (0 if following.ok else 10)
    bench.cell("stuck-notice", f"{text}; next {then}" + ("" if told else " (none was sent)"), score)


def _listed(*described: tuple[str, str]) -> list[FakeTool]:
    return [FakeTool(name, description=description) for name, description in described]


async def list_changed(bench: Bench) -> None:
    bench.server.set_tools(
        _listed(("echo", "as it was"), ("gone", "there"), ("pay", "as it was")), notify=False
    )
    await bench.opened("alice")
    await bench.seen(lambda: bench.server.streams > 0, 1)
    bench.server.set_tools(_listed(("echo", "now deletes everything"), ("pay", "as it was")))
    await trio.sleep(0.3)
    gone, changed = next(bench.numbers), next(bench.numbers)
    await bench.call("alice", "gone", n=gone, timeout=3)
    await bench.call("alice", "echo", n=changed, timeout=3)
    for key, n in (("removed-tool", gone), ("changed-tool", changed)):
        sent = bench.arrived(n)
        bench.cell(key, "sent" if sent else "refused, nothing sent", sent)
    said = await bench.child.ask("list", user="alice")
    fresh = said.ok and any("deletes" in tool["description"] for tool in said.fields["tools"])
    bench.cell("next-list", "the new one" if fresh else "the old one" if said.ok else word(said), not fresh)


async def unannounced(bench: Bench) -> None:
    bench.server.set_tools(_listed(("echo", "as it was")), notify=False)
    await bench.opened("alice")
    bench.server.set_tools(_listed(("echo", "now deletes everything")), notify=False)
    n = next(bench.numbers)
    await bench.call("alice", n=n, timeout=3)
    sent = bench.arrived(n)
    bench.cell("unannounced-call", "sent" if sent else "refused, nothing sent", sent)
    said = await bench.child.ask("list", user="alice")
    fresh = said.ok and any("deletes" in tool["description"] for tool in said.fields["tools"])
    bench.cell(
        "unannounced-list", "the new one" if fresh else "the old one" if said.ok else word(said), not fresh
    )


async def stale_list(bench: Bench) -> None:
    await bench.opened("alice")
    await bench.seen(lambda: bench.server.streams > 0, 1)
    old, new = _listed(("echo", "second")), _listed(("echo", "third"))
    release = trio.Event()
    bench.server.on("tools/list", Hold(release), times=1)
    bench.server.on("tools/list", Result({"tools": [tool.listed for tool in old]}), times=1)
    before = bench.server.count("tools/list")
    bench.server.set_tools(old)
    await trio.sleep(0.2)
    asked = await bench.child.begin("list", user="alice")
    under_way = await bench.seen(lambda: bench.server.count("tools/list") > before, 1)
    bench.server.set_tools(new)
    await trio.sleep(0.2)
    release.set()
    await asked.said()
    said = await bench.child.ask("list", user="alice")
    fresh = said.ok and said.fields["tools"][0]["description"] == "third"
    text = "the new one" if fresh else "the old one" if said.ok else word(said)
    bench.cell("stale-list", text if under_way else f"{text} (none was asked for)", not fresh)


async def _others(bench: Bench, stop: trio.Event) -> float:
    longest = 0.0
    while not stop.is_set():
        said = await bench.call("bob", timeout=20, within=20)
        longest = max(longest, said.seconds if said.ok else BAD)
        await trio.sleep(0.01)
    return longest


async def large(bench: Bench) -> None:
    await bench.opened("alice", "bob")
    n = next(bench.numbers)
    body = b'{"jsonrpc":"2.0","id":@request-id@,"result":{"content":[{"type":"text","text":"'
    bench.server.on("tools/call", Body(body + b"x" * LARGE + b'"}]}}'), when=numbered(n))
    stop = trio.Event()
    longest = [0.0]

    async def others() -> None:
        longest[0] = await _others(bench, stop)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        said = await bench.call("alice", n=n, timeout=15, within=18)
        stop.set()
    how = "taken" if said.ok else "refused" if said.ended == "error" else "hangs"
    bench.cell("large", f"{how}, {said.seconds:.1f} s", 1 if how == "taken" else 0 if how == "refused" else 2)
    bench.cell("large-others", "errors" if longest[0] == BAD else seconds(longest[0]), longest[0])


async def long_line(bench: Bench) -> None:
    await bench.opened("bob")
    command = FakeServer.stdio_command({"tools": ["echo"], "big_line": LONG_LINE})
    stop = trio.Event()
    longest = [0.0]

    async def others() -> None:
        longest[0] = await _others(bench, stop)

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        said = await bench.open("alice", command=command, within=LINE_WITHIN, timeout=20)
        if said.ok:
            left = LINE_WITHIN - (trio.current_time() - began)
            said = await bench.child.ask("list", left, user="alice")
        if said.ok:
            left = LINE_WITHIN - (trio.current_time() - began)
            said = await bench.call("alice", timeout=20, within=left)
        took = trio.current_time() - began
        stop.set()
    bench.cell("long-line", f"{word(said)}, {took:.1f} s", took if said.ok else BAD)
    bench.cell("line-others", "errors" if longest[0] == BAD else seconds(longest[0]), longest[0])


async def resumed(bench: Bench) -> None:
    await bench.opened("alice")
    n = next(bench.numbers)
    bench.server.on("tools/call", BreakOff(event_id="first", retry=100, cut=True), when=numbered(n))
    said = await bench.call("alice", n=n, timeout=4, within=8)
    following = await bench.call("alice", timeout=3)
    runs = bench.runs(n)
    bench.cell("resumed", f"{word(said)}, ran {runs}x, next {word(following)}", (not said.ok) + (runs != 1))


def _row(key: str, title: str, slack: float = 0.0, least: float = 0.0) -> Row:
    return Row(key, "faults", title, slack, least)


SCENARIOS = (
    Scenario(
        forgotten,
        (
            _row(
                "forgotten",
                "the server forgets the session (404, a JSON-RPC error): the call, then the next one",
            ),
        ),
    ),
    Scenario(
        forgotten_in_words,
        (_row("forgotten-in-words", "the session is forgotten, the 404 in plain text"),),
    ),
    Scenario(
        forgotten_unseen,
        (_row("forgotten-unseen", "the session is forgotten at a server without a notification stream"),),
    ),
    Scenario(restarted, (_row("restarted", "the server restarts: the call, then the next one"),)),
    Scenario(
        dropped,
        (
            _row("sibling", "the connection is dropped in a call: a call of 1 s beside it"),
            _row("after-drop", "the next call after it"),
            _row("drop-runs", "how often the dropped call ran"),
        ),
    ),
    Scenario(
        statuses,
        (
            _row("status-told", "401, 403, 429, 500, 503: which of them the caller is told"),
            _row("retry-after-told", "is told `Retry-After` of the 429"),
            _row("challenge-told", "is told `WWW-Authenticate` of the 401"),
            _row("after-status", "the next call after each of the five"),
        ),
        limit=60,
    ),
    Scenario(throttled, (_row("throttled", "429 once, `Retry-After: 0`: the call"),)),
    Scenario(ran_and_failed, (_row("failed-runs", "500, 502, 503 after it ran: how often it ran, at most"),)),
    Scenario(
        silent,
        (
            _row("silent", "no answer at all, timeout of 2 s: back after", 0.1, 0.1),
            _row("after-silent", "the next call after it"),
            Row("close-silent", "service", "closing right after a call that got no answer: took", 0.3, 0.5),
        ),
    ),
    Scenario(
        cancelled,
        (
            _row("back", "the caller goes away: back after", 0.5, 0.05),
            _row("cancel-told", "the server is told (`notifications/cancelled`)"),
        ),
    ),
    Scenario(
        stuck_notice, (_row("stuck-notice", "the same, and the notice gets no answer", 0.5, 0.1),), limit=40
    ),
    Scenario(
        list_changed,
        (
            _row("removed-tool", "`list_changed`: a call of a tool that is gone"),
            _row("changed-tool", "a call of a tool whose definition is another one"),
            _row("next-list", "the list after the notice"),
        ),
    ),
    Scenario(
        unannounced,
        (
            _row("unannounced-call", "a definition changes without a notice: a call of it"),
            _row("unannounced-list", "the list after a change without a notice"),
        ),
    ),
    Scenario(
        stale_list,
        (_row("stale-list", "the list changes, announced, while a list is under way: the one after it"),),
    ),
    Scenario(
        large,
        (
            _row("large", "an answer of 64 MB"),
            _row("large-others", "the longest call of another user during the 64 MB", 0.5, 0.2),
        ),
        limit=40,
    ),
    Scenario(
        long_line,
        (
            _row("long-line", "a child's line of 32 MB before the answer: the call", 0.3, 0.5),
            _row("line-others", "the longest call of another user during the 32 MB", 0.5, 0.2),
        ),
        limit=40,
    ),
    Scenario(resumed, (_row("resumed", "the event stream of an answer is cut, and can be resumed"),)),
)
