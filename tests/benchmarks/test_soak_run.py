"""The soak runs, in its short form, finds nothing, and finds each fault that is planted for it."""

from __future__ import annotations

import random
import re
from collections import Counter

import attrs
import pytest
import trio

from afpool import Identity
from tests.benchmarks.test_benchmarks_run import load, run

soak = load("soak")
soak_books = load("soak_books")
soak_plant = load("soak_plant")
soak_quiet = load("soak_quiet")
soak_world = load("soak_world")

ALICE = Identity(tenant="t1", principal="p1", conversation_id="c1")
BOB = Identity(tenant="t2", principal="p1", conversation_id="c1")


def test_a_short_soak_is_clean():
    printed = run("soak.py", "--seconds", "6", "--every", "3", "--seed", "1")
    assert "0 violations" in printed
    assert re.search(r"^[1-9][0-9,]* calls, [1-9][0-9,]* arrivals, [1-9][0-9,]* runs", printed, re.MULTILINE)
    assert int(re.search(r"([0-9]+) quiet moments", printed)[1]) >= 2
    for row in ("descriptors", "tasks", "threads", "children", "objects", "megabytes"):
        assert re.search(rf"^{row} +[0-9]", printed, re.MULTILINE)


@pytest.mark.timeout(300)
def test_what_is_planted_is_found():
    asked = ("--seconds", "6", "--every", "3", "--plant", "all", "--settles", "2")
    printed = run("soak.py", *asked, code=1, timeout=280)
    found = [line.partition(" ")[2].strip() for line in printed.splitlines() if line.startswith("VIOLATION")]
    for word in (
        "with a credential of",
        "a session of .* carried credentials of",
        "descriptors: ",
        "in flight, and .* known to be inside",
        "places at a quiet moment: 1 in flight",
        "tasks: ",
        "threads: ",
        "children: ",
        "objects: ",
        "ran 2 times",
        "told `not-sent`",
        "its use says answered",
        "the answer was another one's",
    ):
        assert any(re.search(word, line) for line in found), (word, printed)
    assert re.search(r"^seed [0-9]+", printed)
    assert "planted credential" in printed.partition("the last events:")[2]
    assert "was not found" not in printed


# ---------------------------------------------------------------------------- the books, line by line


@pytest.fixture
def world(tmp_path):
    return soak_world.World.make(tmp_path, random.Random(1))


@pytest.fixture
def books(world):
    return soak_books.Books(world, lambda: 0.0)


class Use:
    repeated_of = None

    def __init__(self, call_id, delivery, attempts=1):
        self.call_id, self.delivery, self.attempts = str(call_id), delivery, attempts


class Log:
    """What a server would have written."""

    def __init__(self, world, books, server="files"):
        self.world, self.books, self.server = world, books, server
        self.path = world.folder / "log"

    def say(self, **entry):
        with self.path.open("a") as file:
            file.write(soak_books.json.dumps(entry) + "\n")
        self.books.read([(self.server, self.path)])

    def came(self, asked, *, who=None, credential=None, session="s", connection=1, pid=7, **more):
        whose = soak_world.owner(self.server, asked.who)
        self.say(
            pid=pid, came="tools/call", session=session, connection=connection,
            credential=f"Bearer {credential or self.world.vault.spell(whose)}",
            n=asked.number, who=who or soak_world.spelled(asked.who), **more,
        )  # fmt: skip

    def ran(self, asked):
        self.say(run=asked.number, who=soak_world.spelled(asked.who))


@pytest.fixture
def log(world, books):
    return Log(world, books)


def ended(books, asked, heard="ok", delivery="answered", text=None):
    books.end(asked, heard, delivery, text)
    books.use(Use(asked.number, delivery))


def test_a_call_that_is_as_it_should_be(books, log):
    asked = books.ask(ALICE, "files", "quick")
    log.came(asked)
    log.ran(asked)
    ended(books, asked, text="call 1 of t1/p1/c1")
    assert books.judge() == 1
    assert books.violations == []
    assert books.open == 0


def break_ran_twice(books, log):
    asked = books.ask(ALICE, "files", "quick")
    log.came(asked)
    log.ran(asked)
    log.ran(asked)
    ended(books, asked)


