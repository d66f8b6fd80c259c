"""C1 at the door: a refusal of the door has a cause; and what has a cause to be refused does not run.

As for the codes of a pool (`checks_causes.py`), for each code that speaks of something that the facts hold.
Of schemas both is asked: a call whose arguments the listed schema takes is not refused for them, and one
whose arguments it refuses does not run; of references likewise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import jsonschema_rs

from tests.simulation.checks_lists import Received
from tests.simulation.door_wide import UNCHECKED, takes, wrong_words
from tests.simulation.ground import Closing, Fact, Ran, Reconfigured, of
from tests.simulation.ground_door import (
    Asked,
    DoorChanged,
    HookSaid,
    LocalRan,
    Refilled,
    SchemaChanged,
    ShelfAsked,
    Shelved,
    Told,
    Unshelved,
    VaultSaid,
)
from tests.simulation.oracle_law import Law, Violation

if TYPE_CHECKING:
    from tests.simulation.world_door import LocalSpec

DENYING: Final = frozenset({"denies", "raises", "rubbish", "not-json"})
WITHHOLDING: Final = frozenset({"denies-after", "raises-after", "rubbish-after", "hangs-after"})
NO_CREDENTIAL: Final = frozenset({"raises", "rubbish", "anonymous", "refuses"})
SCHEMAS: Final[dict[str, Any]] = {}


@attrs.frozen
class Case:
    """One call that was refused, or failed.

    Attributes:
        asked: How it was made, and `told` how it came back.
        own: What it is a call of, of the host's own.
        around: What of the facts belongs to a call, by call.
        facts: Everything up to its end.
        law: Of the world.
    """

    asked: Asked
    told: Told
    own: LocalSpec | None
    around: Mapping[str, list[Fact]]
    facts: list[Fact]
    law: Law

    def any(self, kind: type[Fact], fits: Callable[[Any], bool] = lambda fact: True) -> bool:
        """Whether such a fact belongs to the call."""
        own = self.around.get(self.asked.call, ())
        return any(isinstance(fact, kind) and fits(fact) for fact in own)

    def ever(self, kind: type[Fact], fits: Callable[[Any], bool] = lambda fact: True) -> bool:
        """Whether such a fact has come about."""
        return any(fits(fact) for fact in of(self.facts, kind))


Cause: TypeAlias = Callable[[Case], bool]


def _unknown(case: Case) -> bool:
    """A name that is not certain to be a tool's, or a server that may list otherwise, or not at all."""
    asked = case.asked
    if not asked.intended or asked.server is not None:
        return True
    door = case.law.door
    if case.own is None or door is None or (case.own.kind == "takes" and not door.store):
        return True
    return case.ever(DoorChanged, lambda fact: fact.how == "fewer-tools")


def _denied(case: Case) -> bool:
    after = case.told.delivery == "answered"
    moods = WITHHOLDING if after else DENYING
    return case.any(HookSaid, lambda fact: fact.after == after and fact.how in moods)


def _invalid(case: Case) -> bool:
    asked = case.asked
    if asked.shape in {"list", "text", "not-json"} or (asked.bare and asked.shape != "object"):
        return True
    if case.own is not None and case.own.kind == "wide":
        hooked = case.any(HookSaid, lambda fact: fact.how in {"replaces", "puts-filled"})
        return hooked or bool(UNCHECKED.search(case.told.text)) or not takes(case.own.seed, asked.args)
    if case.own is not None:
        # its own tools with a schema, or with words of their own
        return case.own.kind in {"typed", "filled", "takes", "refuses", "presents", "needs", "asks", "calls"}
    if asked.server is None or case.any(HookSaid, lambda fact: fact.how in {"replaces", "puts-filled"}):
        return True
    schema = schema_of(case.law, case.facts, asked)
    return schema is None or not _takes(schema, asked.args)


def _supplied(case: Case) -> bool:
    return bool(case.asked.sets) or case.any(HookSaid, lambda fact: fact.how == "puts-filled")


