"""What was vended is kept for whom it was vended, as long as it is good, and asked for once."""

from __future__ import annotations

import random
from typing import Any

import attrs
import hypothesis.strategies as st
import pytest
import trio
import trio.testing
from hypothesis import example, given

from afpool import (
    Anonymous,
    AuthorizationRequired,
    CredentialFailed,
    CredentialRequest,
    Identity,
    Issued,
    NeedsAuthorization,
    ScriptedCredentials,
    Seams,
    bearer,
)
from afpool.credentials import CachedCredentials

ALICE = Identity(tenant="acme", principal="alice")
SECRET = "s3cr3t-t0ken"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@attrs.define(eq=False)
class Cached:
    cache: CachedCredentials
    provider: ScriptedCredentials
    clock: Clock

    @property
    def asked(self) -> int:
        return len(self.provider.requests)

    async def token(self, **request: Any) -> str:
        answer = await self.get(**request)
        assert isinstance(answer, Issued)
        return answer.credential.token  # type: ignore[attr-defined, no-any-return]

    async def get(self, **request: Any) -> Any:
        with trio.fail_after(5):
            return await self.cache.get(asking(**request))


def asking(**request: Any) -> CredentialRequest:
    return CredentialRequest(request.pop("service", "crm"), **{"identity": ALICE, **request})


def cached(script: Any, *, hold: trio.Event | None = None, **options: Any) -> Cached:
    clock = Clock()
    provider = ScriptedCredentials(script, hold=hold)
    options.setdefault("jitter", 0.0)
    seams = Seams(now=clock, unix_now=clock, random=random.Random(1))
    return Cached(CachedCredentials(provider, seams=seams, **options), provider, clock)


def numbered(ends: float | None = None, clock: Clock | None = None) -> Any:
    count = iter(range(1, 10_000))

    def outcome(request: CredentialRequest) -> Any:
        number = next(count)
        return Issued(bearer(f"token-{number}"), ends)

    return outcome


async def test_it_is_asked_for_once_while_it_is_good() -> None:
    c = cached(numbered(1_000 + 500.0))
    assert [await c.token() for _ in range(3)] == ["token-1"] * 3
    c.clock.now += 439  # a minute before its end, it is asked for anew
    assert await c.token() == "token-1"
    c.clock.now += 1
    assert await c.token() == "token-2"
    assert c.asked == 2


async def test_one_without_an_end_is_kept_a_while_and_one_with_a_far_end_not_for_ever() -> None:
    c = cached(numbered(None), unknown=60.0)
    await c.token()
    c.clock.now += 59
    assert await c.token() == "token-1"
    c.clock.now += 1
    assert await c.token() == "token-2"
    c = cached(numbered(1e12), longest=100.0, early=10.0)
    await c.token()
    c.clock.now += 89
    assert await c.token() == "token-1"
    c.clock.now += 1
    assert await c.token() == "token-2"


@pytest.mark.parametrize("ends", [1_000.0, 0.0, -5.0, float("-inf"), float("nan")])
async def test_one_that_has_ended_by_its_own_account_is_used_once(ends: float) -> None:
    c = cached(numbered(ends))
    assert [await c.token() for _ in range(3)] == ["token-1", "token-2", "token-3"]


async def test_a_short_life_is_not_all_early() -> None:
    c = cached(numbered(1_010.0), early=60.0)
    await c.token()
    c.clock.now += 7.9
    assert await c.token() == "token-1"
    c.clock.now += 0.1
    assert await c.token() == "token-2"


async def test_the_moment_of_renewal_is_ones_own() -> None:
    c = cached(numbered(1_000 + 3_000.0), jitter=1.0)
    for n in range(40):
        await c.get(identity=Identity(principal=f"p{n}"))
    renewals = {held.renew_at for held in c.cache._entries.values()}  # type: ignore[union-attr]
    assert len(renewals) == 40
    assert all(4_000 - 120 <= at <= 4_000 - 60 for at in renewals)


KEYS = st.fixed_dictionaries(
    {
        "service": st.sampled_from(["crm", "mail"]),
        "scopes": st.lists(st.sampled_from(["a", "b"]), max_size=2).map(tuple),
        "mode": st.sampled_from(["machine", "user"]),
        "resource": st.sampled_from(["", "https://a", "https://b"]),
        "identity": st.builds(
            Identity,
            st.sampled_from([None, "t", "u"]),
            st.sampled_from([None, "p", "q"]),
            st.just("conversation"),
        ),
    }
)


