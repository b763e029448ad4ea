"""The stage in MySQL and MariaDB: filled by LOAD DATA LOCAL, or by INSERTs of many rows.

Its columns have the types of their targets, every one of them open to NULL. It is filled outside of the transaction
that merges it. On MariaDB it is an Aria table, which costs half of what an InnoDB table costs.

LOAD DATA LOCAL never fails on a value, whatever the mode: it takes something else and warns. So every warning is an
error here. Where a server refuses LOAD DATA LOCAL, rows are sent as INSERTs of many rows (``bulk=insert``); measured,
200 000 rows of 100 bytes: 0.65 s against 1.6 s.
"""

import re
from collections.abc import Sequence
from typing import Final

from headgate.databases.mysql.errors import BAD_VALUES, MysqlError, errno, message, without_values
from headgate.databases.mysql.sql import literal, quoted
from headgate.databases.mysql.types import line_octets
from headgate.formats.change import ChangeError
from headgate.sinks.relational.grouping import Group, StagedTexts, UnwritableError
from headgate.sinks.relational.mysql.catalog import DATABASE, MysqlSinkColumn, read_version
from headgate.sinks.relational.mysql.connection import MysqlSinkSession
from headgate.sinks.relational.mysql.faults import remedy_of
from headgate.sinks.relational.mysql.values import NUMBERS_SENT, SENT_AS_HEX, column_text
from headgate.sinks.relational.remedies import advised
from headgate.sinks.relational.staging import StagingTable, Told
from headgate.sinks.relational.text import ColumnText
from headgate.sinks.relational.times import NotTextError
from headgate.sinks.row_copying import CopiedTexts

__all__ = ["MysqlStage"]

INSERT_BYTES: Final = 1 << 20
"""Of one INSERT: below the smallest max_allowed_packet that servers come with (MySQL 5.7: 4 MiB)."""

_PLACE: Final = re.compile(r".*column '?(?:`[^`]*`\.)*[`']?(?P<column>.+?)[`']? at row (?P<row>\d+)$", re.DOTALL)
"""Matched at the text's end: a value may precede it, with any content."""


