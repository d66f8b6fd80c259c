"""What a Redis store does in one step: Lua scripts, each of them atomic among all processes.

One scope has these keys, all under one hash tag, so that they live on one node:

    t  hash     ref -> ticket, as "created expires bytes len(kind) kind+json"; no expiry is 0
    a  sorted   by age: "<age>:<ref>" with score 0, newest first in the order of bytes
    k  sorted   by kind and age: "<len(kind)>:<kind><age>:<ref>" with score 0
    u  sorted   ref by when it was used last
    e  sorted   ref by when it expires
    s  hash     "bytes" of all payloads, "newest" creation
    p:<ref>     the payload

Invariants:

* These agree whenever a script ends: each script that takes or adds a row changes all of them.
* Redis clears away what has expired, some time after the scripts have stopped giving it out. What is put next
  into the scope names it.
* Every script may be run twice with the same arguments; the second time changes nothing more.
* Times are whole microseconds since 1970, which a double holds; they are written with all their digits.
"""

from __future__ import annotations

import hashlib
from typing import Final, final

from ._retention import LAST

GRACE: Final = 60
"""Seconds for which Redis keeps what has expired, so that the clocks of all who ask may differ by as much."""

_COMMON: Final = """
local T, A, K, U, E, S, P = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local function digits(number) return string.format('%.0f', number) end
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local function read(ticket)
  local created, expires, bytes, length, at = string.match(ticket, '^(%d+) (%d+) (%d+) (%d+) ()')
  if not created then return nil end
  return {created = tonumber(created), expires = tonumber(expires), bytes = tonumber(bytes),
    kind = string.sub(ticket, at, at + tonumber(length) - 1)}
end
local function live(row) return row.expires == 0 or row.expires > now end
local function age(created, ref) return string.format('%016.0f', LAST - created) .. ':' .. ref end
local function of_kind(kind) return #kind .. ':' .. kind end
local function remove(ref)
  local ticket = redis.call('HGET', T, ref)
  if not ticket then return nil end
  local row = read(ticket)
  redis.call('HDEL', T, ref)
  redis.call('ZREM', U, ref)
  redis.call('ZREM', E, ref)
  redis.call('UNLINK', P .. ref)
  if not row then return {kind = '', bytes = 0} end
  redis.call('ZREM', A, age(row.created, ref))
  redis.call('ZREM', K, of_kind(row.kind) .. age(row.created, ref))
  redis.call('HINCRBY', S, 'bytes', digits(0 - row.bytes))  -- and not -0
  return row
end
local function settle()
  local count = redis.call('HLEN', T)
  if count == 0 then redis.call('DEL', S) return end
  local until_ms
  if redis.call('ZCARD', E) == count then
    local last = redis.call('ZREVRANGE', E, 0, 0, 'WITHSCORES')[2]
    until_ms = digits(math.ceil(tonumber(last) / 1000) + GRACE * 1000)
  end
  for number = 1, 6 do
    if until_ms then
      redis.call('PEXPIREAT', KEYS[number], until_ms)
    else
      redis.call('PERSIST', KEYS[number])
    end
  end
end
local function use(ref)
  local last = redis.call('ZREVRANGE', U, 0, 0, 'WITHSCORES')[2]
  redis.call('ZADD', U, digits(math.max(now, tonumber(last or 0) + 1)), ref)
end
local function absent(first, last)
  local missing = {'unknown-parent'}
  for number = first, last do
    local ticket = redis.call('HGET', T, ARGV[number])
    local row = ticket and read(ticket)
    if not (row and live(row)) then missing[#missing + 1] = number - first end
  end
  return #missing > 1 and missing or nil
end
""".replace("LAST", str(LAST)).replace("GRACE", str(GRACE))

# now, where the piece begins, the piece, for how many seconds it is kept; staged under KEYS[8]
_STAGE: Final = """
local begin = tonumber(ARGV[2])
if redis.call('STRLEN', KEYS[8]) < begin then return {'lost'} end
redis.call('SETRANGE', KEYS[8], begin, ARGV[3])
redis.call('EXPIRE', KEYS[8], ARGV[4])
return {'ok'}
"""

# now, asked expiry, parents
_PLAN: Final = """
local asked = tonumber(ARGV[2])
if asked and asked <= now then return {'born-expired'} end
return absent(3, #ARGV) or {'ok'}
"""

