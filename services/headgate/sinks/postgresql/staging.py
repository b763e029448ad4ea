"""Rows on their way into a table: a session-long temporary table, filled by COPY, merged by set-wise statements.

The stage has the columns and types of its target, so that a value the target could not hold is refused by COPY with
its line and column (but ``money``, whose texts depend on lc_monetary, is staged as ``numeric``), and one column more
that numbers groups: rows with the same columns and the same way to be merged. It is created once per session and
emptied when the next batch comes: by DELETE while little is in it (TRUNCATE writes the catalog each time), by TRUNCATE
once it has grown.
"""

import re
from collections.abc import Sequence
from typing import Final, LiteralString

import psycopg
from psycopg import sql

from headgate.formats.change import BINARY, CONNECTOR
from headgate.formats.reducing import Reduced
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.postgresql.catalog import Connection, Table, read_version
from headgate.sinks.postgresql.values import column_text
from headgate.sinks.relational.altered import TableAlteredError
from headgate.sinks.relational.grouping import (
    Group,
    Merged,
    OrphanRowsError,
    Semantics,
    UnwritableError,
    group_keys,
    group_rows,
)
from headgate.sinks.relational.keys import FoldedKeysError
from headgate.sinks.relational.text import ColumnText
from headgate.sinks.relational.times import NotTextError

__all__ = ["Stage"]

ROWS_PER_WRITE: Final = 8_192
"""Rows formatted at once: bounds memory, and lets the server read one part while the next is formatted."""

ROWS_BEFORE_TRUNCATE: Final = 5_000
"""Dead rows a stage may hold: scanning them costs less than a millisecond, a TRUNCATE about as much."""

_STAGED_AS: Final[dict[str, LiteralString]] = {"money": "numeric", "money[]": "numeric[]"}

_GROUP: Final = sql.Identifier("headgate group")
_COPY_PLACE: Final = re.compile(r"COPY \S+, line (?P<line>\d+)(?:, column (?P<column>.+?))?(?::|$)")