def _of(who: Identity) -> dict[str, Any]:
    return {"service": "crm", "scopes": (), "mode": "user", "resource": "", "identity": who}


@given(st.lists(KEYS, max_size=25))
@example([_of(Identity("t", "p", "c")), _of(Identity("t", "q", "c"))])
@example([_of(Identity("t", "p", "c")), _of(Identity("u", "p", "c"))])
def test_nothing_is_given_for_another_request(requests: list[dict[str, Any]]) -> None:
    async def run() -> None:
        def outcome(request: CredentialRequest) -> Any:
            who = (request.identity.tenant, request.identity.principal)
            return bearer(
                repr((request.service, sorted(set(request.scopes)), request.mode, request.resource, *who))
            )

        c = cached(outcome)
        for request in requests:
            who = request["identity"]
            assert await c.token(**request) == repr(
                (
                    request["service"], sorted(set(request["scopes"])), request["mode"], request["resource"],
                    who.tenant, who.principal,
                )
            )  # fmt: skip

    trio.run(run)


# ---------------------------------------------------------------------------- one flight


async def test_a_hundred_who_ask_at_once_ask_once() -> None:
    hold = trio.Event()
    c = cached([bearer("one")], hold=hold)
    tokens: list[str] = []

    async def ask() -> None:
        tokens.append(await c.token())

    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        hold.set()
    assert tokens == ["one"] * 100
    assert c.asked == 1


async def test_where_who_asked_goes_the_next_one_asks() -> None:
    hold = trio.Event()
    c = cached([bearer("one"), bearer("two")], hold=hold)
    tokens: list[str] = []

    async def ask() -> None:
        tokens.append(await c.token())

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as first:
            async with trio.open_nursery() as inner:
                inner.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(ask)
                nursery.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
                first.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert c.asked == 2
        hold.set()
    assert tokens == ["one"] * 2  # the script's first outcome went to who asked second


async def test_while_it_is_renewed_the_held_one_is_given() -> None:
    renewing = trio.Event()

    async def slow(request: CredentialRequest) -> Any:
        await renewing.wait()
        return Issued(bearer("two"), 9_000.0)

    c = cached([Issued(bearer("one"), 1_500.0), slow])
    await c.token()
    c.clock.now = 1_450.0
    tokens: list[str] = []

    async def ask() -> None:
        tokens.append(await c.token())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        assert await c.token() == "one"
        renewing.set()
    assert tokens == ["two"]
    assert await c.token() == "two"


async def test_a_renewal_that_fails_costs_nothing_while_the_held_one_is_good() -> None:
    c = cached([Issued(bearer("one"), 1_500.0), OSError("x"), AuthorizationRequired("y"), OSError("z")])
    await c.token()
    c.clock.now = 1_450.0
    assert await c.token() == "one"
    assert await c.token() == "one"  # not asked for again at once
    assert c.asked == 2
    c.clock.now += 6
    assert await c.token() == "one"
    assert c.asked == 3
    c.clock.now = 1_500.0
    with pytest.raises(OSError, match="z"):
        await c.token()


# ---------------------------------------------------------------------------- refused by the server


async def test_a_refused_one_is_dropped_and_asked_for_once() -> None:
    hold = trio.Event()
    hold.set()
    c = cached(numbered(None), hold=hold)
    one = (await c.get()).credential
    hold = c.provider._hold = trio.Event()
    tokens: list[str] = []

    async def again() -> None:
        tokens.append(await c.token(rejected=True, reason="refresh", refused=one))

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(again)
        await trio.testing.wait_all_tasks_blocked()
        hold.set()
    assert tokens == ["token-2"] * 20
    assert c.asked == 2
    assert c.provider.requests[1].rejected
    # a late one, who brings what was refused long ago, gets what is held
    assert await c.token(rejected=True, reason="refresh", refused=one) == "token-2"
    assert await c.token(rejected=True, reason="refresh", refused=bearer("token-1")) == "token-2"
    assert c.asked == 2
    # whoever does not say what was refused gets a new one
    assert await c.token(rejected=True, reason="refresh") == "token-3"


