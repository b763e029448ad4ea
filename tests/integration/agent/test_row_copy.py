"""Rows that the log did not bring: copied from the source while the table stands still, on a real lane."""

from typing import Any

import pytest

from support.waiting import eventually

from .copied_tables import Copied, copied

__all__ = ["copied"]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]


def test_rows_are_copied_before_the_log_goes_on_and_end_as_the_source_has_them(copied: Copied) -> None:
    task = copied.task()
    copied.start(task)
    copied.log({1: ("one", 1), 2: ("two", 2), 3: ("three", 3), 4: ("four", 4)})
    eventually(lambda: len(copied.sink) == 4, "the log is applied")
    copied.seal(task)
    # Row 2 was changed at the sink, row 5 lost there, row 6 is only there. Row 3 was deleted at the source, row 4 has
    # got another key, and row 1 was changed: the log has all of that behind the sink's position.
    copied.bed.database.execute("UPDATE items SET name = 'wrong' WHERE id = 2")
    copied.bed.database.execute("INSERT INTO items VALUES (6, 'surplus', 6)")
    copied.has({1: ("uno", 1), 2: ("two", 2), 5: ("five", 5), 7: ("four", 4)})
    copied.log({3: None, 4: None, 7: ("four", 4), 1: ("first", 1)})
    copied.log({1: ("uno", 1)})

    copied.start(copied.task([1, 2, 3, 4, 5, 6], delete=True))
    wanted = {1: ("uno", 1), 2: ("two", 2), 5: ("five", 5), 7: ("four", 4)}
    eventually(lambda: copied.sink == wanted, "all are as at the source")
    copied.log({8: ("eight", 8)})
    eventually(lambda: copied.sink == {**wanted, 8: ("eight", 8)}, "and the log goes on")


def test_rows_that_only_the_sink_has_are_left_unless_they_are_to_be_deleted(copied: Copied) -> None:
    copied.bed.database.execute("INSERT INTO items VALUES (6, 'surplus', 6)")
    copied.has({1: ("one", 1)})
    copied.start(copied.task([1, 6]))
    assert copied.sink == {1: ("one", 1), 6: ("surplus", 6)}, "before the first batch, by now"


@pytest.mark.parametrize(
    ("keys", "column", "words"),
    [
        (["x"], "id", "'x' is not an integer"),
        ([1], "qty", "rows were named by qty, and the sink finds them by id"),
        ([1], "none", "rows were named by none, and the sink finds them by id"),
    ],
)
def test_a_copy_that_cannot_be_made_is_an_error_of_its_own(
    copied: Copied, keys: list[Any], column: str, words: str
) -> None:
    copied.has({1: ("one", 1)})
    task = copied.task(keys, column=column)
    copied.executor.add_table(task, prepare=False)
    status = copied.failed(task)
    assert (status.error_code, status.retryable) == ("copy_failed", False)
    assert words in (status.error or "")
    assert copied.sink == {}
    copied.start(copied.task())


def test_a_value_that_the_sink_refuses_stops_the_copy_and_writes_nothing(copied: Copied) -> None:
    copied.bed.database.execute("ALTER TABLE items ADD CHECK (qty < 10)")
    copied.has({1: ("one", 1), 2: ("two", 20)})
    task = copied.task([1, 2])
    copied.executor.add_table(task, prepare=False)
    status = copied.failed(task)
    assert status.error_code == "copy_failed"
    assert "check violation" in (status.error or "")
    assert copied.sink == {}
