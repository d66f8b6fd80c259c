"""Places that many share: fair between tenants, then keys; nothing is lost, given twice or kept back."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors import Reply
from afpool._base.errors import DeadlineExceeded, Overloaded
from afpool._base.fair import FairPlaces, Seat
from afpool.pool._admission import WaitingRoom, share_of


def parts(one: str) -> tuple[str, str, str]:
    """Server, tenant and key of `tenant/key` or `tenant/key@server`."""
    name, _, server = one.partition("@")
    return server or "files", name.split("/")[0], one


def queue(places: FairPlaces, *who: str) -> list[Seat]:
    """Queue up."""
    return [places.wait(*parts(one)) for one in who]


def enter(places: FairPlaces, *who: str) -> None:
    """Take places that are free."""
    for one in who:
        assert places.try_enter(*parts(one)), one


def leave(places: FairPlaces, *who: str) -> None:
    """Give places back."""
    for one in who:
        places.leave(*parts(one))


def full(limit: int = 1) -> FairPlaces:
    """All places are taken by somebody else."""
    places = FairPlaces(limit)
    enter(places, *["other/x"] * limit)
    return places


def order(places: FairPlaces, seats: list[Seat]) -> list[str]:
    """Let who has the one place leave, again and again; the keys in the order in which they were served."""
    served: list[str] = []
    left = list(seats)
    inside = "other/x"
    for _ in range(len(seats)):
        leave(places, inside)
        (seat,) = [seat for seat in left if seat.granted]
        left.remove(seat)
        inside = seat.key
        served.append(inside)
    return served


def test_it_counts_and_refuses_beyond_the_limit():
    places = FairPlaces(2)
    enter(places, "acme/a", "acme/b@mail")
    assert not places.try_enter(*parts("globex/c@web"))  # neither its tenant nor its server has any
    assert places.used == 2
    assert (places.held("acme"), places.held("none")) == (2, 0)
    assert (places.held_at("files"), places.held_at("mail"), places.held_at("none")) == (1, 1, 0)
    leave(places, "acme/a")
    assert (places.used, places.held("acme"), places.held_at("files")) == (1, 1, 0)
    enter(places, "acme/b@mail")
    assert places.held_at("mail") == 2


def test_one_key_is_served_in_the_order_of_coming():
    places = full(3)
    seats = queue(places, "acme/a", "acme/a", "acme/a")
    for index in range(3):
        leave(places, "other/x")
        assert [seat.granted for seat in seats] == [True] * (index + 1) + [False] * (2 - index)


def test_tenants_take_turns_then_their_keys():
    places = full()
    seats = queue(places, "acme/a", "acme/a", "acme/b", "acme/b", "globex/c", "globex/c", "globex/c")
    assert order(places, seats) == [
        "acme/a", "globex/c", "acme/b", "globex/c", "acme/a", "globex/c", "acme/b",
    ]  # fmt: skip


def test_a_tenant_with_a_hundred_times_the_load_starves_nobody():
    places = full()
    seats = queue(places, *[f"acme/{index % 7}" for index in range(400)], *["globex/c"] * 4)
    served = order(places, seats)
    assert len(served) == 404
    assert [place for place, key in enumerate(served) if key == "globex/c"] == [1, 3, 5, 7]


def test_who_comes_late_waits_one_round_at_most():
    places = full(12)
    seats = queue(places, *["acme/a"] * 50, *["globex/b"] * 50)
    leave(places, *["other/x"] * 10)
    (late,) = queue(places, "initech/c")
    leave(places, "other/x")
    assert late.granted
    assert sum(seat.granted for seat in seats) == 10


def test_who_finds_room_overtakes_nobody():
    places = full()
    (seat,) = queue(places, "acme/a")
    assert not places.try_enter(*parts("globex/b"))
    leave(places, "other/x")
    assert seat.granted
    assert not places.try_enter(*parts("globex/b"))
    leave(places, "acme/a")
    assert places.try_enter(*parts("globex/b"))


# ---------------------------------------------------------------------------- what is counted is places


def test_who_holds_fewest_goes_first_however_long_its_calls_take():
    places = FairPlaces(4)
    enter(places, "acme/a", "acme/a", "acme/a", "globex/b")
    acme, globex = queue(places, "acme/a", "globex/b")
    leave(places, "acme/a")
    assert globex.granted  # two and two now
    (initech,) = queue(places, "initech/c")
    leave(places, "globex/b")
    assert initech.granted
    assert not acme.granted
    leave(places, "globex/b")
    assert acme.granted


def test_a_key_that_hangs_leaves_the_turns_to_the_tenants_other_keys():
    places = FairPlaces(4)
    enter(places, "acme/hung", "acme/hung", "acme/hung", "acme/b")
    seats = queue(places, "acme/hung", "acme/hung", *["acme/b"] * 5)
    for _ in range(5):
        leave(places, "acme/b")
    assert [seat.granted for seat in seats] == [False, False, True, True, True, True, True]


@pytest.mark.parametrize("slow", [1, 10])
def test_shares_of_places_are_equal_whatever_a_tenant_offers_and_however_long_it_takes(slow):
    """20 tenants, one with 100 times the load of the others: every one has its twentieth, within 10 %."""
    limit, tenants = 80, [f"t{n}" for n in range(20)]
    places = FairPlaces(limit, per_tenant=limit // 2)
    inside: list[tuple[int, str]] = []  # when it ends, and whose it is
    waiting: list[Seat] = []
    held: Counter[str] = Counter()

    def come(tenant: str, count: int) -> None:
        waiting.extend(places.wait("files", tenant, f"{tenant}/{n % 5}") for n in range(count))

    come("t0", 1200)
    for tenant in tenants[1:]:
        come(tenant, 12)
    for now in range(400):
        for seat in [seat for seat in waiting if seat.granted]:
            waiting.remove(seat)
            inside.append((now + (slow if seat.tenant == "t0" else 1) * 5 + now % 3, seat.key))
        ended = [each for each in inside if each[0] <= now]
        inside = [each for each in inside if each[0] > now]
        for _, key in ended:
            places.leave("files", key.split("/")[0], key)
            come(key.split("/")[0], 1)
        if now >= 100:
            held.update({tenant: places.held(tenant) for tenant in tenants})
    fair = sum(held.values()) / len(tenants)
    assert places.used == limit
    assert all(abs(held[tenant] - fair) <= fair / 10 for tenant in tenants), held


# ---------------------------------------------------------------------------- shares


def test_a_tenant_has_no_more_than_its_share_and_is_passed_over():
    places = FairPlaces(4, per_tenant=2)
    enter(places, "acme/a", "acme/b")
    assert not places.try_enter(*parts("acme/c"))
    (stuck,) = queue(places, "acme/c")
    assert not stuck.granted
    enter(places, "globex/d", "globex/d")  # nobody is held up by who waits for its own
    leave(places, "globex/d")
    assert not stuck.granted
    leave(places, "acme/a")
    assert stuck.granted
    assert places.has_share("acme")
    assert not places.has_share("globex")


def test_without_tenants_there_are_no_shares():
    places = FairPlaces(4, per_tenant=2)
    assert all(places.try_enter("files", None, "files|_/p/_") for _ in range(4))
    assert not places.has_share(None)


def test_a_full_server_is_passed_over_and_not_waited_for():
    places = FairPlaces(4, per_server=2)
    enter(places, "acme/a", "acme/a")
    assert not places.try_enter(*parts("globex/a"))
    (stuck,) = queue(places, "acme/a")
    enter(places, "acme/b@mail", "globex/c@mail")
    leave(places, "acme/b@mail")
    assert not stuck.granted
    leave(places, "acme/a")
    assert stuck.granted


def test_at_a_full_server_who_holds_fewest_there_goes_first():
    """One who holds many places elsewhere is not kept from a server that two others keep busy."""
    places = FairPlaces(8, per_server=4)
    enter(places, *["acme/a@mail"] * 4, *["globex/b", "initech/c"] * 2)
    seats = queue(places, "acme/d", *["globex/b", "initech/c"] * 3)
    leave(places, "globex/b")
    assert [seat.key for seat in seats if seat.granted] == ["acme/d"]
    leave(places, "acme/d")
    assert [seat.key for seat in seats if seat.granted] == ["acme/d", "globex/b"]


def test_whether_somebody_would_be_served():
    places = FairPlaces(2, per_tenant=1)
    enter(places, "acme/a", "globex/b")
    assert not places.wanted_of("acme")
    queue(places, "acme/c")
    assert places.wanted_of("acme")  # it has its share: only one of its own helps it
    assert not places.wanted_of("globex")
    queue(places, "initech/d")
    assert places.wanted_of("globex")


@pytest.mark.parametrize(
    ("limit", "part", "share"),
    [
        (256, 0.5, 128),
        (9, 0.5, 5),
        (10, 0.1, 1),
        (10, 0.01, 1),
        (8, 1.0, 8),
        (8, 1e-12, 1),
        (7, 0.5, 7),
        (1, 0.5, 1),
    ],
)
def test_a_share_is_rounded_up_and_little_is_not_divided(limit, part, share):
    assert share_of(limit, part) == share


# ---------------------------------------------------------------------------- going away


def test_withdrawn_before_its_turn_it_is_gone():
    places = full()
    first, second, third = queue(places, "acme/a", "acme/a", "globex/b")
    assert places.withdraw(first)
    assert places.waiting == 2
    assert places.withdraw(third)
    leave(places, "other/x")
    assert second.granted
    assert places.waiting == 0
    assert not places._queue


def test_withdrawn_after_the_grant_it_owns_the_place():
    places = full()
    (seat,) = queue(places, "acme/a")
    leave(places, "other/x")
    assert not places.withdraw(seat)
    assert seat.granted
    leave(places, "acme/a")
    assert places.used == 0


def test_withdrawn_twice_it_is_gone_once():
    places = full()
    seat, other = queue(places, "acme/a", "acme/a")
    assert places.withdraw(seat)
    assert not places.withdraw(seat)
    assert not seat.granted
    assert places.waiting == 1
    assert places.withdraw(other)


@pytest.mark.parametrize("how", ["abandoned", "late"])
def test_who_went_away_without_a_word_gets_no_place(how):
    places = full()
    gone, there = queue(places, "acme/a", "globex/b")
    if how == "abandoned":
        gone.reply.abandon()
    else:
        gone.reply.fail(DeadlineExceeded("late", delivery="not-sent"))
    leave(places, "other/x")
    assert not gone.granted
    assert there.granted
    assert places.used == 1
    places.give_up(gone)
    assert (places.used, places.waiting) == (1, 0)


def test_given_up_after_the_grant_the_place_goes_to_the_next():
    places = full()
    first, second = queue(places, "acme/a", "globex/b")
    leave(places, "other/x")
    places.give_up(first)
    assert second.granted
    assert (places.used, places.held("acme"), places.held("globex")) == (1, 0, 1)


def test_who_went_away_does_not_cost_its_tenant_a_turn():
    places = full()
    gone, mine, theirs = queue(places, "acme/a", "acme/a", "globex/b")
    gone.reply.abandon()
    leave(places, "other/x")
    assert mine.granted
    assert not theirs.granted


def test_thousands_may_go_away_at_once():
    places = full()
    seats = queue(places, *[f"acme/{index % 5}" for index in range(4096)], "globex/b")
    for seat in seats[:-1]:
        seat.reply.fail(DeadlineExceeded("late", delivery="not-sent"))
    leave(places, "other/x")
    assert seats[-1].granted
    assert (places.used, places.waiting) == (1, 0)


def test_a_seat_is_answered_by_an_ordinary_reply():
    places = FairPlaces(1)
    seat = places.wait("files", None, "files|_/_/_")
    assert isinstance(seat.reply, Reply)
    assert seat.granted
    assert seat.reply.result() is None


# ---------------------------------------------------------------------------- who may wait


def test_beyond_the_bound_nobody_may_wait():
    room = WaitingRoom(2, 1.0)
    with room.seat("acme"), room.seat("globex"):
        assert room.count == 2
        with pytest.raises(
            Overloaded, match=r"all is taken, and 2 calls wait.*max_waiting_total 2"
        ) as caught:
            room.check("initech", "all is taken")
        assert caught.value.noted == ("limit", "max_waiting_total")
    assert room.count == 0
    room.check("initech", "all is taken")
    assert not room._tenants


def test_a_tenant_may_not_take_the_others_room_to_wait():
    room = WaitingRoom(8, 0.25)
    with room.seat("acme"):
        room.check("acme", "all is taken")
        with room.seat("acme"):
            with pytest.raises(
                Overloaded, match=r"2 calls of this tenant wait already.*max_share.*8"
            ) as caught:
                room.check("acme", "all is taken")
            assert caught.value.noted == ("limit", "max_share")
            room.check("globex", "all is taken")
            room.check(None, "all is taken")
        room.check("acme", "all is taken")  # one of the two waits no longer
    with room.seat(None), room.seat(None), room.seat(None):
        room.check(None, "all is taken")  # no tenant is nobody's neighbour


def test_a_share_of_one_lets_one_wait():
    room = WaitingRoom(8, 0.125)
    room.check("acme", "all is taken")
    with room.seat("acme"), pytest.raises(Overloaded):
        room.check("acme", "all is taken")


# ---------------------------------------------------------------------------- conservation

SERVERS = ("files", "mail", "web")
TENANTS = ("acme", "globex", None)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["enter", "wait"]),
            st.sampled_from(SERVERS),
            st.sampled_from(TENANTS),
            st.integers(0, 2),
        ),
        st.tuples(st.sampled_from(["leave", "withdraw", "give up", "go"]), st.integers(0, 100)),
    ),
    max_size=60,
)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6), STEPS)
def test_no_place_is_lost_or_given_twice(limit, per_tenant, per_server, steps):
    per_tenant, per_server = min(limit, per_tenant), min(limit, per_server)
    places = FairPlaces(limit, per_tenant=per_tenant, per_server=per_server)
    inside: list[tuple[str, str | None, str]] = []
    seats: list[Seat] = []
    gone: list[Seat] = []  # seats, not ids: those are used again

    def absorb():
        for seat in [seat for seat in seats if seat.granted]:
            assert seat not in gone
            seats.remove(seat)
            inside.append((seat.server, seat.tenant, seat.key))

    for name, *values in steps:
        if name in {"enter", "wait"}:
            server, tenant, number = values
            who = (server, tenant, f"{server}|{tenant}/{number}")
            if name == "wait":
                seats.append(places.wait(*who))
            elif places.try_enter(*who):
                inside.append(who)
        elif name == "leave" and inside:
            places.leave(*inside.pop(values[0] % len(inside)))
        elif name in {"withdraw", "give up"} and seats:
            seat = seats.pop(values[0] % len(seats))
            if name == "withdraw":
                places.withdraw(seat)
            else:
                places.give_up(seat)
            assert not seat.granted
        elif name == "go" and seats:
            seat = seats[values[0] % len(seats)]
            if seat.reply.abandon():
                gone.append(seat)
        absorb()
        servers, tenants = (Counter(each[at] for each in inside) for at in (0, 1))
        assert places.used == len(inside) <= limit
        assert all(places.held_at(server) == servers[server] <= per_server for server in SERVERS)
        assert all(places.held(tenant) == tenants[tenant] for tenant in TENANTS)
        assert all(tenants[tenant] <= per_tenant for tenant in TENANTS if tenant is not None)
        live = [seat for seat in seats if seat not in gone]
        assert len(live) <= places.waiting <= len(seats)
        # whoever waits does so because nothing can be had
        for seat in live:
            assert (
                len(inside) == limit
                or servers[seat.server] == per_server
                or (seat.tenant is not None and tenants[seat.tenant] == per_tenant)
            )
    for seat in seats:
        places.withdraw(seat)
    while inside:
        places.leave(*inside.pop())
    assert (places.used, places.waiting) == (0, 0)
    kept = [getattr(places, name) for name in ("_queue", "_tenants", "_keys", "_servers", "_at")]
    assert not any(kept), "what has come to nothing is forgotten"
