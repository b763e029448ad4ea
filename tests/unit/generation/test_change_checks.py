"""What ``ChangeWriter.write`` refuses at the call."""

from decimal import Decimal
from typing import Any

import pytest

from headgate.generation.changelog.core.outbox import POSITION_MAX, PendingChange, PositionError
from headgate.generation.changelog.shell.change_checks import (
    ChangeTooLargeError,
    ChangeTypeError,
    check_size,
    checked_change,
)
from headgate.generation.changelog.shell.wire import ReservedHeaderError


class Number:
    """As numpy's integers: no int, but usable as one."""

    def __index__(self) -> int:
        return 7


@pytest.mark.parametrize("position", [1.5, 2.0, "7", None, True, Decimal(7), -1, 2**63, 2**64 + 5, b"1"])
def test_a_position_must_be_a_64_bit_integer_from_0_on(position: Any) -> None:
    with pytest.raises(PositionError, match=f"from 0 to {POSITION_MAX}, got {type(position).__name__}"):
        checked_change(b"k", b"v", position, ())


@pytest.mark.parametrize(("position", "stored"), [(0, 0), (POSITION_MAX, POSITION_MAX), (Number(), 7)])
def test_every_integer_within_the_range_is_a_position(position: Any, stored: int) -> None:
    found = checked_change(b"k", b"v", position, ()).position
    assert (found, type(found)) == (stored, int)


@pytest.mark.parametrize(
    ("key", "value", "headers", "said"),
    [
        ("k", b"v", (), "key must be bytes, got str"),
        (None, b"v", (), "key must be bytes, got NoneType"),
        (b"k", {"a": 1}, (), "value must be bytes, or None for a deletion, got dict"),
        (b"k", "v", (), "value must be bytes, or None for a deletion, got str"),
        (b"k", b"v", "ab", "got str"),
        (b"k", b"v", {"a": b"1"}, "got dict"),
        (b"k", b"v", [("a", "1")], "an item of type tuple"),
        (b"k", b"v", [(b"a", b"1")], "an item of type tuple"),
        (b"k", b"v", [("a",)], "an item of type tuple"),
        (b"k", b"v", [("\ud800", None)], "not valid Unicode"),
    ],
)
def test_what_kafka_cannot_store_is_refused_with_its_position(key: Any, value: Any, headers: Any, said: str) -> None:
    with pytest.raises(ChangeTypeError, match=f"^position 5: .*{said}"):
        checked_change(key, value, 5, headers)


def test_reserved_headers_are_refused() -> None:
    with pytest.raises(ReservedHeaderError):
        checked_change(b"k", b"v", 5, [("headgate-end", b"1")])


def test_a_change_is_taken_as_it_was_given() -> None:
    headers = [("a", b"1"), ("a", None), ("", b"")]
    change = checked_change(b"", None, 5, headers)
    assert (change.key, change.value, change.headers) == (b"", None, tuple(headers))


def test_a_change_that_is_larger_than_its_topic_takes_is_refused_with_both_sizes() -> None:
    change = PendingChange(3, 0, b"k" * 10, b"v" * 1_000, (("h", b"x" * 100),))
    check_size(change, "w", 2_000)
    with pytest.raises(ChangeTooLargeError, match=r"position 3: .* 12\d\d bytes .* takes 1200\. Raise max\.message"):
        check_size(change, "w", 1_200)
