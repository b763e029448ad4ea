"""Delta tables of every type, with extremes, as the sink writes them and as Spark reads them, for tests."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import numpy
import polars
import pyarrow as pa

from headgate.formats.change import Operation
from headgate_lab.benchmarks.peers.lake_spark import LakeSpark
from integration.sinks.test_partitioned_tables import Bench, Delta

__all__ = ["SparkDelta"]

INF: Final = float("inf")
NAN: Final = float("nan")
LEAST_REAL: Final = 1e-45
MOST_REAL: Final = 3.4028235e38

LONGEST: Final = ("-" + "9" * 28 + "." + "9" * 10, "1E-10", "5" * 28 + "." + "5" * 10)

FIRST: Final = datetime(1, 1, 1)
BEFORE: Final = datetime(1582, 10, 4, 23, 59, 59, 999999)
"""The last moment of the Julian calendar, which Spark's own old files are in."""
LAST: Final = datetime(9999, 12, 31, 23, 59, 59, 999999)
USUAL: Final = datetime(2026, 11, 30, 12, 34, 56, 789012)

VALUES: Final[Mapping[str, tuple[str, Sequence[Any]]]] = {
    "flag": ("boolean", [True, False]),
    "tiny": ("tinyint", [-128, 0, 127]),
    "small": ("smallint", [-32768, 0, 32767]),
    "whole": ("int", [-(2**31), 0, 2**31 - 1]),
    "large": ("bigint", [-(2**63) + 99, 0, 2**53 + 1, 2**63 - 1]),
    "real": ("float", [-INF, -MOST_REAL, -0.0, LEAST_REAL, 0.1, MOST_REAL, INF, NAN]),
    "ratio": ("double", [-INF, -1.7976931348623157e308, -0.0, 5e-324, 0.1, 1.7976931348623157e308, INF, NAN]),
    "calm": ("double", [-2.5, 0.0, 1.5, 1e300]),
    "amount": ("decimal(10,2)", [Decimal(t) for t in ("-99999999.99", "0.00", "0.07", "99999999.99")]),
    "unsigned": ("decimal(20,0)", [Decimal(n) for n in (0, 2**53 + 1, 2**63, 2**64 - 1)]),
    "longest": ("decimal(38,10)", [Decimal(text) for text in LONGEST]),
    "fraction": ("decimal(38,38)", [Decimal(t) for t in ("-0." + "9" * 38, "1E-38", "0." + "9" * 38)]),
    "day": ("date", [FIRST.date(), BEFORE.date(), date(1969, 12, 31), USUAL.date(), LAST.date()]),
    "at": ("timestamp", [t.replace(tzinfo=UTC) for t in (FIRST, BEFORE, USUAL, LAST)]),
    "wall": ("timestamp_ntz", [FIRST, BEFORE, USUAL, LAST]),
    "text": (
        "string",
        ["", "%_\\'\"\n", "a" * 15 + "\ud7ff" * 2, "null", "z" * 70, "ü😀", "\U0010ffff" * 70, "z" * 5000],
    ),
    "bytes": ("binary", [b"", b"\0", b"a", b"z" * 70, b"\xff" * 70, b"z" * 5000]),
}  # fmt: skip
"""Column → its type, and values of it in ascending order."""

TYPES: Final = {"id": "bigint", "part": "int", **{name: type_ for name, (type_, _) in VALUES.items()}}


