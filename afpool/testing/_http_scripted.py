"""Answers over HTTP as a rule says, where no real server would give them so: cut, held back, split, flooded.

A rule decides before the request is checked. Where its action needs the true answer (`after_execution`, or a
part of it), the request is checked and run first; elsewhere nothing of it runs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import h11

from ._actions import (
    Answering,
    BreakOff,
    Drop,
    Flood,
    Hang,
    HoldStream,
    RawBytes,
    Sse,
    Truncate,
    flooded,
    with_id,
)
from ._replies import JSON_TYPE, Kept, Reply, event, scripted_reply

if TYPE_CHECKING:
    from ._http import HttpConnection, HttpExchange


async def scripted(
    connection: HttpConnection, exchange: HttpExchange, action: Answering, message: Any
) -> bool:
    """Answer as a rule says; says whether the connection can take another request."""
    reply: Reply | None = None
    if action.after_execution or isinstance(action, (Truncate, Sse, BreakOff)):
        reply = await connection.endpoint.answer(exchange, message)
    if isinstance(action, Drop):
        exchange.answered = True
        connection.close(reset=action.reset)
        return False
    if isinstance(action, Hang):
        return await connection.until_gone(exchange)
    if isinstance(action, RawBytes):
        await connection.write(with_id(action.data, exchange.arrival.id))
        return False if action.close else await connection.until_gone(exchange)
    if isinstance(action, Flood):
        await _flood(connection, exchange, action)
        return await connection.answer(exchange, await connection.endpoint.answer(exchange, message))
    if isinstance(action, HoldStream):
        head = b"" if connection.streaming else connection.head_of_stream({})
        frames = b"".join(connection.framed(h11.Data(data=event(dict(each)))) for each in action.first)
        await connection.write(head + frames)
        return await connection.until_gone(exchange)
    if isinstance(action, Truncate):
        assert reply is not None
        return await _truncate(connection, exchange, action, reply)
    if isinstance(action, Sse):
        assert reply is not None
        return await _unusual_stream(connection, exchange, action, reply)
    if isinstance(action, BreakOff):
        assert reply is not None
        return await _break_off(connection, exchange, action, reply)
    return await connection.answer(exchange, scripted_reply(action, exchange.arrival.id))


async def _flood(connection: HttpConnection, exchange: HttpExchange, action: Flood) -> None:
    if not connection.streaming:
        await connection.write(connection.head_of_stream({}))
    for data in flooded(action, exchange.arrival.id):
        await connection.write(connection.framed(h11.Data(data=data)))


async def _truncate(
    connection: HttpConnection, exchange: HttpExchange, action: Truncate, reply: Reply
) -> bool:
    exchange.answered = True
    streamed = connection.streaming or (connection.server.answer == "sse" and reply.message is not None)
    whole = event(reply.message) if streamed and reply.message is not None else reply.body
    part = whole[: len(whole) // 2 if action.at is None else action.at]
    if connection.streaming:
        head = b""
    elif streamed:
        head = connection.head_of_stream(reply.headers)
    else:
        headers = {**reply.headers, "content-length": str(len(whole))}
        headers.setdefault("content-type", reply.content_type or JSON_TYPE)
        head = connection.head(reply.status, headers)
    await connection.write(head + (connection.framed(h11.Data(data=part)) if part else b""))
    return False


async def _unusual_stream(
    connection: HttpConnection, exchange: HttpExchange, action: Sse, reply: Reply
) -> bool:
    if reply.message is None or reply.stream is not None:
        return await connection.answer(exchange, reply)
    exchange.answered = True
    text = event(reply.message, newline=action.newline, event_id=action.event_id)
    data = action.before + text + action.after
    if not connection.streaming:
        await connection.write(connection.head_of_stream(reply.headers))
    size = action.split or len(data)
    for start in range(0, len(data), size):
        await connection.write(connection.framed(h11.Data(data=data[start : start + size])))
    if action.close:
        return False
    await connection.write(connection.framed(h11.EndOfMessage()))
    return connection.reusable()


async def _break_off(
    connection: HttpConnection, exchange: HttpExchange, action: BreakOff, reply: Reply
) -> bool:
    if reply.message is None or reply.stream is not None:
        return await connection.answer(exchange, reply)
    exchange.answered = True
    session, event_id = exchange.session, action.event_id
    mine = [each for each in connection.server.kept if each.session is session]
    number = 1
    while any(event_id in each.ids for each in mine):  # an id names one event of a session
        number += 1
        event_id = f"{action.event_id}-{number}"
    answer = event(reply.message, event_id=f"{event_id}.answer")
    kept = Kept(session, event_id, action.retry, answer, action.times, action.replay)
    connection.server.kept.append(kept)
    kept.sent = kept.prime() + action.before
    kept.ids.update(value.decode() for value in re.findall(rb"(?m)^id: ?(.+)$", action.before))
    head = b"" if connection.streaming else connection.head_of_stream(reply.headers)
    await connection.write(head + connection.framed(h11.Data(data=kept.sent)))
    if action.cut:
        return False
    await connection.write(connection.framed(h11.EndOfMessage()))
    return connection.reusable()
