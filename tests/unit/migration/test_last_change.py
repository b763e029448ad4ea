"""Which record of a topic is the table's last change: by LSN at PostgreSQL, by GTID and place at MariaDB."""

import json
from typing import Any

import pytest

from headgate.migration.shell import topic_tail
from headgate.migration.shell.topic_tail import Events
from headgate.migration.strategies.online.lane import LastChange, TopicPosition


def event(op: str = "u", **source: Any) -> bytes:
    return json.dumps({"op": op, "before": None, "after": {"id": 1}, "source": {"db": "d"} | source}).encode()


def wrapped(value: bytes) -> bytes:
    return json.dumps({"schema": {}, "payload": json.loads(value)}).encode()


def seen(*values: bytes | None) -> Events:
    """Records of partition 0 that were read, at offsets 0, 1, …"""
    events = Events()
    for offset, value in enumerate(values):
        events.add(value, TopicPosition(0, offset))
    return events


def test_a_change_of_postgresql_is_found_by_its_lsn_and_operation() -> None:
    change = LastChange((("c",),), lsn=7)
    others = [event(lsn=6), event("d", lsn=7), None, b"not json", b"{}"]
    assert seen(*others).places(change) == ()
    assert seen(*others, event("c", lsn=7)).places(change) == (TopicPosition(0, 5),)


def test_a_mark_of_postgresql_is_found_by_its_transaction() -> None:
    change = LastChange((("u",),), txid=9)
    assert seen(event(lsn=9, txId=8), event("c", lsn=9, txId=9)).places(change) == ()
    assert seen(event(lsn=1, txId=9)).places(change) == (TopicPosition(0, 0),)


def test_an_update_of_a_key_is_there_once_both_of_its_events_are_whatever_partition_they_are_in() -> None:
    change, events = LastChange((("u",), ("d", "c")), lsn=7), Events()
    events.add(event("c", lsn=7), TopicPosition(1, 40))
    assert events.places(change) == ()
    events.add(event("d", lsn=7), TopicPosition(0, 3))
    assert events.places(change) == (TopicPosition(0, 3), TopicPosition(1, 40))
    assert seen(event("u", lsn=7)).places(change) == (TopicPosition(0, 0),)


@pytest.mark.parametrize("form", [lambda value: value, wrapped])
def test_a_mark_of_mariadb_ends_with_its_second_place_however_often_the_first_is_sent(form: Any) -> None:
    change = LastChange((("u",),), gtid="0-1-9", places=2)
    before = [event(gtid="0-1-8", pos=10), event(gtid="0-1-9", pos=50), event(gtid="0-1-9", pos=50)]
    assert seen(*map(form, before)).places(change) == ()
    assert seen(*map(form, [*before, event(gtid="0-1-9", pos=90)])).places(change) == (TopicPosition(0, 3),)


def test_what_was_seen_longest_ago_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_tail, "EVENTS_MAX", 2)
    events = seen(event(lsn=1), event(lsn=2), event(lsn=3))
    assert [events.places(LastChange((("u",),), lsn=lsn)) for lsn in (1, 2, 3)] == [
        (),
        (TopicPosition(0, 1),),
        (TopicPosition(0, 2),),
    ]
