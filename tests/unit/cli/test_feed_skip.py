"""Records that are named to be skipped although the feed has read them already."""

import json
from contextlib import nullcontext

import pytest
from typer.testing import CliRunner

from headgate.cli import feed_skip
from headgate.cli.feed_skip import already_read
from headgate.cli.main import app
from headgate.config.feed import SkippedRecord
from headgate.eventlog.log import Delivery, Partition
from headgate.eventlog.snapshot import Snapshot
from headgate.records.control import SpanPlan
from headgate.records.keys import FeedKey, FeedProgressKey
from support import build

A = SpanPlan(span="public.a", topic="src", table="public.a", start={0: 5, 1: 7})
B = SpanPlan(span="public.b", topic="src", table="public.b", start={0: 5, 1: 7})
SPEC = {
    "feed": "shop",
    "source": {"topics": ["src"], "tables": ["public.a", "public.b"]},
    "sink": {"type": "postgresql", "dsn": "postgresql://h/d"},
}
FEED = build.feed_recorded(spec=json.dumps(SPEC), spans=(A, B))


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ("src/0/8", {"src/0/8": 9}),
        ("src/0/9", {}),
        ("src/1/6", {"src/1/6": 7}),  # before the feed's start
        ("src/1/7", {}),  # one table has read it, the other one has not
        ("src/7/0", {}),
        ("other/0/0", {}),
    ],
)
def test_a_record_has_been_read_once_every_table_of_its_topic_is_behind_it(
    record: str, expected: dict[str, int]
) -> None:
    assert dict(already_read(_snapshot(), "shop", FEED, [SkippedRecord(record=record)])) == expected


def test_the_command_warns_about_them_and_only_about_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_skip, "connected", lambda _cluster: nullcontext((None, None)))
    monkeypatch.setattr(feed_skip, "read_snapshot", lambda _log: _snapshot())
    asked = ("feed", "skip", "shop", "src/0/8", "src/0/9", "--dry-run", "-o", "json")
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["already_read"] == ["src/0/8"]
    (warning,) = result.stderr.splitlines()
    assert "has read src/0/8 already" in warning
    assert "continues at offset 9" in warning


def _snapshot() -> Snapshot:
    snapshot = Snapshot()
    snapshot.take(Delivery(Partition("changefeed", 0), 0, FeedKey("shop"), FEED))
    progress = build.feed_progressed(incarnation=1, positions={"public.a": {0: 9, 1: 8}, "public.b": {0: 12}})
    snapshot.take(Delivery(Partition("checkpoint", 0), 0, FeedProgressKey("shop"), progress))
    return snapshot