def _no_value(case: Case) -> bool:
    asked = case.asked
    fields = (asked.scope or "-/-/-").split("/")
    vault = case.any(VaultSaid, lambda fact: fact.how == "several")
    form = case.law.door is not None and case.law.door.fields in {"basic", "headers"}
    return asked.bare or "-" in fields or asked.scope is None or vault or form or asked.caller is not None


def _wants(case: Case) -> bool:
    asked = case.asked
    moods = {"damaged", "strays"}
    if case.any(ShelfAsked, lambda fact: fact.mood in moods):
        return True
    return not live(case.facts, asked, case.told)


def live(facts: list[Fact], asked: Asked, end: Fact, kind: str = "doc") -> bool:
    """Whether the reference of a call was good, all the time between its beginning and its end."""
    if not isinstance(asked.ref, str):
        return False
    stored: Shelved | None = None
    for fact in facts:
        if isinstance(fact, Shelved) and fact.ref == asked.ref and fact.seq < asked.seq:
            stored = fact
        elif isinstance(fact, Unshelved) and fact.ref == asked.ref and fact.seq <= end.seq:
            return False
    if stored is None or stored.scope != asked.scope or stored.kind != kind:
        return False
    return stored.expires is None or stored.expires > end.at


CAUSES: Final[Mapping[str, Cause]] = {
    "unknown-tool": _unknown,
    "denied": _denied,
    "invalid-arguments": _invalid,
    "ERR_HOST_FILLED_ARGUMENT": _supplied,
    "ERR_HOST_FILLED_VALUE_MISSING": _no_value,
    "wants-refused": _wants,
    "ERR_NO_ARTIFACT_STORE": lambda case: case.law.door is None or not case.law.door.store or case.asked.bare,
    "ERR_ARTIFACT_STORE": lambda case: case.any(
        ShelfAsked, lambda fact: fact.mood in {"fails", "raises", "rubbish"}
    ),
    "pool-closed": lambda case: case.ever(Closing),
    "deadline-exceeded": lambda case: case.told.at >= case.asked.deadline,
    "tool-failed": lambda case: case.own is not None and case.any(LocalRan),
    "credential-failed": lambda case: _vault_said(case, NO_CREDENTIAL),
    "authorization-required": lambda case: _vault_said(case, frozenset({"needs-consent"})),
}
"""What has to have been so for a call to come back with a code."""


def check_door_causes(facts: list[Fact], law: Law) -> Iterator[Violation]:
    """C1 at the door: see the module."""
    asked = {fact.call: fact for fact in of(facts, Asked)}
    if law.door is None or not asked:
        return
    around: dict[str, list[Fact]] = {}
    for fact in facts:
        call = getattr(fact, "call", None)
        if isinstance(call, str):
            around.setdefault(call, []).append(fact)
    for told in of(facts, Told):
        first = asked[told.call]
        own = law.door.local(first.tool) if first.server is None else None
        case = Case(first, told, own, around, facts[: told.seq], law)
        cause = CAUSES.get(told.code)
        if cause is not None and not cause(case):
            what = f"{first.server or 'own'}/{first.tool}, said {first.said!r}"
            text = f"call {told.call} of {first.scope} ({what}) came back {told.code}, and nothing was so"
            yield Violation("C1", told.seq, text)
        if (
            own is not None
            and own.kind == "wide"
            and told.code == "invalid-arguments"
            and first.shape == "object"
        ):
            for why in wrong_words(first.args, told.text):
                yield Violation("C1", told.seq, f"call {told.call} of {first.tool}: {why}")
    yield from _ran_all_the_same(facts, law, asked)


def _vault_said(case: Case, moods: frozenset[str]) -> bool:
    """Of a tool of the host's own; whoever opens a client for a server's asks for a credential as well."""
    scope = case.asked.scope
    if case.own is None or scope is None or scope.split("/")[1] == "-":
        return True  # a user's credential is somebody's
    return case.any(VaultSaid, lambda fact: fact.how in moods)


# ------------------------------------------------------------------------------------------ what ran


