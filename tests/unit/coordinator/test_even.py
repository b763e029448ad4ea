"""An agent that joins gets its share, and nothing goes back and forth for it, neither by itself nor beside balance."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.coordinator.schedulers import even
from headgate.records.keys import SpanKey
from scenarios.runner import World

SESSIONS = [(name, "s") for name in "abcdef"]
Held = dict[tuple[str, str], list[SpanKey]]


def counts_of(held: Held) -> dict[tuple[str, str], int]:
    return {session: len(keys) for session, keys in held.items()}


def carry_out(held: Held, moves: list[tuple[SpanKey, tuple[str, str]]]) -> None:
    for key, target in moves:
        next(keys for keys in held.values() if key in keys).remove(key)
        held[target].append(key)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Held, list[tuple[str, str]], set[SpanKey]]:
    """Who holds what, who has joined, and what cannot be moved."""
    sizes = draw(st.lists(st.integers(0, 30), min_size=1, max_size=6))
    held = {s: [SpanKey(s[0], f"t{n:02}") for n in range(size)] for s, size in zip(SESSIONS, sizes, strict=False)}
    joiners = draw(st.lists(st.sampled_from(sorted(held)), unique=True))
    stuck = draw(st.sets(st.sampled_from(sorted(key for keys in held.values() for key in keys) or [SpanKey("-", "-")])))
    return held, joiners, stuck


@given(worlds())
def test_it_ends_and_every_move_is_to_a_joiner_and_evens_out(
    world: tuple[Held, list[tuple[str, str]], set[SpanKey]],
) -> None:
    held, joiners, stuck = world
    share = sum(counts_of(held).values()) // len(held)
    moved: Counter[SpanKey] = Counter()
    while True:
        before = counts_of(held)
        rooms = dict.fromkeys(joiners, even.MOVING_PER_JOINER_MAX)
        moves = even.fill(rooms, before, lambda session: sorted(held[session]), lambda key, _: key not in stuck)
        if not moves:
            break
        assert {target for _, target in moves} <= set(joiners)
        assert max(Counter(target for _, target in moves).values()) <= even.MOVING_PER_JOINER_MAX
        moved.update(key for key, _ in moves)
        carry_out(held, moves)
        after = counts_of(held)
        assert sum(n * n for n in after.values()) < sum(n * n for n in before.values())
        assert all(after[target] <= share for _, target in moves)
    for joiner in joiners:
        for giver, keys in held.items():
            has_free = any(key not in stuck for key in keys)
            assert len(held[joiner]) >= share or len(keys) - len(held[joiner]) < 2 or not has_free, (joiner, giver)
    if not stuck:
        assert all(count == 1 for count in moved.values()) or len(joiners) > 1


@given(worlds())
def test_the_same_state_gives_the_same_moves(world: tuple[Held, list[tuple[str, str]], set[SpanKey]]) -> None:
    held, joiners, stuck = world

    def moves(sessions: list[tuple[str, str]]) -> list[tuple[SpanKey, tuple[str, str]]]:
        counts = {session: len(held[session]) for session in sessions}
        rooms = {session: 4 for session in sessions if session in joiners}
        return even.fill(rooms, counts, lambda session: sorted(held[session]), lambda key, _: key not in stuck)

    assert moves(sorted(held)) == moves(sorted(held, reverse=True))


def test_nobody_to_take_from_and_no_room() -> None:
    a, b, c = SESSIONS[:3]
    keys = [SpanKey("f", f"t{n}") for n in range(4)]
    assert even.fill({b: 4}, {a: 1, b: 0}, lambda _: keys, lambda *_: True) == []
    assert even.fill({b: 0}, {a: 4, b: 0}, lambda _: keys, lambda *_: True) == []
    assert even.fill({b: 4}, {a: 2, b: 0}, lambda _: keys, lambda *_: True) == [(keys[0], b)]
    # Who holds one more than the joiner gives nothing, though the fullest cannot: the two would only change places.
    alone: Held = {a: [], c: keys[:2]}
    assert even.fill({b: 4}, {a: 5, b: 1, c: 2}, lambda session: alone[session], lambda *_: True) == []
    # The fullest first; with nothing of it that can go, the next.
    spans = {a: keys[:1], c: keys[1:]}
    got = even.fill({b: 1}, {a: 5, b: 0, c: 4}, lambda session: spans[session], lambda key, _: key != keys[0])
    assert got == [(keys[1], b)]


@pytest.mark.parametrize("busy", ["t1", "t4"])
def test_beside_balance_by_load_the_tables_come_to_rest(busy: str) -> None:
    """One table carries most. A joiner gets its number, balance relieves whoever has that table; and that is all."""
    world = World()
    for line in (
        "owner start o1",
        "agent join a1",
        "request create r1 shop tables=t1,t2,t3,t4,t5,t6",
        "obey",
        "agent join a2",
    ):
        world.run(line)
    megabytes: Counter[str] = Counter()
    places: list[tuple[str, ...]] = []
    for _ in range(24):
        state = world.owners["o1"].role.view
        for key, record in sorted(state.spans.items()):
            assert record.primary is not None
            rate = 900 if key.span == busy else 100
            megabytes[str(record.primary.epoch)] += rate
            world.run(f"progress {record.primary.agent} {key.text()} pos=1 mb={megabytes[str(record.primary.epoch)]}")
        world.run("advance 15s")
        world.run("obey")
        places.append(tuple(r.primary.agent for _, r in sorted(state.spans.items()) if r.primary is not None))
    assert sorted(Counter(places[0]).values()) == [3, 3], "first by number"
    assert sorted(Counter(places[-1]).values()) == [1, 5], "then by load"
    assert len(set(places)) == 2, "and never back"
