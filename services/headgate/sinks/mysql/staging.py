"""Rows on their way into a table: a session-long temporary table, filled in bulk, merged by set-wise statements.

The stage has the columns and types of its target, every one of them open to NULL, and one column more that numbers
groups: rows with the same columns and the same way to be merged. It is filled outside of the transaction that merges
it. On MariaDB it is an Aria table, which costs half of what an InnoDB table costs.

LOAD DATA LOCAL never fails on a value, whatever the mode: it takes something else and warns. So every warning is an
error here. Where a server refuses LOAD DATA LOCAL, rows are sent as INSERTs of many rows (``bulk=insert``); measured,
200 000 rows of 100 bytes: 0.65 s against 1.6 s.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import pymysql

from headgate.formats.change import BINARY, CONNECTOR
from headgate.formats.reducing import Reduced
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.mysql.catalog import DATABASE, Table, read_version
from headgate.sinks.mysql.connection import Session, errno, message, quoted
from headgate.sinks.mysql.values import BYTES, NUMBERS_SENT, column_text
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

__all__ = ["BAD_VALUES", "Stage"]

ROWS_PER_WRITE: Final = 8_192
"""Rows formatted at once: bounds memory, and lets the server read one part while the next is formatted."""

INSERT_BYTES: Final = 1 << 20
"""Of one INSERT: below the smallest max_allowed_packet that servers come with (MySQL 5.7: 4 MiB)."""

BAD_VALUES: Final = frozenset(
    {1048, 1062, 1118, 1263, 1264, 1265, 1292, 1364, 1366, 1367, 1406, 1411, 1416, 1425, 1427, 1451, 1452, 1216, 1217,
     1526, 1586, 1644, 1690, 1761, 1762, 1901, 3140, 3156, 3819, 4025, 4078}
)  # fmt: skip
"""Errors that rows, not the sink, are to blame for."""

_GROUP: Final = quoted("headgate group")
_PLACE: Final = re.compile(r"column '?(?:`[^`]*`\.)*[`']?(?P<column>.+?)[`']? at row (?P<row>\d+)")


class Stage:
    """The temporary table of one target in one session."""

    def __init__(self, session: Session, table: Table, number: int) -> None:
        self.table = table
        self._session = session
        self._stage = quoted(DATABASE, f"headgate_stage_{number}")
        self._texts: dict[tuple[str, str | None, str | None, str | None], ColumnText] = {}
        self._filled = False
        columns = ", ".join(f"{quoted(name)} {column.definition}" for name, column in table.columns.items())
        engine = " ENGINE = Aria TRANSACTIONAL = 0" if session.is_mariadb else " ENGINE = InnoDB"
        session.execute(f"CREATE TEMPORARY TABLE {self._stage} ({_GROUP} int NOT NULL, {columns}){engine}")

    def drop(self) -> None:
        """Remove the stage; the target has changed."""
        self._session.execute(f"DROP TEMPORARY TABLE IF EXISTS {self._stage}")

    def lock(self) -> None:
        """Keep alterations of the target out until the transaction's end, as each merge does from its first row on."""
        self._session.execute(f"DELETE FROM {self.table.identifier} WHERE FALSE")

    def check_version(self) -> None:
        """Raise TableAlteredError if the target, locked by now, is not what the stage was made from."""
        if read_version(self._session, self.table.identifier) != self.table.version:
            raise TableAlteredError(self.table.name)

    def fill(self, reduced: Reduced) -> list[Group]:
        """Stage a reduced batch: deletes as group 0, then the groups returned. Raises UnwritableError, SinkError."""
        if self._filled:
            self._session.execute(f"DELETE FROM {self._stage}")  # without a WHERE it costs nothing, and commits nothing
        self._filled = True
        groups = group_rows(reduced.upserts, self.table.key)
        for keys in group_keys(reduced.deletes, self.table.key) if reduced.deletes else ():
            self._send(0, keys)
        for number, group in enumerate(groups, start=1):
            self._send(number, group)
        return groups

    def _text(self, column: str, semantics: Semantics) -> ColumnText:
        told = semantics or {}
        known = (column, told.get(column), told.get(CONNECTOR), told.get(BINARY))
        text = self._texts.get(known)
        if text is None:
            text = self._texts[known] = column_text(
                self.table.columns[column], *known[1:], in_key=column in self.table.key
            )
        return text

    def _send(self, number: int, group: Group) -> None:
        table = self.table
        for column in group.columns:
            if column not in table.columns and column not in table.generated:
                change = group.changes[0]
                raise SinkRefusedError(
                    f"table {table.name} has no column {column}, which the event at partition {change.partition}, "
                    f"offset {change.offset} has: ALTER TABLE {table.identifier} ADD COLUMN {quoted(column)} …"
                )
        used = [index for index, column in enumerate(group.columns) if column in table.columns]
        if self._session.loads:
            self._load(number, group, used)
        else:
            self._insert(number, group, used)

    # --- LOAD DATA LOCAL ---

    def _load(self, number: int, group: Group, used: Sequence[int]) -> None:
        names, settings = [], []
        for index in used:
            column = group.columns[index]
            kind = self.table.columns[column].kind
            if kind in BYTES or kind in NUMBERS_SENT:
                names.append(f"@v{index}")
                read = f"UNHEX(@v{index})" if kind in BYTES else f"CAST(@v{index} AS UNSIGNED)"
                settings.append(f"{quoted(column)} = {read}")
            else:
                names.append(quoted(column))
        settings.append(f"{_GROUP} = {number}")
        statement = (
            f"LOAD DATA LOCAL INFILE 'rows' INTO TABLE {self._stage} CHARACTER SET utf8mb4 "
            f"FIELDS TERMINATED BY '\\t' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n' "
            f"({', '.join(names)}) SET {', '.join(settings)}"
        )
        warnings = self._session.load(statement, self._lines(group, used))
        if warnings:
            self._refuse(group, [str(row[2]) for row in self._session.execute("SHOW WARNINGS LIMIT 1")], 0)

    def _lines(self, group: Group, used: Sequence[int]) -> Iterator[bytes]:
        for start in range(0, len(group.changes), ROWS_PER_WRITE):
            columns = []
            for index in used:
                part = group.values[index][start : start + ROWS_PER_WRITE]
                text = self._text(group.columns[index], group.semantics)
                try:
                    columns.append(text.fields(part, group.types[index]))
                except NotTextError:
                    self._name_unwritable(group, index, start, text)
                    raise
            lines = "\n".join(map("\t".join, zip(*columns, strict=True))) + "\n"
            yield lines.encode()

    def _name_unwritable(self, group: Group, index: int, start: int, text: ColumnText) -> None:
        for change, value in zip(group.changes[start:], group.values[index][start:], strict=True):
            try:
                text.plain(value)
            except NotTextError as error:
                raise UnwritableError(change, group.columns[index], str(error)) from error

    def _refuse(self, group: Group, said: Sequence[str], first: int) -> None:
        """Raise for the first row that ``said`` names, counted from row ``first`` of the group."""
        text = said[0] if said else "the sink warned, and did not say of what"
        place = _PLACE.search(text)
        if place is None:
            raise UnwritableError(group.changes[first], None, text)
        row = first + int(place["row"]) - 1
        change = group.changes[min(row, len(group.changes) - 1)]
        raise UnwritableError(change, place["column"], text)

    # --- INSERT of many rows ---

    def _insert(self, number: int, group: Group, used: Sequence[int]) -> None:
        names = ", ".join([_GROUP, *(quoted(group.columns[index]) for index in used)])
        head = f"INSERT INTO {self._stage} ({names}) VALUES "
        rows: list[str] = []
        size = first = 0
        for place in range(len(group.changes)):
            row = f"({number}, {', '.join(self._literal(group, index, place) for index in used)})"
            if rows and size + len(row) > INSERT_BYTES:
                self._insert_rows(head, rows, group, first)
                rows, size, first = [], 0, place
            rows.append(row)
            size += len(row) * 4  # at most four bytes a character
        if rows:
            self._insert_rows(head, rows, group, first)

    def _insert_rows(self, head: str, rows: Sequence[str], group: Group, first: int) -> None:
        try:
            self._session.execute(head + ", ".join(rows))
        except pymysql.Error as error:
            if errno(error) not in BAD_VALUES:
                raise
            self._refuse(group, [message(error)], first)

    def _literal(self, group: Group, index: int, place: int) -> str:
        column = group.columns[index]
        try:
            text = self._text(column, group.semantics).plain(group.values[index][place])
        except NotTextError as error:
            raise UnwritableError(group.changes[place], column, str(error)) from error
        if text is None:
            return "NULL"
        kind = self.table.columns[column].kind
        if kind in BYTES:
            return f"x'{text}'"
        return text if kind in NUMBERS_SENT else self._session.literal(text)

    # --- merge ---

    def merge(self, reduced: Reduced, groups: Sequence[Group]) -> Merged:
        """Bring the staged rows into the target. Raises OrphanRowsError where a partial update finds no row."""
        count = self._session.count
        deletes = upserts = updates = 0
        target, stage = self.table.identifier, self._stage
        if reduced.truncate:  # DELETE: TRUNCATE would commit, and needs a right of its own
            deletes += count(f"DELETE FROM {target}")
        if reduced.deletes:
            # Not by an alias: it would be looked for in the address's database, which an address need not have.
            deletes += count(
                f"DELETE FROM {target} USING {stage} s STRAIGHT_JOIN {target} ON {self._same_key(target)} "
                f"WHERE s.{_GROUP} = 0"
            )
        for number, group in enumerate(groups, start=1):
            columns = [column for column in group.columns if column in self.table.columns]
            others = [column for column in columns if column not in self.table.key]
            if group.whole:
                self._upsert(number, columns, others)
                upserts += len(group.changes)
            elif not self.table.key:
                raise OrphanRowsError
            elif others:
                updated = self._update(number, others)
                updates += updated
                if updated != len(group.changes):
                    raise OrphanRowsError
        if self.table.folding and groups:
            self._check_folding()
        return Merged(upserts, updates, deletes)

    def _same_key(self, target: str = "t") -> str:
        key = [f"{target}.{quoted(column)} = s.{quoted(column)}" for column in self.table.key]
        # A key that only the collation takes for this one is another row's.
        key += [f"BINARY {target}.{quoted(column)} = BINARY s.{quoted(column)}" for column in self.table.folding]
        return " AND ".join(key)

    def _upsert(self, number: int, columns: Sequence[str], others: Sequence[str]) -> None:
        """Insert, or update the row of the same key.

        ON DUPLICATE KEY UPDATE would take a row that shares any unique value for the same row: tables with more
        than one unique key are updated, then what was not there is inserted, and a collision is an error.
        """
        target, stage = self.table.identifier, self._stage
        names = ", ".join(map(quoted, columns))
        if not self.table.key:
            self._session.execute(
                f"INSERT INTO {target} ({names}) SELECT {names} FROM {stage} WHERE {_GROUP} = {number}"
            )
            return
        if not self.table.secondary_unique:
            first = quoted(self.table.key[0])
            assign = ", ".join(f"{quoted(column)} = VALUES({quoted(column)})" for column in others)
            self._session.execute(
                f"INSERT INTO {target} ({names}) SELECT {names} FROM {stage} WHERE {_GROUP} = {number} "
                f"ON DUPLICATE KEY UPDATE {assign or f'{target}.{first} = {target}.{first}'}"
            )
            return
        if others:
            self._update(number, others)
        chosen = ", ".join(f"s.{quoted(column)}" for column in columns)
        self._session.execute(
            f"INSERT INTO {target} ({names}) SELECT {chosen} FROM {stage} s LEFT JOIN {target} t ON {self._same_key()} "
            f"WHERE s.{_GROUP} = {number} AND t.{quoted(self.table.key[0])} IS NULL"
        )

    def _update(self, number: int, others: Sequence[str]) -> int:
        assign = ", ".join(f"t.{quoted(column)} = s.{quoted(column)}" for column in others)
        return self._session.count(
            f"UPDATE {self._stage} s STRAIGHT_JOIN {self.table.identifier} t ON {self._same_key()} SET {assign} "
            f"WHERE s.{_GROUP} = {number}"
        )

    def _check_folding(self) -> None:
        """Every row staged must be there under its own key, letter by letter."""
        ((lost,),) = self._session.execute(
            f"SELECT COUNT(*) FROM {self._stage} s LEFT JOIN {self.table.identifier} t ON {self._same_key()} "
            f"WHERE s.{_GROUP} > 0 AND t.{quoted(self.table.key[0])} IS NULL"
        )
        if lost:
            raise FoldedKeysError