async def test_the_same_secret_in_another_object_is_the_refused_one() -> None:
    c = cached(lambda request: bearer("same"))
    one = (await c.get()).credential
    await c.token(rejected=True, reason="refresh", refused=bearer("same"))
    assert c.asked == 2
    assert (await c.get()).credential is not one


# ---------------------------------------------------------------------------- refusals


async def refusal(c: Cached, kind: type[Exception], says: str, **request: Any) -> Exception:
    with pytest.raises(kind, match=says) as caught:
        await c.token(**request)
    return caught.value


async def test_a_refusal_that_asking_does_not_change_is_remembered() -> None:
    c = cached([CredentialFailed("no such grant"), bearer("one")], refusals=10.0)
    first = await refusal(c, CredentialFailed, "no such grant")
    second = await refusal(c, CredentialFailed, "no such grant")
    assert first is not second
    assert c.asked == 1
    assert await c.token(identity=Identity(principal="bob")) == "one"
    c.clock.now += 10
    c.provider._left.append(bearer("two"))
    assert await c.token() == "two"


async def test_an_unknown_service_is_remembered_by_its_class_only() -> None:
    c = cached([LookupError(SECRET)])
    with pytest.raises(LookupError):
        await c.token()
    error = await refusal(c, CredentialFailed, "'crm' could not be had .LookupError.")
    assert SECRET not in str(error)
    assert error.__cause__ is None
    assert c.asked == 1


async def test_a_provider_that_says_when_is_not_asked_before() -> None:
    c = cached(
        [CredentialFailed("busy", retry_after=30.0), CredentialFailed("busy", retry_after=1e9), bearer("x")]
    )
    await refusal(c, CredentialFailed, "busy")
    c.clock.now += 29
    assert (await refusal(c, CredentialFailed, "busy")).retry_after == 30.0  # type: ignore[attr-defined]
    assert c.asked == 1
    c.clock.now += 1
    await refusal(c, CredentialFailed, "busy")
    c.clock.now += 60
    assert await c.token() == "x"


@pytest.mark.parametrize(
    "passing",
    [OSError("x"), TimeoutError(), AuthorizationRequired("consent"), RuntimeError("x"), ValueError("x")],
    ids=lambda error: type(error).__name__,
)
async def test_a_failure_in_passing_is_not_remembered(passing: Exception) -> None:
    c = cached([passing, bearer("one")])
    with pytest.raises(type(passing)):
        await c.token()
    assert await c.token() == "one"


async def test_a_failure_with_a_cause_is_one_in_passing() -> None:
    async def failing(request: CredentialRequest) -> Any:
        raise CredentialFailed("network") from OSError("x")

    c = cached([failing, bearer("one")])
    await refusal(c, CredentialFailed, "network")
    assert await c.token() == "one"


async def test_what_the_server_refused_goes_past_a_remembered_refusal() -> None:
    c = cached([CredentialFailed("no"), bearer("one")])
    await refusal(c, CredentialFailed, "no")
    assert await c.token(rejected=True, reason="challenge") == "one"


async def test_consent_and_anonymity_are_never_remembered() -> None:
    needs = NeedsAuthorization("https://idp", "s")
    c = cached([needs, Anonymous(), bearer("one")])
    assert await c.get() is needs
    assert isinstance(await c.get(), Anonymous)
    assert await c.token() == "one"


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (RuntimeError(SECRET), CredentialFailed),
        (CredentialFailed("told", http_status=500), CredentialFailed),
        (AuthorizationRequired("told", delivery="refused"), AuthorizationRequired),
    ],
)
async def test_who_waited_gets_an_exception_of_their_own(failure: Exception, kind: type[Exception]) -> None:
    hold = trio.Event()
    c = cached([failure], hold=hold)
    caught: list[Exception] = []

    async def ask() -> None:
        try:
            await c.token()
        except Exception as error:
            caught.append(error)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
        hold.set()
    assert caught[0] is failure
    assert len({id(error) for error in caught}) == 3
    for error in caught[1:]:
        assert type(error) is kind
        assert SECRET not in str(error)
        if isinstance(failure, CredentialFailed | AuthorizationRequired):
            assert error.message == failure.message  # type: ignore[attr-defined]
            assert error.delivery == failure.delivery  # type: ignore[attr-defined]
            assert error.http_status == failure.http_status  # type: ignore[attr-defined]


