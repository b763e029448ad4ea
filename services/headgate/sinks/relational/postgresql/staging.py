"""The stage in PostgreSQL: filled by COPY, in the transaction that merges it.

Its columns have the types of their targets, so that a value the target could not hold is refused by COPY with its line
and column (but ``money``, whose texts depend on lc_monetary, is staged as ``numeric``). It is emptied by DELETE while
little is in it (TRUNCATE writes the catalog each time), by TRUNCATE once it has grown.
"""

import re
from collections.abc import Sequence
from typing import Final

from headgate.databases.postgresql.errors import PostgresError, is_of_a_value, without_values
from headgate.databases.postgresql.sql import literal, quoted
from headgate.formats.change import ChangeError, Row
from headgate.sinks.relational.grouping import Group, UnwritableError
from headgate.sinks.relational.passed_over import PassedOverError
from headgate.sinks.relational.postgresql.catalog import PostgresSinkColumn, read_version
from headgate.sinks.relational.postgresql.connection import PostgresSinkSession
from headgate.sinks.relational.postgresql.faults import remedy_of, sink_error
from headgate.sinks.relational.postgresql.values import column_text
from headgate.sinks.relational.remedies import advised
from headgate.sinks.relational.staging import StagingTable, Told
from headgate.sinks.relational.text import ColumnText
from headgate.sinks.row_copying import CopiedTexts

__all__ = ["STAGED_AS", "PostgresStage"]

ROWS_BEFORE_TRUNCATE: Final = 5_000
"""Dead rows a stage may hold: scanning them costs less than a millisecond, a TRUNCATE about as much."""

STAGED_AS: Final = {"money": "numeric", "money[]": "numeric[]"}

SPELLED_ALIKE: Final = frozenset({"smallint", "integer", "bigint", "uuid"})
"""Types of keys that every server orders in the same way, and whose values have one spelling: the keys that the target
has between the first and the last of some rows are all that can be in the way of these rows."""

OWN_TEXTS: Final = SPELLED_ALIKE | {
    "boolean", "text", "character varying", "numeric", "real", "double precision", "date", "time without time zone",
    "timestamp without time zone", "timestamp with time zone", "json", "jsonb",
}  # fmt: skip
"""Types, without their length, whose texts are written as the source gives them, and mean the same in every session."""

KNOWN_SHARE_MAX: Final = 4
"""Rows are all staged if the target has more than one in so many of them."""

_LENGTH: Final = re.compile(r"\(\d+(?:,\d+)?\)")

_COPY_PLACE: Final = re.compile(r"COPY \S+, line (?P<line>\d+)(?:, column (?P<column>.+?))?(?::|$)")


def _is_of_a_value(error: PostgresError) -> bool:
    """Whether a COPY failed because of a value: of a domain's CHECK too, and of an extension's input function.

    Such a function raises what it likes (hstore: an internal error); COPY names the column whose value it read.
    """
    if is_of_a_value(error):
        return True
    place = _COPY_PLACE.search(error.diag.context or "")
    return place is not None and place["column"] is not None and not sink_error(error, "").retryable


