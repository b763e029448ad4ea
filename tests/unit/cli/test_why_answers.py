"""What `headgate why` compares a migration's table with."""

import pytest

from headgate.cli.why_answers import COMPARED_AFTER_SECONDS, FeedAnswer, feed_tables
from headgate.coordinator.core.feeds.explain import Explanation
from headgate.eventlog.clock import wall_ms
from headgate.records.control import FeedRecorded, FeedState, SpanPlan, WantedState


def test_a_table_that_is_called_like_a_slice_is_itself_and_not_a_part_of_another() -> None:
    spec = '{"feed": "f", "source": {"topics": ["t"]}, "sink": {"type": "postgresql", "dsn": "dbname=x"}}'
    plan = SpanPlan("a.b@c=d", "t", "a.b@c=d", {0: 5})
    record = FeedRecorded("0-1", 0, 0, spec, (plan,), WantedState.RUNNING, FeedState.NORMAL, None, None, None, 0)
    assert feed_tables("f", record).tables == {'a."b@c=d"'}


@pytest.mark.parametrize(
    ("seconds", "wanted", "state", "answer"),
    [
        (1, WantedState.RUNNING, FeedState.NORMAL, "nothing is known to hold it yet (2 tables, replicating)"),
        (COMPARED_AFTER_SECONDS, WantedState.RUNNING, FeedState.NORMAL, "nothing holds it (2 tables, replicating)"),
        (1, WantedState.RUNNING, FeedState.FINISHED, "nothing holds it (2 tables, finished)"),
    ],
)
def test_a_new_feed_is_not_called_well_before_its_source_was_compared(
    seconds: int, wanted: WantedState, state: FeedState, answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    explanation = Explanation("shop", "0-1", wanted, state, None, 2, 0, (), changed_ms=wall_ms() - seconds * 1000)
    FeedAnswer("shop", explanation, {}, "").show()
    said = " ".join(capsys.readouterr().err.split())
    assert f"shop: {answer}" in said
