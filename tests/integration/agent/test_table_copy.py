"""A whole table is copied in turns while its changes are applied, and ends as the source has it, whatever is killed."""

from collections.abc import Iterator

import pytest

from headgate.agent.core.span import states
from headgate.records.control import TaskState
from headgate.records.error_codes import COPYING_CODES
from headgate.replication import row_copy
from support.waiting import eventually

from .conftest import reached
from .copied_tables import Copied, Row, copied

__all__ = ["copied"]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]

ROWS = 100


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One range in each turn."""
    monkeypatch.setattr(row_copy, "RANGE_ROWS", 30)
    monkeypatch.setattr(row_copy, "RANGE_ROWS_MAX", 30)
    monkeypatch.setattr(row_copy, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(row_copy, "FIRST_TURN_SECONDS", 0.0)
    monkeypatch.setattr(states, "CATCH_UP_SECONDS_MIN", 0.0)


def said(copied: Copied) -> Iterator[str | None]:
    """What the task says of its copy."""
    (span,) = copied.executor.all_spans()
    while True:
        status = copied.executor.status(span)
        assert status is not None
        assert status.state is not TaskState.FAILED, status
        yield status.error if status.error_code in COPYING_CODES else None


def is_done(copied: Copied) -> None:
    words = said(copied)
    eventually(lambda: next(words) is None, "nothing is left to copy")


def rows(last: int) -> dict[int, Row]:
    return {number: (f"row {number}", number) for number in range(1, last + 1)}


def change(copied: Copied, number: int, row: Row | None) -> None:
    """As a writer does, and the connector after it."""
    copied.database.execute("DELETE FROM items WHERE id = %s", (number,))
    if row is not None:
        copied.database.execute("INSERT INTO items VALUES (%s, %s, %s)", (number, *row))
    copied.log({number: row})


def test_a_table_is_copied_in_turns_while_it_changes(copied: Copied) -> None:
    copied.has(rows(ROWS))
    copied.bed.database.execute("INSERT INTO items VALUES (5, 'wrong', 0), (500, 'surplus', 5), (50000, 'surplus', 6)")
    copied.start(copied.whole(delete=True))
    for turn in range(20):
        change(copied, 1, ("first", turn))
        change(copied, ROWS, None if turn % 2 else ("last", turn))
        change(copied, ROWS + turn + 1, ("new", turn))
    wanted = rows(ROWS) | {1: ("first", 19)} | {ROWS + turn + 1: ("new", turn) for turn in range(20)}
    del wanted[ROWS]
    eventually(lambda: copied.sink == wanted, "it is as at the source")
    is_done(copied)
    copied.log({1: ("later", 1)})
    eventually(lambda: copied.sink[1] == ("later", 1), "and the log goes on")


def test_a_turn_reports_how_far_it_is_before_the_table_replicates(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_copy, "FIRST_TURN_SECONDS", 60.0)
    monkeypatch.setattr(row_copy, "REACHED_SECONDS", 0.0)
    copied.has(rows(ROWS))
    copied.database.execute("ANALYZE items")
    with copied.bed.gate(copied.plan, 75):
        copied.executor.add_table(task := copied.whole(), prepare=False)
        words = said(copied)
        eventually(lambda: "60 rows are copied of about 100 (60 %)" in (next(words) or ""), "it tells how far it is")
        status = copied.executor.status(task.id)
        assert status is not None
        assert status.state is TaskState.PREPARING
        assert " s left" in (status.error or "")
    reached(copied.executor, task.id, TaskState.REPLICATING)
    is_done(copied)


def test_rows_that_only_the_sink_has_are_left_unless_they_are_to_be_deleted(copied: Copied) -> None:
    copied.has(rows(2))
    copied.bed.database.execute("INSERT INTO items VALUES (6, 'surplus', 6)")
    copied.start(copied.whole())
    is_done(copied)
    assert copied.sink == {**rows(2), 6: ("surplus", 6)}


def test_a_copy_survives_its_spark_and_continues_where_it_was(copied: Copied) -> None:
    copied.has(rows(ROWS))
    with copied.bed.gate(copied.plan, 75):
        copied.executor.add_table(task := copied.whole(), prepare=False)
        eventually(lambda: len(copied.sink) == 60, "two ranges are copied, and the third one waits")
        copied.bed.database.execute("UPDATE items SET name = 'touched' WHERE id = 1")
        copied.bed.runtime.kill()
    reached(copied.executor, task.id, TaskState.REPLICATING)
    is_done(copied)
    assert copied.sink == rows(ROWS) | {1: ("touched", 1)}, "what was copied before was not copied again"


def test_another_agent_continues_where_the_first_one_was(copied: Copied) -> None:
    copied.has(rows(ROWS))
    with copied.bed.gate(copied.plan, 75):
        copied.executor.add_table(copied.whole(), prepare=False)
        eventually(lambda: len(copied.sink) == 60, "two ranges are copied, and the third one waits")
        copied.executor.kill()
    copied.bed.database.execute("UPDATE items SET name = 'touched' WHERE id = 1")
    copied.executor = copied.bed.executor()
    copied.start(copied.whole())
    is_done(copied)
    assert copied.sink == rows(ROWS) | {1: ("touched", 1)}


def test_a_copy_that_is_cancelled_ends_and_the_table_replicates(copied: Copied) -> None:
    copied.has(rows(ROWS))
    with copied.bed.gate(copied.plan, 75):
        copied.executor.add_table(task := copied.whole(), prepare=False)
        eventually(lambda: len(copied.sink) == 60, "two ranges are copied, and the third one waits")
        copied.executor.drop_copy("another")
        copied.executor.drop_copy("whole")
    reached(copied.executor, task.id, TaskState.REPLICATING)
    is_done(copied)
    copied.log({1: ("later", 1)})
    eventually(lambda: copied.sink[1] == ("later", 1), "the log goes on")
    assert len(copied.sink) in (60, 90), "the range that was under way may have ended"


def test_a_row_that_the_log_needs_is_copied_though_the_table_cannot_go_on_before(copied: Copied) -> None:
    """The change of a row's key value meets the value that another row still has at the sink."""
    copied.bed.database.execute("CREATE UNIQUE INDEX ON items (name)")
    copied.bed.database.execute("INSERT INTO items VALUES (90, 'row 1', 0)")
    copied.has(rows(ROWS))
    copied.executor.add_table(copied.whole(delete=True), prepare=False)
    words = said(copied)
    eventually(lambda: "the copy continues after an error" in (next(words) or ""), "it tells what it waits for")
    copied.log({90: ("row 90", 90)})
    is_done(copied)
    assert copied.sink == rows(ROWS)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("ALTER TABLE items DROP CONSTRAINT items_pkey, ALTER id TYPE numeric", "is of type numeric"),
        ("ALTER TABLE items RENAME TO others", "the source has no table public.items"),
    ],
)
def test_what_cannot_be_copied_is_refused_before_anything_is(copied: Copied, statement: str, words: str) -> None:
    copied.has(rows(2))
    copied.database.execute(statement)
    copied.executor.add_table(task := copied.whole(), prepare=False)
    status = copied.failed(task)
    assert (status.error_code, status.retryable) == ("copy_failed", False)
    assert words in (status.error or "")
    assert copied.sink == {}