class Stage:
    """The temporary table of one target in one session."""

    def __init__(self, connection: Connection, table: Table, number: int) -> None:
        self.table = table
        self._connection = connection
        self._stage = sql.Identifier("pg_temp", f"headgate_stage_{number}")
        self._rows = 0
        self._texts: dict[tuple[str, str | None, str | None, str | None], ColumnText] = {}
        columns = sql.SQL(", ").join(self._as_staged(column) for column in table.columns)
        connection.execute(
            sql.SQL("CREATE TEMPORARY TABLE {} AS SELECT 0::int AS {}, {} FROM {} WITH NO DATA").format(
                sql.Identifier(f"headgate_stage_{number}"), _GROUP, columns, table.identifier
            )
        )

    def _as_staged(self, column: str) -> sql.Composed:
        """A column of the target as it is in the stage."""
        name = sql.Identifier(column)
        kind = _STAGED_AS.get(self.table.columns[column])
        return sql.SQL("{}").format(name) if kind is None else sql.SQL("{0}::{1} AS {0}").format(name, sql.SQL(kind))

    def _from_stage(self, column: str) -> sql.Composed:
        """A staged column as it is in the target."""
        name = sql.Identifier(column)
        kind = self.table.columns[column]
        return sql.SQL("s.{}::{}" if kind in _STAGED_AS else "s.{}").format(
            *((name, sql.SQL(kind)) if kind in _STAGED_AS else (name,))
        )

    def drop(self) -> None:
        """Remove the stage; the target has changed."""
        self._connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self._stage))

    def lock(self) -> None:
        """Keep alterations of the target out until the transaction's end, as each merge does from its first row on."""
        self._connection.execute(sql.SQL("LOCK TABLE {} IN ROW EXCLUSIVE MODE").format(self.table.identifier))

    def check_version(self) -> None:
        """Raise TableAlteredError if the target, locked by now, is not what the stage was made from."""
        if read_version(self._connection, self.table.identifier) != self.table.version:
            raise TableAlteredError(self.table.name)

    def fill(self, reduced: Reduced) -> list[Group]:
        """Stage a reduced batch: deletes as group 0, then the groups returned. Raises UnwritableError, SinkError."""
        self._empty()
        groups = group_rows(reduced.upserts, self.table.key)
        if reduced.deletes:
            for keys in group_keys(reduced.deletes, self.table.key):
                self._copy(0, keys)
        for number, group in enumerate(groups, start=1):
            self._copy(number, group)
        return groups

    def _empty(self) -> None:
        # Always, whatever we believe is in it: after a rollback old rows are back.
        if self._rows > ROWS_BEFORE_TRUNCATE:
            self._connection.execute(sql.SQL("TRUNCATE {}").format(self._stage))
            self._rows = 0
        else:
            self._connection.execute(sql.SQL("DELETE FROM {}").format(self._stage))

    def _text(self, column: str, semantics: Semantics) -> ColumnText:
        told = semantics or {}
        known = (column, told.get(column), told.get(CONNECTOR), told.get(BINARY))
        text = self._texts.get(known)
        if text is None:
            text = self._texts[known] = column_text(
                self.table.columns[column], *known[1:], in_key=column in self.table.key
            )
        return text

    def _copy(self, number: int, group: Group) -> None:
        self._rows += len(group.changes)
        table = self.table
        for column in group.columns:
            if column not in table.columns and column not in table.generated:
                change = group.changes[0]
                raise SinkRefusedError(
                    f"table {table.name} has no column {column}, which the event at partition {change.partition}, "
                    f"offset {change.offset} has: ALTER TABLE {table.name} ADD COLUMN {column} …"
                )
        used = [index for index, column in enumerate(group.columns) if column in table.columns]
        names = sql.SQL(", ").join(sql.Identifier(group.columns[index]) for index in used)
        statement = sql.SQL("COPY {} ({}, {}) FROM STDIN").format(self._stage, _GROUP, names)
        try:
            with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
                for start in range(0, len(group.changes), ROWS_PER_WRITE):
                    copy.write(self._lines(number, group, used, start))
        except psycopg.DataError as error:
            raise self._refused(group, error) from error
        except psycopg.IntegrityError as error:  # a domain's CHECK
            raise self._refused(group, error) from error

    def _lines(self, number: int, group: Group, used: Sequence[int], start: int) -> bytes:
        columns = []
        for index in used:
            part = group.values[index][start : start + ROWS_PER_WRITE]
            text = self._text(group.columns[index], group.semantics)
            try:
                columns.append(text.fields(part, group.types[index]))
            except NotTextError:
                self._name_unwritable(group, index, start, text)
                raise
        prefix = f"{number}\t"
        lines = prefix + f"\n{prefix}".join(map("\t".join, zip(*columns, strict=True))) + "\n"
        return lines.encode()

    def _name_unwritable(self, group: Group, index: int, start: int, text: ColumnText) -> None:
        for change, value in zip(group.changes[start:], group.values[index][start:], strict=True):
            try:
                text.field(value)
            except NotTextError as error:
                raise UnwritableError(change, group.columns[index], str(error)) from error

    def _refused(self, group: Group, error: psycopg.Error) -> UnwritableError:
        place = _COPY_PLACE.search(error.diag.context or "")
        reason = error.diag.message_primary or str(error)
        if place is None:
            return UnwritableError(group.changes[0], None, reason)
        change = group.changes[int(place["line"]) - 1]
        nul = [c for c, value in (change.row or {}).items() if isinstance(value, str) and "\x00" in value]
        return UnwritableError(change, place["column"] or (nul[0] if nul else None), reason)

    def merge(self, reduced: Reduced, groups: Sequence[Group]) -> Merged:
        """Bring the staged rows into the target. Raises OrphanRowsError where a partial update finds no row."""
        execute = self._connection.execute
        deletes = upserts = updates = 0
        target, stage = self.table.identifier, self._stage
        if reduced.truncate:  # DELETE: TRUNCATE needs a right of its own and would lock out every reader
            deletes += execute(sql.SQL("DELETE FROM {}").format(target)).rowcount
        if reduced.deletes:
            statement = sql.SQL("DELETE FROM {} t USING {} s WHERE s.{} = 0 AND {}")
            deletes += execute(statement.format(target, stage, _GROUP, self._same_key())).rowcount
        for number, group in enumerate(groups, start=1):
            columns = [column for column in group.columns if column in self.table.columns]
            if group.whole:
                upserts += execute(self._insert(number, columns)).rowcount
            elif not self.table.key:
                raise OrphanRowsError
            elif len(columns) > len(self.table.key):
                updated = execute(self._update(number, columns)).rowcount
                updates += updated
                if updated != len(group.changes):
                    raise OrphanRowsError
        if self.table.folding and groups:
            self._check_folding()
        return Merged(upserts, updates, deletes)

    def _check_folding(self) -> None:
        """Every row staged must be there under its own key, letter by letter."""
        statement = sql.SQL("SELECT FROM {} s WHERE s.{} > 0 AND NOT EXISTS (SELECT FROM {} t WHERE {}) LIMIT 1")
        lost = self._connection.execute(statement.format(self._stage, _GROUP, self.table.identifier, self._same_key()))
        if lost.rowcount:
            raise FoldedKeysError

    def _same_key(self) -> sql.Composed:
        same = [sql.SQL("t.{} = {}").format(sql.Identifier(key), self._from_stage(key)) for key in self.table.key]
        # A key that only the collation takes for this one is another row's.
        same += [
            sql.SQL('t.{0}::text COLLATE "C" = s.{0}::text COLLATE "C"').format(sql.Identifier(key))
            for key in self.table.folding
        ]
        return sql.SQL(" AND ").join(same)

    def _insert(self, number: int, columns: Sequence[str]) -> sql.Composed:
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        others = [column for column in columns if column not in self.table.key]
        assign = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(column)) for column in others)
        chosen = sql.SQL(", ").join(map(self._from_stage, columns))
        if not self.table.key:
            return sql.SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM {} s WHERE s.{} = {}").format(
                self.table.identifier, names, chosen, self._stage, _GROUP, sql.Literal(number)
            )
        return sql.SQL(
            "INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM {} s WHERE s.{} = {} ON CONFLICT ({}) {}"
        ).format(
            self.table.identifier,
            names,
            chosen,
            self._stage,
            _GROUP,
            sql.Literal(number),
            sql.SQL(", ").join(map(sql.Identifier, self.table.key)),
            sql.SQL("DO UPDATE SET {}").format(assign) if others else sql.SQL("DO NOTHING"),
        )

    def _update(self, number: int, columns: Sequence[str]) -> sql.Composed:
        others = [column for column in columns if column not in self.table.key]
        assign = sql.SQL(", ").join(
            sql.SQL("{} = {}").format(sql.Identifier(column), self._from_stage(column)) for column in others
        )
        return sql.SQL("UPDATE {} t SET {} FROM {} s WHERE s.{} = {} AND {}").format(
            self.table.identifier, assign, self._stage, _GROUP, sql.Literal(number), self._same_key()
        )
