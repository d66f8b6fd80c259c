"""The completion scripts. What they offer is written by the tables of the commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ._spec import Command, Option


def _every(command: Command, way: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Command]]:
    """Give each command with the words that lead to it."""
    yield way, command
    for below in command.below:
        yield from _every(below, (*way, below.name))


ASKED: Final = {"server": "names", "process": "processes", "table": "tables"}
"""What is asked for while somebody types: the kind of a value, and the word after `afpool completion`."""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def bash(top: Command, everywhere: Sequence[Option]) -> str:
    """Give the script for bash, 4 or newer."""
    words, values, places = [], [], []
    for way, command in _every(top, (top.name,)):
        options = [*command.options, *everywhere] if not command.below or command is top else list(everywhere)
        named = [option for option in options if not option.positional]
        offered = [below.name for below in command.below]
        offered += [name for option in named for name in option.names]
        words.append(f"    [{_quoted(' '.join(way))}]={_quoted(' '.join(offered))}")
        for option in named:
            if option.takes:
                values += [
                    f"    [{_quoted(' '.join((*way, name)))}]={_quoted(_bash_value(option))}"
                    for name in option.names
                ]
        placed = [_bash_value(option) for option in options if option.positional]
        if placed:
            last = next(option for option in reversed(options) if option.positional)
            places.append(
                f"    [{_quoted(' '.join(way))}]={_quoted(' '.join([*placed, '*'] if last.many else placed))}"
            )
    return (
        _BASH.replace("@WORDS@", "\n".join(words))
        .replace("@VALUES@", "\n".join(values))
        .replace("@PLACES@", "\n".join(places))
    )


def _bash_value(option: Option) -> str:
    """What stands for a value: `:` and words, `file`, `?` and what is asked for, or `none`."""
    if option.choices:
        return ":" + ",".join(option.choices)
    if option.completes in ASKED:
        return "?" + ASKED[option.completes]
    return option.completes or "none"


_BASH: Final = r"""# bash completion of afpool; `source <(afpool completion bash)`
declare -gA _afpool_words=(
@WORDS@
)
declare -gA _afpool_values=(
@VALUES@
)
declare -gA _afpool_places=(
@PLACES@
)