def break_ran_twice_later(books, log):
    asked = books.ask(ALICE, "files", "quick")
    log.came(asked)
    log.ran(asked)
    ended(books, asked)
    books.judge()
    log.ran(asked)


def break_ran_although_not_sent(books, log):
    asked = books.ask(ALICE, "files", "quick")
    ended(books, asked, "connection-lost", "not-sent")
    books.judge()
    log.ran(asked)


def break_ran_although_refused(books, log):
    asked = books.ask(ALICE, "files", "429")
    log.came(asked)
    log.ran(asked)
    log.say(refused=asked.number)
    ended(books, asked, "server-refused", "refused")


def break_came_although_not_sent(books, log):
    asked = books.ask(ALICE, "files", "quick")
    log.came(asked)
    ended(books, asked, "connection-lost", "not-sent")


def break_refused_and_never_came(books, log):
    del log
    ended(books, books.ask(ALICE, "files", "quick"), "server-refused", "refused")


def break_answered_and_never_ran(books, log):
    asked = books.ask(ALICE, "files", "quick")
    log.came(asked)
    ended(books, asked)


def break_another_answer(books, log):
    asked = books.ask(ALICE, "files", "quick")
    log.came(asked)
    log.ran(asked)
    ended(books, asked, text="call 2 of t1/p1/c1")


def break_no_verdict(books, log):
    del log
    ended(books, books.ask(ALICE, "files", "quick"), "connection-lost", None)


def break_no_use(books, log):
    del log
    books.end(books.ask(ALICE, "files", "quick"), "connection-lost", "not-sent")


def break_another_use(books, log):
    del log
    asked = books.ask(ALICE, "files", "quick")
    books.end(asked, "connection-lost", "not-sent")
    books.use(Use(asked.number, "in-doubt"))


def break_never_came_back(books, log):
    del log
    books.ask(ALICE, "files", "quick")


def break_left_and_used_otherwise(books, log):
    asked = books.ask(ALICE, "files", "quick")
    log.came(asked)
    log.ran(asked)
    books.end(asked, "left", None)
    books.use(Use(asked.number, "not-sent"))


def break_credential_of_another(books, log):
    asked = books.ask(ALICE, "files", "quick")
    log.came(asked, credential=log.world.vault.spell(soak_world.owner("files", BOB)))


def break_credential_for_another_server(books, log):
    asked = books.ask(ALICE, "files", "quick")
    log.came(asked, credential=log.world.vault.spell(soak_world.owner("feed", ALICE)))


def break_credential_made_up(books, log):
    log.came(books.ask(ALICE, "files", "quick"), credential="files|t1|p1|0|aaaaaaaaaaaa")


def break_old_credential(books, log):
    whose = soak_world.owner("files", ALICE)
    log.world.vault.rotate(whose)
    log.came(books.ask(ALICE, "files", "quick"), credential=log.world.vault.spell(whose, 0))


def break_said_to_be_another(books, log):
    log.came(books.ask(ALICE, "files", "quick"), who=soak_world.spelled(BOB))


def break_another_server(books, log):
    log.server = "feed"
    log.came(books.ask(ALICE, "files", "quick"))


def break_session_of_two(books, log):
    log.came(books.ask(ALICE, "files", "quick"), connection=1)
    log.came(books.ask(BOB, "files", "quick"), connection=2)


def break_connection_of_two(books, log):
    log.came(books.ask(ALICE, "files", "quick"), session="s")
    log.came(books.ask(attrs.evolve(ALICE, conversation_id="c2"), "files", "quick"), session="t")


