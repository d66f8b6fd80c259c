"""Every promise is held by tests that exist, or says why not; what is missing is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from afpool.artifacts.testing import CASES
from tests.node_ids import missing
from tests.seeds import promises, run
from tests.seeds.promises import ListError

if TYPE_CHECKING:
    from pathlib import Path

SAID = {"bound_tool", "host_filled", "shown_args", "wants"}
TESTED = {
    "tested_artifacts", "tested_client", "tested_identity", "tested_redaction", "tested_stores",
    "tested_wants",
}  # fmt: skip
ONE = '[[promise]]\nnumber = 1\ntext = "That."\n'
HELD = 'held_by = ["tests/seeds/test_promises.py::test_every_document_is_there"]\n'


def test_every_document_is_there() -> None:
    documents = promises.read()
    assert {document.name for document in documents if document.part == "said"} == SAID
    assert {document.name for document in documents if document.part == "tested"} == TESTED


def test_every_case_of_the_suite_for_stores_is_promised_for_each_store() -> None:
    held = set(promises.named(promises.read()))
    prefix = "tests/artifacts/test_artifact_conformance.py::test_a_store_does_what_the_port_says"
    wanted = {f"{prefix}[{store}-{case.name}]" for store in ("memory", "sqlite", "redis") for case in CASES}
    # what the suite looks at beyond the promises
    beyond = {
        "lists-by-kind",
        "many-at-once",
        "verbs-are-checkpoints",
        "limits-hold-at-once",
        "deleting-makes-room",
    }
    left = {name for name in wanted - held if name.partition("-")[2].removesuffix("]") not in beyond}
    assert left == set()


def test_every_test_that_is_named_exists() -> None:
    assert missing(promises.named(promises.read())) == []


def test_the_page_is_what_the_lists_say() -> None:
    assert promises.PAGE.read_text(encoding="utf-8") == promises.build(promises.read())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "numbered from 1"),
        (ONE + HELD, "no title"),
        ('title = "T"\n' + ONE, "either tests hold it"),
        ('title = "T"\n' + ONE + HELD + 'not_held = "because"\n', "either tests hold it"),
        ('title = "T"\n' + ONE + 'not_held = " "\n', "the reason says nothing"),
        ('title = "T"\n' + ONE + 'held_by = ["test_x"]\n', "not the id of a test"),
        ('title = "T"\n' + ONE + HELD.replace("]", ", " + HELD[11:], 1), "named twice"),
        ('title = "T"\n' + ONE.replace("1", "2") + HELD, r"there are \[2\]"),
        ('title = "T"\n' + ONE.replace("That.", " ") + HELD, "number, text"),
        ('title = "T"\n' + ONE + HELD + "held = true\n", "number, text"),
        ('title = "T"\n' + ONE + HELD + 'differs = " "\n', "the reason says nothing"),
        ('title = "T"\n' + ONE + 'not_held = "x"\ndiffers = "y"\n', "held by tests as well"),
        ('title = "T"\npart = "dreamt"\n' + ONE + HELD, "title, part"),
        ('title = "T"\nparts = "said"\n' + ONE + HELD, "title, part"),
    ],
)
def test_a_list_that_is_none_is_found(content: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "list.toml"
    path.write_text(content)
    with pytest.raises(ListError, match=says):
        promises.read_document(path)


def test_what_is_otherwise_here_says_how_beside_its_tests(tmp_path: Path) -> None:
    content = 'title = "T"\npart = "tested"\n' + ONE + HELD + 'differs = "It is this. "\n'
    (tmp_path / "list.toml").write_text(content)
    page = promises.build(promises.read(tmp_path))
    assert "| 1 | That. | **otherwise here:** It is this.<br>`tests/seeds/test_promises.py`: `test_" in page
    assert "## What was tested" in page
    assert "## What was said" not in page


def test_a_folder_without_lists_is_found(tmp_path: Path) -> None:
    with pytest.raises(ListError, match="no list of promises"):
        promises.read(tmp_path)


class Report:
    def __init__(self, nodeid: str, when: str, outcome: str) -> None:
        self.nodeid, self.when = nodeid, when
        self.passed, self.failed, self.skipped = (outcome == word for word in ("passed", "failed", "skipped"))


@pytest.mark.parametrize(
    ("reports", "says"),
    [
        ([], "did not run"),
        ([("t.py::a", "setup", "passed"), ("t.py::a", "call", "passed")], None),
        ([("t.py::a[1]", "call", "passed"), ("t.py::a[2]", "call", "passed")], None),
        ([("t.py::a[1]", "call", "passed"), ("t.py::a[2]", "call", "failed")], "failed"),
        ([("t.py::a", "setup", "passed"), ("t.py::a", "call", "skipped")], "was left out"),
        ([("t.py::a[1]", "call", "passed"), ("t.py::a[2]", "setup", "skipped")], "was left out"),
        ([("t.py::a", "call", "passed"), ("t.py::a", "teardown", "failed")], "failed"),
        ([("t.py::a", "setup", "passed")], "did not run"),
        ([("t.py::ab", "call", "passed")], "did not run"),
    ],
)
def test_what_became_of_a_test(reports: list[tuple[str, str, str]], says: str | None) -> None:
    outcomes = run.Outcomes()
    for report in reports:
        outcomes.pytest_runtest_logreport(Report(*report))
    assert outcomes.of("t.py::a") == says


@pytest.fixture
def lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Use lists of our own; gives a function that writes one."""
    read = promises.read
    monkeypatch.setattr(promises, "PAGE", promises.ROOT / "docs" / "no-such-page.md")
    monkeypatch.setattr(promises, "read", lambda: read(tmp_path))

    def write(content: str) -> None:
        (tmp_path / "list.toml").write_text('title = "T"\n' + content)

    return write


def test_a_test_that_is_gone_is_told(lists: Any, capsys: pytest.CaptureFixture[str]) -> None:
    lists(ONE + HELD.replace("is_there", "is_gone"))
    assert run.main(["--check", "--only", "list"]) == 1
    assert "NOT HELD 1" in capsys.readouterr().out
    lists(ONE + HELD)
    assert run.main(["--check", "--only", "list"]) == 0


def test_a_page_that_is_not_up_to_date_is_told(lists: Any, capsys: pytest.CaptureFixture[str]) -> None:
    lists(ONE + HELD)
    assert run.main(["--check"]) == 1
    assert "make seeds" in capsys.readouterr().out


def test_a_list_that_cannot_be_read_ends_it(lists: Any, capsys: pytest.CaptureFixture[str]) -> None:
    lists(ONE)
    assert run.main([]) == 2
    assert "either tests hold it" in capsys.readouterr().out
    lists(ONE + 'not_held = "because"\n')
    assert run.main([]) == 2
