"""What PostgreSQL's errors mean: whose fault they are, and what is said of them."""

from typing import Final

import psycopg
from psycopg import errors

from headgate.databases.postgresql.errors import without_values
from headgate.sinks.contract import SinkError, SinkRefusedError, SinkSilentError, SinkUnavailableError
from headgate.sinks.relational.remedies import Remedy, advised
from headgate.sinks.relational.session import Fault

__all__ = ["fault_of", "remedy_of", "sink_error", "words_of"]

_FAULTS: Final[tuple[tuple[Fault, tuple[type[psycopg.Error], ...]], ...]] = (
    (Fault.BETWEEN_ROWS, (errors.UniqueViolation, errors.ForeignKeyViolation, errors.ExclusionViolation)),
    (
        Fault.VALUE,
        (
            psycopg.IntegrityError,
            psycopg.DataError,
            errors.CardinalityViolation,  # two keys of the batch are one to the sink (citext, 1.0 and 1.00)
            errors.ProgramLimitExceeded,  # a value too long for an index
            errors.RaiseException,  # the sink's own triggers
        ),
    ),
    (
        Fault.ALTERED,
        (
            errors.UndefinedColumn,
            errors.UndefinedTable,
            errors.DatatypeMismatch,
            errors.InvalidColumnReference,
            errors.FeatureNotSupported,  # a cached plan whose result type has changed
        ),
    ),
    (Fault.DEADLOCK, (errors.DeadlockDetected, errors.SerializationFailure)),
    (Fault.LOCK_WAIT, (errors.LockNotAvailable,)),
)

_UNAVAILABLE: Final = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.LockNotAvailable,
    errors.QueryCanceled,
    errors.ReadOnlySqlTransaction,
    errors.IdleInTransactionSessionTimeout,
    errors.TransactionTimeout,
)
_UNAVAILABLE_CLASSES: Final = ("08", "53", "57", "58")

_NOT_FOUND: Final = (errors.UndefinedTable, errors.UndefinedFunction, errors.UndefinedObject)
_RAISED_CLASSES: Final = ("P0", "38", "39", "2F")
"""Classes of SQLSTATE for errors in functions of the sink: PL/pgSQL's own, and those of external routines."""

_REMEDIES: Final[dict[str, Remedy]] = {
    "22001": Remedy.WIDEN,
    "22003": Remedy.RANGE,
    "22021": Remedy.LETTERS,
    "22P05": Remedy.LETTERS,
    "23502": Remedy.NULL,
    "23514": Remedy.CHECK,
    "54000": Remedy.INDEX,
}


def fault_of(error: psycopg.Error) -> Fault:
    """Whose fault it is; the first that fits."""
    found = next((fault for fault, kinds in _FAULTS if isinstance(error, kinds)), Fault.SINK)
    return Fault.VALUE if found is Fault.SINK and _is_raised(error) else found


def _is_raised(error: psycopg.Error) -> bool:
    """Whether a function of the sink raised it: of a class for that, or with a state that PostgreSQL does not know."""
    state = error.sqlstate
    if state is None or state[:2] in _RAISED_CLASSES:
        return state is not None
    try:
        errors.lookup(state)
    except KeyError:
        return state[:2] not in (*_UNAVAILABLE_CLASSES, "XX")
    return False


def remedy_of(error: psycopg.Error) -> Remedy:
    """What to do about a value that was refused with this error."""
    return Remedy.RAISED if _is_raised(error) else _REMEDIES.get(error.sqlstate or "", Remedy.TYPE)


def words_of(error: psycopg.Error) -> tuple[str | None, str]:
    """See Dialect. The server's details quote rows ("Failing row contains …"), and so may its messages on values."""
    reason = without_values(error)
    is_value = fault_of(error) is Fault.VALUE and not isinstance(error, errors.CardinalityViolation)
    return error.diag.column_name, advised(reason, remedy_of(error)) if is_value else reason


def sink_error(error: psycopg.Error, doing: str) -> SinkError:
    """What a database error means to the caller. Refused values are told apart before (see parts)."""
    text = f"{doing}: {without_values(error)}"
    state = error.sqlstate
    if isinstance(error, _UNAVAILABLE) or (state is not None and state[:2] in _UNAVAILABLE_CLASSES):
        return SinkUnavailableError(text)
    if state is None and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return SinkSilentError(f"{text} (the session is lost)")
    if isinstance(error, errors.InsufficientPrivilege):
        return SinkRefusedError(f"{text}: grant it to the sink's user")
    if isinstance(error, _NOT_FOUND) and error.diag.context:
        return SinkRefusedError(
            f"{text} (SQLSTATE {state}). A trigger's function looks for it ({error.diag.context.splitlines()[0]}), and "
            "Headgate's sessions have only pg_catalog on their search path. Qualify names in that function, or "
            "ALTER FUNCTION … SET search_path"
        )
    return SinkRefusedError(text if text.endswith(f"(SQLSTATE {state})") else f"{text} (SQLSTATE {state})")
