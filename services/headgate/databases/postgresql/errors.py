"""The meaning of PostgreSQL's errors, and the parts of their text that may be shown."""

import re
from typing import Final

import psycopg
from psycopg import Error as PostgresError
from psycopg import errors

from headgate.databases.faults import Fault

__all__ = ["PostgresError", "fault_of", "is_of_a_value", "is_raised", "is_taken", "message", "without_values"]

_KINDS: Final[tuple[tuple[Fault, tuple[type[PostgresError], ...]], ...]] = (
    (Fault.BETWEEN_ROWS, (errors.UniqueViolation, errors.ForeignKeyViolation, errors.ExclusionViolation)),
    (
        Fault.VALUE,
        (
            psycopg.IntegrityError,
            psycopg.DataError,
            errors.CardinalityViolation,  # two keys of the batch are one to the server (citext, 1.0 and 1.00)
            errors.ProgramLimitExceeded,  # a value too long for an index
            errors.RaiseException,  # a trigger
        ),
    ),
    (Fault.TABLE_MISSING, (errors.UndefinedTable,)),
    (
        Fault.ALTERED,
        (
            errors.UndefinedColumn,
            errors.DatatypeMismatch,
            errors.InvalidColumnReference,
            errors.FeatureNotSupported,  # a cached plan whose result type has changed
        ),
    ),
    (Fault.NAME_MISSING, (errors.UndefinedFunction, errors.UndefinedObject)),
    (Fault.UNPREPARED, (errors.InvalidSqlStatementName,)),
    (Fault.DEADLOCK, (errors.DeadlockDetected, errors.SerializationFailure)),
    (Fault.LOCK_WAIT, (errors.LockNotAvailable,)),
    (Fault.PERMISSION, (errors.InsufficientPrivilege,)),
    (
        Fault.PASSING,
        (errors.ReadOnlySqlTransaction, errors.IdleInTransactionSessionTimeout, errors.TransactionTimeout),
    ),
)

_ENDED_CLASSES: Final = ("08", "53", "57", "58")
"""Classes of SQLSTATE: connection, resources, an operator's intervention, the server's system."""

_RAISED_CLASSES: Final = ("P0", "38", "39", "2F")
"""Classes of SQLSTATE for errors in functions of the database: PL/pgSQL's own, and those of external routines."""

_ON_SCHEMA: Final = frozenset({"08", "0A", "25", "28", "3D", "3F", "40", "42", "53", "54", "55", "57", "58"})
"""Classes of SQLSTATE whose messages quote names, never values. An extension's own, and a trigger's, may quote any."""

_ON_VALUES: Final = "22"
_RAISED_BY_A_FUNCTION: Final = "pl_exec.c"
"""Where PL/pgSQL raises: a function's own text may quote a value anywhere, under any SQLSTATE."""

_BEFORE_THE_VALUE: Final = re.compile("[^:\"'(]*")
_SAID: Final = {
    "22001": "value too long",
    "22003": "value out of range",
    "23502": "null value in a column that is NOT NULL",
    "23505": "duplicate key value",
}
"""Refusals that the server words with the value in front."""

_WORD: Final = re.compile("([A-Z][a-z]+)")


def fault_of(error: PostgresError) -> Fault:
    """Why the statement failed; the first that fits."""
    state = error.sqlstate
    found = next((fault for fault, kinds in _KINDS if isinstance(error, kinds)), None)
    if found is not None:
        return found
    if state is None:
        return Fault.LOST if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) else Fault.OTHER
    if state[:2] in _ENDED_CLASSES:
        return Fault.ENDED
    return Fault.VALUE if is_raised(error) else Fault.OTHER


def is_raised(error: PostgresError) -> bool:
    """Whether a function of the database raised it: of a class for that, or a state that PostgreSQL does not know."""
    state = error.sqlstate
    if state is None or state[:2] in _RAISED_CLASSES:
        return state is not None
    try:
        errors.lookup(state)
    except KeyError:
        return state[:2] not in (*_ENDED_CLASSES, "XX")
    return False


def is_of_a_value(error: PostgresError) -> bool:
    """Whether the server refused a value or a row, by a class of SQLSTATE that is for nothing else."""
    return isinstance(error, psycopg.DataError | psycopg.IntegrityError)


_TAKEN: Final = (errors.UniqueViolation, errors.DuplicateTable, errors.DuplicateObject, errors.DuplicateSchema)
"""Also of CREATE … IF NOT EXISTS: it does not wait for a session that is creating the same."""


def is_taken(error: PostgresError) -> bool:
    """Whether a statement that creates something failed because another session has just created it."""
    return isinstance(error, _TAKEN)


def message(error: PostgresError) -> str:
    """The server's message."""
    return (error.diag.message_primary or str(error) or type(error).__name__).strip()


def without_values(error: PostgresError) -> str:
    """The server's message, if messages of its kind name parts of the schema only; else the condition's name."""
    state = error.sqlstate
    if state is None or state[:2] in _ON_SCHEMA:
        return message(error)
    named = [
        f"{what} {name}"
        for what, name in (("constraint", error.diag.constraint_name), ("type", error.diag.datatype_name))
        if name
    ]
    return f"{', '.join([_condition(error, state), *named])} (SQLSTATE {state})"


def _condition(error: PostgresError, state: str) -> str:
    """What PostgreSQL's own message has before the quoted value; else the name of the condition."""
    if state[:2] == _ON_VALUES and error.diag.source_file != _RAISED_BY_A_FUNCTION:
        said = _BEFORE_THE_VALUE.match(error.diag.message_primary or "")
        if said is not None and " " in said[0].strip():
            return said[0].strip()
    return _SAID.get(state) or _WORD.sub(r" \1", type(error).__name__).strip().lower()
