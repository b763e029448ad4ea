"""CloudEvents' attributes of a change: what names it does not depend on who reads it, or when."""

from contextlib import closing

import msgspec
import pytest

from headgate.config.sink_spec import SinkSpec
from headgate.eventlog.connection import KafkaConnection
from headgate.formats.change import Change, Operation
from headgate.records.control import Epoch
from headgate.sinks.contract import ChangeBatch, Claim, FeedIdentity, OffsetRange
from headgate.sinks.kafka import writing
from headgate.sinks.kafka.cloud_events import Attributes
from headgate.sinks.kafka.parts import unpack
from headgate.sinks.kafka.writing import KafkaStager


def claim(epoch: Epoch, incarnation: int = 0) -> Claim:
    identity = FeedIdentity("MkU3OEVBNTcwNTJENDM2Qg/headgate.", "0-7", "shop")
    return Claim(identity, "copy.orders", "shop.public.orders", epoch, incarnation, {3: 0})


UPSERT = Change(3, 9, Operation.UPSERT, {"id": 1}, {"id": 1}, 1_700_000_000_123, 6)


def test_an_upsert_has_all_that_the_specification_requires() -> None:
    assert Attributes(claim(Epoch(1, 1))).of(UPSERT, b'{"id":1}') == {
        "ce_id": b"shop.public.orders/3/9",
        "ce_source": b"/headgate/MkU3OEVBNTcwNTJENDM2Qg/headgate/shop",
        "ce_specversion": b"1.0",
        "ce_subject": b'{"id":1}',
        "ce_time": b"2023-11-14T22:13:20.123Z",
        "ce_type": b"headgate.upsert",
        "content-type": b"application/json",
    }


def test_a_deletion_has_no_data_and_a_time_that_is_unknown_is_left_out() -> None:
    deleted = Change(3, 9, Operation.DELETE, {"id": 1}, None, None, 6)
    headers = Attributes(claim(Epoch(1, 1))).of(deleted, b'{"id":1}')
    assert headers["ce_type"] == b"headgate.delete"
    assert not headers.keys() & {"ce_time", "content-type"}


def test_an_event_keeps_its_name_under_another_claim() -> None:
    first, later = (Attributes(each).of(UPSERT, b"k") for each in (claim(Epoch(1, 1)), claim(Epoch(7, 2), 3)))
    assert first == later


def test_each_change_of_a_record_has_a_name_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers leave out events whose name they have seen."""
    monkeypatch.setattr(writing, "record_bytes_max", lambda _connection, _topic: 1000)
    places = [(9, Operation.DELETE), (9, Operation.UPSERT), (10, Operation.UPSERT), (11, Operation.TRUNCATE)]
    places += [(12, Operation.UPSERT)] * 3
    changes = [
        Change(3, offset, operation, {"id": id_}, {"id": id_} if operation is Operation.UPSERT else None, None, 6)
        for id_, (offset, operation) in enumerate(places)
    ]
    batch = ChangeBatch(claim(Epoch(1, 1)), {3: OffsetRange(9, 13)}, changes)
    options = SinkSpec.model_validate({"type": "kafka", "dsn": "kafka://localhost:1", "format": "cloudevents"})
    with closing(KafkaStager(KafkaConnection("localhost:1"), options)) as stager:
        until_truncated = stager.stage(batch)
        names = _names(until_truncated.payload)
        assert until_truncated.ranges == {3: OffsetRange(9, 11)}
        rest = msgspec.structs.replace(batch, ranges={3: OffsetRange(12, 13)}, changes=changes[4:])
        names += _names(stager.stage(rest).payload)
    assert names == ["9", "9/1", "10", "12", "12/1", "12/2"]


def _names(payload: bytes) -> list[str]:
    """What the ids of staged records have after the partition."""
    ids = [headers["ce_id"].decode() for part in unpack(payload) for headers in part.headers]
    return [id_.removeprefix("shop.public.orders/3/") for id_ in ids]
