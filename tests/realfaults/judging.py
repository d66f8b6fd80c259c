"""Whether what callers were told is what the server and the proxy saw.

The rules, each a function of the facts of one run; what they find are sentences:

* `ran_once`: the server ran no numbered call twice.
* `verdicts`: not-sent never reached the server or the proxy; refused never ran; answered ran, and the answer
  is this call's; the record says the same as the error.
* `causes`: a call over HTTP is in doubt only where it ran out of time, or something fell on its connection.
* `owners`: each arrival carries the token of the person that it names; no session and no connection has two.
* `in_time`: nobody is kept for longer than a second behind the deadline (and what the loop was late).
* `afterwards`: what was found when all was mended and when the pool was closed.

Where bytes were changed in plain text, a server cannot know what it was sent and a client not what was
answered: then only what arrived whole is judged, and an answer has to be one that can be read or an error.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from tests.realfaults.running import answer_of, digest_of, owner

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from tests.realfaults.proxy import Passage
    from tests.realfaults.running import Facts, Told

LATE: Final = 1.0
_NUMBER: Final = re.compile(rb'"arguments":\{"n":(\d+),')


def judge(facts: Facts) -> list[str]:
    """Everything that is wrong, in words; nothing is good."""
    wrong = [*ran_once(facts), *in_time(facts), *facts.after, *facts.left]
    if not facts.corrupting:
        wrong += [*verdicts(facts), *causes(facts), *owners(facts), *violations(facts)]
    else:
        wrong += changed(facts)
    return wrong


def intact(arguments: Mapping[str, Any]) -> bool:
    """Whether arguments are as they were sent."""
    try:
        n, who, pad = arguments["n"], arguments["who"], arguments["pad"]
        return bool(arguments["digest"] == digest_of(n, who, pad))
    except (KeyError, TypeError, AttributeError):
        return False


def runs(facts: Facts) -> Counter[int]:
    """How often each call ran, by the server."""
    return Counter(run.arguments["n"] for run in facts.server.executed if intact(run.arguments))


def ran_once(facts: Facts) -> list[str]:
    return [f"call {n} ran {times} times" for n, times in runs(facts).items() if times > 1]


def in_time(facts: Facts) -> list[str]:
    wrong = []
    for told in facts.told:
        until = min(told.deadline, told.deadline if told.withdrawn is None else told.withdrawn)
        if told.ended > until + LATE + facts.lag:
            wrong.append(f"call {told.n} came back {told.ended - until:.2f} s late: {told}")
    if facts.lists_late > LATE + facts.lag:
        wrong.append(f"a list came back {facts.lists_late:.2f} s late")
    return wrong


def verdicts(facts: Facts) -> list[str]:
    wrong = []
    ran = runs(facts)
    arrived = {arrival.arguments.get("n") for arrival in facts.server.arrivals("tools/call")}
    left = numbers_seen(facts)
    for told in facts.told:
        n = told.n
        if told.delivery == "not-sent" and (n in arrived or n in left):
            wrong.append(f"call {n} is said not to have been sent, and was: {told}")
        if told.delivery == "refused" and ran[n]:
            wrong.append(f"call {n} is said to have been refused, and ran: {told}")
        if told.word == "ok" and (not ran[n] or told.text != answer_of(n, told.who, told.tool)):
            wrong.append(f"call {n} has an answer that is not its own: {told}"[:2000])
        if told.word != "ok" and told.delivery == "answered":
            wrong.append(f"call {n} failed as answered, and no tool fails: {told}")
        if told.word != "cancelled" and told.use is not None and told.use != told.delivery:
            wrong.append(f"call {n}: the record says {told.use}: {told}")
    return wrong


def numbers_seen(facts: Facts) -> dict[int, Passage]:
    """The connection that carried each call, if the server got it or not; none where it cannot be read."""
    found: dict[int, Passage] = {}
    if facts.way in {"json", "sse", "old-sse"}:
        for passage in facts.proxy.passages:
            for match in _NUMBER.finditer(passage.seen):
                found[int(match[1])] = passage
    return found


def causes(facts: Facts) -> list[str]:
    wrong = []
    carried = numbers_seen(facts)
    by_number = {passage.number: passage for passage in facts.proxy.passages if passage.number}
    for arrival in facts.server.arrivals("tools/call"):
        carried.setdefault(arrival.arguments.get("n", 0), by_number[arrival.connection])
    hurt: dict[str, bool] = defaultdict(bool)  # whether anything fell on somebody's connections
    for told in facts.told:
        if told.n in carried:
            hurt[told.who] |= carried[told.n].hit()
    for told in facts.told:
        if told.delivery != "in-doubt" or told.word == "deadline-exceeded":
            continue
        passage = carried.get(told.n)
        if passage is None or passage.hit():
            continue
        if facts.way == "old-sse" or told.word in {"client-closed", "session-handle-lost"}:
            continue  # its answer comes on another connection, or its client was found silent
        wrong.append(f"call {told.n} is in doubt and nothing fell on its connection: {told} {passage}"[:2000])
    return wrong


def owners(facts: Facts) -> list[str]:
    wrong = []
    sessions: dict[str, set[str]] = defaultdict(set)
    connections: dict[int, set[str]] = defaultdict(set)
    sent = {told.n: told.who for told in facts.told}
    for arrival in facts.server.log:
        if arrival.http_method == "?":
            continue  # what was cut off in the middle
        who = arrival.headers.get("x-who", "")
        if owner(arrival.headers) != who:
            wrong.append(f"{arrival.name} of {who!r} came with the token of {owner(arrival.headers)!r}")
        n = arrival.arguments.get("n")
        if n is not None and sent[n] != who:
            wrong.append(f"call {n} of {sent[n]} came from {who}")
        connections[arrival.connection].add(who)
        if arrival.session_id:
            sessions[arrival.session_id].add(who)
    wrong += [f"session of {names}" for names in sessions.values() if len(names) > 1]
    wrong += [f"connection of {names}" for names in connections.values() if len(names) > 1]
    return wrong


def violations(facts: Facts) -> list[str]:
    # A probe for the newer protocol comes first, by design.
    return [each for each in facts.server.violations if not each.startswith("server/discover before")]


def changed(facts: Facts) -> list[str]:
    """Where bytes were changed in plain text: nobody gets what is somebody else's."""
    wrong = []
    for told in facts.told:
        others = {each.who for each in facts.told} - {told.who}
        if any(f'"who": "{name}"' in told.text for name in others):
            wrong.append(f"call {told.n} has somebody else's answer: {told}"[:2000])
        if told.word in {"actor-crashed", "plan-failed", "credential-failed"}:
            wrong.append(f"call {told.n}: {told}"[:2000])
    return wrong


def told_as(told: Told) -> str:
    """In two words."""
    return f"{told.word} {told.delivery}".strip()