class MysqlStage(StagingTable[MysqlSinkSession, MysqlSinkColumn]):
    """See StagingTable."""

    def _create(self, name: str) -> None:
        self._stage = quoted(DATABASE, name)
        self._group = quoted(self.group)
        self._is_filled = False
        columns = ", ".join(f"{quoted(name)} {column.definition}" for name, column in self.table.columns.items())
        engine = " ENGINE = Aria TRANSACTIONAL = 0" if self.session.is_mariadb else " ENGINE = InnoDB"
        self.session.execute(f"CREATE TEMPORARY TABLE {self._stage} ({self._group} int NOT NULL, {columns}){engine}")

    def drop(self) -> None:
        """See StagingTable."""
        self.session.execute(f"DROP TEMPORARY TABLE IF EXISTS {self._stage}")

    def _add_column(self, column: str) -> str:
        return f"ALTER TABLE {self.table.identifier} ADD COLUMN {quoted(column)}"

    def begin_trials(self) -> None:
        """See StagingTable.

        Rules are checked at each statement anyway; any statement on the target keeps alterations out.
        """
        self.session.execute(f"DELETE FROM {self.table.identifier} WHERE FALSE")

    def read_version(self) -> str:
        """See StagingTable."""
        return read_version(self.session, self.table.identifier)

    def _empty(self) -> None:
        if self._is_filled:
            self.session.execute(f"DELETE FROM {self._stage}")  # without a WHERE it costs nothing, and commits nothing
        self._is_filled = True

    def _column_text(self, column: MysqlSinkColumn, told: Told, *, in_key: bool) -> ColumnText:
        return column_text(column, *told, in_key=in_key, rounds=self.rounds)

    def _send(self, number: int, group: Group, used: Sequence[int]) -> None:
        if self.session.loads:
            self._load(number, group, used)
        else:
            self._insert(number, group, used)

    # --- LOAD DATA LOCAL ---

    def _load(self, number: int, group: Group, used: Sequence[int]) -> None:
        names, settings = [], []
        for index in used:
            column = group.columns[index]
            kind = self.table.columns[column].kind
            if kind in SENT_AS_HEX or kind in NUMBERS_SENT:
                names.append(f"@v{index}")
                read = f"UNHEX(@v{index})" if kind in SENT_AS_HEX else f"CAST(@v{index} AS UNSIGNED)"
                settings.append(f"{quoted(column)} = {read}")
            else:
                names.append(quoted(column))
        _, warnings = self.session.load(self._loading(number, names, settings), self._lines(group, used))
        if warnings:
            said = [(int(row[1]), str(row[2])) for row in self.session.execute("SHOW WARNINGS LIMIT 1")]
            self._refuse(group, *(said or [(0, "the sink reported a warning without a text")])[0], 0)

    def _loading(self, number: int, names: Sequence[str], settings: Sequence[str] = ()) -> str:
        return (
            f"LOAD DATA LOCAL INFILE 'rows' INTO TABLE {self._stage} CHARACTER SET utf8mb4 "
            f"FIELDS TERMINATED BY '\\t' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n' "
            f"({', '.join(names)}) SET {', '.join([*settings, f'{self._group} = {number}'])}"
        )

    def takes_texts(self, texts: CopiedTexts) -> bool:
        """See StagingTable.

        If they are of the target's own types, in which a LOAD takes them as they are, and no others.
        """
        table = self.table
        return (
            self.session.loads
            and {name: column.in_full for name, column in table.columns.items()}
            == dict(zip(texts.columns, texts.declared, strict=True))
            and all(line_octets(column.kind, column.declared) is not None for column in table.columns.values())
            and bool(table.key)
            and all(table.columns[column].integers is not None for column in table.key)
            and not (self.fires or table.folding)
            and table.part is None
        )

    def stage_texts(self, number: int, texts: CopiedTexts) -> StagedTexts:
        """See StagingTable."""
        loaded, warnings = self.session.load(self._loading(number, list(map(quoted, texts.columns))), texts.blocks)
        if warnings or loaded != texts.count or self._has_replaced_null(number):
            raise ChangeError("a value is refused: staging the rows names it")
        return StagedTexts(texts.columns, texts.count)

    def _has_replaced_null(self, number: int) -> bool:
        """Whether a staged row has NULL where the target would get something else for it."""
        found = [f"{quoted(name)} IS NULL" for name, column in self.table.columns.items() if column.replaces_null]
        if not found:
            return False
        condition = f"{self._group} = {number} AND ({' OR '.join(found)})"
        return bool(self.session.execute(f"SELECT 1 FROM {self._stage} WHERE {condition} LIMIT 1"))

    def _refuse(self, group: Group, number: int, text: str, first: int) -> None:
        """Raise for the first row that the server's error names, counted from row ``first`` of the group."""
        remedy = remedy_of(number, text)
        reason = without_values(number, text)
        place = _PLACE.match(text)
        if place is None:
            raise UnwritableError(group.changes[first], None, advised(reason, remedy))
        row = first + int(place["row"]) - 1
        change = group.changes[min(row, len(group.changes) - 1)]
        column = place["column"]
        raise UnwritableError(change, column, advised(reason, remedy))

    # --- INSERT of many rows ---

    def _insert(self, number: int, group: Group, used: Sequence[int]) -> None:
        names = ", ".join([self._group, *(quoted(group.columns[index]) for index in used)])
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
            self.session.execute(head + ", ".join(rows))
        except MysqlError as error:
            if errno(error) not in BAD_VALUES:
                raise
            self._refuse(group, errno(error), message(error), first)

    def _literal(self, group: Group, index: int, place: int) -> str:
        column = group.columns[index]
        try:
            text = self.text(column, group.semantics).plain(group.values[index][place])
        except NotTextError as error:
            raise UnwritableError(group.changes[place], column, str(error)) from error
        if text is None:
            return "NULL"
        kind = self.table.columns[column].kind
        if kind in SENT_AS_HEX:
            return f"x'{text}'"
        return text if kind in NUMBERS_SENT else literal(text)

    # --- merge ---

    def _delete_all(self) -> int:
        return self.session.count(f"DELETE FROM {self.table.identifier} WHERE {self._ours}")

    def _equals(self, column: str, value: str) -> str:
        return f"{quoted(column)} = {literal(value)}"

    def _delete(self) -> int:
        # Not by an alias: it would be looked for in the address's database, which an address need not have.
        target = self.table.identifier
        return self.session.count(
            f"DELETE FROM {target} USING {self._stage} s STRAIGHT_JOIN {target} ON {self._same_key(target)} "
            f"WHERE s.{self._group} = 0"
        )

    def _same_key(self, target: str = "t") -> str:
        key = [f"{target}.{quoted(column)} = s.{quoted(column)}" for column in self.table.key]
        # A key that only the collation takes for this one is another row's.
        key += [f"BINARY {target}.{quoted(column)} = BINARY s.{quoted(column)}" for column in self.table.folding]
        return " AND ".join(key)

    def _upsert(self, number: int, columns: Sequence[str], others: Sequence[str]) -> int:
        """Insert, or update the row of the same key.

        ON DUPLICATE KEY UPDATE would take a row that shares any unique value for the same row: tables with more
        than one unique key are updated, then what was not there is inserted, and a collision is an error.
        """
        target, stage = self.table.identifier, self._stage
        names = ", ".join(map(quoted, columns))
        if not self.table.key:
            return self.session.count(
                f"INSERT INTO {target} ({names}) SELECT {names} FROM {stage} WHERE {self._group} = {number}"
            )
        if not self.table.secondary_unique:
            first = quoted(self.table.key[0])
            assign = ", ".join(f"{quoted(column)} = VALUES({quoted(column)})" for column in others)
            # The server counts a row that it inserts, or leaves as it was, once, and one that it changes twice.
            return self.session.count(
                f"INSERT INTO {target} ({names}) SELECT {names} FROM {stage} WHERE {self._group} = {number} "
                f"ON DUPLICATE KEY UPDATE {assign or f'{target}.{first} = {target}.{first}'}"
            )
        updated = self._update(number, others) if others else 0
        chosen = ", ".join(f"s.{quoted(column)}" for column in columns)
        return updated + self.session.count(
            f"INSERT INTO {target} ({names}) SELECT {chosen} FROM {stage} s LEFT JOIN {target} t ON {self._same_key()} "
            f"WHERE s.{self._group} = {number} AND t.{quoted(self.table.key[0])} IS NULL"
        )

    def _update(self, number: int, others: Sequence[str]) -> int:
        assign = ", ".join(f"t.{quoted(column)} = s.{quoted(column)}" for column in others)
        return self.session.count(
            f"UPDATE {self._stage} s STRAIGHT_JOIN {self.table.identifier} t ON {self._same_key()} SET {assign} "
            f"WHERE s.{self._group} = {number}"
        )

    def _missing(self, number: int | None = None) -> int:
        of_group = "> 0" if number is None else f"= {number}"
        ((lost,),) = self.session.execute(
            f"SELECT COUNT(*) FROM {self._stage} s LEFT JOIN {self.table.identifier} t ON {self._same_key()} "
            f"WHERE s.{self._group} {of_group} AND t.{quoted(self.table.key[0])} IS NULL"
        )
        return int(lost)

    def _is_any_left(self) -> bool:
        return bool(
            self.session.execute(
                f"SELECT 1 FROM {self._stage} s STRAIGHT_JOIN {self.table.identifier} t ON {self._same_key()} "
                f"WHERE s.{self._group} = 0 LIMIT 1"
            )
        )

    def _is_any_row(self) -> bool:
        return bool(self.session.execute(f"SELECT 1 FROM {self.table.identifier} WHERE {self._ours} LIMIT 1"))
