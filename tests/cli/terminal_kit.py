"""A terminal with a command in it: the command is the foreground of a pseudo-terminal that has a screen."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time

import pyte

from tests.cli.cli_kit import AFPOOL, surroundings

WITHIN = 30.0
# a session of its own, whose terminal is the one on stdin: ^C reaches what runs there
OWN = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
ENTER, TAB, INTERRUPT, END_OF_FILE, KILL_LINE, UP = "\r", "\t", "\x03", "\x04", "\x15", "\x1b[A"


class Terminal:
    """Runs `afpool WORDS` until the end of the block."""

    def __init__(self, folder, *words, columns=100, rows=30, name="desk-pool", **env):
        self.name = name
        self._prompts = 0
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._news = threading.Condition(threading.RLock())
        self._ended = False
        self.seen = b""
        self._ours, theirs = pty.openpty()
        self._size(theirs, columns, rows)
        given = surroundings(folder, TERM="xterm", **env)
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWN, *AFPOOL, *words],
            cwd=folder, env=given, stdin=theirs, stdout=theirs, stderr=theirs,
        )  # fmt: skip
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @staticmethod
    def _size(file, columns, rows):
        fcntl.ioctl(file, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self):
        while True:
            try:
                piece = os.read(self._ours, 65536)
            except OSError:  # the other end is closed
                piece = b""
            with self._news:
                if piece:
                    self.seen += piece
                    self._stream.feed(piece)
                else:
                    self._ended = True
                self._news.notify_all()
            if not piece:
                return

    @property
    def lines(self):
        """What stands on the screen, empty lines at its end left out."""
        with self._news:
            return "\n".join(line.rstrip() for line in self._screen.display).rstrip("\n").split("\n")

    def type(self, text):
        os.write(self._ours, text.encode())

    def wait(self, wanted):
        """Wait until the screen holds a text, or a function likes its lines; give the lines."""
        likes = wanted if callable(wanted) else lambda lines: any(wanted in line for line in lines)
        until = time.monotonic() + WITHIN
        with self._news:
            while True:
                lines = self.lines
                if likes(lines):
                    return lines
                left = until - time.monotonic()
                assert left > 0, "\n".join(lines)
                assert not self._ended, "\n".join(lines)
                self._news.wait(left)

    def prompt(self):
        """Wait for a prompt that was not there before, with nothing typed behind it; the lines."""
        had = self._prompts

        def likes(lines):
            return self._count() > had and lines[-1] == f"{self.name}>"

        lines = self.wait(likes)
        self._prompts = self._count()
        return lines

    def interrupt_line(self):
        """Drop the line that is typed; pressed again where readline was not waiting yet, which loses it."""
        had = self._count()
        for _ in range(10):
            self.type(INTERRUPT)
            with self._news:
                if self._news.wait_for(lambda: self._count() > had, 3.0):
                    return self.prompt()
        raise AssertionError("\n".join(self.lines))

    def do(self, line):
        """Type a line at the prompt, and wait for the next one; the lines."""
        self._prompts = self._count()
        self.type(line + ENTER)
        return self.prompt()

    def _count(self):
        return self.seen.count(f"{self.name}> ".encode())

    def resize(self, columns, rows=30):
        with self._news:
            self._screen.resize(rows, columns)
        self._size(self._ours, columns, rows)

    def end(self):
        """Wait for the end; the exit code and what stands on the screen."""
        code = self.process.wait(WITHIN)
        self._reader.join(WITHIN)
        return code, self.lines

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WITHIN)
        self._reader.join(WITHIN)
        os.close(self._ours)
