"""Checks of the arguments of ``ChangeWriter.write``, so that a bad change is its caller's error.

Past this check a change is on its way with others, and an error could only be reported for the writer as a whole.
"""

import operator
from collections.abc import Sequence
from typing import Any, Final

from headgate.generation.changelog.core.outbox import POSITION_MAX, PendingChange, PositionError
from headgate.generation.changelog.shell.wire import change_headers, check_headers
from headgate.generation.core.tokens import token_of_key

BATCH_OVERHEAD_BYTES: Final = 61
"""Of a record batch, which Kafka's limit counts with its records."""

RECORD_OVERHEAD_BYTES: Final = 36
"""Lengths, deltas and attributes of one record, at their longest."""

HEADER_OVERHEAD_BYTES: Final = 10
"""The two lengths of one header, at their longest."""


ROOM_BYTES: Final = 1_024
"""More than Kafka and our headers add to a change, without the writer's id: most changes need no exact count."""


class ChangeTypeError(TypeError):
    """A key, value or header is not of the type that Kafka stores: bytes."""


class ChangeTooLargeError(ValueError):
    """A change is larger than the change log's topic takes."""


def checked_change(key: Any, value: Any, position: Any, headers: Any) -> PendingChange:
    """The change that a program gave. Raises ChangeTypeError, PositionError, ReservedHeaderError."""
    number = _checked_position(position)
    if not isinstance(key, bytes):
        raise ChangeTypeError(
            f"position {number}: key must be bytes, got {_type_of(key)}. Encode it, as in key.encode()"
        )
    if value is not None and not isinstance(value, bytes):
        raise ChangeTypeError(
            f"position {number}: value must be bytes, or None for a deletion, got {_type_of(value)}. Serialize it, as "
            "in json.dumps(value).encode()"
        )
    given = _checked_headers(number, headers)
    check_headers(given)
    return PendingChange(number, token_of_key(key), key, value, given)


def check_size(change: PendingChange, writer: str, limit_bytes: int) -> None:
    """Raises ChangeTooLargeError if the topic, which takes batches of ``limit_bytes``, would refuse the change."""
    if not change.headers and len(change.key) + len(change.value or b"") + 4 * len(writer) < limit_bytes - ROOM_BYTES:
        return
    headers = [*change.headers, *change_headers(writer, change.position)]
    in_headers = sum(len(name.encode()) + len(value or b"") + HEADER_OVERHEAD_BYTES for name, value in headers)
    size = len(change.key) + len(change.value or b"") + in_headers + RECORD_OVERHEAD_BYTES + BATCH_OVERHEAD_BYTES
    if size > limit_bytes:
        raise ChangeTooLargeError(
            f"position {change.position}: the change has {size} bytes with its key, headers and Kafka's overhead, and "
            f"the change log takes {limit_bytes}. Raise max.message.bytes of its topic and restart the writer, or make "
            "the change smaller"
        )


def _checked_position(position: Any) -> int:
    try:
        number = operator.index(position)
    except TypeError:
        number = None
    if number is None or isinstance(position, bool) or not 0 <= number <= POSITION_MAX:
        raise PositionError(
            f"position must be an integer from 0 to {POSITION_MAX}, got {_type_of(position)} {str(position)[:40]}"
        )
    return number


def _checked_headers(number: int, headers: Any) -> tuple[tuple[str, bytes | None], ...]:
    advice = "headers must be a sequence of pairs (name, value), with a str and with bytes or None"
    if isinstance(headers, str | bytes) or not isinstance(headers, Sequence):
        raise ChangeTypeError(f"position {number}: {advice}, got {_type_of(headers)}")
    for each in headers:
        match each:
            case (str() as name, bytes() | None):
                try:
                    name.encode()
                except UnicodeEncodeError as error:
                    raise ChangeTypeError(f"position {number}: header name {name!r} is not valid Unicode") from error
            case _:
                raise ChangeTypeError(f"position {number}: {advice}, got an item of type {_type_of(each)}")
    return tuple((name, value) for name, value in headers)


def _type_of(value: Any) -> str:
    return type(value).__name__
