"""The stages of a call: from the marks that it filed to spans of time, and what each is called in words.

A mark is the end of its stage: a wait lasted from the mark before it. Marks of the door stand around those of
the pool, whose first one is `start`; `credential` is a stage of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import attrs

from ._explain_words import quoted

if TYPE_CHECKING:
    from .._base.use import Use

STAGES_TOLD: Final = 24
_FROM_POOL: Final = "start"
_ANSWERED: Final = frozenset({"server", "answered"})
_OF_THE_DOOR: Final = frozenset(
    {"listing", "hooks", "fill", "schema", "arguments", "wants", "run", "after", "limits"}
)


class Words(NamedTuple):
    """How a stage is told: `during` follows "while", `doing` stands by itself and says what took the time.

    Neither says how it ended: a wait for a credential may have given none.
    """

    during: str
    doing: str


POOL: Final[dict[str, Words]] = {
    "plan": Words("the app was being asked for the plan", "asking the app for the plan"),
    "list": Words("its tool list was being asked for again", "waiting for a fresh tool list"),
    "admission": Words("it waited for a place of its key", "waiting for a place of its key"),
    "runtime-admission": Words("it waited for a place of the runtime", "waiting for a place of the runtime"),
    "credential": Words("the credential was being fetched", "waiting for its credential"),
    "sign": Words("the request was being signed", "waiting for the signer"),
    "input": Words(
        "the server's questions were being answered", "waiting for answers to the server's questions"
    ),
    "retry": Words("it waited before another attempt", "waiting before another attempt"),
    "listen": Words("the notification stream was being opened", "opening the notification stream"),
    "connect": Words("a connection was being made", "connecting"),
    "write": Words("the request was being written", "writing"),
    "resume": Words("the rest of the answer was being asked for", "asking for the rest of the answer"),
    "server": Words("the server worked", "waiting for the server's answer"),
    "answered": Words("the server worked", "the server's answer came"),
}
DOOR: Final[dict[str, Words]] = {
    "listing": Words("tools were being listed to find its name", "listing tools to find its name"),
    "hooks": Words("hooks were being asked", "waiting for the host's hooks"),
    "schema": Words("the tool's schema was being compiled", "compiling the tool's schema"),
    "fill": Words("arguments were being filled by the host", "having arguments filled by the host"),
    "arguments": Words("its arguments were being checked", "having its arguments checked"),
    "wants": Words("artifacts were being redeemed", "waiting for artifacts"),
    "credential": Words("the tool's credential was being fetched", "waiting for the tool's credential"),
    "run": Words("the tool ran", "running"),
    "after": Words("hooks were being asked about the result", "waiting for hooks about the result"),
    "limits": Words("the result was being cut to its limits", "having the result held to its limits"),
}
CHECKS: Final[dict[str, Words]] = {
    "start": Words("it began", "the caller and what the tool was listed under were checked"),
    "leased": Words("it got its place", "got its place"),
    "granted": Words("it got its place", "the client that it got was looked at"),
    "adopted": Words("its client's list was compared", "its client's own list holds the same definition"),
    "attempt": Words("an attempt began", "an attempt began"),
    "renegotiation": Words("it moved to another client", "moved to another client of its key"),
    "woken": Words("it was woken", "was woken out of its wait"),
    "sent": Words("the first byte was leaving", "the first byte left"),
}


@attrs.frozen
class Stage:
    """One span of a call.

    Attributes:
        name: Its mark.
        began: Seconds since the call began, and `ended`.
        attempt: Which attempt it belongs to; 0 before the first.
        door: Whether it is the door's.
    """

    name: str
    began: float
    ended: float
    attempt: int
    door: bool

    @property
    def took(self) -> float:
        """Its duration, in seconds."""
        return self.ended - self.began

    @property
    def waits(self) -> bool:
        """Whether it is one in which something is waited for, and not a check that takes no time."""
        return self.name not in CHECKS

    @property
    def words(self) -> Words:
        """How it is told."""
        return words_of(self.name, door=self.door)


def words_of(name: str, *, door: bool) -> Words:
    """Give the words of a stage, also of one that is not known here."""
    known = (DOOR.get(name) if door else None) or POOL.get(name) or CHECKS.get(name) or DOOR.get(name)
    named = quoted(name)
    return known or Words(f"it was at {named}", f"at {named}")


def stages_of(use: Use) -> list[Stage]:
    """Read the marks of a call as spans, in order."""
    began, before, attempt, in_pool = use.began_at, 0.0, 0, False
    stages: list[Stage] = []
    answers = [float(at) - began for stage, _, at in use.facts or () if stage == "answer"]
    marks = iter(use.marks)
    for mark, at in zip(marks, marks, strict=False):
        name = str(mark)
        if name == _FROM_POOL:
            in_pool = True
        elif name in _OF_THE_DOOR:
            in_pool = False
        ended = float(at) - began
        if stages and stages[-1].name == "sent" and name not in _ANSWERED:
            # an answer came that another attempt, a question or the end followed
            came = next((each for each in answers if before <= each <= ended), None)
            if came is not None:
                stages.append(Stage("server", before, came, attempt, door=False))
                before = came
        if name == "attempt":
            attempt += 1
        door = not in_pool and name not in CHECKS
        if stages and stages[-1].name == name and stages[-1].attempt == attempt:
            stages[-1] = attrs.evolve(stages[-1], ended=ended)  # one wait, checked twice
        else:
            stages.append(Stage(name, before, ended, attempt, door))
        before = ended
    return stages


def waiting_now(use: Use) -> tuple[str, float, bool] | None:
    """Say what a running call waits for: the stage, since when on the clock, whether it is the door's."""
    if use.waits_for is None:
        return None
    stages = stages_of(use)
    since = use.began_at + stages[-1].ended if stages else use.began_at
    door = not any(stage.name == _FROM_POOL for stage in stages) or (bool(stages) and stages[-1].door)
    return use.waits_for, since, door and use.waits_for in DOOR


def shares_of(stages: list[Stage], whole: float, now: str | None = None) -> list[tuple[str, float]]:
    """Add up where the time went: (stage, seconds), the longest first.

    What the server took is `server`, from the first byte to its answer; the way to the first byte `write`.

    Args:
        stages: Of the call.
        whole: What it took.
        now: What it waits for, where it runs still.
    """
    spent: dict[str, float] = {}
    for stage in stages:
        name = {"answered": "server", "sent": "write"}.get(stage.name, stage.name)
        if stage.took > 0:
            spent[name] = spent.get(name, 0.0) + stage.took
    rest = whole - (stages[-1].ended if stages else 0.0)
    if rest > 0:
        name = "end" if now is None else now
        spent[name] = spent.get(name, 0.0) + rest
    return sorted(spent.items(), key=lambda pair: -pair[1])


def at_time(stages: list[Stage], at: float) -> Stage | None:
    """Give the wait that was under way at a time since the call began."""
    for stage in stages:
        if stage.waits and stage.began <= at <= stage.ended and stage.took > 0:
            return stage
    return None