class PostgresStage(StagingTable[PostgresSinkSession, PostgresSinkColumn]):
    """See StagingTable."""

    def _create(self, name: str) -> None:
        self._stage = quoted("pg_temp", name)
        self._group = quoted(self.group)
        # The text that was sent for money is not reliable: the number that was staged is compared.
        folding = [column for column in self.table.folding if self.table.columns[column].declared not in STAGED_AS]
        self._sent = {column: quoted(self._own_column(f"headgate key {place}")) for place, column in enumerate(folding)}
        self._rows = 0
        columns = ", ".join(
            [
                *(self._as_staged(column) for column in self.table.columns),
                *(f"''::text AS {n}" for n in self._sent.values()),
            ]
        )
        self.session.execute(
            f"CREATE TEMPORARY TABLE {quoted(name)} AS SELECT 0::int AS {self._group}, {columns} "
            f"FROM {self.table.identifier} WITH NO DATA"
        )

    def _as_staged(self, column: str) -> str:
        """A column of the target as it is in the stage."""
        name, kind = quoted(column), STAGED_AS.get(self.table.columns[column].declared)
        return name if kind is None else f"{name}::{kind} AS {name}"

    def _from_stage(self, column: str) -> str:
        """A staged column as it is in the target."""
        kind = self.table.columns[column].declared
        return f"s.{quoted(column)}::{kind}" if kind in STAGED_AS else f"s.{quoted(column)}"

    def drop(self) -> None:
        """See StagingTable."""
        self.session.execute(f"DROP TABLE IF EXISTS {self._stage}")

    def _add_column(self, column: str) -> str:
        return f"ALTER TABLE {self.table.identifier} ADD COLUMN {quoted(column)}"

    def begin_trials(self) -> None:
        """See StagingTable."""
        self.session.execute("SET CONSTRAINTS ALL IMMEDIATE")
        self.session.execute(f"LOCK TABLE {self.table.rows} IN ROW EXCLUSIVE MODE")

    def read_version(self) -> str | None:
        """See StagingTable."""
        return read_version(self.session, self.table.identifier)

    def _empty(self) -> None:
        # Always, whatever we believe is in it: after a rollback old rows are back.
        if self._rows > ROWS_BEFORE_TRUNCATE:
            self.session.execute(f"TRUNCATE {self._stage}")
            self._rows = 0
        else:
            self.session.execute(f"DELETE FROM {self._stage}")

    def _column_text(self, column: PostgresSinkColumn, told: Told, *, in_key: bool) -> ColumnText:
        return column_text(column.declared, *told, in_key=in_key, holds_times=column.holds_times, rounds=self.rounds)

    def _send(self, number: int, group: Group, used: Sequence[int]) -> None:
        self._rows += len(group.changes)
        again = [index for index in used if group.columns[index] in self._sent]
        names = ", ".join(
            [
                self._group,
                *(quoted(group.columns[index]) for index in used),
                *(self._sent[group.columns[index]] for index in again),
            ]
        )
        lines = self._lines(group, [*used, *again], f"{number}\t")
        try:
            self.session.copy(f"COPY {self._stage} ({names}) FROM STDIN", lines)
        except PostgresError as error:
            if not _is_of_a_value(error):
                raise
            raise self._refused(group, error) from error

    def takes_texts(self, texts: CopiedTexts) -> bool:
        """See StagingTable.

        If they are of the target's own types, and nothing else than they is written by an INSERT.
        """
        table = self.table
        declared = {name: column.declared for name, column in table.columns.items()}
        return (
            declared == dict(zip(texts.columns, texts.declared, strict=True))
            and bool(table.key)
            and table.key == texts.columns[: len(table.key)]
            and {declared[column] for column in table.key} <= SPELLED_ALIKE
            and {_LENGTH.sub("", kind) for kind in declared.values()} <= OWN_TEXTS
            and not (self.fires or table.folding or table.equalities)
            and table.part is None
        )

    def write_texts(self, texts: CopiedTexts) -> list[Row]:
        """See StagingTable."""
        known = self._known_keys(texts)
        if known is None:
            return [texts.row(line) for line in texts.lines()]
        blocks, others = texts.blocks, list[bytes]()
        if known:
            width, new = len(self.table.key), list[bytes]()
            for line in texts.lines():
                (others if tuple(line.split(b"\t", width)[:width]) in known else new).append(line)
            blocks = [b"\n".join(new) + b"\n"] if new else []
        names = ", ".join(map(quoted, texts.columns))
        try:
            written = self.session.copy(f"COPY {self.table.identifier} ({names}) FROM STDIN", blocks)
        except PostgresError as error:
            if not _is_of_a_value(error):
                raise
            raise ChangeError("a value is refused: staging the rows names it") from error
        if written + len(others) != texts.count:
            raise PassedOverError("COPY", self.fires)
        return list(map(texts.row, others))

    def _known_keys(self, texts: CopiedTexts) -> set[tuple[bytes, ...]] | None:
        """Keys of the target between the first and the last of the rows; None if they are many."""
        key, most = self.table.key, texts.count // KNOWN_SHARE_MAX
        lines = texts.blocks[0].partition(b"\n")[0], texts.blocks[-1][:-1].rpartition(b"\n")[2]
        bounds = [
            ", ".join(
                f"{literal(field.decode())}::{self.table.columns[column].declared}"
                for column, field in zip(key, line.split(b"\t"), strict=False)
            )
            for line in lines
        ]
        columns = ", ".join(f"t.{quoted(column)}" for column in key)
        # In order, or a server without statistics scans the whole table for the few that it is to return.
        found = self.session.execute(
            f"SELECT {', '.join(f't.{quoted(column)}::text' for column in key)} FROM {self.table.rows} t "
            f"WHERE ({columns}) BETWEEN ({bounds[0]}) AND ({bounds[1]}) ORDER BY {columns} LIMIT {most + 1}"
        )
        return None if len(found) > most else {tuple(text.encode() for text in row) for row in found}

    def _refused(self, group: Group, error: PostgresError) -> UnwritableError:
        place = _COPY_PLACE.search(error.diag.context or "")
        reason = advised(without_values(error), remedy_of(error))
        if place is None:
            return UnwritableError(group.changes[0], None, reason)
        change = group.changes[int(place["line"]) - 1]
        nul = [c for c, value in (change.row or {}).items() if isinstance(value, str) and "\x00" in value]
        return UnwritableError(change, place["column"] or (nul[0] if nul else None), reason)

    def _delete_all(self) -> int:
        return self.session.count(f"DELETE FROM {self.table.rows} WHERE {self._ours}")

    def _equals(self, column: str, value: str) -> str:
        return f"{quoted(column)} = {literal(value)}"

    def _delete(self) -> int:
        return self.session.count(
            f"DELETE FROM {self.table.rows} t USING {self._stage} s WHERE s.{self._group} = 0 AND {self._same_key()}"
        )

    def _same_key(self) -> str:
        same = [self._equal(key) for key in self.table.key]
        # A key that only the collation, or the type, takes for this one is another row's. "format" writes a value as
        # the server sends it to a client.
        same += [
            f'format(\'%s\', t.{quoted(column)}) COLLATE "C" = s.{sent} COLLATE "C"'
            for column, sent in self._sent.items()
        ]
        return " AND ".join(same)

    def _equal(self, key: str) -> str:
        theirs, ours, equality = f"t.{quoted(key)}", self._from_stage(key), self.table.equalities.get(key)
        if equality is None:
            # In its own type a key of money may be rounded: the stage has it in full.
            is_kept = f" AND {theirs}::numeric = s.{quoted(key)}" if self.table.columns[key].declared == "money" else ""
            return f"{theirs} = {ours}{is_kept}"
        return f"{theirs}::{equality.operand} {equality.operator} {ours}::{equality.operand}"

    def _upsert(self, number: int, columns: Sequence[str], others: Sequence[str]) -> int:
        conflict = ""
        if self.table.key:
            assign = ", ".join(f"{name} = EXCLUDED.{name}" for name in map(quoted, others))
            then = f"UPDATE SET {assign}" if others else "NOTHING"
            conflict = f"ON CONFLICT ({', '.join(map(quoted, self.table.key))}) DO {then}"
        return self.session.count(
            f"INSERT INTO {self.table.identifier} ({', '.join(map(quoted, columns))}) OVERRIDING SYSTEM VALUE "
            f"SELECT {', '.join(map(self._from_stage, columns))} FROM {self._stage} s WHERE s.{self._group} = {number} "
            f"{conflict}"
        )

    def _update(self, number: int, others: Sequence[str]) -> int:
        assign = ", ".join(f"{quoted(column)} = {self._from_stage(column)}" for column in others)
        return self.session.count(
            f"UPDATE {self.table.rows} t SET {assign} FROM {self._stage} s "
            f"WHERE s.{self._group} = {number} AND {self._same_key()}"
        )

    def _missing(self, number: int | None = None) -> int:
        of_group = "> 0" if number is None else f"= {number}"
        ((count,),) = self.session.execute(
            f"SELECT count(*) FROM {self._stage} s WHERE s.{self._group} {of_group} AND NOT EXISTS "
            f"(SELECT FROM {self.table.rows} t WHERE {self._same_key()})"
        )
        return int(count)

    def _is_any_left(self) -> bool:
        return bool(
            self.session.execute(
                f"SELECT 1 FROM {self.table.rows} t JOIN {self._stage} s ON {self._same_key()} "
                f"WHERE s.{self._group} = 0 LIMIT 1"
            )
        )

    def _is_any_row(self) -> bool:
        return bool(self.session.execute(f"SELECT 1 FROM {self.table.rows} WHERE {self._ours} LIMIT 1"))
