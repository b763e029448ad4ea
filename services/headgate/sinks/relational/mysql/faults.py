"""The meaning of MySQL's and MariaDB's errors for a sink, and their messages."""

from typing import Final

from headgate.databases.faults import Fault
from headgate.databases.mysql.errors import MysqlError, errno, fault_of, message, without_values
from headgate.sinks.contract import SinkError, SinkRefusedError, SinkSilentError, SinkUnavailableError
from headgate.sinks.relational.remedies import Remedy, advised

__all__ = ["remedy_of", "sink_error", "words_of"]

_UNAVAILABLE: Final = frozenset({Fault.DEADLOCK, Fault.LOCK_WAIT, Fault.TIME_LIMIT, Fault.PASSING, Fault.ENDED})

_INCORRECT_VALUE: Final = 1366
_REMEDIES: Final[dict[int, Remedy]] = {
    1406: Remedy.WIDEN,
    **dict.fromkeys((1264, 1690), Remedy.RANGE),
    **dict.fromkeys((1048, 1263, 1364), Remedy.NULL),
    **dict.fromkeys((3819, 4025), Remedy.CHECK),
    1644: Remedy.RAISED,
}


def words_of(error: MysqlError) -> tuple[str | None, str]:
    """See Dialect: a column is named in the words."""
    number, text = errno(error), message(error)
    reason = without_values(number, text)
    return None, advised(reason, remedy_of(number, text)) if fault_of(error) is Fault.VALUE else reason


def remedy_of(number: int, text: str) -> Remedy:
    """What to do about a value that was refused with an error, or a warning, of this number."""
    if number == _INCORRECT_VALUE and "string value" in text:
        return Remedy.LETTERS
    return _REMEDIES.get(number, Remedy.TYPE)


def sink_error(error: MysqlError, doing: str) -> SinkError:
    """What a database error means to the caller. Refused values are told apart before (see parts)."""
    number = errno(error)
    text = f"{doing}: {without_values(number, message(error))}"
    match fault_of(error):
        case Fault.LOST:
            return SinkSilentError(text if number else f"{text} (the session is lost)")
        case fault if fault in _UNAVAILABLE:
            return SinkUnavailableError(text)
        case Fault.PERMISSION:
            return SinkRefusedError(f"{text}. Grant it to the sink's user")
    return SinkRefusedError(f"{text} (error {number})")
