"""Records of target topics, in both formats, and what each refuses."""

import msgspec
import pytest

from headgate.formats.change import ABSENT, Change, ChangeError, Operation, Row
from headgate.sinks.contract import Events, RawEvent
from headgate.sinks.kafka.records import enveloped, flat

VALUE = (
    b'{"before":{"id":1,"secret":"old"},"after":{"id":1,"secret":"new"},"source":{"connector":"postgresql",'
    b'"ts_ms":5},"op":"u","ts_ms":7}'
)
KEY = b'{"id": 1}'


def change(operation: Operation = Operation.UPSERT, row: Row | None = None, key: Row | None = None) -> Change:
    return Change(0, 9, operation, {"id": 1} if key is None else key, row, 5, 6)


def came_as(value: bytes | None, head: bytes | None = None, *, shaped: bool = False) -> Events:
    def of(partition: int, offset: int) -> RawEvent:
        assert (partition, offset) == (0, 9)
        return RawEvent(KEY, value, head)

    return Events(of, shaped)


UPSERT = change(row={"id": 1, "name": "ann"})
DELETE = change(Operation.DELETE)


def test_a_flat_record_is_the_row_and_a_delete_a_tombstone() -> None:
    assert flat(UPSERT) == [(b'{"id":1}', b'{"id":1,"name":"ann"}', None)]
    assert flat(DELETE) == [(b'{"id":1}', None, None)]


@pytest.mark.parametrize("head", [None, b'{"schema":{},"payload":'])
def test_an_event_is_written_as_it_came(head: bytes | None) -> None:
    assert enveloped(UPSERT, came_as(VALUE, head)) == [(KEY, VALUE, head)]


def test_a_delete_is_followed_by_a_tombstone_and_a_tombstone_by_nothing() -> None:
    assert enveloped(DELETE, came_as(VALUE)) == [(KEY, VALUE, None), (KEY, None, None)]
    assert enveloped(DELETE, came_as(None)) == [(KEY, None, None)]
    assert enveloped(DELETE, came_as(None, shaped=True)) == [(b'{"id":1}', None, None)]


@pytest.mark.parametrize("value", [VALUE, b'{"schema":{"type":"struct"},"payload":' + VALUE + b"}"])
def test_of_a_shaped_event_only_what_goes_to_the_sink_is_written(value: bytes) -> None:
    ((key, written, head),) = enveloped(UPSERT, came_as(value, shaped=True))
    assert (key, head) == (b'{"id":1}', None)
    assert msgspec.json.decode(written or b"") == {
        "before": None,
        "after": {"id": 1, "name": "ann"},
        "source": {"connector": "postgresql", "ts_ms": 5},
        "op": "u",
        "ts_ms": 7,
        "transaction": None,
    }
    (_, deleted, _), tombstone = enveloped(DELETE, came_as(value, shaped=True))
    told = msgspec.json.decode(deleted or b"")
    assert (told["before"], told["after"], told["op"]) == ({"id": 1}, None, "d")
    assert tombstone == (b'{"id":1}', None, None)


def test_what_no_record_can_express_is_refused() -> None:
    absent = change(row={"id": 1, "big": ABSENT})
    for refused, why in ((change(Operation.TRUNCATE), "TRUNCATE"), (change(row={"id": 1}, key={}), "no key")):
        with pytest.raises(ChangeError, match=why):
            flat(refused)
        with pytest.raises(ChangeError, match=why):
            enveloped(refused, came_as(VALUE))
    with pytest.raises(ChangeError, match="leaves out column big"):
        flat(absent)
    with pytest.raises(ChangeError, match="leaves out column big"):
        enveloped(absent, came_as(VALUE, shaped=True))
    assert enveloped(absent, came_as(VALUE)) == [(KEY, VALUE, None)]  # with the placeholder, which readers know
