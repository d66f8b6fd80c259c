"""The commands of `afpool`, as data."""

from __future__ import annotations

from typing import Final

from ._commands_running import ALL as RUNNING
from ._spec import Command, Option

COLORS: Final = ("auto", "always", "never")
LEVELS: Final = ("debug", "info", "warning", "error")
SHELLS: Final = ("bash", "zsh", "fish")
ASKED: Final = ("names", "processes", "tables")
"""What the scripts ask instead of a shell: names of servers, processes, tables of their consoles."""

EVERYWHERE: Final = (
    Option(("--json",), "Write data as JSON, for programs"),
    Option(("--color",), "Colours, which `auto` uses on a terminal unless NO_COLOR is set", "WHEN", COLORS),
    Option(("--debug",), "Log everything, and show tracebacks"),
    Option(("--help", "-h"), "Show this and end"),
)
_CONFIG: Final = (
    Option(
        ("--config", "-c"),
        "The configuration; else what AFPOOL_CONFIG names, or afpool.toml here",
        "FILE",
        completes="file",
    ),
    Option(
        ("--mcp-config",),
        "A file of another client's, such as .mcp.json, whose servers are added",
        "FILE",
        many=True,
        completes="file",
    ),
    Option(("--set",), "A setting in place of the file's, by its key", "KEY=VALUE", many=True),
)
_WHO: Final = (
    Option(("--tenant",), "Whom it is done for: the tenant", "NAME"),
    Option(("--principal",), "The user or service of that tenant", "NAME"),
    Option(("--conversation",), "The conversation", "NAME"),
)
_TIMEOUT: Final = Option(
    ("--timeout",),
    "The longest that it may take, such as 30s or 2m",
    "TIME",
)
_TOKEN_FILE: Final = Option(
    ("--file", "-f"), "The token file; else what the configuration names", "FILE", completes="file"
)
_JUST_CONFIG: Final = _CONFIG[:1]

