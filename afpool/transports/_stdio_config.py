"""How to start a server as a child process: its command, its directory, and what it inherits."""

from __future__ import annotations

import os
from collections.abc import Mapping  # noqa: TC003  (attrs resolves the annotations)
from pathlib import PurePath
from typing import Final

import attrs

INHERITED: Final = frozenset(
    {"HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
)
"""The variables that a child inherits unless its configuration says `inherit_env`."""


def _text_tuple(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise TypeError("command must be a list of strings: the program, then its arguments")
    return tuple(value)


def _copied(value: Mapping[str, str] | None) -> Mapping[str, str] | None:
    return None if value is None else dict(value)


def _checked_command(_: object, __: object, value: tuple[str, ...]) -> None:
    if not value or not value[0]:
        raise ValueError("command names no program")
    if not all(isinstance(part, str) and "\0" not in part for part in value):
        raise ValueError("command must be strings without NUL")


def _checked_env(_: object, __: object, value: Mapping[str, str] | None) -> None:
    for name, text in (value or {}).items():
        if not (isinstance(name, str) and isinstance(text, str)):
            raise TypeError("env maps strings to strings")
        if not name or "=" in name or "\0" in name or "\0" in text:
            raise ValueError("env holds a name or a value that no environment can hold")


def _checked_cwd(_: object, __: object, value: str | None) -> None:
    if value is not None and (not value or "\0" in value):
        raise ValueError("cwd is no directory's name")


@attrs.frozen
class StdioConfig:
    """How to start a server that speaks over its standard input and output.

    The repr shows neither arguments nor values of the environment.

    Attributes:
        command: The program, looked up in the child's own `PATH`, and its arguments. Every process of the
            machine can read it: no secret belongs here.
        env: Variables added to the inherited ones. The place for a secret.
        cwd: The directory that the child starts in; `None` is ours.
        inherit_env: Inherit the whole environment instead of `INHERITED`. Our own secrets go with it.
    """

    command: tuple[str, ...] = attrs.field(
        converter=_text_tuple, validator=_checked_command, repr=lambda command: repr(command[:1])
    )
    env: Mapping[str, str] | None = attrs.field(
        default=None,
        converter=_copied,
        validator=_checked_env,
        hash=False,
        repr=lambda env: repr(sorted(env or ())),
    )
    cwd: str | None = attrs.field(default=None, validator=_checked_cwd, repr=False)
    inherit_env: bool = False

    @property
    def name(self) -> str:
        """The program's name, without its directory."""
        return PurePath(self.command[0]).name

    def environment(self) -> dict[str, str]:
        """What the child gets."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            # A value that starts so is a shell function, which a shell would run.
            if self.inherit_env or (name in INHERITED and not value.startswith("()"))
        }
        return inherited | dict(self.env or {})
