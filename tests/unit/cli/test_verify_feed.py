"""What a comparison waits for: changes that the feed is going to apply, and no others."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headgate.cli.verify_feed import FeedSource, TableFeed, _has_snapshot
from headgate.eventlog.kafka import KafkaLog
from headgate.records.control import FeedState, PausedTable, SpanPlan, WantedState
from headgate.verify.contract import Side
from support.build import feed_recorded

PLAN = SpanPlan("public.t", "topic", "public.t", {0: 0, 1: 5})
PAUSED = PausedTable("public.t", "ann@shop", 1)


class Target:
    """The sink's positions are those of partition 0 only."""

    def applied(self, feed_id: str, table: str) -> dict[int, int]:
        del feed_id, table
        return {0: 7}


def feed(**fields: Any) -> TableFeed:
    spec = {
        "feed": "shop",
        "source": {"topics": ["topic"]},
        "sink": {"type": "postgresql", "dsn": "host=db dbname=shop"},
    }
    record = feed_recorded(spans=(PLAN,), spec=json.dumps(spec), **fields)
    side = cast("Side", Target())
    return TableFeed(record, PLAN, FeedSource(record, cast("KafkaLog", SimpleNamespace(connection=None))), side, side)


def test_it_is_behind_where_a_partition_has_more_than_was_applied() -> None:
    running = feed(wanted=WantedState.RUNNING)
    assert running.is_running
    assert running.why_behind({0: 7, 1: 5}) == ""
    assert running.why_behind({0: 7, 1: 6}) == "has applied topic/1 to offset 5 of 6"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"wanted": WantedState.STOPPED, "state": FeedState.STOPPED}, "is stopped and has applied"),
        ({"wanted": WantedState.RUNNING, "state": FeedState.FAILED}, "is failed and has applied"),
        ({"wanted": WantedState.RUNNING, "paused": (PAUSED,)}, "which ann@shop has paused, and has applied"),
    ],
)
def test_what_nobody_applies_is_not_waited_for(fields: dict[str, Any], said: str) -> None:
    stopped = feed(**fields)
    assert not stopped.is_running
    assert said in stopped.why_behind({0: 8})


@pytest.mark.parametrize(
    ("source", "more", "expected"),
    [
        ({}, {}, True),
        ({"start": "latest"}, {}, False),
        ({"start_ts": 1 << 62}, {}, False),
        ({"format": "canal-json"}, {}, False),
        ({"database": {"dsn": "host=db dbname=shop"}}, {"snapshot": "initial"}, False),
    ],
    ids=["from the start", "from the end", "from a time", "no Debezium", "rows copied by the feed"],
)
def test_only_a_feed_that_reads_the_connectors_snapshot_waits_for_its_first_row(
    source: dict[str, Any], more: dict[str, Any], *, expected: bool
) -> None:
    sink = {"type": "postgresql", "dsn": "host=db dbname=sink"}
    spec = {"feed": "shop", "source": {"topics": ["topic"]} | source, "sink": sink} | more
    assert _has_snapshot(feed_recorded(spans=(PLAN,), spec=json.dumps(spec))) == expected


def test_another_table_that_is_paused_does_not_count() -> None:
    assert feed(wanted=WantedState.RUNNING, paused=(PausedTable("public.other", "ann@shop", 1),)).is_running
