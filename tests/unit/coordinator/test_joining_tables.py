"""New tables of a running feed are checked as at its creation: who joins, who is left out, and what is said."""

from headgate.coordinator.shell.joining_tables import (
    CHECKS_MAX,
    LEFT_OUT_SECONDS,
    CircleError,
    JoiningTables,
    NoRecordsError,
)
from headgate.records.control import SpanPlan
from headgate.sinks.contract import SinkRefusedError, SinkUnavailableError
from headgate.sinks.misfit import MisfitError
from headgate.sources.offsets import SourceUnreachableError, TopicMissingError
from headgate.sources.preview import FormatMismatchError


def plans(*names: str) -> tuple[SpanPlan, ...]:
    return tuple(SpanPlan(name, f"db.{name}", name, {0: 0}) for name in names)


class World:
    """What is wrong with which table, and how often it was asked."""

    def __init__(self, **wrong: Exception) -> None:
        self.wrong = wrong
        self.asked: list[tuple[str, ...]] = []

    def check(self, given: tuple[SpanPlan, ...]) -> tuple[str, ...]:
        self.asked.append(tuple(plan.table for plan in given))
        for plan in given:
            if plan.table in self.wrong:
                raise self.wrong[plan.table]
        return tuple(f"warning: {plan.table} is compacted" for plan in given)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def names(found: tuple[SpanPlan, ...]) -> list[str]:
    return [plan.table for plan in found]


def test_tables_that_are_right_are_checked_together_and_join_with_their_warnings() -> None:
    world = World()
    joined, notices, warnings = JoiningTables().fit("0-1", plans("a", "b"), world.check)
    assert (names(joined), notices, world.asked) == (["a", "b"], (), [("a", "b")])
    assert warnings == ("warning: a is compacted", "warning: b is compacted")


def test_a_stray_topic_and_a_circle_are_left_out_and_a_table_that_the_sink_lacks_joins() -> None:
    world = World(b=FormatMismatchError("it is maxwell-json"), c=CircleError("it is its source"))
    world.wrong["d"] = SinkRefusedError("table d does not exist")
    world.wrong["e"] = TopicMissingError("it is gone")
    world.wrong["f"] = MisfitError("it does not fit into table t")
    joined, notices, warnings = JoiningTables().fit("0-1", plans("a", "b", "c", "d", "e", "f"), world.check)
    assert names(joined) == ["a", "d"]
    assert notices == (
        "topic db.b is left out: it is maxwell-json",
        "topic db.c is left out: it is its source",
        "topic db.e cannot join yet: source_topic_missing: it is gone",
        "topic db.f is left out: it does not fit into table t",
    )
    assert "warning: table d has joined, but sink_refused: table d does not exist" in warnings


def test_a_topic_without_records_waits_for_them_and_is_checked_then() -> None:
    """It may be a stray topic: its format is not known before, and a table that has joined stays."""
    world = World(stray=FormatMismatchError("it is maxwell-json"))
    empty = {"db.stray", "db.table"}

    def check(given: tuple[SpanPlan, ...]) -> tuple[str, ...]:
        if waiting := empty & {plan.topic for plan in given}:
            raise NoRecordsError(waiting)
        return world.check(given)

    joining, candidates = JoiningTables(Clock()), plans("a", "stray", "table")
    joined, notices, _ = joining.fit("0-1", candidates, check)
    assert names(joined) == ["a"]
    assert notices == ("not joined yet, because they have no records: db.stray, db.table",)
    assert world.asked == [("a",)], "nothing is asked about a table that does not join yet"
    empty.clear()
    joined, notices, _ = joining.fit("0-1", candidates[1:], check)
    assert names(joined) == ["table"]
    assert notices == ("topic db.stray is left out: it is maxwell-json",)


def test_what_was_left_out_is_checked_again_after_a_while() -> None:
    clock, world = Clock(), World(b=FormatMismatchError("it is maxwell-json"))
    joining = JoiningTables(clock)
    first = joining.fit("0-1", plans("b"), world.check)
    world.wrong.clear()
    clock.now = LEFT_OUT_SECONDS - 1
    assert joining.fit("0-1", plans("b"), world.check) == first
    assert world.asked == [("b",)]
    assert names(joining.fit("0-2", plans("b"), world.check)[0]) == ["b"], "another feed's topic is another matter"
    clock.now = LEFT_OUT_SECONDS
    assert names(joining.fit("0-1", plans("b"), world.check)[0]) == ["b"]


def test_while_something_does_not_answer_nobody_joins_and_nobody_is_asked_twice() -> None:
    errors: list[Exception] = [SinkUnavailableError("no answer"), SourceUnreachableError("no broker")]
    for error in errors:
        world = World(a=error)
        joined, notices, _ = JoiningTables().fit("0-1", plans("a", "b"), world.check)
        assert (joined, world.asked) == ((), [("a", "b")])
        assert notices == (f"not joined yet: db.a, db.b: {error.code}: {error}",)  # type: ignore[attr-defined]


def test_a_pattern_that_matches_thousands_of_stray_topics_is_checked_in_portions() -> None:
    stray = [f"t{number:04}" for number in range(500)]
    world = World(**{name: FormatMismatchError("other") for name in stray})
    joining = JoiningTables(Clock())
    (_, notices, _) = joining.fit("0-1", plans(*stray), world.check)
    assert len(world.asked) == CHECKS_MAX
    assert f"only {CHECKS_MAX} checks are made at a time" in notices[-1]
    looks = 1
    while "not joined yet" in notices[-1]:
        (_, notices, _) = joining.fit("0-1", plans(*stray), world.check)
        looks += 1
    assert len(notices) == len(stray)
    assert looks < len(stray)