# now, ref, kind, rest of the ticket, bytes, asked expiry, ttl, most bytes, most artifacts, payload, parents;
# a payload that was staged is under KEYS[8]
_PUT: Final = """
local ref, kind, rest, bytes, asked = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local ttl, most_bytes, most_count = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local known = redis.call('HGET', T, ref)
if known then
  local row = read(known)
  return {'ok', digits(row.created), digits(row.expires)}
end
if asked and asked <= now then return {'born-expired'} end
local missing = absent(11, #ARGV)
if missing then return missing end
if KEYS[8] and redis.call('STRLEN', KEYS[8]) ~= bytes then return {'lost'} end
local reply = {'ok', '', ''}
local function sweep(gone, reason)
  local row = remove(gone)
  for _, word in ipairs({gone, reason, row.kind, digits(row.bytes)}) do reply[#reply + 1] = word end
end
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', E, '-inf', digits(now))) do sweep(gone, 'ttl') end
while most_count and redis.call('HLEN', T) >= most_count do
  sweep(redis.call('ZRANGE', U, 0, 0)[1], 'max-count')
end
while most_bytes and tonumber(redis.call('HGET', S, 'bytes') or 0) + bytes > most_bytes do
  sweep(redis.call('ZRANGE', U, 0, 0)[1], 'max-bytes')
end
local created = math.max(now, tonumber(redis.call('HGET', S, 'newest') or 0) + 1)
local expires = asked
if ttl and (not expires or now + ttl < expires) then expires = math.min(now + ttl, LAST) end
reply[2], reply[3] = digits(created), digits(expires or 0)
local head = digits(created) .. ' ' .. digits(expires or 0) .. ' ' .. digits(bytes) .. ' ' .. #kind .. ' '
redis.call('HSET', T, ref, head .. kind .. rest)
redis.call('ZADD', A, 0, age(created, ref))
redis.call('ZADD', K, 0, of_kind(kind) .. age(created, ref))
if KEYS[8] then redis.call('RENAME', KEYS[8], P .. ref) else redis.call('SET', P .. ref, ARGV[10]) end
if expires then
  redis.call('ZADD', E, digits(expires), ref)
  redis.call('PEXPIREAT', P .. ref, digits(math.ceil(expires / 1000) + GRACE * 1000))
else
  redis.call('PERSIST', P .. ref)
end
redis.call('HINCRBY', S, 'bytes', digits(bytes))
redis.call('HSET', S, 'newest', digits(created))
use(ref)
settle()
return reply
""".replace("LAST", str(LAST)).replace("GRACE", str(GRACE))

# now, ref, whether to note the use, up to how many bytes the payload is wanted along (-1: not at all)
_FIND: Final = """
local ref, most = ARGV[2], tonumber(ARGV[4])
local ticket = redis.call('HGET', T, ref)
if not ticket then return {} end
local row = read(ticket)
if not row then return {ticket} end
if not live(row) then return {} end
if most >= 0 and redis.call('EXISTS', P .. ref) == 0 then
  remove(ref)
  settle()
  return {}
end
if ARGV[3] == '1' then use(ref) end
if most >= 0 and redis.call('STRLEN', P .. ref) <= most then return {ticket, redis.call('GET', P .. ref)} end
return {ticket}
"""

# now, ref
_DELETE: Final = """
if remove(ARGV[2]) then settle() end
return {}
"""

# now, whether of one kind, kind, age after which to start or nothing, how many
_LIST: Final = """
local key, first, last, most = A, '-', '+', tonumber(ARGV[5])
local prefix = ''
if ARGV[2] == '1' then
  key, prefix = K, of_kind(ARGV[3])
  first, last = '[' .. prefix .. '0', '(' .. prefix .. ':'
end
if ARGV[4] ~= '' then first = '(' .. prefix .. ARGV[4] end
local reply = {}
while #reply < 2 * most do
  local wanted = most - #reply / 2
  local rows = redis.call('ZRANGEBYLEX', key, first, last, 'LIMIT', 0, wanted)
  for _, member in ipairs(rows) do
    local ref = string.sub(member, -26)
    local ticket = redis.call('HGET', T, ref)
    local row = ticket and read(ticket)
    if ticket and (not row or live(row)) then
      reply[#reply + 1] = ref
      reply[#reply + 1] = ticket
    end
    first = '(' .. member
  end
  if #rows < wanted then break end
end
return reply
"""


@final
class Script:
    """A script and the digest that Redis knows it by.

    Args:
        body: What follows the common part.
    """

    __slots__ = ("digest", "text")

    def __init__(self, body: str) -> None:
        self.text = _COMMON + body
        self.digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


PLAN: Final = Script(_PLAN)
STAGE: Final = Script(_STAGE)
PUT: Final = Script(_PUT)
FIND: Final = Script(_FIND)
DELETE: Final = Script(_DELETE)
LIST: Final = Script(_LIST)
ALL: Final = (PLAN, STAGE, PUT, FIND, DELETE, LIST)


def age_after(created: int, ref: str) -> str:
    """Give the place of a row in the order of age."""
    return f"{LAST - created:016d}:{ref}"
