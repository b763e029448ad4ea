"""Writes a few rows of one table in two round trips: everything but the COMMIT is sent as one text.

The ordinary way (staging) sends seven statements one after the other, which for five rows is most of what a batch
costs both sides. Here the values are in the INSERT itself; the server reads them by the types of the target's
columns, as it does for COPY. What is not simply rows to insert or replace is not sent this way, and whatever the
server refuses is undone and goes the ordinary way, where it is judged. So this way has no rules of its own but one:
if the fence does not hold, its statement ends in an error, and the server does not come to the INSERT.
"""

from collections.abc import Sequence
from typing import Final

from headgate.config.crash_points import CrashPoint, reach
from headgate.databases.faults import Fault
from headgate.databases.postgresql.errors import PostgresError, fault_of
from headgate.databases.postgresql.progress import HOLD, MOVE, PREPARED_FENCE, fence_arguments
from headgate.databases.postgresql.session import Answer
from headgate.databases.postgresql.sql import quoted
from headgate.formats.reducing import Reduced
from headgate.sinks.contract import ChangeBatch
from headgate.sinks.relational.grouping import Group, Merged, UnwritableError
from headgate.sinks.relational.postgresql.catalog import VERSION, PostgresSinkColumn
from headgate.sinks.relational.postgresql.connection import PostgresSinkSession
from headgate.sinks.relational.postgresql.faults import sink_error
from headgate.sinks.relational.postgresql.progress import PostgresProgress
from headgate.sinks.relational.postgresql.staging import STAGED_AS
from headgate.sinks.relational.progress import moves_of
from headgate.sinks.relational.staging import StagingTable
from headgate.sinks.relational.times import NotTextError

__all__ = ["ROWS_MAX", "apply_at_once"]

ROWS_MAX: Final = 64
"""More than that are cheaper by COPY, a column at a time."""

VALUES_BYTES_MAX: Final = 1 << 18
"""Of a statement: the server reads it as a whole."""

_VERSION: Final = "headgate_version"
_PREPARED: Final = (*PREPARED_FENCE, f"PREPARE {_VERSION} (text) AS {VERSION % '$1'}")
_NUL: Final = "\x00"
"""It would end the text."""


def apply_at_once(
    session: PostgresSinkSession,
    stage: StagingTable[PostgresSinkSession, PostgresSinkColumn],
    batch: ChangeBatch,
    reduced: Reduced,
) -> Merged | None:
    """Apply the batch; None, and nothing has happened, if it has to go the ordinary way. Raises PostgresError."""
    try:
        statements = _statements(session, stage, batch, reduced)
    except (NotTextError, UnicodeEncodeError):
        return None
    if statements is None:
        return None
    try:
        session.prepare(_PREPARED)
        answers = session.begin_with(batch.claim, statements)
        reach(CrashPoint.ROWS_SENT)
        if batch.changes and not _is_as_told(stage, reduced, answers):
            session.undo()
            return None
        reach(CrashPoint.BEFORE_COMMIT)
        session.execute("COMMIT")
    except PostgresError as error:
        session.undo()
        if fault_of(error) is Fault.UNPREPARED:
            session.forget_prepared()
            return None
        # The fence's error is among them, and whatever an input function raises: judged on the ordinary way.
        if fault_of(error) in (Fault.VALUE, Fault.BETWEEN_ROWS) or not sink_error(error, "").retryable:
            return None
        raise
    return Merged(len(reduced.upserts) if batch.changes else 0, 0, 0)


def _is_as_told(
    stage: StagingTable[PostgresSinkSession, PostgresSinkColumn], reduced: Reduced, answers: Sequence[Answer]
) -> bool:
    """Whether the table is what the rows were written for, and all of them are there, each under its own key."""
    rows, version = len(reduced.upserts), str(answers[-1][1][0][0])
    written, found = (answers[-3][0], answers[-2][1][0][0]) if stage.fires else (answers[-2][0], rows)
    return (written, found, version) == (rows, rows, stage.table.version)


def _statements(
    session: PostgresSinkSession,
    stage: StagingTable[PostgresSinkSession, PostgresSinkColumn],
    batch: ChangeBatch,
    reduced: Reduced,
) -> list[str] | None:
    """All but BEGIN and COMMIT; None if the batch is not simply rows to insert or replace. Raises NotTextError."""
    table, literal = stage.table, session.literal
    held, moved = fence_arguments(PostgresProgress(session).rows(batch.claim, table.name), moves_of(batch.ranges))
    statements = [f"EXECUTE {HOLD} ({', '.join(map(literal, held))})"] if len(batch.ranges) > 1 else []
    statements.append(f"EXECUTE {MOVE} ({', '.join(map(literal, moved))})")
    if batch.changes:
        insert = _insert(session, stage, reduced)
        if insert is None:
            return None
        statements += [*insert, f"EXECUTE {_VERSION} ({literal(table.identifier)})"]
    return statements


def _insert(
    session: PostgresSinkSession, stage: StagingTable[PostgresSinkSession, PostgresSinkColumn], reduced: Reduced
) -> list[str] | None:
    """The INSERT; where a trigger fires, also a statement that counts the rows that are there under their keys."""
    table = stage.table
    if reduced.truncate or reduced.deletes or len(reduced.upserts) > ROWS_MAX or not table.key or table.folding:
        return None
    try:
        groups = stage.groups_of(reduced.upserts)
    except UnwritableError:  # reported on the ordinary way
        return None
    if len(groups) != 1 or not groups[0].whole or not _takes(stage, groups[0]):
        return None
    (group,) = groups
    columns = [column for column in group.columns if column in table.columns]
    values = [
        [_written(session, text.plain(value)) for value in group.values[group.columns.index(column)]]
        for column, text in ((column, stage.text(column, group.semantics)) for column in columns)
    ]
    rows = ", ".join(f"({', '.join(row)})" for row in zip(*values, strict=True))
    if len(rows) > VALUES_BYTES_MAX:
        return None
    others = [quoted(column) for column in columns if column not in table.key]
    then = f"UPDATE SET {', '.join(f'{name} = EXCLUDED.{name}' for name in others)}" if others else "NOTHING"
    insert = (
        f"INSERT INTO {table.identifier} ({', '.join(map(quoted, columns))}) OVERRIDING SYSTEM VALUE VALUES {rows} "
        f"ON CONFLICT ({', '.join(map(quoted, table.key))}) DO {then}"
    )
    if not stage.fires:
        return [insert]
    keys = ", ".join(f"({', '.join(key)})" for key in zip(*(values[columns.index(k)] for k in table.key), strict=True))
    return [insert, f"SELECT count(*) FROM {table.rows} WHERE ({', '.join(map(quoted, table.key))}) IN ({keys})"]


def _takes(stage: StagingTable[PostgresSinkSession, PostgresSinkColumn], group: Group) -> bool:
    """Whether the target has all columns, each as it is staged."""
    table = stage.table
    known = all(column in table.columns or column in table.generated for column in group.columns)
    return known and not any(str(table.columns.get(column)) in STAGED_AS for column in group.columns)


def _written(session: PostgresSinkSession, text: str | None) -> str:
    if text is None:
        return "NULL"
    if _NUL in text:
        raise NotTextError("a PostgreSQL text cannot contain NUL")
    return session.literal(text)
