"""CloudEvents' attributes of a change: what names it does not depend on who reads it, or when."""

from headgate.formats.change import Change, Operation
from headgate.records.control import Epoch
from headgate.sinks.contract import Claim, FeedIdentity
from headgate.sinks.kafka.cloud_events import Attributes


def claim(epoch: Epoch, incarnation: int = 0) -> Claim:
    identity = FeedIdentity("MkU3OEVBNTcwNTJENDM2Qg/headgate.", "0-7", "shop")
    return Claim(identity, "copy.orders", "shop.public.orders", epoch, incarnation, {0: 0})


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
