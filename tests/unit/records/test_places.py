"""Names of records: ``topic/partition/offset``."""

import pytest

from headgate.records.places import LogPosition, PlaceError


def test_a_place_is_read_as_it_is_written() -> None:
    place = LogPosition("shop.public.orders", 3, 1204)
    assert LogPosition.parse(str(place)) == place


@pytest.mark.parametrize("text", ["", "orders", "orders/1", "orders/1/x", "a b/1/2", "orders/-1/2", "orders/1/2/3"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(PlaceError, match="Write TOPIC/PARTITION/OFFSET, for example"):
        LogPosition.parse(text)
