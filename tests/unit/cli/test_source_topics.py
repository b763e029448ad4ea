"""A feed's source topics: the sink's position is the furthest that anybody says, never before the feed's start."""

from types import SimpleNamespace
from typing import Any

import pytest

from headgate.app.exit_codes import ExitCode, exit_code_of
from headgate.cli import source_topics
from headgate.cli.source_topics import source_rows
from headgate.eventlog.log import Delivery, Partition
from headgate.eventlog.snapshot import Snapshot
from headgate.records.control import SpanPlan
from headgate.records.keys import FeedKey, FeedProgressKey
from support import build

PLAN = SpanPlan(span="public.t", topic="src.t", table="public.t", start={0: 5, 1: 7})
FEED = build.feed_recorded(spans=(PLAN,), changed_ms=5)


def _snapshot(incarnation: int | None) -> Snapshot:
    snapshot = Snapshot()
    snapshot.take(Delivery(Partition("changefeed", 0), 0, FeedKey("shop"), FEED))
    if incarnation is not None:
        told = build.feed_progressed(incarnation=incarnation, positions={"public.t": {0: 9, 1: 6}})
        snapshot.take(Delivery(Partition("checkpoint", 0), 0, FeedProgressKey("shop"), told))
    return snapshot


@pytest.fixture
def present(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What the broker has; no broker is asked."""
    topics = {"src.t": 2}
    monkeypatch.setattr(source_topics, "present_topics", lambda _: topics)
    monkeypatch.setattr(source_topics, "start_offsets", lambda *_: {"src.t": {0: 1, 1: 2}})
    monkeypatch.setattr(source_topics, "end_offsets", lambda *_: {"src.t": {0: 10, 1: 7}})
    monkeypatch.setattr(source_topics, "topic_settings", lambda *_: ({}, {"src.t": "not allowed"}))
    return topics


NOBODY: Any = SimpleNamespace(connection=None)


@pytest.mark.parametrize(("incarnation", "positions"), [(None, [5, 7]), (1, [9, 7]), (0, [5, 7])])
def test_positions_and_lag(present: dict[str, int], incarnation: int | None, positions: list[int]) -> None:
    rows = source_rows(NOBODY, _snapshot(incarnation), "shop")
    assert [row["position"] for row in rows] == positions
    assert [row["lag"] for row in rows] == [10 - positions[0], 0]
    assert [(row["first"], row["end"]) for row in rows] == [(1, 10), (2, 7)]
    assert {(row["retention_ms"], row["cleanup_policy"], row["notices"]) for row in rows} == {
        (None, None, "not allowed")
    }


def test_a_topic_that_is_gone_and_a_feed_that_is_none(present: dict[str, int]) -> None:
    present.clear()
    for feed, code, said in (("shop", ExitCode.SOURCE, "src.t"), ("other", ExitCode.NOT_FOUND, "Known are: shop")):
        with pytest.raises(Exception, match=said) as raised:
            source_rows(NOBODY, _snapshot(None), feed)
        assert exit_code_of(raised.value) is code
