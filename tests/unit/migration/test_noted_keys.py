"""The place of a copy stands on the log as JSON: read again it means the same row to the server."""

import datetime
import decimal
import uuid
from typing import Any

import msgspec
import pytest

from headgate.migration.strategies.online.copying import noted_key, read_key

SECOND = datetime.timedelta(seconds=1)


@pytest.mark.parametrize(
    ("value", "again"),
    [
        (7, 7),
        ("a", "a"),
        ("hex", "hex"),
        (True, True),
        (None, None),
        (1.5, 1.5),
        (b"\x00\xff", b"\x00\xff"),
        (b"", b""),
        (decimal.Decimal("1.20"), "1.20"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (datetime.datetime(2026, 1, 2, 3, 4, 5), "2026-01-02 03:04:05"),
        (datetime.timedelta(hours=838, minutes=59, seconds=59), "838:59:59.000000"),
        (-(3661 * SECOND + SECOND / 2), "-1:01:01.500000"),
    ],
)
def test_a_key_is_read_as_it_was_noted(value: Any, again: Any) -> None:
    noted = msgspec.json.decode(msgspec.json.encode(noted_key((value, 1))))
    assert read_key(noted) == (again, 1)


def test_no_place_is_no_place() -> None:
    assert read_key(None) is None
