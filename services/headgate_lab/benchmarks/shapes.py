"""The rows a bench writes: their columns, as each side needs them to create the table or read the change.

All values follow from four numbers (row, version, quantity, change), so what a table must hold in the end is known from
the last version of each row.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec


class BenchColumn(msgspec.Struct, frozen=True):
    """One column. ``value`` is JSON with the places of ``places``; ``field`` its type in a Connect schema."""

    name: str
    field: Mapping[str, Any]
    postgresql: str
    mariadb: str
    value: bytes

    @property
    def connect_field(self) -> dict[str, Any]:
        """As an entry of a Connect struct."""
        return {"optional": "NOT NULL" not in self.postgresql, **self.field, "field": self.name}

    @property
    def flink(self) -> str:
        """Its type in Flink's SQL. Numbers with a fraction and times stay the text they are in the change."""
        return {"int64": "BIGINT", "int32": "INT"}.get(self.field["type"], "STRING")


class RowShape(msgspec.Struct, frozen=True):
    """A table's columns; the first is its key."""

    columns: tuple[BenchColumn, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def connect_fields(self) -> list[dict[str, Any]]:
        """The row as fields of a Connect struct."""
        return [column.connect_field for column in self.columns]

    def ddl(self, database: str) -> str:
        """The text in the parentheses of CREATE TABLE; ``database`` is ``postgresql`` or ``mariadb``."""
        columns = [f"{column.name} {getattr(column, database)}" for column in self.columns]
        return ", ".join([*columns, f"PRIMARY KEY ({self.columns[0].name})"])

    def renamed(self, names: Mapping[str, str]) -> "RowShape":
        """The same columns, some under other names."""
        return RowShape(
            tuple(msgspec.structs.replace(each, name=names.get(each.name, each.name)) for each in self.columns)
        )

    def template(self) -> bytes:
        """The row as JSON with places ``%(row)d`` and so on: bytes to be filled by ``places``."""
        return b"{%s}" % b",".join(b'"%s":%s' % (column.name.encode(), column.value) for column in self.columns)


def places(row_id: int, version: int, quantity: int, number: int) -> dict[bytes, int]:
    """What a template's places are filled with."""
    return {
        b"row": row_id,
        b"qty": quantity,
        b"ver": version,
        b"euros": row_id % 10_000,
        b"cents": version % 100,
        b"minute": row_id % 60,
        b"second": version % 60,
        b"micros": number % 1_000_000,
    }


_INT64: Final = {"type": "int64"}
_INT32: Final = {"type": "int32"}
_TEXT: Final = {"type": "string"}
_TIME: Final = {"type": "string", "name": "io.debezium.time.ZonedTimestamp", "version": 1}
_AT: Final = b'"2026-01-02T03:%(minute)02d:%(second)02d.%(micros)06dZ"'

_ID: Final = BenchColumn("id", _INT64, "bigint NOT NULL", "bigint NOT NULL", b"%(row)d")
_NAME: Final = BenchColumn(
    "name", _TEXT, "text NOT NULL", "varchar(200) NOT NULL", b'"customer %(row)d of the northern depot"'
)
_QTY: Final = BenchColumn("qty", _INT32, "integer", "integer", b"%(qty)d")
_VER: Final = BenchColumn("ver", _INT32, "integer NOT NULL", "integer NOT NULL", b"%(ver)d")
_PRICE: Final = BenchColumn("price", _TEXT, "numeric(12, 2)", "decimal(12, 2)", b'"%(euros)d.%(cents)02d"')
_AT_COLUMN: Final = BenchColumn("at", _TIME, "timestamptz NOT NULL", "datetime(6) NOT NULL", _AT)


def _block(number: int) -> tuple[BenchColumn, ...]:
    """Four more columns of a wide table: a text, a number, an amount, a time."""
    return (
        BenchColumn(
            f"note_{number}", _TEXT, "text", "varchar(200)", b'"the note of row %(row)d, as of version %(ver)d"'
        ),
        BenchColumn(f"count_{number}", _INT64, "bigint", "bigint", b"1%(cents)02d%(row)d"),
        BenchColumn(f"amount_{number}", _TEXT, "numeric(12, 2)", "decimal(12, 2)", b'"%(euros)d.%(cents)02d"'),
        BenchColumn(f"seen_{number}", _TIME, "timestamptz", "datetime(6)", _AT),
    )


USUAL: Final = RowShape((_ID, _NAME, _QTY, _VER, _PRICE, _AT_COLUMN))

WIDE_BLOCKS: Final = 11
"""Fifty columns in all, 1.3 kB of JSON a row."""

SHAPES: Final[dict[str, RowShape]] = {
    "usual": USUAL,
    "narrow": RowShape((_ID, _QTY, _VER)),
    "wide": RowShape((*USUAL.columns, *(column for number in range(WIDE_BLOCKS) for column in _block(number)))),
}
"""``usual`` is the row most figures are taken with (docs/benchmarks.md)."""
