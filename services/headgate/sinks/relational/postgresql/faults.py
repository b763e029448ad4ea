"""The meaning of PostgreSQL's errors for a sink, and their messages."""

from typing import Final

from headgate.databases.faults import Fault
from headgate.databases.postgresql.errors import PostgresError, fault_of, is_raised, message, without_values
from headgate.sinks.contract import SinkError, SinkRefusedError, SinkSilentError, SinkUnavailableError
from headgate.sinks.relational.remedies import Remedy, advised

__all__ = ["remedy_of", "sink_error", "words_of"]

_UNAVAILABLE: Final = frozenset({Fault.DEADLOCK, Fault.LOCK_WAIT, Fault.PASSING, Fault.ENDED})
_NOT_FOUND: Final = (Fault.TABLE_MISSING, Fault.NAME_MISSING)
_TWO_OF_ONE_KEY: Final = "21000"
"""Two keys of a batch are one to the sink. No single value is at fault."""

_LIMIT_EXCEEDED: Final = "54000"

_REMEDIES: Final[dict[str, Remedy]] = {
    "22001": Remedy.WIDEN,
    "22003": Remedy.RANGE,
    "22021": Remedy.LETTERS,
    "22P05": Remedy.LETTERS,
    "23502": Remedy.NULL,
    "23514": Remedy.CHECK,
    _LIMIT_EXCEEDED: Remedy.INDEX,
}


def remedy_of(error: PostgresError) -> Remedy:
    """What to do about a value that was refused with this error."""
    if is_raised(error):
        return Remedy.RAISED
    if error.sqlstate == _LIMIT_EXCEEDED and not message(error).startswith("index"):
        return Remedy.TYPE  # of an array's dimensions, or of another limit of the type
    return _REMEDIES.get(error.sqlstate or "", Remedy.TYPE)


def words_of(error: PostgresError) -> tuple[str | None, str]:
    """See Dialect. The server's details quote rows ("Failing row contains …"), and so may its messages on values."""
    reason = without_values(error)
    is_value = fault_of(error) is Fault.VALUE and error.sqlstate != _TWO_OF_ONE_KEY
    return error.diag.column_name, advised(reason, remedy_of(error)) if is_value else reason


def sink_error(error: PostgresError, doing: str) -> SinkError:
    """What a database error means to the caller. Refused values are told apart before (see parts)."""
    text = f"{doing}: {without_values(error)}"
    state, fault = error.sqlstate, fault_of(error)
    if fault in _UNAVAILABLE:
        return SinkUnavailableError(text)
    if fault is Fault.LOST:
        return SinkSilentError(f"{text} (the session is lost)")
    if fault is Fault.PERMISSION:
        return SinkRefusedError(f"{text}. Grant it to the sink's user")
    if fault in _NOT_FOUND and error.diag.context:
        return SinkRefusedError(
            f"{text} (SQLSTATE {state}). A trigger's function uses it ({error.diag.context.splitlines()[0]}), and "
            "Headgate's sessions have only pg_catalog on their search path. Qualify names in that function, or "
            "ALTER FUNCTION … SET search_path"
        )
    return SinkRefusedError(text if text.endswith(f"(SQLSTATE {state})") else f"{text} (SQLSTATE {state})")