class SparkTable(Bench):
    """One table of every type. ``model``: the rows that it must have."""

    types = TYPES

    def start(self, mode: str, by: Sequence[str]) -> None:
        self.mode = mode
        self.model: list[dict[str, Any]] = []
        self.columns = list(self.types)
        self.create(*by, mode=mode)

    @property
    def name(self) -> str:
        """What Spark calls it."""
        raise NotImplementedError

    def row(self, number: int, shift: int = 0) -> dict[str, Any]:
        """Values of every column in turn; none of one row in nine."""
        chosen = {
            name: None if number % 9 == 8 else values[(number + shift) % len(values)]
            for name, (_, values) in VALUES.items()
            if name in self.columns
        }
        return {"id": number, "part": number % 3, **chosen}

    def write(self, *rows: Mapping[str, Any], deleted: Iterable[int] = ()) -> None:
        """One commit, also to the model."""
        gone = list(deleted)
        at = self.at
        self.apply(
            *({name: shown(value) for name, value in row.items()} for row in rows),
            deleted=tuple({"id": number} for number in gone),
        )
        if self.mode == "append":
            self._append(at, rows, gone)
        else:
            changed = {row["id"] for row in rows}.union(gone)
            self.model = [row for row in self.model if row["id"] not in changed]
            self.model += [{**dict.fromkeys(self.columns), **row} for row in rows]

    def _append(self, at: int, rows: Iterable[Mapping[str, Any]], gone: Iterable[int]) -> None:
        changes = [(Operation.UPSERT, row) for row in rows] + [(Operation.DELETE, {"id": number}) for number in gone]
        for offset, (operation, row) in enumerate(changes, at):
            own = {"_operation": operation.value, "_topic": self.claim.topic, "_topic_partition": 0, "_offset": offset}
            self.model.append({**dict.fromkeys(self.columns), **row, **own, "_committed_at": None})

    def check(self, spark: LakeSpark) -> None:
        """Spark, and every other reader, has the model's rows."""
        found = {"spark": spark.query(f"SELECT * FROM {self.name}").to_pylist(), **self.others()}
        for reader, rows in found.items():
            differ(reader, rows, self.model)

    def check_filters(self, spark: LakeSpark, columns: Iterable[str]) -> None:
        """A filter finds the rows that a condition is true of, as Spark itself has it of rows that it has read."""
        for column in columns:
            conditions = self._conditions(column)
            place = "_offset" if self.mode == "append" else "id"
            each = (
                f"SELECT {n} AS n, {place} FROM {self.name} WHERE {condition}" for n, condition in enumerate(conditions)
            )
            found = pairs(spark.query(" UNION ALL ".join(each)).to_pylist(), place)
            values = ", ".join(f"({condition}) AS c{n}" for n, condition in enumerate(conditions))
            rows = spark.query(f"SELECT {place}, {values} FROM {self.name}").to_pylist()
            for n, condition in enumerate(conditions):
                assert found.get(n, []) == sorted(row[place] for row in rows if row[f"c{n}"]), condition

    def _conditions(self, column: str) -> list[str]:
        name = f"`{column}`"
        found = [f"{name} IS NULL"]
        if column in VALUES:
            type_, values = VALUES[column]
            texts = [literal(value, type_) for value in values]
            first, middle, last = texts[0], texts[len(texts) // 2], texts[-1]
            found += [f"{name} {sign}" for sign in (f"<= {first}", f"< {middle}", f"= {middle}", f"> {middle}")]
            found += [f"{name} {sign}" for sign in (f"= {last}", f"> {texts[-2]}", f"IN ({first}, {last})")]
        else:
            found += [f"{name} = 0", f"{name} > 5"]
        return found


class SparkDelta(SparkTable, Delta):
    @property
    def name(self) -> str:
        return f"delta.`{self.folder}/shop/orders`"

    def others(self) -> dict[str, list[dict[str, Any]]]:
        """pyarrow is left out: it takes statistics that a file lacks for NULL."""
        return {
            "delta-rs": pa.RecordBatchReader.from_stream(self.native.scan()).read_all().to_pylist(),
            "polars": polars.read_delta(str(self.folder / "shop" / "orders")).to_dicts(),
        }


def shown(value: Any) -> Any:
    """A value as an event without a schema has it."""
    match value:
        case float():
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), value)
        case Decimal():
            return f"{value:f}"
        case datetime():
            return value.isoformat()
        case date():
            return value.isoformat()
    return value


def literal(value: Any, type_: str) -> str:
    """The value in a statement of Spark's."""
    match value:
        case bytes():
            return f"X'{value.hex()}'"
        case str():
            return f"CAST(X'{value.encode().hex()}' AS STRING)"
    return f"CAST('{shown(value)}' AS {type_.upper()})"


def differ(reader: str, found: Iterable[Mapping[str, Any]], expected: Iterable[Mapping[str, Any]]) -> None:
    """Fail with the values that differ, whatever order the rows have."""
    here, there = (
        sorted(map(plain, rows), key=lambda row: (row["id"], row.get("_offset"))) for rows in (found, expected)
    )
    keys = [[(row["id"], row.get("_offset")) for row in rows] for rows in (here, there)]
    assert keys[0] == keys[1], reader
    wrong = [
        f"{row['id']}.{name}: {row.get(name)!r:.80} instead of {value!r:.80}"
        for row, other in zip(here, there, strict=True)
        for name, value in other.items()
        if repr(row.get(name)) != repr(value)
    ]
    assert wrong == [], f"{reader}: {wrong[:9]}"
    assert all(row.keys() == other.keys() for row, other in zip(here, there, strict=True)), f"{reader}: columns"


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with times in one zone, and floats of 32 bits however wide they were read."""
    return {name: _plain(name, value) for name, value in row.items()}


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat()
    return float(numpy.float32(value)) if isinstance(value, float) and name == "real" else value


def pairs(rows: Iterable[Mapping[str, Any]], place: str) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in rows:
        found.setdefault(row["n"], []).append(row[place])
    return {n: sorted(places) for n, places in found.items()}
