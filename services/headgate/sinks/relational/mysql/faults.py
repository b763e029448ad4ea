"""What MySQL's and MariaDB's errors mean: whose fault they are, and what is said of them."""

from typing import Final

import pymysql

from headgate.databases.mysql.errors import UNAVAILABLE, errno, is_clients, message, without_values
from headgate.sinks.contract import SinkError, SinkRefusedError, SinkSilentError, SinkUnavailableError
from headgate.sinks.relational.remedies import Remedy, advised
from headgate.sinks.relational.session import Fault

__all__ = [
    "BAD_VALUES",
    "fault_of",
    "remedy_of",
    "sink_error",
    "words_of",
]

BAD_VALUES: Final = frozenset(
    {1048, 1062, 1118, 1263, 1264, 1265, 1292, 1364, 1366, 1367, 1406, 1411, 1416, 1425, 1427, 1451, 1452, 1216, 1217,
     1526, 1586, 1644, 1690, 1761, 1762, 1901, 3140, 3156, 3819, 4025, 4078}
)  # fmt: skip
"""Errors that rows, not the sink, are to blame for."""

_FAULTS: Final = (
    (Fault.BETWEEN_ROWS, frozenset({1062, 1586, 1216, 1217, 1451, 1452, 1761, 1762})),
    (Fault.VALUE, BAD_VALUES),
    (Fault.ALTERED, frozenset({1054, 1109, 1136, 1146, 1412})),
    (Fault.DEADLOCK, frozenset({1213})),
    (Fault.LOCK_WAIT, frozenset({1205})),
)

_RIGHTS: Final = frozenset({1044, 1142, 1143, 1227, 1370, 1410, 1698})

_INCORRECT_VALUE: Final = 1366
_REMEDIES: Final[dict[int, Remedy]] = {
    1406: Remedy.WIDEN,
    **dict.fromkeys((1264, 1690), Remedy.RANGE),
    **dict.fromkeys((1048, 1263, 1364), Remedy.NULL),
    **dict.fromkeys((3819, 4025), Remedy.CHECK),
    1644: Remedy.RAISED,
}


def fault_of(error: pymysql.Error) -> Fault:
    """Whose fault it is; the first that fits."""
    return next((fault for fault, numbers in _FAULTS if errno(error) in numbers), Fault.SINK)


def words_of(error: pymysql.Error) -> tuple[str | None, str]:
    """See Dialect: a column is named in the words."""
    number, text = errno(error), message(error)
    reason = without_values(number, text)
    return None, advised(reason, remedy_of(number, text)) if fault_of(error) is Fault.VALUE else reason


def remedy_of(number: int, text: str) -> Remedy:
    """What to do about a value that was refused with an error, or a warning, of this number."""
    if number == _INCORRECT_VALUE and "string value" in text:
        return Remedy.LETTERS
    return _REMEDIES.get(number, Remedy.TYPE)


def sink_error(error: pymysql.Error, doing: str) -> SinkError:
    """What a database error means to the caller. Refused values are told apart before (see parts)."""
    number = errno(error)
    text = f"{doing}: {without_values(number, message(error))}"
    if number in UNAVAILABLE:
        return (SinkSilentError if is_clients(number) else SinkUnavailableError)(text)
    if number == 0 and isinstance(error, pymysql.OperationalError | pymysql.InterfaceError | pymysql.InternalError):
        return SinkSilentError(f"{text} (the session is lost)")
    if number in _RIGHTS:
        return SinkRefusedError(f"{text}: grant it to the sink's user")
    return SinkRefusedError(f"{text} (error {number})")
