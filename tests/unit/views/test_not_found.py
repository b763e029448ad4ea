"""The error of the views about a name that does not exist."""

import pytest

from headgate.eventlog.log import Delivery, Partition
from headgate.eventlog.snapshot import Snapshot
from headgate.records.base import Key, Record
from headgate.records.keys import AgentKey, FeedKey
from headgate.records.migration import MigrationKey
from headgate.views.history import History
from headgate.views.routes import ViewContext, why_not_found
from support import build
from support.migration_records import recorded


def known(*records: tuple[Key, Record]) -> ViewContext:
    snapshot = Snapshot()
    for offset, (key, record) in enumerate(records):
        snapshot.take(Delivery(Partition(key.topic, 0), offset, key, record))
    return ViewContext(snapshot=snapshot, history=History(), shards=1, lag=lambda _feed, _table: [])


SOME = known(
    (FeedKey("shop"), build.feed_recorded()),
    (FeedKey("lake"), build.feed_recorded()),
    (AgentKey("agent-1", "s1"), build.agent_announced()),
    (MigrationKey("m1"), recorded("{}")),
)


@pytest.mark.parametrize(
    ("path", "query", "why"),
    [
        ({}, {"feed": "shp"}, "feed 'shp' does not exist. Did you mean 'shop'? Known are: lake, shop"),
        ({"feed": "x"}, {}, "feed 'x' does not exist. Known are: lake, shop"),
        ({"agent": "agent-2"}, {}, "agent 'agent-2' does not exist. Did you mean 'agent-1'? Known are: agent-1"),
        ({"migration": "z"}, {}, "migration 'z' does not exist. Known are: m1"),
        ({"feed": "shop", "table": "public.t"}, {}, "the topics hold nothing for feed shop, table public.t"),
        ({"shard": "9"}, {}, "the topics hold nothing for shard 9"),
    ],
)
def test_the_name_that_does_not_exist_is_named(path: dict[str, str], query: dict[str, str], why: str) -> None:
    assert why_not_found(SOME, path, query) == why


def test_without_any_feed_none_is_proposed() -> None:
    assert why_not_found(known(), {}, {"feed": "shop"}) == "feed 'shop' does not exist. There are none yet"
