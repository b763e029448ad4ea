"""Where several sources go to one table, people see which span is of which source."""

from headgate.cli.span_columns import span_columns
from headgate.records.control import FeedRecorded, FeedState, SpanPlan, WantedState

RUNNING = (WantedState.RUNNING, FeedState.NORMAL, None, None, None, 0)
INTO = '{"tables": {"*.o": {"into": {"table": "o", "discriminator": {"t": "1"}}}}}'


def feed(table: str, spec: str) -> FeedRecorded:
    return FeedRecorded("0-1", 0, 0, spec, (SpanPlan(table, "t", table, {0: 5}),), *RUNNING)


def test_the_source_is_shown_where_several_go_to_one_table() -> None:
    alone, shared = feed("public.orders", "{}"), feed("public.orders@tenant=1", INTO)
    assert "topic" not in span_columns([alone], "feed")
    assert span_columns([alone, shared], "feed")[:3] == ("feed", "span", "topic")


def test_a_table_that_is_called_like_a_slice_has_one_source() -> None:
    assert "topic" not in span_columns([feed("public.orders@tenant=1", "{}")], "feed")