# ---------------------------------------------------------------------------- dropping, size


async def test_dropped_is_dropped() -> None:
    c = cached(numbered(None))
    bob, other = Identity(tenant="acme", principal="bob"), Identity(tenant="globex", principal="alice")
    for who in (ALICE, bob, other):
        await c.token(identity=who)
        await c.token(identity=who, service="mail")
    c.cache.drop(service="crm", identity=Identity(tenant="acme"))
    held = {(key[0], key[4], key[5]) for key in c.cache._entries}
    assert held == {
        ("crm", "globex", "alice"), ("mail", "acme", "alice"), ("mail", "acme", "bob"),
        ("mail", "globex", "alice"),
    }  # fmt: skip
    c.cache.drop(service=None, identity=Identity(principal="alice"))
    assert {(key[0], key[4], key[5]) for key in c.cache._entries} == {("mail", "acme", "bob")}
    c.cache.drop(service=None, identity=Identity())
    assert not c.cache._entries


async def test_what_was_asked_for_before_a_drop_is_kept_by_nobody() -> None:
    hold = trio.Event()
    c = cached(numbered(None), hold=hold)
    tokens: list[str] = []

    async def ask() -> None:
        tokens.append(await c.token())

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
        c.cache.drop(service=None, identity=ALICE)
        hold.set()
    # who asked gets what it asked for, and its call's own gate decides; the others ask anew
    assert sorted(tokens) == ["token-1", "token-2", "token-2"]
    assert await c.token() == "token-2"


@pytest.mark.parametrize("how", ["dropped", "refused"])
async def test_what_is_gone_while_it_is_renewed_is_not_given_where_that_fails(how: str) -> None:
    renewing = trio.Event()

    async def slow(request: CredentialRequest) -> Any:
        await renewing.wait()
        raise OSError("down")

    c = cached([Issued(one := bearer("one"), 1_500.0), slow, Issued(bearer("two"), 9_000.0)])
    await c.token()
    c.clock.now = 1_450.0

    async def renew() -> None:
        with pytest.raises(OSError, match="down"):
            await c.token()

    async def refuse() -> None:
        with pytest.raises(CredentialFailed, match="OSError"):
            await c.token(rejected=True, refused=one, reason="refresh")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(renew)
        await trio.testing.wait_all_tasks_blocked()
        if how == "dropped":
            c.cache.drop(service=None, identity=ALICE)
        else:
            nursery.start_soon(refuse)
            await trio.testing.wait_all_tasks_blocked()
        renewing.set()
    assert await c.token() == "two"


async def test_the_provider_is_told_what_is_dropped() -> None:
    told: list[Any] = []

    class Provider(ScriptedCredentials):
        def drop(self, *, service: str | None, identity: Identity) -> None:
            told.append((service, identity))

    CachedCredentials(Provider([])).drop(service="crm", identity=ALICE)
    assert told == [("crm", ALICE)]


async def test_the_least_recently_used_goes_first() -> None:
    c = cached(numbered(None), size=2)
    one, two, three = (Identity(principal=name) for name in "abc")
    await c.token(identity=one)
    await c.token(identity=two)
    await c.token(identity=one)
    await c.token(identity=three)
    assert await c.token(identity=one) == "token-1"
    assert await c.token(identity=two) == "token-4"


@pytest.mark.parametrize(
    "options", [{"early": -1}, {"jitter": -1}, {"longest": 0}, {"size": 0}, {"refusals": -1}]
)
def test_numbers_that_make_no_sense(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"negative|positive"):
        CachedCredentials(ScriptedCredentials([]), **options)  # type: ignore[arg-type]


async def test_nothing_of_it_shows_a_secret_and_every_answer_is_a_checkpoint() -> None:
    c = cached(lambda request: bearer(SECRET))
    await c.token()
    assert SECRET not in repr(c.cache) + repr(list(c.cache._entries.items()))
    with trio.testing.assert_checkpoints():
        await c.cache.get(asking())
