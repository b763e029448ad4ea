"""The rule of a copy, against every order in which client, log, feed, operator and copier can take their steps.

Keys 1 and 2 are two ranges. A history of the client's is a list of changes; each is in the log first and seen by
readers later, as PostgreSQL does it. The topic has one or two partitions, which fill independently of each other. The
copier holds the feed, reads and writes each range, and lets the feed go on. When it cuts over, the copy must be the
table.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import get_args

import pytest

from headgate.migration.core import copy_steps
from headgate.migration.core.copy_steps import CopyStage, CopyStep, FeedSeen, Position, next_step

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
    """``topic`` and ``feed``: of each partition, how many of its events are there, and how many were applied."""

    topic: tuple[int, ...]
    feed: tuple[int, ...]
    logged: int = 0
    visible: int = 0
    feed_goes: bool = True
    stage: CopyStage = "begun"
    barrier: int | None = None
    held: tuple[int, ...] | None = None
    read: tuple[tuple[int, Rows], ...] = ()
    written: frozenset[int] = frozenset()
    copy: Rows = ()
    meddled: bool = False
    ended: bool = False
    is_over: bool = False
    """The copy has taken the table's place."""


@dataclass(frozen=True)
class Rules:
    """What is kept, or for once is not. ``marks_each``: there is a mark in every partition, not in the first alone."""

    history: tuple[Event, ...]
    partitions: int = 1
    waits: bool = True
    marks_each: bool = True

    def events(self, partition: int, logged: int | None = None) -> tuple[Event, ...]:
        """A partition's, in their order; a row's changes go to the partition of its key."""
        history = self.history if logged is None else self.history[:logged]
        return tuple(event for event in history if event[1] % self.partitions == partition)


def one_more(numbers: tuple[int, ...], index: int) -> tuple[int, ...]:
    return tuple(number + (place == index) for place, number in enumerate(numbers))


def steps(world: World, rules: Rules, states: list[Rows]) -> Iterator[World]:
    """Every world that can be next."""
    if world.is_over:
        return
    if world.logged < len(rules.history):
        # With one partition a change that is late on the topic is the same as one that is late in the log.
        logged = world.logged + 1
        yield replace(world, logged=logged, topic=(logged,) if rules.partitions == 1 else world.topic)
    if world.visible < world.logged:
        yield replace(world, visible=world.visible + 1)
    for partition in range(rules.partitions):
        events, there, applied_to = rules.events(partition, world.logged), world.topic[partition], world.feed[partition]
        if there < len(events):
            yield replace(world, topic=one_more(world.topic, partition))
        if world.feed_goes and applied_to < there:
            copy = applied(world.copy, events[applied_to])
            yield replace(world, feed=one_more(world.feed, partition), copy=copy)
    if world.stage == "paused" and not world.feed_goes and not world.meddled:
        yield replace(world, feed_goes=True, meddled=True)  # an operator resumes the feed
    if not world.ended:
        yield from copier_steps(world, rules, states)


def copier_steps(world: World, rules: Rules, states: list[Rows]) -> Iterator[World]:
    if world.stage == "begun" and world.feed_goes:
        yield replace(world, feed_goes=False)  # proven, paused
    elif world.stage == "begun" and world.barrier is None:
        yield replace(world, barrier=world.logged if rules.waits else 0)
    elif world.stage == "begun" and world.barrier is not None:
        # Whoever had the table open for writing when the feed stood still has ended, and so is visible.
        if world.visible >= world.barrier:
            yield replace(world, stage="paused", held=world.feed)
    elif world.stage == "paused":
        yield from range_steps(world, states)
    elif not world.feed_goes:
        yield replace(world, feed_goes=True)
    elif world.visible == len(rules.history) and is_behind_marks(world, rules):
        yield replace(world, is_over=True)  # under the lock: no change comes any more


def range_steps(world: World, states: list[Rows]) -> Iterator[World]:
    assert world.held is not None
    held, seen = (Position("f", dict(enumerate(place)), True) for place in (world.held, world.feed))
    for key in KEYS:
        if key in world.written:
            continue
        mine = dict(world.read)
        if key not in mine:
            rows = tuple(row for row in states[world.visible] if row[0] == key)
            yield replace(world, read=tuple(sorted({**mine, key: rows}.items())))
        elif copy_steps.may_write(held, Position("f", seen.offsets, not world.feed_goes)):
            # What the copy has of the range already is written over, or deleted first.
            for kept in (world.copy, [row for row in world.copy if row[0] != key]):
                rows = tuple(sorted({**dict(kept), **dict(mine[key])}.items()))
                yield replace(world, copy=rows, written=world.written | {key})
        else:
            yield replace(world, ended=True)
    if len(world.written) == len(KEYS):
        after_it = FeedSeen.GOING if world.feed_goes else FeedSeen.STOPPED
        yield replace(world, stage="copied", ended=next_step("copied", after_it) is CopyStep.END)


