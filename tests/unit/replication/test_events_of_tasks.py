"""Events that a sink writes are found by the place of the change, and kept for no other sink."""

import msgspec
import pytest

from headgate.replication.rows import SpanRows
from headgate.sinks.contract import Applied, ChangeBatch, RawEvent

from .conftest import RecordingParts, chunk, run, work

HEAD = b'{"schema":{},"payload":'


def test_every_change_finds_the_event_that_it_came_as(parts: RecordingParts, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[int, RawEvent]] = []
    apply = parts.apply

    def applied(batch: ChangeBatch) -> Applied:
        assert batch.events is not None
        assert not batch.events.are_shaped
        places = [(change.partition, change.offset) for change in batch.changes]
        found.extend((offset, batch.events.of(partition, offset)) for partition, offset in [*places, *places[::-1]])
        return apply(batch)

    monkeypatch.setattr(parts, "apply", applied)
    parts.writes_events = True
    run([work("a", {0: 5, 1: 5})], [chunk("a", 0, [5, 6]), chunk("a", 1, [5, 9]), chunk("a", 0, [7, 8])])
    assert len(found) == 12
    for offset, event in found:
        assert (event.key, event.head) == (b'{"id":%d}' % offset, None)
        assert f'"after":{{"id":{offset}}}'.encode() in (event.value or b"")


def test_an_event_has_the_head_that_was_cut_off() -> None:
    rows = SpanRows(work("a", {0: 5}))
    rows.originals = [msgspec.structs.replace(chunk("a", 0, [5]), head=HEAD, values=[b"{}"])]
    events = rows.batch_from({}, None, with_events=True).events
    assert events is not None
    assert events.of(0, 5) == RawEvent(b'{"id":5}', b"{}", HEAD)


def test_other_sinks_get_no_events(parts: RecordingParts) -> None:
    run([work("a", {0: 5})], [chunk("a", 0, [5, 6])])
    assert [batch.events for batch in parts.batches] == [None]
