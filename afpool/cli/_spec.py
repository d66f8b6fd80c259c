"""What a command is described by. Parser, help and completion are all made of these descriptions.

Plain tuples: whatever is imported here is paid for by each `afpool --help`.
"""

from __future__ import annotations

from typing import NamedTuple


class Option(NamedTuple):
    """An option, or (without dashes in its name) an argument by position.

    Attributes:
        names: `("--config", "-c")`, or `("SERVER",)`.
        help: One sentence, without a full stop.
        takes: The name of its value for people; empty for a switch.
        choices: What may be said.
        also: What is understood as well, and offered to nobody.
        many: It may be said several times.
        needed: It has to be said.
        completes: What a shell offers for the value: `file`, `folder`, `server`, `process` (one that has a
            console), `table` (of its console); nothing where empty.
    """

    names: tuple[str, ...]
    help: str
    takes: str = ""
    choices: tuple[str, ...] = ()
    many: bool = False
    needed: bool = False
    completes: str = ""
    also: tuple[str, ...] = ()

    @property
    def positional(self) -> bool:
        """Whether it is said by its place."""
        return not self.names[0].startswith("-")

    @property
    def key(self) -> str:
        """Its name among the parsed options."""
        return self.names[0].lstrip("-").replace("-", "_").lower()


class Command(NamedTuple):
    """A command, or one below another.

    Attributes:
        name: As it is called.
        help: One line for the list of commands.
        about: What the command does, for its own help.
        options: What it takes, beside `EVERYWHERE`.
        examples: Command lines and what they are for.
        home: Module of this package whose `run(options, out)` runs it; absent where it has commands below it.
        below: Those.
        group: Title of the commands that it is listed with.
    """

    name: str
    help: str
    about: str = ""
    options: tuple[Option, ...] = ()
    examples: tuple[tuple[str, str], ...] = ()
    home: str = ""
    below: tuple[Command, ...] = ()
    group: str = "commands"

    def find(self, name: str) -> Command | None:
        """Give the command below of a name."""
        return next((each for each in self.below if each.name == name), None)
