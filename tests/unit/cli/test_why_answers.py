"""What `headgate why` compares a migration's table with."""

from headgate.cli.why_answers import feed_tables
from headgate.records.control import FeedRecorded, FeedState, SpanPlan, WantedState


def test_a_table_that_is_called_like_a_slice_is_itself_and_not_a_part_of_another() -> None:
    spec = '{"feed": "f", "source": {"topics": ["t"]}, "sink": {"type": "postgresql", "dsn": "dbname=x"}}'
    plan = SpanPlan("a.b@c=d", "t", "a.b@c=d", {0: 5})
    record = FeedRecorded("0-1", 0, 0, spec, (plan,), WantedState.RUNNING, FeedState.NORMAL, None, None, None, 0)
    assert feed_tables("f", record).tables == {'a."b@c=d"'}
