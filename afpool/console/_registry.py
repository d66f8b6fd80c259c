"""What can be asked of a process: tables and commands, registered by whoever has something to show.

Rules:

* A layer above registers what it knows; nothing here imports it.
* What a table's rows are made of is read lazily and in slices (`_slices`): rows are made one at a time, and
  the world may change between two of them. A table's `rows` therefore goes through a copy of what can change,
  and gives `None` for what is gone through and is no row: what nobody sees takes time as well.
* Filters, sorting and limits are the same for every table, and done here. What is not a column, a filter of
  identities or one of `limit`, `sort`, `columns`, `reveal`, `older` is refused with the nearest names.
* Identities are compared as they were given, never by a part of them and never sorted by: who may only look
  must not find out letter by letter what a digest hides.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from typing import TYPE_CHECKING, Any, Final, final

import trio

from .._base.untraced import place_of
from ._ask import Ask, CommandError, make_ask
from ._completing import completed
from ._filters import filters_of, order_of
from ._parse import parse_line, parse_words, unknown
from ._slices import closing
from ._spec import COMMON, IDENTITY, Column, Command, Table
from ._telling import described, helped, tables_told

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from .._base.identity import Identity
    from .._base.seams import Seams
    from ._ask import Asker, Level
    from ._spec import Result

logger = logging.getLogger("afpool.console")

LIMIT: Final = 200
MOST_ROWS: Final = 20_000


@final
class Registry:
    """Tables and commands of one process. Belongs to its trio thread.

    Args:
        seams: Clock of the pool that they are about.

    Attributes:
        sources: What the tables of the pool read from, for whoever adds to them.
        leases: The pauses that end by themselves.
        checks: What `check` runs.
    """

    def __init__(self, seams: Seams) -> None:
        self.seams = seams
        self.sources: Any = None
        self.leases: Any = None
        self.checks: Any = None
        self.tables: dict[str, Table] = {}
        self.commands: dict[tuple[str, ...], Command] = {}
        self._services: list[Callable[[], Awaitable[object]]] = []
        self._nursery: trio.Nursery | None = None
        self._endings: list[Callable[[], object]] = []
        self.command(
            Command(
                words=("show",),
                usage="show TABLE [column=value …] [sort=[-]column] [limit=N] [columns=a,b]",
                help="rows of a table; `help TABLE` names its columns",
                run=self._show,
                takes=(0, 1),
                complete=lambda _word, before: () if before else self.tables,
                any_option=True,
            )
        )
        self.command(
            Command(
                words=("complete",),
                usage="complete line=…",
                help="what the last word of a line may become; for programs",
                run=self._complete,
                options=("line",),
            )
        )
        self.command(
            Command(
                words=("help",),
                usage="help [COMMAND|TABLE]",
                help="what can be asked, or how",
                run=self._help,
                takes=(0, 3),
                complete=lambda _word, _before: {*self.tables, *(" ".join(words) for words in self.commands)},
            )
        )

    # ------------------------------------------------------------------ registering

    def table(self, table: Table) -> None:
        """Add a table, or put another one in its place."""
        names = {column.name for column in table.columns}
        assert len(names) == len(table.columns), table.name
        assert table.older is None or table.older in names, table.name
        assert not names & {*COMMON, *IDENTITY, *table.options}, table.name
        self.tables[table.name] = table

    def command(self, command: Command) -> None:
        """Add a command, or put another one in its place."""
        self.commands[command.words] = command

    def service(self, run: Callable[[], Awaitable[object]]) -> None:
        """Have something run for as long as the console is open."""
        self._services.append(run)
        if self._nursery is not None:
            self._nursery.start_soon(run)

    def at_end(self, tell: Callable[[], object]) -> None:
        """Have something told when the console closes. Synchronous."""
        self._endings.append(tell)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Run the services for the time of a block; whoever opens the console holds it open."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                for run in self._services:
                    nursery.start_soon(run)
                yield
            finally:
                self._nursery = None
                for tell in self._endings:
                    tell()
                nursery.cancel_scope.cancel()

    def spawn(self, run: Callable[..., Awaitable[object]], *args: object) -> None:
        """Start a task that ends with the console. What goes wrong in it is logged, and ends nothing else.

        Raises:
            CommandError: The console is not open.
        """
        if self._nursery is None:
            raise CommandError("failed", "the console is closing; nothing was done")
        self._nursery.start_soon(_guarded, run, *args)

    # ------------------------------------------------------------------ asking

    async def run(
        self, asked: str | Sequence[object], asker: Asker, options: Mapping[object, object] | None = None
    ) -> Result:
        """Do what is asked.

        Args:
            asked: A line as it was typed, or its words.
            asker: Who asks.
            options: With words: the options by name.

        Returns:
            A plain object with a `kind`, or a `Stream`, which is the caller's to pull and to close.

        Raises:
            CommandError: It cannot be done, and why.

        A checkpoint. Long work is done in slices; cancelled between two of them, nothing is left behind.
        """
        await trio.lowlevel.checkpoint()
        command, ask = self.understood(asked, asker, options)
        result = command.run(ask)
        return await result if inspect.isawaitable(result) else result

    def understood(
        self, asked: str | Sequence[object], asker: Asker, options: Mapping[object, object] | None = None
    ) -> tuple[Command, Ask]:
        """Read what is asked and find the command, without doing it; as `run`, and synchronous."""
        if isinstance(asked, str):
            words, given = parse_line(asked)
            given |= parse_words(("-",), options)[1]
        else:
            words, given = parse_words(asked, options)
        command, rest = self.find(words)
        if command.level == "operate" and asker.level != "operate":
            raise CommandError(
                "not-allowed",
                f"`{' '.join(command.words)}` needs the operate level; this session may look only",
            )
        least, most = command.takes
        if not least <= len(rest) <= most:
            raise CommandError("bad-option", f"usage: {command.usage}", [f"help {' '.join(command.words)}"])
        if not command.any_option:
            for name in given:
                if name not in command.options:
                    what = f"option of `{' '.join(command.words)}`"
                    told = f"help {' '.join(command.words)}"
                    raise unknown("bad-option", what, name, command.options, tries=told)
        return command, make_ask(command.words, rest, given, asker, self.seams)

    def find(self, words: Sequence[str]) -> tuple[Command, tuple[str, ...]]:
        """The command that words begin with, and what stands behind it.

        Raises:
            CommandError: There is none.
        """
        for length in range(min(len(words), 3), 0, -1):
            command = self.commands.get(tuple(words[:length]))
            if command is not None:
                return command, tuple(words[length:])
        if not words:
            raise CommandError("unknown-command", "nothing was asked", ["help"])
        names = {names[0] for names in self.commands}
        raise unknown("unknown-command", "command", words[0], names, tries="help {}")

    async def _show(self, ask: Ask) -> Result:
        name = ask.words[0] if ask.words else "tables"
        table = self.tables.get(name)
        if table is None and name == "tables":
            if ask.options:
                raise CommandError("bad-option", "what is to be shown comes first: a table", ["show"])
            return tables_told(self)
        if table is None:
            raise unknown("unknown-table", "table", name, self.tables, tries="show {}")
        return await self.select(table, ask)

    async def select(self, table: Table, ask: Ask) -> dict[str, Any]:
        """Rows of a table, as its filters, order and limit say."""
        limit = ask.count("limit", LIMIT, most=MOST_ROWS)
        reveal = table.identities and ask.reveal
        chosen, whose = self._columns(table, ask, reveal)
        keep = filters_of(table, ask)
        order, reverse = order_of(table, ask)
        width = len(table.columns)
        # Tuples of plain values are nothing to the garbage collector. Ten thousand of anything else, and it
        # goes through them, in one go, while nobody else has a turn.
        found: list[tuple[Any, ...]] = []
        total = 0
        made = table.rows(ask)
        async with closing(made):
            async for row in ask.slices.each(made):
                if row is None or not keep(row):
                    continue
                total += 1
                if order is not None or total <= limit:
                    found.append(row if reveal else row[:width])
        if order is not None:
            found = await ask.slices.sorted(found, order, reverse=reverse)
        rows: list[tuple[Any, ...]] = []
        async for row in ask.slices.each(found[:limit]):
            cells = tuple([_rounded(row[at]) for at in chosen])
            rows.append(cells + _named(row[width], whose) if reveal else cells)
        columns = [table.columns[at] for at in chosen]
        columns += [Column(name) for name in whose]
        return {
            "kind": "table",
            "table": table.name,
            "columns": [{"name": column.name, "kind": column.kind} for column in columns],
            "rows": rows,
            "total": total,
            "shown": len(rows),
        }

    def _columns(self, table: Table, ask: Ask, reveal: bool) -> tuple[list[int], tuple[str, ...]]:
        """Places of the columns that are asked for, and what is shown of whose each row is, behind them."""
        whose = IDENTITY if reveal else ()
        wanted = ask.options.get("columns")
        if wanted is None:
            return list(range(len(table.columns))), whose
        names = [column.name for column in table.columns]
        chosen: list[int] = []
        named: list[str] = []
        for name in wanted.split(","):
            if name in names:
                chosen.append(names.index(name))
            elif name in whose:
                named.append(name)
            elif name in IDENTITY and table.identities:
                raise CommandError(
                    "bad-option", f"{name} is shown with --reveal, to who may operate",
                    [ask.line(f"columns={wanted}", "--reveal")],
                )  # fmt: skip
            else:
                raise unknown(
                    "bad-option", f"column of {table.name}", name, names, tries=ask.line("columns={}")
                )
        return chosen, tuple(name for name in whose if name in named) if named else whose

    # ------------------------------------------------------------------ saying what there is

    def describe(self, level: Level = "operate") -> dict[str, Any]:
        """What there is for a level, as the hello of a session says it and a reference is made of."""
        return described(self, level)

    def _help(self, ask: Ask) -> Result:
        return helped(self, ask)

    async def complete(self, line: str, asker: Asker, most: int = 100) -> list[str]:
        """What the last word of a line may become, in order; the whole word each. Never raises.

        A checkpoint where a key has to be looked for among many.
        """
        return await completed(self, line, asker, most)

    async def _complete(self, ask: Ask) -> Result:
        line = ask.options.get("line", "")
        return {"kind": "completions", "line": line, "words": await self.complete(line, ask.asker)}


async def _guarded(run: Callable[..., Awaitable[object]], *args: object) -> None:
    try:
        await run(*args)
    except Exception as error:  # noqa: BLE001 -- one task's own fault: what else runs here goes on
        kind, place = type(error).__name__, place_of(error.__traceback__)
        logger.error("a task of the console failed: %s (%s)", kind, place)  # noqa: TRY400 -- its text may hold anything


def _rounded(value: Any) -> Any:
    """Microseconds are enough: what is beyond them are digits of the arithmetic."""
    return round(value, 6) if type(value) is float else value


def _named(who: Identity | None, whose: tuple[str, ...]) -> tuple[str | None, ...]:
    fields = {"conversation": "conversation_id"}
    return tuple([None if who is None else getattr(who, fields.get(name, name)) for name in whose])