def _ran_all_the_same(facts: list[Fact], law: Law, asked: Mapping[str, Asked]) -> Iterator[Violation]:
    """What had a cause to be refused, and ran."""
    meddled = {fact.call for fact in of(facts, HookSaid) if fact.how in {"replaces", "puts-filled"}}
    denied = {fact.call: fact for fact in of(facts, HookSaid) if not fact.after and fact.how in DENYING}
    for fact in facts:
        if not isinstance(fact, Ran | LocalRan) or fact.call not in asked:
            continue
        first = asked[fact.call or ""]
        if fact.call in denied and denied[fact.call or ""].seq < fact.seq:
            yield Violation("C1", fact.seq, f"call {fact.call} was denied by a hook, and ran")
        if first.shape in {"list", "text", "not-json"}:
            yield Violation("C1", fact.seq, f"call {fact.call} ran with arguments of the shape {first.shape}")
        if first.bare or fact.call in meddled:
            continue
        own = law.door.local(first.tool) if law.door is not None and first.server is None else None
        if own is not None and own.kind == "wide" and first.intended and not takes(own.seed, first.args):
            text = f"call {fact.call} ran, and the schema of {first.tool} refuses its arguments"
            yield Violation("C1", fact.seq, text)
        if first.server is None or not isinstance(fact, Ran):
            continue
        schema = schema_of(law, facts[: fact.seq], first)
        if schema is not None and not _takes(schema, first.args):
            text = f"call {fact.call} ran, and the schema of {first.tool} refuses its arguments"
            yield Violation("C1", fact.seq, text)
        if first.sets and first.tool.startswith("vault") and _still_fills(law, facts[: fact.seq], first):
            yield Violation("C1", fact.seq, f"call {fact.call} ran though it says {', '.join(first.sets)}")


def _still_fills(law: Law, facts: list[Fact], asked: Asked) -> bool:
    """Whether a vault declares and its host fills what a call says a value for, now as in the beginning."""
    if any(fact.server == asked.server for fact in of(facts, SchemaChanged)):
        return False
    fills = [fact for fact in of(facts, Refilled) if fact.server == asked.server]
    return len(fills) == 1 and any(
        name.lower().strip("_").replace("-", "") in fills[0].fill for name in asked.sets
    )


def schema_of(law: Law, facts: list[Fact], asked: Asked) -> Any | None:
    """The schema of a server's tool that nothing of the host's changes, as it was listed all the time.

    None where a host fills, wants or hides something of it, or where lists have differed.
    """
    server, door = asked.server or "", law.door
    if not asked.intended or door is None:
        return None
    rules = door.rules.get(server)
    if rules is not None and (rules.fill or rules.wants) and asked.tool.startswith("vault"):
        return None
    if any(isinstance(fact, Reconfigured | SchemaChanged) for fact in facts):
        return None
    found = {
        each.tools.get(asked.tool)
        for (key, _, _), lists in Received(facts, law).lists.items()
        if key.partition("|")[0] == server
        for each in lists
    }
    if len(found) != 1:
        return None
    text = found.pop()
    schema = None if text is None else json.loads(text).get("inputSchema")
    return None if _refers_to_itself(schema) else schema


def _refers_to_itself(schema: Any) -> bool:
    """Whether it may be asked for ever: nobody has to ask that."""
    held = schema if isinstance(schema, dict) else {}
    named = [held.get(name, {}).get("Object") for name in ("$defs", "definitions")]
    return any("/Object" in json.dumps(each) for each in named)


def _takes(schema: Any, args: Mapping[str, Any]) -> bool:
    text = json.dumps(schema, sort_keys=True)
    validator = SCHEMAS.get(text)
    if validator is None:
        if len(SCHEMAS) > 500:
            SCHEMAS.clear()
        try:
            validator = jsonschema_rs.validator_for(schema)
        except ValueError:
            return True  # one that is none is not asked
        SCHEMAS[text] = validator
    return bool(validator.is_valid(json.loads(json.dumps(args, default=repr))))
