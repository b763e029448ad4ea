"""The rule of a copy, against every order in which client, log, feed, operator and copier can take their steps.

Keys 1 and 2 are two ranges. A history of the client's is a list of changes; each is in the log first and seen by
readers later, as PostgreSQL does it. The copier holds the feed, reads and writes each range, and lets the feed go on.
When nothing is left to do, the copy must be the table.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from headgate.migration.core import copy_steps
from headgate.migration.core.copy_steps import CopyStage, FeedSeen, Position, Step, next_step

Rows = tuple[tuple[int, tuple[int, int]], ...]
"""key → (small, large), sorted. An update leaves the large value out of its event, as Debezium does."""

Event = tuple[str, int, int]
"""put, set or cut · key · number, which becomes the value."""

KEYS = (1, 2)


def after(rows: Rows, event: Event) -> Rows:
    """The table after a change of the client's."""
    kind, key, number = event
    found = dict(rows)
    if kind == "put":
        found[key] = (number, number)
    elif kind == "set":
        found[key] = (number, found[key][1])
    else:
        del found[key]
    return tuple(sorted(found.items()))


def applied(rows: Rows, event: Event) -> Rows:
    """The copy after the event was applied; an update of a row that is not there finds none."""
    kind, key, number = event
    found = dict(rows)
    if kind == "put":
        found[key] = (number, number)
    elif kind == "set" and key in found:
        found[key] = (number, found[key][1])
    elif kind == "cut":
        found.pop(key, None)
    return tuple(sorted(found.items()))


def histories(length: int) -> Iterator[tuple[Event, ...]]:
    """Every history of changes that a table with rows 1 (and not 2) allows. A key's change is a cut and a put."""

    def grow(rows: Rows, so_far: tuple[Event, ...]) -> Iterator[tuple[Event, ...]]:
        if len(so_far) == length:
            yield so_far
            return
        present = {key for key, _ in rows}
        for key in KEYS:
            for kind in ("set", "cut") if key in present else ("put",):
                event = (kind, key, len(so_far) + 1)
                yield from grow(after(rows, event), (*so_far, event))

    return grow(START, ())


START: Rows = ((1, (0, 0)),)


@dataclass(frozen=True)
class World:
    logged: int = 0
    visible: int = 0
    feed: int = 0
    feed_goes: bool = True
    stage: CopyStage = "begun"
    barrier: int | None = None
    held: int | None = None
    read: tuple[tuple[int, Rows], ...] = ()
    written: frozenset[int] = frozenset()
    copy: Rows = ()
    meddled: bool = False
    ended: bool = False


def steps(world: World, history: tuple[Event, ...], states: list[Rows], *, waits: bool) -> Iterator[World]:
    """Every world that can be next."""
    if world.logged < len(history):
        yield replace(world, logged=world.logged + 1)
    if world.visible < world.logged:
        yield replace(world, visible=world.visible + 1)
    if world.feed_goes and world.feed < world.logged:
        yield replace(world, feed=world.feed + 1, copy=applied(world.copy, history[world.feed]))
    if world.stage == "paused" and not world.feed_goes and not world.meddled:
        yield replace(world, feed_goes=True, meddled=True)  # an operator resumes the feed
    if not world.ended:
        yield from copier_steps(world, states, waits=waits)


def copier_steps(world: World, states: list[Rows], *, waits: bool) -> Iterator[World]:
    if world.stage == "begun" and world.feed_goes:
        yield replace(world, feed_goes=False)  # proven, paused
    elif world.stage == "begun" and world.barrier is None:
        yield replace(world, barrier=world.logged if waits else 0)
    elif world.stage == "begun" and world.barrier is not None:
        # Whoever had the table open for writing when the feed stood still has ended, and so is visible.
        if world.visible >= world.barrier:
            yield replace(world, stage="paused", held=world.feed)
    elif world.stage == "paused":
        assert world.held is not None
        held = Position("f", world.held, True)
        for key in KEYS:
            if key in world.written:
                continue
            mine = dict(world.read)
            if key not in mine:
                rows = tuple(row for row in states[world.visible] if row[0] == key)
                yield replace(world, read=tuple(sorted({**mine, key: rows}.items())))
            elif copy_steps.may_write(held, Position("f", world.feed, not world.feed_goes)):
                rows = tuple(sorted({**dict(world.copy), **dict(mine[key])}.items()))
                yield replace(world, copy=rows, written=world.written | {key})
            else:
                yield replace(world, ended=True)
        if len(world.written) == len(KEYS):
            seen = FeedSeen.GOING if world.feed_goes else FeedSeen.STOPPED
            yield replace(world, stage="copied", ended=next_step("copied", seen) is Step.END)
    elif not world.feed_goes:
        yield replace(world, feed_goes=True)


def wrong(history: tuple[Event, ...], *, waits: bool = True) -> World | None:
    """A world in which all is done and the copy is not the table; None if there is none."""
    states = [START]
    for event in history:
        states.append(after(states[-1], event))
    seen, open_worlds = set(), [World()]
    while open_worlds:
        world = open_worlds.pop()
        if world in seen:
            continue
        seen.add(world)
        following = list(steps(world, history, states, waits=waits))
        open_worlds += following
        is_done = not following and world.stage == "copied" and not world.ended
        if is_done and world.copy != states[-1]:
            return world
    return None


def test_in_every_order_of_steps_the_copy_becomes_the_table() -> None:
    for history in itertools.chain.from_iterable(histories(length) for length in range(4)):
        assert wrong(history) is None, history


def test_a_feed_that_goes_on_while_rows_are_copied_brings_deleted_rows_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard is what keeps it right, and this search would notice it missing."""
    unguarded: Callable[[Position, Position | None], bool] = lambda _held, _seen: True  # noqa: E731
    monkeypatch.setattr(copy_steps, "may_write", unguarded)
    assert any(wrong(history) is not None for history in histories(2))


def test_without_waiting_for_writers_a_row_may_be_read_before_a_change_that_the_feed_has_passed() -> None:
    assert any(wrong(history, waits=False) is not None for history in histories(2))


@pytest.mark.parametrize(
    ("seen", "may"),
    [
        (Position("0-7", 5, True), True),
        (Position("0-7", 5, False), False),
        (Position("0-7", 6, True), False),
        (Position("0-8", 5, True), False),
        (None, False),
    ],
)
def test_a_range_is_written_only_where_the_feed_stood(seen: Position | None, may: bool) -> None:
    assert copy_steps.may_write(Position("0-7", 5, True), seen) is may


def test_the_steps_of_each_stage() -> None:
    found = {(stage, feed): next_step(stage, feed) for stage in ("begun", "paused", "copied") for feed in FeedSeen}
    going, stopped, absent = FeedSeen.GOING, FeedSeen.STOPPED, FeedSeen.ABSENT
    assert {pair: step for pair, step in found.items() if step is not Step.END} == {
        ("begun", absent): Step.CREATE,
        ("begun", going): Step.PROVE,
        ("begun", stopped): Step.HOLD,
        ("paused", stopped): Step.COPY,
        ("copied", stopped): Step.RESUME,
        ("copied", going): Step.CATCH_UP,
    }
