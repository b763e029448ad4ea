"""What is remembered of a sink's columns, and what becomes of faults where they are read."""

import pytest

from headgate.config.feed import FeedSpecError
from headgate.replication.sink_columns import COLUMNS_SECONDS, SinkColumns
from headgate.sinks.contract import SinkRefusedError, SinkUnavailableError


class Sink:
    def __init__(self) -> None:
        self.now = 0.0
        self.reads = 0
        self.columns: tuple[str, ...] | None = ("Id",)
        self.error: Exception | None = None

    def read(self) -> tuple[str, ...] | None:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return self.columns


def test_the_sink_is_asked_once_in_a_while() -> None:
    sink = Sink()
    columns = SinkColumns("a", sink.read, lambda: sink.now)
    assert [columns() for _ in range(1000)] == [frozenset({"id"})] * 1000
    assert sink.reads == 1
    sink.columns = ("id", "Mail")
    sink.now = COLUMNS_SECONDS
    assert columns() == {"id", "mail"}
    sink.columns = None
    sink.now = 2 * COLUMNS_SECONDS
    assert [columns() for _ in range(10)] == [None] * 10
    assert sink.reads == 3


@pytest.mark.parametrize("error", [FeedSpecError("two patterns claim it"), KeyError("a"), TypeError("str")])
def test_a_fault_where_they_are_read_is_no_fault_of_the_row(error: Exception) -> None:
    sink = Sink()
    sink.error = error
    with pytest.raises(SinkUnavailableError, match=r"columns of table a cannot be read at the sink"):
        SinkColumns("a", sink.read)()
    sink.error = SinkRefusedError("no such table")
    with pytest.raises(SinkRefusedError):
        SinkColumns("a", sink.read)()
