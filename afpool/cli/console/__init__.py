"""The client of the debug console: `afpool console`, and the commands that ask a running process.

It starts in a few dozen milliseconds, also where the process that it asks hangs: a blocking socket and
wsproto, and nothing of trio or of `afpool.console`. What the two agree on is the protocol, version 1:

* JSON objects in text frames of a WebSocket at `/console`, subprotocol `afpool.console.1`. The server begins
  with `{"hello": {…}}`, which names its commands and tables; this package knows none of them by itself.
* `{"id": 1, "do": LINE or WORDS, "with": OPTIONS}` is answered by `{"id": 1, "ok": RESULT}` or
  `{"id": 1, "error": {…}}`; a result of the kind `stream` is followed by frames of that stream until
  `{"id": 2, "stop": STREAM}`.
* What a server says is a stranger's text. Every string on its way to a terminal goes through
  `one_line` or `harmless`, and nothing that a server sends decides what is run here.
"""
