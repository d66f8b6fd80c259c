"""A console that stands in for one: threads that speak the protocol over wsproto and say what they are told.

It can be what no console is: of another version, silent, full of control characters, gone in the middle.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import threading
import time
from pathlib import Path

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    CloseConnection,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

HELLO = {
    "protocol": 1,
    "name": "desk-pool",
    "pid": 4711,
    "version": "0.1.0",
    "level": "operate",
    "now": 100.0,
    "commands": [
        {"words": ["show"], "usage": "show TABLE", "help": "rows of a table", "level": "read"},
        {"words": ["show", "actor"], "usage": "show actor KEY", "help": "one actor", "level": "read"},
        {"words": ["why"], "usage": "why CALL", "help": "explain", "level": "read"},
        {"words": ["tail"], "usage": "tail", "help": "events", "level": "read"},
        {"words": ["check"], "usage": "check", "help": "lints", "level": "read"},
        {"words": ["pause"], "usage": "pause KEY", "help": "pause", "level": "operate"},
        {"words": ["kill"], "usage": "kill CLIENT", "help": "kill", "level": "operate"},
    ],
    "tables": [{"name": "servers", "help": "servers", "columns": []}],
}
SERVERS = {
    "kind": "table",
    "table": "servers",
    "columns": [
        {"name": "server", "kind": "text"},
        {"name": "state", "kind": "text"},
        {"name": "in_flight", "kind": "count"},
        {"name": "max", "kind": "count"},
        {"name": "waiting", "kind": "count"},
        {"name": "oldest_wait", "kind": "seconds"},
        {"name": "opened", "kind": "unix"},
        {"name": "rate", "kind": "rate"},
    ],
    "rows": [["desk", "open", 3, 8, 0, None, 1.0, 12.5], ["crm", "paused", 0, 8, 2, 0.4125, None, 0.0]],
    "total": 2,
    "shown": 2,
}


class Peer:
    """One connection of the stand-in, as its script sees it."""

    def __init__(self, console, conn):
        self.console = console
        self.socket = conn
        self.ws = WSConnection(ConnectionType.SERVER)
        self.asked = []
        self.pongs = 0

    def send(self, event):
        self.socket.sendall(self.ws.send(event))

    def say(self, value):
        self.send(TextMessage(value if isinstance(value, str) else json.dumps(value)))

    def answer(self, asked, result):
        key = "error" if "code" in result and "kind" not in result else "ok"
        self.say({"id": asked["id"], key: result})

    def events(self):
        while True:
            data = self.socket.recv(65536)
            self.ws.receive_data(data or None)
            yield from self.ws.events()
            if not data:
                return

    def run(self):
        console = self.console
        for event in self.events():
            if isinstance(event, Request):
                console.requests.append(event)
                console.peers.append(self)
                if console.reject is not None:
                    status, body = console.reject
                    self.send(
                        RejectConnection(
                            status_code=status, has_body=True,
                            headers=[(b"content-length", str(len(body)).encode())],
                        )
                    )  # fmt: skip
                    self.send(RejectData(data=body))
                    return
                self.send(AcceptConnection(subprotocol="afpool.console.1"))
                if console.greets is not None:
                    self.say({"hello": {**console.greets, "unix": time.time() + console.skew}})
            elif isinstance(event, TextMessage):
                asked = json.loads(event.data)
                console.note(asked)
                if "stop" not in asked:
                    console.on_ask(self, asked)
            elif isinstance(event, Ping):
                if console.pongs:
                    self.send(event.response())
            elif isinstance(event, Pong):
                console.note({"pong": bytes(event.payload).decode()})
            elif isinstance(event, CloseConnection):
                self.send(event.response())
                return


class StandIn:
    """A console at a Unix socket, until the end of the block.

    `answers` maps a line to its result, to an error, or to a function of peer and question.
    """

    def __init__(self, folder, name="desk-pool", pid=None, *, answers=None, hello=HELLO, reject=None):
        place = Path(folder) / "c"  # as `surroundings` says
        place.mkdir(mode=0o700, exist_ok=True)
        self.pid = os.getpid() if pid is None else pid
        self.path = place / f"{self.pid}-{name}.sock"
        self.greets = None if hello is None else {**hello, "name": name, "pid": self.pid}
        self.reject = reject
        self.answers = {"show servers": SERVERS, **(answers or {})}
        self.skew = 0.0
        self.pongs = True
        self.requests = []
        self.asked = []
        self.peers = []
        self.ticked = 0.012
        self.on_watched = lambda: None
        self._news = threading.Condition()
        self._threads = []
        self._sockets = []

    def note(self, asked):
        with self._news:
            self.asked.append(asked)
            self._news.notify_all()

    def wait(self, wanted, within=30.0):
        """Wait until something was asked that the function likes."""
        with self._news:
            assert self._news.wait_for(lambda: any(map(wanted, self.asked)), within), self.asked

    @property
    def lines(self):
        return [asked["do"] for asked in self.asked if "do" in asked]

    def on_ask(self, peer, asked):
        line = asked["do"] if isinstance(asked["do"], str) else " ".join(asked["do"])
        answer = self.answers.get(line)
        if callable(answer):
            answer(peer, asked)
        elif answer is None:
            peer.answer(asked, {"code": "unknown-command", "message": "there is no such command", "try": []})
        else:
            peer.answer(asked, answer)

    def listen_on_tcp(self, tls=None):
        """Listen at a port of the loopback too, over TLS with the context of a server; the port."""
        return self._listen(("127.0.0.1", 0), self._serve, tls).getsockname()[1]

    def _listen(self, place, serve, tls=None):
        family = socket.AF_INET if isinstance(place, tuple) else socket.AF_UNIX
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.bind(place)
        listener.listen(16)
        if tls is not None:
            listener = tls.wrap_socket(listener, server_side=True)
        self._sockets.append(listener)

        def accept():
            while True:
                try:
                    conn, _ = listener.accept()
                except ssl.SSLError:  # the other end does not trust this one
                    continue
                except OSError:
                    return
                self._sockets.append(conn)
                self._start(serve, conn)

        self._start(accept)
        return listener

    def _start(self, run, *args):
        thread = threading.Thread(target=run, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self, conn):
        try:
            Peer(self, conn).run()
        except (OSError, LocalProtocolError, RemoteProtocolError):
            pass
        finally:
            conn.close()

    def _watchdog(self, conn):
        try:
            word = conn.recv(100).decode().strip()
            self.on_watched()
            said = {
                "name": "desk-pool",
                "pid": self.pid,
                "ticked_ago": self.ticked,
                "hanging": self.ticked > 1,
            }
            lines = [said]
            if word == "stacks":
                lines.append(
                    {"thread": "MainThread", "loop": True, "frames": [["app.py", 12, "stuck\x1b[2J"]]}
                )
            conn.sendall(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        except OSError:
            pass
        finally:
            conn.close()

    def __enter__(self):
        self._listen(str(self.path), self._serve)
        self._listen(str(self.path.with_name(f"{self.path.stem}.hang.sock")), self._watchdog)
        return self

    def die(self):
        """End as a process that is killed: connections break, the sockets' files stay."""
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(10)

    def __exit__(self, *failure):
        self.die()
        assert not any(thread.is_alive() for thread in self._threads)
