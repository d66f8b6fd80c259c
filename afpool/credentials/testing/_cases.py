"""The cases: what whoever asks a provider relies on."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import TYPE_CHECKING, Any

import trio
import trio.testing

from ..._base.credential import Issued, NeedsAuthorization
from ..._base.secret import Credential
from ._suite import ALICE, BOB, NAMESAKE, CaseFailed, World, check

if TYPE_CHECKING:
    from ..._base.credential import Answered

_AT_ONCE = 20


def _shown(thing: object) -> list[str]:
    return [repr(thing), str(thing), f"{thing}", f"{thing!r:>5}"]


async def answers_are_typed(world: World) -> None:
    """A credential is a `Credential`, and says what it hides; its end is a time or nothing."""
    issued = await world.issued()
    credential: Any = issued.credential
    check(isinstance(credential, Credential), f"it issued {type(credential).__name__}")
    secrets = credential.secrets()
    check(secrets and all(isinstance(one, str) and one for one in secrets), "it does not say what it hides")
    headers = credential.to_headers()
    check(all(len(pair) == 2 for pair in headers), "its headers are no pairs")


async def unknown_services_are_refused(world: World) -> None:
    """Nothing is issued for what nobody has configured, and the refusal shows nothing."""
    await world.issued()
    try:
        answer = await world.bench.provider.get(world.request(service="a service that nobody knows"))
    except Exception as error:  # noqa: BLE001 -- whatever it refuses with
        world.keeps_quiet("the refusal of an unknown service", str(error), repr(error), repr(vars(error)))
    else:
        check(not isinstance(answer, Issued), "it issued a credential for a service that nobody knows")


async def nothing_is_shown(world: World) -> None:
    """No secret is in what is printed, copied or stored of a provider, an answer or a credential."""
    issued = await world.issued()
    world.keeps_quiet("the provider", *_shown(world.bench.provider))
    world.keeps_quiet("the answer", *_shown(issued))
    world.keeps_quiet("the credential", *_shown(issued.credential))
    for what, take in (("copied", copy.copy), ("deep-copied", copy.deepcopy), ("pickled", pickle.dumps)):
        try:
            take(issued.credential)
        except Exception:  # noqa: BLE001, S112 -- refusing is right, whatever with
            continue
        raise CaseFailed(f"the credential was {what}")


async def asking_is_a_checkpoint(world: World) -> None:
    """Whoever is cancelled gets no credential."""
    await world.issued()
    with trio.CancelScope() as scope:
        scope.cancel()
        await world.ask()
    check(scope.cancelled_caught, "it answered somebody who was cancelled before")


async def principals_are_apart(world: World) -> None:
    """What was vended for one principal, or one tenant, is given to nobody else, also not at once."""
    own = await world.issued(ALICE)
    for other in (BOB, NAMESAKE):
        theirs = await world.issued(other)
        check(
            not set(theirs.credential.secrets()) & set(own.credential.secrets()),
            "it gave one principal's credential to another",
        )
    again = await world.issued(ALICE)
    check(again.credential.secrets() == own.credential.secrets(), "it gave another's credential back")


async def principals_are_apart_at_once(world: World) -> None:
    """The same of those who ask at once."""
    got: dict[Any, set[str]] = {ALICE: set(), BOB: set(), NAMESAKE: set()}

    async def ask(who: Any) -> None:
        got[who].update((await world.issued(who)).credential.secrets())

    for who in got:  # consents are given one by one
        await ask(who)
    async with trio.open_nursery() as nursery:
        for _ in range(_AT_ONCE):
            for who in got:
                nursery.start_soon(ask, who)
    alice, bob, namesake = got.values()
    check(not (alice & bob or alice & namesake or bob & namesake), "principals who asked at once share one")


async def one_flight(world: World) -> None:
    """However many ask at once, whoever grants is asked once."""
    answers: list[Answered] = []

    async def ask() -> None:
        answers.append(await world.ask())

    before = world.asked()
    async with trio.open_nursery() as nursery:
        for _ in range(_AT_ONCE):
            nursery.start_soon(ask)
    check(world.asked() - before == 1, f"whoever grants was asked {world.asked() - before} times")
    check(len({repr(type(answer)) for answer in answers}) == 1, "those who waited were answered differently")


async def a_cancelled_asker_ends_nobody(world: World) -> None:
    """Who waits with somebody that goes away is answered all the same."""
    assert world.bench.hold is not None
    answers: list[Answered] = []
    scope = trio.CancelScope()

    async def goes() -> None:
        with scope:
            await world.ask()

    async def stays() -> None:
        answers.append(await world.ask())

    async with trio.open_nursery() as nursery:
        with world.bench.hold():
            nursery.start_soon(goes)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(stays)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            check(scope.cancelled_caught, "whoever was cancelled is waiting still")
            check(not answers, "it answered before whoever grants did")
    check(len(answers) == 1, "whoever stayed was not answered")
    check(isinstance(await world.issued(), Issued), "it does not go on after somebody went away")


async def failures_show_nothing(world: World) -> None:
    """A failure of whoever grants is raised, quotes nothing, and passes."""
    assert world.bench.fail is not None
    with world.bench.fail():
        try:
            answer = await world.ask()
        except Exception as error:  # noqa: BLE001 -- whatever it fails with
            world.keeps_quiet("a failure", str(error), repr(error), repr(vars(error)))
        else:
            raise CaseFailed(f"whoever grants failed, and it answered {type(answer).__name__}")
    await world.issued()


async def consent_is_an_outcome(world: World) -> None:
    """That somebody has to consent is an answer; its address is in nothing that is shown."""
    assert world.bench.consent is not None
    answer = await world.ask(ALICE)
    check(isinstance(answer, NeedsAuthorization), f"it answered {type(answer).__name__} before any consent")
    assert isinstance(answer, NeedsAuthorization)
    url = answer.authorization_url
    check(url and answer.session_id, "it does not say where, or by which name")
    shown = [*_shown(answer), *_shown(world.bench.provider)]
    check(not any(url in text for text in shown), "the address is shown")
    world.keeps_quiet("the address, or what is shown of it,", url, *shown)
    others = await world.ask(BOB)
    check(isinstance(others, NeedsAuthorization), "somebody else needs no consent")
    assert isinstance(others, NeedsAuthorization)
    check(others.session_id != answer.session_id, "two principals were asked in one session")
    await world.bench.consent(answer, ALICE)
    check(isinstance(await world.ask(ALICE), Issued), "it gives nothing after the consent")
    check(not isinstance(await world.ask(BOB), Issued), "one principal's consent serves another")


async def refused_ones_are_not_given_again(world: World) -> None:
    """A credential that the server refused is not what comes back."""
    first = await world.issued()
    refused: dict[str, Any] = {"reason": "refresh", "rejected": True, "refused": first.credential}
    try:
        answer = await world.ask(**refused)
    except Exception:  # noqa: BLE001 -- it has no other
        return
    if isinstance(answer, Issued):
        same = answer.credential.secrets() == first.credential.secrets()
        check(not same, "it gave again what the server had refused")


async def what_is_dropped_is_asked_for_anew(world: World) -> None:
    """`drop` forgets whom it names and nobody else, at once."""
    drop: Any = getattr(world.bench.provider, "drop")  # noqa: B009 -- an optional part of the port
    await world.issued(ALICE)
    await world.issued(BOB)
    before = world.asked()
    given = drop(service=world.harness.service, identity=ALICE)
    if inspect.iscoroutine(given):
        given.close()
    check(not inspect.isawaitable(given), "drop is not synchronous")
    await world.issued(BOB)
    check(world.asked() == before, "it forgot somebody else's as well")
    await world.issued(ALICE)
    check(world.asked() > before, "it gave what was dropped without asking")
    drop(service=None, identity=NAMESAKE)  # who was never vended anything
