"""From words to a command and its options.

Rules:

* Only the parser of the one command is made. The way to it is walked by hand: general options may stand in
  front of it, `--help` and `--version` end the walk.
* An error says what, where and what to do, and never repeats what was given: a secret may stand in the
  wrong place. Only a word that is close to a known one is taken for a slip, and that one is named.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ._commands import AFPOOL, EVERYWHERE
from ._failures import Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ._spec import Command, Option


class Parsed(NamedTuple):
    """What was asked for.

    Attributes:
        way: The commands from `afpool` down to the one that is meant.
        options: What was said.
        wants: `run`, `help`, or `missing` where no command was named.
    """

    way: tuple[Command, ...]
    options: argparse.Namespace
    wants: str = "run"

    @property
    def command(self) -> Command:
        """The one that is meant."""
        return self.way[-1]

    @property
    def called(self) -> str:
        """How it is called, for messages."""
        return " ".join(command.name for command in self.way)


class _Parser(argparse.ArgumentParser):
    """Raises instead of ending the process, and without the words that were given."""

    def __init__(self, options: Sequence[Option]) -> None:
        super().__init__(prog="afpool", add_help=False, allow_abbrev=False)
        self.options = options
        for option in options:
            _add(self, option)

    def error(self, message: str) -> NoReturn:
        # `from None`: what argparse raised before quotes the word
        what, _, _ = message.partition(": ")
        if what.startswith("argument "):
            # `argument --color: invalid choice: 'x' (choose from ...)`: the rest may quote
            named = what.removeprefix("argument ").split("/")[0]
            raise Usage(_wrong_value(self.options, named, message)) from None
        if "required" in what:
            raise Usage(f"{message.rpartition(': ')[2]} is missing") from None
        raise Usage("the options cannot be understood") from None


def _wrong_value(options: Sequence[Option], named: str, message: str) -> str:
    choices = next((option.choices for option in options if named in option.names), ())
    if "choice" in message and choices:
        return f"{named} is one of {', '.join(choices)}"
    if "expected" in message:
        return f"{named} needs a value" if "one argument" in message else f"{named} takes no value"
    if "not allowed" in message or "ignored explicit" in message:
        return f"{named} takes no value"
    return f"{named}: its value cannot be used"


def parse(words: Sequence[str]) -> Parsed:
    """Understand a command line.

    Raises:
        Usage: It cannot be understood.
    """
    way: tuple[Command, ...] = (AFPOOL,)
    general: list[str] = []
    rest = list(words)
    while way[-1].below:
        command = way[-1]
        if not rest:
            return Parsed(way, _defaults(), "missing")
        word = rest.pop(0)
        if word in {"--help", "-h", "help"}:
            below = command.find(rest[0]) if word == "help" and rest else None
            return Parsed((*way, below) if below else way, _defaults(), "help")
        if word == "--version" and len(way) == 1:
            return Parsed((AFPOOL, AFPOOL.find("version") or AFPOOL), _general(general), "run")
        if word.startswith("-"):
            general += _general_option(word, rest)
            continue
        found = command.find(word)
        if found is None:
            _unknown("command", word, (each.name for each in command.below), " ".join(c.name for c in way))
        way = (*way, found)
    options, left = _Parser((*EVERYWHERE, *way[-1].options)).parse_known_intermixed_args([*general, *rest])
    if options.help:
        return Parsed(way, options, "help")
    _nothing_left(left, way[-1], " ".join(command.name for command in way))
    for option in way[-1].options:
        if option.needed and getattr(options, option.key) is None:
            raise Usage(f"{option.names[0]} is missing: {option.help[0].lower()}{option.help[1:]}")
    return Parsed(way, options)


def _general_option(word: str, rest: list[str]) -> list[str]:
    name = word.partition("=")[0]
    option = next((each for each in EVERYWHERE if name in each.names), None)
    if option is None:
        _unknown("option", name, (name for each in EVERYWHERE for name in each.names), "afpool")
    if option.takes and "=" not in word:
        return [word, rest.pop(0)] if rest else [word]
    return [word]


def _general(words: list[str]) -> argparse.Namespace:
    return _Parser(EVERYWHERE).parse_args(words)


def _defaults() -> argparse.Namespace:
    return _general([])


def _add(parser: _Parser, option: Option) -> None:
    how: dict[str, Any] = {}
    if option.choices:
        how["choices"] = (*option.choices, *option.also)
    if option.positional:
        how |= {"nargs": "*" if option.many else "?", "metavar": option.names[0]}
        parser.add_argument(option.key, **how)
        return
    if not option.takes:
        how = {"action": "store_true"}
    elif option.many:
        how |= {"action": "append", "default": []}
    parser.add_argument(*option.names, dest=option.key, **how)


def _nothing_left(left: list[str], command: Command, called: str) -> None:
    if not left:
        return
    for word in left:
        if word.startswith("-") and len(word) > 1:
            names = [name for option in (*EVERYWHERE, *command.options) for name in option.names]
            _unknown("option", word.partition("=")[0], names, called)
    raise Usage(f"{called} takes fewer arguments: {len(left)} too many", f"{called} --help")


def _unknown(what: str, word: str, known: Iterable[str], called: str) -> NoReturn:
    near = nearest(word, known)
    said = f"; did you mean {near!r}?" if near else ""
    raise Usage(f"{called} has no such {what}{said}", f"{called} --help")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Give the known word that is closest to the given one, if any is close."""
    if len(word) > 40:
        return None
    import difflib

    plain = {name.strip("-").casefold(): name for name in known}
    close = difflib.get_close_matches(word.strip("-").casefold(), plain, n=1, cutoff=0.6)
    return plain[close[0]] if close else None