SERVE: Final = Command(
    "serve",
    "serve everybody their own tools, as one MCP endpoint",
    "Serve the tools of all configured servers as one MCP endpoint, to each caller exactly his own.\n"
    "SIGTERM lets calls end, SIGHUP reads the configuration again. Ends with 0 when no call was cut off,\n"
    "1 when it failed or calls were, 2 when the configuration cannot be used, 130 when interrupted.",
    (
        *_CONFIG,
        Option(("--demo",), "Serve built-in servers to two tenants, and print their tokens"),
        Option(("--traffic",), "Let the demo's tenants call by themselves, for something to look at"),
        Option(("--bind",), "Where to listen: host:port, or unix:/path", "ADDRESS"),
        Option(("--path",), "Where MCP over HTTP is", "PATH"),
        Option(
            ("--tokens",), "The file of static tokens, as `afpool token` writes it", "FILE", completes="file"
        ),
        Option(("--tls-certificate",), "PEM file of the certificate chain", "FILE", completes="file"),
        Option(("--tls-key",), "PEM file of its key", "FILE", completes="file"),
        Option(("--drain",), "How long calls may take to end, such as 30s", "TIME"),
        Option(("--no-reload",), "Do not watch the files"),
        Option(("--log-level",), "What is logged on stderr; info unless said", "LEVEL", LEVELS),
        Option(("--log-format",), "How; text unless said", "FORMAT", ("text", "json")),
    ),
    (
        ("afpool serve --demo", "two built-in servers and two tenants, for a first look"),
        ("afpool serve --demo --traffic", "the same at work, to look at with `afpool console`"),
        ("afpool serve -c afpool.toml", "what a configuration says"),
        ("afpool serve --mcp-config .mcp.json --tokens tokens.json", "another client's servers, by token"),
    ),
    "_serve",
)
DEMO: Final = Command(
    "demo",
    "several tenants, two real server processes, every refusal for a real reason",
    "Play a demo in the terminal: tenants and conversations on real MCP servers in processes of their own.\n"
    "It ends by printing how to serve the same to any MCP client.",
    (Option(("--bind",), "Where the printed `afpool serve --demo` shall listen", "ADDRESS"),),
    (("afpool demo", "about ten seconds"),),
    "_demo",
)
DOCTOR: Final = Command(
    "doctor",
    "open every server and say what is found",
    "Open every configured server, all at once, list its tools, and print what was found. Ends with 1 when\n"
    "a server is broken. A server whose connections belong to somebody is opened for whom you name.",
    (
        *_CONFIG,
        *_WHO,
        _TIMEOUT,
        Option(("SERVER",), "Only these", many=True, completes="server"),
    ),
    (
        ("afpool doctor --tenant acme --principal alice", "every server, as alice would have it"),
        ("afpool doctor wiki --timeout 10s --json", "one server, for a script"),
    ),
    "_doctor",
)
TOOLS: Final = Command(
    "tools",
    "list what an identity sees",
    "List the tools that an identity is offered, under the names that a client is shown. Ends with 1 when\n"
    "a server could not be listed; the others are.",
    (*_CONFIG, *_WHO, _TIMEOUT, Option(("SERVER",), "Only these", many=True, completes="server")),
    (
        ("afpool tools --tenant acme --principal alice", "everything that alice is offered"),
        ("afpool tools wiki --json", "the tools of one server, with their schemas"),
    ),
    "_tools",
)
CALL: Final = Command(
    "call",
    "call a tool",
    "Call a tool of a server for an identity and print its answer. Ends with 1 when the tool says that it\n"
    "failed, or the call was refused or failed; the verdict says whether it may have run.",
    (
        *_CONFIG,
        *_WHO,
        _TIMEOUT,
        Option(("--whole",), "Print what was stored as an artifact for its length, in full"),
        Option(("SERVER",), "The server, as it is configured", needed=True, completes="server"),
        Option(("TOOL",), "The tool, as the server or `afpool tools` calls it", needed=True),
        Option(
            ("ARGUMENTS",),
            "A JSON object; @FILE reads a file, - reads stdin; {} unless said",
            completes="file",
        ),
    ),
    (
        ("""afpool call wiki search '{"text": "afpool"}' --tenant acme --principal alice""", "one call"),
        ("afpool call wiki import @pages.json --tenant acme", "arguments from a file"),
        ("""echo '{"n": 1}' | afpool call desk echo - --json""", "arguments from stdin, answer as JSON"),
    ),
    "_call",
)
TOKEN: Final = Command(
    "token",
    "make, list and revoke static bearer tokens",
    "Static bearer tokens of `afpool serve`. The file keeps digests; a running service sees changes at once.",
    below=(
        Command(
            "new",
            "make a token and print it, this once",
            "Make a token. It is printed on stdout, this once; the file keeps a digest.",
            (
                _TOKEN_FILE,
                *_JUST_CONFIG,
                *_WHO,
                Option(
                    ("--expires",),
                    "When it ends: 30d, 12h, or a date such as 2027-01-31",
                    "WHEN",
                ),
                Option(("NAME",), "What it is for, for lists", needed=True),
            ),
            (('afpool token new "alice\'s laptop" --tenant acme --principal alice --expires 90d', ""),),
            "_token_new",
        ),
        Command(
            "list",
            "list tokens, without the tokens themselves",
            "List tokens: id, name, whom they prove, and until when. What has ended is listed for 90 days.",
            (_TOKEN_FILE, *_JUST_CONFIG),
            (("afpool token list --file tokens.json", ""),),
            "_token_list",
        ),
        Command(
            "revoke",
            "revoke a token, for ever",
            "Revoke a token by its id, or by its name where only one good token has it. Calls that wait\n"
            "under it are refused at their next gate.",
            (_TOKEN_FILE, *_JUST_CONFIG, Option(("TOKEN",), "Its id or name", needed=True)),
            (('afpool token revoke "alice\'s laptop"', ""),),
            "_token_revoke",
        ),
    ),
)
CONFIG: Final = Command(
    "config",
    "check a configuration, show where its values come from, print its schema",
    "The configuration, without starting anything.",
    below=(
        Command(
            "check",
            "say whether it can be used, and all that is wrong with it",
            "Read the configuration and say all that is wrong with it, with file, line and key. Ends with 2\n"
            "when it cannot be used. Nothing is opened; `afpool doctor` does that.",
            _CONFIG,
            (("afpool config check -c afpool.toml", ""),),
            "_config_check",
        ),
        Command(
            "show",
            "show every value and where it comes from, secrets masked",
            "Show every setting, its value and where that comes from: a flag, a variable, a line of a file,\n"
            "or the default. Secrets are masked.",
            (
                *_CONFIG,
                Option(("--changed",), "Leave out defaults"),
                Option(("KEY",), "Only settings below these keys", many=True),
            ),
            (
                ("afpool config show --changed", "what somebody has said"),
                ("AFPOOL_SERVE_DRAIN=5s afpool config show serve --json", ""),
            ),
            "_config_show",
        ),
        Command(
            "schema",
            "print the JSON Schema of afpool.toml",
            "Print the JSON Schema of afpool.toml, for editors.",
            (),
            (("afpool config schema > afpool.schema.json", ""),),
            "_config_schema",
        ),
    ),
)
VERSION: Final = Command("version", "print the version", "Print the version.", home="_version")
COMPLETION: Final = Command(
    "completion",
    "print a completion script for a shell",
    "Print a script that completes commands, options, files and names of servers.",
    (Option(("SHELL",), "Which one", choices=SHELLS, needed=True, also=ASKED),),
    (
        ("source <(afpool completion bash)", "in ~/.bashrc"),
        ("source <(afpool completion zsh)", "in ~/.zshrc, after compinit"),
        ("afpool completion fish > ~/.config/fish/completions/afpool.fish", ""),
    ),
    "_completion",
)

AFPOOL: Final = Command(
    "afpool",
    "the tool runtime of a multi-tenant agent",
    below=(
        *(SERVE, DEMO, DOCTOR, TOOLS, CALL, TOKEN, CONFIG, VERSION, COMPLETION),
        *RUNNING,
    ),
)