def break_nobody_s_call(books, log):
    log.say(run=99, who="-")
    del books


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (break_ran_twice, "ran 2 times"),
        (break_ran_twice_later, "ran 2 times"),
        (break_ran_although_not_sent, "told `not-sent`"),
        (break_ran_although_refused, "refused.*it ran"),
        (break_came_although_not_sent, "it came"),
        (break_refused_and_never_came, "it never came"),
        (break_answered_and_never_ran, "did not run once"),
        (break_another_answer, "another one's"),
        (break_no_verdict, "no verdict"),
        (break_no_use, "no use of it was filed"),
        (break_another_use, "its use says in-doubt"),
        (break_never_came_back, "has not come back"),
        (break_left_and_used_otherwise, "it ran"),
        (break_credential_of_another, "with a credential of"),
        (break_credential_for_another_server, "credential for feed"),
        (break_credential_made_up, "ever vended"),
        (break_old_credential, "was there before it began"),
        (break_said_to_be_another, "came as"),
        (break_another_server, "came as"),
        (break_session_of_two, "a session of files carried"),
        (break_connection_of_two, "a connection of files carried callers"),
        (break_nobody_s_call, "nobody made"),
    ],
    ids=lambda each: getattr(each, "__name__", "").removeprefix("break_"),
)
def test_each_rule_of_the_books_is_seen_to_fail(books, log, broken, said):
    broken(books, log)
    books.judge()
    assert any(re.search(said, text) for text in books.violations), books.violations
    assert "VIOLATION" in "\n".join(books.report())


def test_a_refused_attempt_may_come_before_nothing_was_sent(books, log):
    asked = books.ask(ALICE, "files", "429")
    log.came(asked)
    log.say(refused=asked.number)
    ended(books, asked, "deadline-exceeded", "not-sent")
    books.judge()
    assert books.violations == []


# ---------------------------------------------------------------------------- what is held


async def test_what_is_held_is_compared_with_its_bounds():
    held = soak_quiet.Held.now()
    bounds = soak_quiet.Bounds()
    assert held.above(held, bounds) == []
    for field in attrs.fields(soak_quiet.Held):
        allowed = getattr(bounds, field.name)
        before = getattr(held, field.name)
        if isinstance(before, Counter):
            more = before + Counter({"planted": allowed + 1})
        else:
            more = (0 if field.name == "workers" else before) + allowed + 1
        found = attrs.evolve(held, **{field.name: more}).above(held, bounds)
        assert [line.partition(":")[0] for line in found] == [field.name]


@pytest.mark.parametrize("field", ["descriptors", "tasks", "threads", "children"])
async def test_what_has_ended_since_makes_no_room_for_what_leaks(field):
    held = soak_quiet.Held.now()
    first = attrs.evolve(held, **{field: Counter({"stays": 2, "ended since": 3})})
    now = attrs.evolve(held, **{field: Counter({"stays": 2, "leaks": 1})})
    assert now.above(first, soak_quiet.Bounds()) == [f"{field}: 3, before 5; more than before: 1 leaks"]
    assert attrs.evolve(held, **{field: Counter({"stays": 2})}).above(first, soak_quiet.Bounds()) == []


async def test_what_is_planted_is_looked_for_until_it_was_found(world, books):
    run_of = soak.Soak(1, 6.0, 3.0, ("verdict", "memory"))
    plants = soak_plant.Plants(world, books, None)
    assert plants.missing() == []
    assert not run_of._planted(plants, books)  # planted, and not looked for yet
    grown = len(plants._kept)
    assert not run_of._planted(plants, books)
    assert len(plants._kept) == grown + 1  # what leaks goes on
    books.broken("call 1 ran at files, and its caller was told `not-sent`")
    books.broken("at a quiet moment: objects: 2, before 1, at most 0 more")
    assert plants.missing() == ["verdict: its use says answered"]
    assert not run_of._planted(plants, books)
    books.broken("call 1 (quick at files): its use says answered")
    assert run_of._planted(plants, books)
    assert not [text for text in books.violations if "was not found" in text]


async def test_what_was_planted_and_not_found_is_a_violation(world, books):
    run_of = soak.Soak(1, 6.0, 3.0, ("task",))
    plants = soak_plant.Plants(world, books, None)
    plants.planted.append("task")  # not really
    assert run_of._planted(plants, books)
    assert [text.partition(" s: ")[2] for text in books.violations] == ["task: tasks: "]


async def test_tasks_are_told_by_name():
    async with trio.open_nursery() as nursery:
        before = soak_quiet.tasks_by_name()
        nursery.start_soon(trio.sleep_forever, name="one more")
        await trio.testing.wait_all_tasks_blocked()
        assert soak_quiet.tasks_by_name() - before == Counter({"one more": 1})
        nursery.cancel_scope.cancel()