_afpool_value() { # what is offered for a value of this kind
    local at=0
    [[ $current == @* ]] && at=1
    case $1 in
    :*) COMPREPLY=($(compgen -W "$(printf '%s' "${1#:}" | tr , ' ')" -- "$current")) ;;
    file)
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -P "${current:0:at}" -f -- "${current:at}"))
        ;;
    \?*) COMPREPLY=($(compgen -W "$("${words[0]}" completion "${1#?}" 2>/dev/null)" -- "$current")) ;;
    *) COMPREPLY=() ;;
    esac
}

_afpool() {
    local current=$2 way=afpool place=0 number word kind
    local -a words=("${COMP_WORDS[@]}") kinds
    COMPREPLY=()
    for ((number = 1; number < COMP_CWORD; number++)); do
        word=${words[number]}
        if [[ $word == -* && $word != - ]]; then
            if [[ -n ${_afpool_values[$way $word]} ]]; then
                [[ ${words[number + 1]} == '=' ]] && ((number++))
                ((number++))
            fi
        elif [[ $word == @ ]]; then # bash parts words there
            :
        elif [[ -n ${_afpool_words[$way $word]+x} ]]; then
            way="$way $word"
        else
            ((place++))
        fi
    done
    number=$((COMP_CWORD - 1))
    if [[ $current == '=' ]]; then
        current=
    elif [[ ${words[number]} == '=' ]]; then
        ((number--))
    fi
    kind=
    if ((number > 0)); then kind=${_afpool_values[$way ${words[number]}]}; fi
    if [[ -n $kind ]]; then
        _afpool_value "$kind"
        return
    fi
    if [[ $current != -* && -n ${_afpool_places[$way]} ]]; then
        read -ra kinds <<<"${_afpool_places[$way]}"
        kind=${kinds[place]:-none}
        if [[ $kind == '*' || ($kind == none && ${kinds[-1]} == '*') ]]; then kind=${kinds[-2]}; fi
        _afpool_value "$kind"
        return
    fi
    COMPREPLY=($(compgen -W "${_afpool_words[$way]}" -- "$current"))
}
complete -F _afpool afpool
"""


def zsh(top: Command, everywhere: Sequence[Option]) -> str:
    """Give the script for zsh."""
    functions = [_zsh_function(way, command, everywhere) for way, command in _every(top)]
    return (
        "#compdef afpool\n# zsh completion of afpool; `source <(afpool completion zsh)`, after compinit\n\n"
        "_afpool_asked() {\n"
        "    local -a names\n"
        '    names=(${(f)"$(afpool completion $1 2>/dev/null)"})\n'
        "    compadd -a names\n"
        "}\n\n" + "\n".join(functions) + "\ncompdef _afpool afpool\n"
    )


def _zsh_name(way: Sequence[str]) -> str:
    return "_".join(("_afpool", *way))


def _zsh_function(way: tuple[str, ...], command: Command, everywhere: Sequence[Option]) -> str:
    lines = [f"{_zsh_name(way)}() {{"]
    options = [_zsh_option(option) for option in (*command.options, *everywhere) if not option.positional]
    if command.below:
        listed = " ".join(_quoted(f"{below.name}:{_colons(below.help)}") for below in command.below)
        cases = "\n".join(
            f"            {below.name}) {_zsh_name((*way, below.name))} ;;" for below in command.below
        )
        lines += [
            "    local line state",
            "    local -a commands",
            f"    commands=({listed})",
            "    _arguments -C " + " ".join([*options, _quoted("1: :->command"), _quoted("*:: :->rest")]),
            "    case $state in",
            "    command) _describe -t commands command commands ;;",
            "    rest)",
            "        case $line[1] in",
            cases,
            "        esac",
            "        ;;",
            "    esac",
        ]
    else:
        placed = [option for option in command.options if option.positional]
        options += [
            _quoted(f"{'*' if option.many else number}:{option.names[0].lower()}:{_zsh_value(option)}")
            for number, option in enumerate(placed, 1)
        ]
        lines.append("    _arguments " + " ".join(options))
    return "\n".join([*lines, "}"]) + "\n"


def _zsh_option(option: Option) -> str:
    names = option.names[0] if len(option.names) == 1 else "{" + ",".join(option.names) + "}"
    many = "*" if option.many else ""
    if len(option.names) > 1 and not option.many:
        many = f"({' '.join(option.names)})"
    help_ = option.help.replace("[", "(").replace("]", ")")
    taking = f":{option.takes.lower()}:{_zsh_value(option)}" if option.takes else ""
    rest = _quoted(f"[{help_}]{taking}")
    return f"{_quoted(many) if many else ''}{names}{rest}"


def _zsh_value(option: Option) -> str:
    if option.choices:
        return f"({' '.join(option.choices)})"
    if option.completes in ASKED:
        return f"{{_afpool_asked {ASKED[option.completes]}}}"
    return "_files" if option.completes == "file" else ""


def _colons(text: str) -> str:
    return text.replace(":", "\\:")


def fish(top: Command, everywhere: Sequence[Option]) -> str:
    """Give the script for fish."""
    lines = ["# fish completion of afpool", "complete -c afpool -f"]
    for way, command in _every(top):
        here = _fish_here(way, command)
        lines += [
            f"complete -c afpool -n {_quoted(here)} -a {below.name} -d {_quoted(below.help)}"
            for below in command.below
        ]
        lines += [_fish_option(option, here) for option in command.options]
    lines += [_fish_option(option, "true") for option in everywhere]
    return "\n".join(lines) + "\n"


def _fish_here(way: tuple[str, ...], command: Command) -> str:
    if not way:
        return "__fish_use_subcommand"
    seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in way)
    if command.below:
        below = " ".join(each.name for each in command.below)
        seen += f"; and not __fish_seen_subcommand_from {below}"
    return seen


def _fish_option(option: Option, here: str) -> str:
    words = ["complete -c afpool -n", _quoted(here)]
    if option.positional:
        offered = "-F" if option.completes == "file" else _fish_asked(option)
        if option.choices:
            offered = f"-a {_quoted(' '.join(option.choices))}"
        return " ".join([*words, offered or "-f"])
    words += [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
    words.append(f"-d {_quoted(option.help)}")
    if option.takes:
        words.append("-r")
        if option.choices:
            words.append(f"-f -a {_quoted(' '.join(option.choices))}")
        elif option.completes == "file":
            words.append("-F")
        else:
            words.append(f"-f {_fish_asked(option)}".rstrip())
    return " ".join(words)


def _fish_asked(option: Option) -> str:
    asked = ASKED.get(option.completes)
    return f"-a '(afpool completion {asked} 2>/dev/null)'" if asked else ""