def is_behind_marks(world: World, rules: Rules) -> bool:
    """A mark is its partition's last event, so the feed is behind it once it has applied all others.

    Partitions without one (``marks_each``): all that is there when the first one's mark is seen, and no more.
    """
    marked = range(rules.partitions if rules.marks_each else 1)
    return world.feed == world.topic and all(world.feed[p] == len(rules.events(p)) for p in marked)


def wrong(rules: Rules) -> World | None:
    """A world in which the copy has taken the table's place and is not the table; None if there is none."""
    states = [START]
    for event in rules.history:
        states.append(after(states[-1], event))
    zeros = (0,) * rules.partitions
    seen, open_worlds, ends = set(), [World(zeros, zeros)], 0
    while open_worlds:
        world = open_worlds.pop()
        if world in seen:
            continue
        seen.add(world)
        open_worlds += steps(world, rules, states)
        ends += world.is_over
        if world.is_over and world.copy != states[-1]:
            return world
    assert ends, "it can come to its end"
    return None


def test_in_every_order_of_steps_the_copy_becomes_the_table() -> None:
    for history in itertools.chain.from_iterable(histories(length) for length in range(4)):
        assert wrong(Rules(history)) is None, history


def test_in_every_order_of_steps_and_partitions_the_copy_becomes_the_table() -> None:
    for history in itertools.chain.from_iterable(histories(length) for length in range(3)):
        assert wrong(Rules(history, partitions=2)) is None, history


def test_a_mark_in_one_partition_says_nothing_of_what_is_on_its_way_to_another() -> None:
    assert any(wrong(Rules(history, partitions=2, marks_each=False)) is not None for history in histories(2))


def test_a_feed_that_goes_on_while_rows_are_copied_brings_deleted_rows_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard is what keeps it right, and this search would notice it missing."""
    unguarded: Callable[[Position, Position | None], bool] = lambda _held, _seen: True  # noqa: E731
    monkeypatch.setattr(copy_steps, "may_write", unguarded)
    assert any(wrong(Rules(history)) is not None for history in histories(2))


def test_without_waiting_for_writers_a_row_may_be_read_before_a_change_that_the_feed_has_passed() -> None:
    assert any(wrong(Rules(history, waits=False)) is not None for history in histories(2))


@pytest.mark.parametrize(
    ("seen", "may"),
    [
        (Position("0-7", {0: 5, 1: 2}, True), True),
        (Position("0-7", {0: 5, 1: 2}, False), False),
        (Position("0-7", {0: 5, 1: 3}, True), False),
        (Position("0-7", {0: 5}, True), False),
        (Position("0-8", {0: 5, 1: 2}, True), False),
        (None, False),
    ],
)
def test_a_range_is_written_only_where_the_feed_stood(seen: Position | None, may: bool) -> None:
    assert copy_steps.may_write(Position("0-7", {0: 5, 1: 2}, True), seen) is may


def test_the_steps_of_each_stage() -> None:
    found = {(stage, feed): next_step(stage, feed) for stage in get_args(CopyStage) for feed in FeedSeen}
    going, stopped, absent = FeedSeen.GOING, FeedSeen.STOPPED, FeedSeen.ABSENT
    assert {pair: step for pair, step in found.items() if step is not CopyStep.END} == {
        ("begun", absent): CopyStep.CREATE,
        ("begun", going): CopyStep.PROVE,
        ("begun", stopped): CopyStep.HOLD,
        ("paused", stopped): CopyStep.COPY,
        ("copied", stopped): CopyStep.RESUME,
        ("copied", going): CopyStep.CATCH_UP,
        ("level", going): CopyStep.PAUSE,
        ("level", stopped): CopyStep.ADD_KEYS,
        ("keyed", stopped): CopyStep.RESUME,
        ("keyed", going): CopyStep.CATCH_UP,
        ("returning", absent): CopyStep.CREATE,
        ("returning", stopped): CopyStep.RESUME,
        ("returning", going): CopyStep.CATCH_UP,
    }


def test_a_feed_is_behind_where_one_of_its_partitions_is() -> None:
    position = Position("f", {0: 5, 1: 2}, False)
    assert not position.is_behind({0: 5, 1: 2}, None)
    assert position.is_behind({0: 4, 1: 3}, None)
    assert position.is_behind({2: 1}, None)
    assert not position.is_behind({}, None)


def test_a_feed_that_read_another_topic_of_that_name_is_behind() -> None:
    position = Position("f", {0: 5}, False, "id-old")
    assert not position.is_behind({0: 3}, "id-old")
    assert not position.is_behind({0: 3}, None)
    assert position.is_behind({0: 3}, "id-new")
