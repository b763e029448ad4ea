"""What a record's headers say to programs that know CloudEvents, and to those that do not."""

from uuid import UUID

from headgate.eventlog.headers import cloud_event, plain
from headgate.eventlog.sharding import place
from headgate.records.base import Fact
from headgate.records.control import OwnerAnnounced
from headgate.records.keys import OwnerKey
from support import build

EVENT = UUID("12345678-1234-5678-1234-567812345678")
NOW_MS = 1_700_000_000_123


def announced() -> OwnerAnnounced:
    return build.owner_announced(owner_id="o1", owner_rev=7, version="0.1.0", schema_version=2, announced_ms=NOW_MS)


def test_a_record_says_who_wrote_it_and_what_its_value_is() -> None:
    headers = plain("coordinator-0", place(Fact(OwnerKey(0), announced()), 0))
    assert headers == [("writer", b"coordinator-0"), ("content-type", b"application/avro")]


def test_the_attributes_of_cloudevents() -> None:
    placed = place(Fact(OwnerKey(0), announced()), 0)
    assert dict(cloud_event("coordinator-0", "prod", placed, event=EVENT, now_ms=NOW_MS)) == {
        "ce_specversion": b"1.0",
        "ce_id": str(EVENT).encode(),
        "ce_source": b"/headgate/prod/coordinator-0",
        "ce_type": b"headgate.OwnerAnnounced",
        "ce_subject": b"coordinator/0",
        "ce_time": b"2023-11-14T22:13:20.123Z",
    }


def test_a_tombstone_is_no_event() -> None:
    placed = place(Fact(OwnerKey(0), None), 0)
    assert plain("w", placed) == [("writer", b"w")]
    assert cloud_event("w", "prod", placed, event=EVENT, now_ms=NOW_MS) == []
