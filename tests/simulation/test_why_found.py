"""What explanations said that was not so, each kind once: with what they say since."""

from __future__ import annotations

from typing import Any

import attrs

from tests.simulation import steps as s
from tests.simulation.checks_why import check_why
from tests.simulation.driver import Run
from tests.simulation.ground import PlanTold
from tests.simulation.ground_why import Explained
from tests.simulation.kernel import run_world
from tests.simulation.oracle import judge
from tests.simulation.test_oracle_broken import call, listed, sleeping, story
from tests.simulation.world import Manners, ServerSpec, ToolSpec, Way, Weather


def explained(told: s.Story, name: str = "c1", when: str = "over") -> Any:
    """What the record says of a call, in a run that breaks no rule."""
    run = Run(told)
    with run.crashes, run.logs:
        run_world(run.main, told.seed)
    assert (run.failures, [str(each) for each in judge(run.ground.facts, run.law())]) == ([], [])
    found = [fact for fact in run.ground.facts if isinstance(fact, Explained)]
    return next(fact for fact in found if (fact.call, fact.when) == (name, when)).told


def texts(told: Any) -> str:
    return "\n".join(clause["text"] for clause in told["clauses"])


def test_a_call_stays_in_doubt_whatever_became_of_its_repeat() -> None:
    told = explained(
        story(
            listed(), s.DropNext(at=1, server="files", executed=True), call(1, 1),
            s.Invalidate(at=1.05, who="alice"), server={"repeat": "recognised"},
        )
    )  # fmt: skip
    assert (told["use"]["code"], told["use"]["delivery"]) == ("connection-lost", "in-doubt")
    assert told["use"]["took"] > 0.05
    assert "in doubt" in told["headline"]
    assert "a repeat of it ended with `binding-changed`" in told["headline"]
    assert "think first" in texts(told)


def test_a_result_that_was_kept_back_is_no_answer() -> None:
    told = explained(_structured())
    assert (told["use"]["outcome"], told["use"]["code"]) == ("failed", "invalid-output")
    assert told["use"]["delivery"] == "answered"


def _structured() -> s.Story:
    made = story(
        listed(), call(1, 1, tool="structured", args={"bad": True}), server={"validate_output": True}
    )
    (server,) = made.world.servers
    tools = (*server.tools, ToolSpec(name="structured", kind="structured"))
    return attrs.evolve(made, world=attrs.evolve(made.world, servers=(attrs.evolve(server, tools=tools),)))


def test_what_is_refused_before_its_first_step_is_on_the_record() -> None:
    manners = Manners(resources=("doc://a", "doc://b"))
    told = explained(
        story(
            s.Subscribe(at=1, id="s1", who="alice", server="files", uri="doc://a", close_after=9),
            s.Subscribe(at=2, id="s2", who="alice", server="files", uri="doc://b", close_after=1),
            limits={"max_subscriptions": 1}, server={"manners": manners},
        ),
        "s2",
    )  # fmt: skip
    assert told["use"]["method"] == "resources/subscribe"
    assert "`max_subscriptions`" in told["headline"]


def test_nobody_waits_for_an_answer_to_what_was_not_sent() -> None:
    told = explained(
        story(
            listed(), s.StatusNext(at=1.5, server="files", status=401), call(2, 1),
            s.Invalidate(at=2.2, who="alice"),
            server={"way": Way(credential="user")}, weather=Weather(latency=0.2),
        )
    )  # fmt: skip
    assert told["use"]["code"] == "binding-changed"
    stages = [(each["facts"].get("attempt"), each["facts"].get("stage")) for each in told["clauses"]]
    assert (1, "server") in stages
    assert (2, "server") not in stages


def test_what_ended_the_client_of_a_list_is_named() -> None:
    told = explained(
        story(
            listed(), s.ChangeTools(at=1, server="files", how="none"), call(2, 1),
            s.KillKey(at=2.1, who="alice", server="files"), weather=Weather(latency=0.2),
        )
    )  # fmt: skip
    assert told["use"]["code"] in {"client-closed", "session-handle-lost"}
    assert told["use"]["happened"]["kind"] == "killed"


def test_another_call_that_was_withdrawn_is_told_by_its_id() -> None:
    told = explained(
        story(
            listed(), sleeping(1, 2, 5), s.DelayNext(at=1.5, server="files", seconds=1.0),
            s.DropNext(at=1.5, server="files"), call(2, 1, deadline=1.0), s.CancelCall(at=2.2, call="c2"),
        )
    )  # fmt: skip
    assert "meanwhile the host withdrew call `c2`" in texts(told)


def test_what_befell_another_server_is_not_told() -> None:
    made = story(listed(), sleeping(1, 1, 5, deadline=1.0), s.HoldServer(at=1.5, server="wiki", seconds=0.2))
    wiki = ServerSpec(name="wiki")
    made = attrs.evolve(made, world=attrs.evolve(made.world, servers=(*made.world.servers, wiki)))
    assert "paused" not in texts(explained(made))


def test_a_list_with_tools_that_nobody_can_read_is_not_said_to_lack_one() -> None:
    told = explained(
        story(
            listed(), s.ChangeTools(at=1, server="files", how="strange"), s.Refresh(at=2, who="alice"),
            call(4, 1, binding="first"),
        )
    )  # fmt: skip
    assert "the list holds no `echo` that can be read" in told["headline"]


def test_who_waits_for_an_opening_waits_for_no_place() -> None:
    told = explained(
        story(
            listed(), sleeping(1, 2, 9), s.KillKey(at=1.5, who="alice", server="files"),
            s.RefuseConnections(at=1.5, server="files", how="hang", seconds=9), call(1.6, 1, deadline=1.0),
        )
    )  # fmt: skip
    assert "held by" not in told["headline"]


def _unseen() -> s.Story:
    """A client that is opened without a word, and ends before its first one: no link was ever made for it."""
    return story(
        s.Subscribe(at=0.0, id="s1", who="alice", server="files", uri="doc://b"),
        s.Invalidate(at=0.2, server="files"),
        server={"way": Way(version="2026-07-28")},
        signer="httpx-meddles",
    )


def test_a_client_that_nobody_saw_ends_as_any_other() -> None:
    told = explained(_unseen(), "s1")
    assert told["use"]["code"] == "binding-changed"
    assert "closed" in [clause["facts"].get("kind") for clause in told["clauses"]]


def test_a_key_without_a_plan_had_no_client_all_the_same() -> None:
    run = Run(_unseen())
    with run.crashes, run.logs:
        run_world(run.main, 1)
    facts = [fact for fact in run.ground.facts if not isinstance(fact, PlanTold)]
    found = {str(each) for each in check_why(facts, run.law())}
    assert any("it never had a client" in each for each in found)
