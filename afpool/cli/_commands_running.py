"""The commands that ask a running process for something, as data."""

from __future__ import annotations

from typing import Final

from ._spec import Command, Option

_PROCESS: Final = (
    Option(
        ("--process", "-p"),
        "Which process: its name, its id, or an address; the only one unless said",
        "WHICH",
        completes="process",
    ),
    Option(
        ("--token-file",),
        "The token for a console over TCP; else AFPOOL_CONSOLE_TOKEN holds it",
        "FILE",
        completes="file",
    ),
    Option(("--timeout",), "How long to wait for the answer, 30s unless said", "TIME"),
)
_YES: Final = Option(("--yes", "-y"), "Do not ask whether it shall be done")
_COUNT: Final = Option(("--count", "-n"), "End after so many", "N")
_RUNNING: Final = "a running process"


def _asks(
    name: str,
    help_: str,
    about: str,
    words: Option,
    *examples: tuple[str, str],
    options: tuple[Option, ...] = (),
) -> Command:
    """Describe a command that the console of a running process does."""
    return Command(
        name, help_, about, (*_PROCESS, *options, words), examples, "console._open", group=_RUNNING
    )


def _changes(name: str, help_: str, about: str, what: str, *examples: tuple[str, str]) -> Command:
    """Describe one that changes something there."""
    words = Option(("WORDS",), what, many=True)
    return _asks(name, help_, about, words, *examples, options=(_YES,))


CONSOLE: Final = Command(
    "console",
    "attach to a running process: look, ask why, pause and resume",
    "Attach to the console of a running process, found by itself where there is only one. At the\n"
    "prompt, `help` says what there is, Tab completes, ^C ends what runs and ^D leaves. Lines may come from\n"
    "a pipe, too. Ends with 1 when a line failed, 2 when one cannot be understood.",
    (
        Option(
            ("PROCESS",),
            "Its name, its id, unix:/path, host:port or https://host; the only one unless said",
            completes="process",
        ),
        Option(("--command", "-c"), "Do this line and end", "LINE", many=True),
        Option(("--list",), "List the processes that have a console, and end"),
        Option(("--stacks",), "Show where each thread of the process is, also while its loop hangs, and end"),
        _YES,
        *_PROCESS[1:],
    ),
    (
        ("afpool console", "the prompt, at the only process or after a list of them"),
        ("afpool console -c 'show actors state=busy sort=-waiting'", "one line"),
        ("afpool console https://tools.example.com --token-file token", "over the network"),
        ("afpool console --stacks 4711", "a process that does not answer"),
    ),
    "console._open",
    group=_RUNNING,
)
SHOW: Final = _asks(
    "show",
    "show a table of it: servers, actors, waiting, lists, ...",
    "Show a table of a running process, or all of one actor. `name=value` filters by a column, `sort=-name`\n"
    "sorts, `limit=N` says how many rows. Without words it lists the tables. Keys are digests; `--reveal`\n"
    "names whose they are, to who may operate.",
    Option(("WORDS",), "A table and its filters, or `actor KEY`", many=True, completes="table"),
    ("afpool show servers", ""),
    ("afpool show waiting 'waited>1s' sort=-waited --json", "one object for each row"),
    ("afpool show actor k:3f9a", "one actor, by the beginning of its key"),
    options=(Option(("--reveal",), "Name the identities that keys belong to"),),
)
WHY: Final = _asks(
    "why",
    "explain why a call came out as it did, or where an artifact came from",
    "Explain a call by the facts that were filed: what refused it or took long, and what caused that. An\n"
    "artifact is traced back to the call that made it.",
    Option(("WORDS",), "The id of a call, or the reference of an artifact", many=True),
    ("afpool why 6f1c", "by the beginning of its id, as `afpool tail` shows it"),
)
TAIL: Final = _asks(
    "tail",
    "show what happens there, as it happens",
    "Show calls, refusals, openings and changes as they happen, until ^C.",
    Option(("WORDS",), "calls, events or refusals, and filters such as server=desk", many=True),
    ("afpool tail refusals last=20", "only what went wrong, and the last twenty of that first"),
    ("afpool tail calls server=desk slower=1s --json", "one object on each line"),
    options=(_COUNT,),
)
CHECK: Final = _asks(
    "check",
    "look for what is wrong: waiters, leases, flapping clients, lag",
    "Look for what is wrong in a running process. Ends with 1 when something is bad. (`afpool doctor` is\n"
    "another thing: it opens servers.)",
    Option(("WORDS",), "Only these checks", many=True),
    ("afpool check --json", "for a script that watches"),
)
TREE: Final = _asks(
    "tree",
    "show its tasks and what each waits for",
    "Show the tree of tasks of a running process, and what each of them waits for.",
    Option(("WORDS",), "depth=N and limit=N", many=True),
    ("afpool tree", ""),
)
WATCH: Final = _asks(
    "watch",
    "do one of these again and again, in place",
    "Do a command of the console again and again, drawn in place on a terminal, until ^C. Without words\n"
    "it shows the numbers that people look for first.",
    Option(("WORDS",), "Seconds between two times (2 unless said), and the command", many=True),
    ("afpool watch", "calls per second, in flight, waiting, latencies"),
    ("afpool watch 1 show actors sort=-waiting", ""),
    options=(_COUNT,),
)
PAUSE: Final = _changes(
    "pause",
    "let no new call in, for a key or a server",
    "Let no new call of a key or a server begin; calls wait, until their deadlines. It is held until\n"
    "`afpool resume`; with `for=10m` this command stays, and the pause ends with the time, or with ^C.",
    "A key or the name of a server, and `for=TIME`",
    ("afpool pause desk", "until `afpool resume desk`"),
    ("afpool pause k:3f9a for=10m", "the calls of one key, ten minutes at most"),
)
RESUME: Final = _changes(
    "resume",
    "end a pause or a drain",
    "Let calls of a key or a server begin again.",
    "A key or the name of a server",
    ("afpool resume desk", ""),
)
DRAIN: Final = _changes(
    "drain",
    "let calls end, and no new one begin",
    "Let no new call of a key or a server begin, and wait until those that run have ended.",
    "A key or the name of a server, and `for=TIME`, how long to wait; 30s unless said",
    ("afpool drain desk for=2m --timeout 3m", ""),
)
EVICT: Final = _changes(
    "evict",
    "close an idle client, which is opened again when it is needed",
    "Close the client of a key once nobody uses it. It is opened again when it is needed.",
    "A key",
    ("afpool evict k:3f9a", ""),
)
KILL: Final = _changes(
    "kill",
    "close a client at once; its calls fail",
    "Close a client at once. Its calls end, with a verdict that says whether they may have run.",
    "The id of a client, as `afpool show clients` has it",
    ("afpool kill 12 --yes", ""),
)
REFRESH: Final = _changes(
    "refresh",
    "ask for a key's tools again",
    "Ask the server of a key for its tools again, and try a failed opening at once.",
    "A key",
    ("afpool refresh k:3f9a", ""),
)

ALL: Final = (
    *(CONSOLE, SHOW, WHY, TAIL, CHECK, TREE, WATCH),
    *(PAUSE, RESUME, DRAIN, EVICT, KILL, REFRESH),
)
