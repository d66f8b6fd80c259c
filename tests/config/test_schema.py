"""The schema that is shipped is the reader's own, and both say the same of every file."""

from __future__ import annotations

import copy
import datetime as dt
import json
import tomllib
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jsonschema_rs
import pytest

from afpool.config import ConfigError, config_schema, load_config
from afpool.config._document import Document
from afpool.config._place import Place, Reading, Source
from afpool.config._schema import FILE, rendered
from afpool.config._tables import fields_of, read_fields
from tests.config.config_kit import ENV, FULL
from tests.config.test_reading import WRONG

VALIDATOR = jsonschema_rs.validator_for(config_schema())
DOCUMENT = tomllib.loads(FULL)
# another client's file is as it is: the schema says nothing of it
OURS = {key: value for key, value in DOCUMENT.items() if key != "mcpServers"}


def structural(document: Any, folder) -> list[str]:
    """What the reader finds wrong with the shape of a document."""
    reading = Reading(dict(ENV))
    place = Place(reading, Source("f", folder, folder), (), "")
    read_fields(fields_of(Document), document, place)
    return [str(problem) for problem in reading.problems if problem.structural]


def test_the_file_is_the_schema() -> None:
    assert FILE.read_text(encoding="utf-8") == rendered(), "python -m afpool.config._schema writes it"
    jsonschema_rs.meta.validate(config_schema())


def test_every_setting_is_described() -> None:
    schema = config_schema()
    for name, table in {"": schema, **schema["$defs"]}.items():
        for key, said in table["properties"].items():
            assert said["description"].endswith("."), (name, key)
        assert table["additionalProperties"] is False


def test_both_take_the_file_that_says_everything(tmp_path) -> None:
    assert VALIDATOR.is_valid(DOCUMENT), VALIDATOR.evaluate(DOCUMENT).errors()
    assert structural(DOCUMENT, tmp_path) == []


@pytest.mark.parametrize(("text", "said"), WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_both_refuse_the_same_shapes(tmp_path, text, said) -> None:
    document = json.loads(json.dumps(tomllib.loads(text.replace("'a\\u0000'", '"a\\u0000"')), default=str))
    told = structural(document, tmp_path)
    assert VALIDATOR.is_valid(document) == (told == []), (told, said)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += _paths(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += _paths(inner, (*path, index))
    return found


PATHS = _paths(OURS)
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.integers(2**53 - 2, 2**53 + 2), st.just(1.0),
    st.just(0.5), st.just(-1e300),
    st.sampled_from([[], {}, [""], {"": 1}, ["a", 1], {"name": "x"}, {"type": "oauth"}]),
    st.sampled_from([
        "", "x", "${TOKEN}", "$${", "90s", "90 s", "1MiB", "00s", "redis", "sqlite", "http", "stdio", "oauth",
        "https://a.example", "/a", "a\n", "\n", "a\nb", "tenant", "1e3", "null", "é", " ", "unix:/x", "h:1",
    ]),
)  # fmt: skip


@st.composite
def changed(draw: st.DrawFn) -> Any:
    """The whole document with up to three changes anywhere in it."""
    document = copy.deepcopy(OURS)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(PATHS))
        holder: Any = document
        try:
            for step in path[:-1]:
                holder = holder[step]
            how = draw(st.sampled_from(["set", "set", "drop", "add", "move"]))
            if how == "drop":
                del holder[path[-1]]
            elif how == "add":
                holder[path[-1]][draw(st.sampled_from(["x", "url", "path", "type", "command", "token"]))] = (
                    draw(ODD)
                )
            elif how == "move":
                holder[draw(st.sampled_from(["x", "url", "header", "proxy", "args"]))] = holder.pop(path[-1])
            else:
                holder[path[-1]] = draw(ODD)
        except (KeyError, IndexError, TypeError, AttributeError):
            continue  # an earlier change has taken the place away
    return document


@hypothesis.given(document=changed())
@hypothesis.settings(max_examples=600, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_both_agree_on_every_change(document, tmp_path) -> None:
    told = structural(document, tmp_path)
    assert VALIDATOR.is_valid(document) == (told == []), told or [
        str(error) for error in VALIDATOR.iter_errors(document)
    ]


def test_dates_are_no_values(tmp_path) -> None:
    assert structural({"serve": {"drain": dt.date(2026, 1, 1)}}, tmp_path) != []


def test_what_the_schema_takes_may_still_be_refused(tmp_path) -> None:
    file = tmp_path / "afpool.toml"
    file.write_text("[servers.x]\nurl = 'http://me:pw@a'\n", encoding="utf-8")
    assert VALIDATOR.is_valid(tomllib.loads(file.read_text(encoding="utf-8")))
    with pytest.raises(ConfigError):
        load_config(file, env={})
