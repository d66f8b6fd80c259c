"""From words to a command: what is asked for, what is a slip, what an error may say."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import pytest

from afpool.cli._commands import AFPOOL, EVERYWHERE
from afpool.cli._failures import Usage
from afpool.cli._help import render
from afpool.cli._parsing import parse
from tests.cli.cli_kit import document, run

SECRET = "canary-5f3a-of-the-command-line"


def every(command=AFPOOL, way=()):
    yield (*way, command)
    for below in command.below:
        yield from every(below, (*way, command))


@pytest.mark.parametrize("way", list(every()), ids=lambda way: " ".join(each.name for each in way))
def test_each_command_has_help_that_names_all_it_takes(way):
    words = [command.name for command in way[1:]]
    assert parse([*words, "--help"]).wants == "help"
    text = render(way, 80)
    for option in way[-1].options:
        assert all(name in text for name in option.names)
    for below in way[-1].below:
        assert below.name in text
    assert all(
        len(line) <= 80 for line in text.splitlines() if not line.lstrip().startswith(("afpool ", "echo"))
    )
    for line, _ in way[-1].examples:
        assert line in text


def test_each_example_of_the_help_is_understood():
    import shlex

    for way in every():
        for line, _ in way[-1].examples:
            words = shlex.split(line.partition("|")[2] or line.partition("<(")[2].rstrip(")") or line)
            words = words[words.index("afpool") + 1 :]
            words = words[: words.index(">")] if ">" in words else words
            assert parse(words).way == way, line


@pytest.mark.parametrize(
    "words",
    ["call desk echo {} --tenant acme", "call desk --tenant acme echo {}", "call --tenant acme desk echo {}",
     "--json call desk echo --tenant=acme {}", "call desk echo --json {} --tenant acme"],
)  # fmt: skip
def test_options_may_stand_anywhere(words):
    options = parse(words.split()).options
    assert (options.server, options.tool, options.arguments, options.tenant) == ("desk", "echo", "{}", "acme")
    assert options.json == ("--json" in words)


def test_what_may_be_repeated_is_kept_in_order():
    options = parse(["tools", "--mcp-config", "a", "--mcp-config=b", "x", "y"]).options
    assert options.mcp_config == ["a", "b"]
    assert options.server == ["x", "y"]
    assert parse(["tools"]).options.server == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["tokn"], "did you mean 'token'"),
        (["token", "lst"], "did you mean 'list'"),
        (["tools", "--tenat", "acme"], "did you mean '--tenant'"),
        (["--jsn", "tools"], "did you mean '--json'"),
        (["call", "desk"], "TOOL is missing"),
        (["token", "new", "--tenant", "a"], "NAME is missing"),
        (["tools", "--color", "blue"], "--color is one of auto, always, never"),
        (["completion", "tcsh"], "SHELL is one of bash, zsh, fish"),
        (["tools", "--tenant"], "--tenant needs a value"),
        (["serve", "--demo=yes"], "--demo takes no value"),
        (["version", "now"], "takes fewer arguments"),
        (["tools", "--set", "x"], None),
    ],
)
def test_a_slip_is_told_with_what_was_probably_meant(words, says):
    if says is None:
        parse(words)
        return
    with pytest.raises(Usage, match=says):
        parse(words)


@hypothesis.given(
    before=st.lists(
        st.sampled_from([*(each.name for each in AFPOOL.below), "new", "--json", "--tenant", "--set"])
    ),
    form=st.sampled_from(["{}", "--{}", "--token={}", "--tenant={}", "--color={}", "-{}", "--demo={}"]),
)
def test_no_error_repeats_what_was_given(before, form):
    said = ""
    try:
        parse([*before, form.format(SECRET)])
    except Usage as usage:
        said = usage.what + usage.hint
    assert SECRET not in said


@pytest.mark.parametrize(
    "words", [[SECRET], ["tools", f"--{SECRET}"], ["version", SECRET], ["token", SECRET]]
)
def test_a_word_in_the_wrong_place_is_not_repeated(words):
    with pytest.raises(Usage) as caught:
        parse(words)
    assert SECRET not in caught.value.what + caught.value.hint


def test_without_a_command_there_is_help_and_exit_2(tmp_path):
    for words in ([], ["token"]):
        done = run(tmp_path, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "commands:" in done.stderr


def test_help_is_data_and_may_be_asked_for_in_three_ways(tmp_path):
    ways = [("--help",), ("help",), ("tools", "--help"), ("help", "tools"), ("tools", "-h")]
    texts = []
    for words in ways:
        done = run(tmp_path, *words)
        assert (done.returncode, done.stderr) == (0, "")
        texts.append(done.stdout)
    assert texts[0] == texts[1]
    assert texts[2] == texts[3] == texts[4]


def test_an_error_is_one_line_and_a_document_with_json(tmp_path):
    done = run(tmp_path, "tools", "--tenat", "acme")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "error: afpool tools has no such option; did you mean '--tenant'?", "try: afpool tools --help",
    ]  # fmt: skip
    told = document(run(tmp_path, "tools", "--tenat", "acme", "--json"))
    assert told["error"]["code"] == "usage"


def test_every_option_of_everywhere_is_known_before_the_command():
    for option in EVERYWHERE:
        if option.names[0] != "--help":
            words = [option.names[0], *([option.choices[0]] if option.takes else [])]
            assert parse([*words, "version"]).command.name == "version"
