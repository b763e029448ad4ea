"""Events without schemas mean what those with schemas mean, and what the rows themselves say: by the real connectors.

Drawn rows are captured in each mode that a connector has for decimals and times. An expression must find the same value
of each column in every capture, and in the row as it is copied, or refuse it: bytes without a schema show no scale.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
import pytest

from fixtures.capture import Sources
from fixtures.services import mariadb_execute
from headgate.databases.address import Target
from headgate.databases.key_ranges import Chunk
from headgate.databases.mysql.row_source import open_rows as open_mysql
from headgate.databases.postgresql.row_source import open_rows as open_postgresql
from headgate.databases.row_source import RowSource
from headgate.formats.change import Change, ChangeError
from headgate.formats.expressions.computed import ComputedColumns
from headgate.formats.expressions.declared import SourceTypes
from headgate.provisioning.time_scale import scaled_seconds
from headgate.replication.shaped_rows import ShapedRows
from headgate.tables.catalogues import open_catalogue
from headgate.tables.computed import source_columns

# Four connectors start in each test, on a machine that may be busy.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(scaled_seconds(900))]

ROWS: Final = 60
SEED: Final = 20261128

MODES: Final[Mapping[str, dict[str, str]]] = {
    "string": {"decimal.handling.mode": "string"},
    "precise": {"decimal.handling.mode": "precise"},  # decimals are refused
    "iso": {"decimal.handling.mode": "string", "time.precision.mode": "isostring"},
    "schemas": {
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
    },
    "texts": {  # a schema calls decimals strings
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
        "decimal.handling.mode": "string",
    },
}

WITH_SCHEMAS: Final = ("schemas", "texts")
REFUSED: Final = object()

Draw = Callable[[random.Random], object]


def moment(digits: int) -> Draw:
    def drawn(dice: random.Random) -> str:
        micros = dice.randrange(10**15, 4 * 10**15) // 10 ** (6 - digits) * 10 ** (6 - digits)
        return str(datetime(1970, 1, 1) + timedelta(microseconds=dice.choice((micros, -micros // 4 // 10**6 * 10**6))))

    return drawn


def number(digits: int, scale: int) -> Draw:
    """Short and long ones: digits alone may be base64, too."""

    def drawn(dice: random.Random) -> str:
        unscaled = dice.randrange(10 ** dice.randint(1, digits)) * dice.choice((1, -1))
        sign, text = "-" if unscaled < 0 else "", f"{abs(unscaled):0{scale + 1}d}"
        return f"{sign}{text[:-scale]}.{text[-scale:]}" if scale else f"{sign}{text}"

    return drawn


def text(dice: random.Random) -> str:
    return "".join(dice.choice("aAäß 1.'é") for _ in range(dice.randint(0, 6)))


def day(dice: random.Random) -> str:
    return str(datetime(1900, 1, 1) + timedelta(days=dice.randrange(60_000)))[:10]


def integer(bits: int, *, is_unsigned: bool = False) -> Draw:
    low, high = (0, 1 << bits) if is_unsigned else (-(1 << (bits - 1)), 1 << (bits - 1))
    return lambda dice: dice.choice((dice.randrange(low, high), high - 1, low, dice.randrange(0, 9)))


POSTGRESQL: Final[Mapping[str, Draw]] = {
    "smallint": integer(16), "integer": integer(32), "bigint": integer(64), "oid": integer(32, is_unsigned=True),
    "numeric(12,2)": number(12, 2), "numeric(30,10)": number(30, 10), "numeric(20,0)": number(20, 0),
    "numeric(5)": number(5, 0), "numeric": number(20, 7), "boolean": lambda dice: dice.random() < 0.5,
    "varchar(20)": text, "text": text, "date": day, "timestamp": moment(6), "timestamp(3)": moment(3),
    "timestamp(0)": moment(0), "timestamptz": moment(6), "timestamptz(0)": moment(0),
    "uuid": lambda dice: f"{dice.getrandbits(128):032x}", "mood": lambda dice: dice.choice(("sad", "glad")),
    "short": lambda dice: text(dice)[:5],
}  # fmt: skip
MARIADB: Final[Mapping[str, Draw]] = {
    "tinyint": integer(8), "smallint": integer(16), "mediumint unsigned": integer(24, is_unsigned=True),
    "int": integer(32), "int unsigned": integer(32, is_unsigned=True), "bigint": integer(64),
    "bigint unsigned": integer(64, is_unsigned=True), "tinyint(1)": lambda dice: dice.randint(0, 1),
    "decimal(12,2)": number(12, 2), "decimal(30,10)": number(30, 10), "decimal(20,0)": number(20, 0),
    "decimal(5,0)": number(5, 0), "varchar(20)": text, "longtext": text, "char(8)": lambda dice: text(dice).strip(),
    "date": day, "datetime": moment(0), "datetime(3)": moment(3), "datetime(6)": moment(6),
    "timestamp(6) NULL": lambda dice: str(datetime(1971, 1, 1) + timedelta(microseconds=dice.randrange(10**15))),
    "year": lambda dice: dice.randint(1901, 2155), "enum('sad','glad')": lambda dice: dice.choice(("sad", "glad")),
    "set('a','b')": lambda dice: dice.choice(("", "a", "a,b")),
}  # fmt: skip


def drawn_rows(types: Mapping[str, Draw]) -> list[list[object]]:
    dice = random.Random(SEED)  # noqa: S311 - the same rows in every run
    drawn = [[None if dice.random() < 0.1 else draw(dice) for draw in types.values()] for _ in range(ROWS)]
    return [[None] * len(types), *drawn]


class Table:
    """A table's columns as expressions have them, from each place that they come from."""

    def __init__(self, types: Mapping[str, Draw], target: Target, name: str) -> None:
        with open_catalogue(target) as catalogue:
            definition = catalogue.definition(name)
        assert definition is not None
        self.columns = source_columns(definition)
        self.set = {f"f{number}": f"c{number}" for number in range(len(types))}
        self.types = list(types)
        self.name = name

    def of_events(self, changes: Sequence[Change], mode: str | None) -> list[list[object]]:
        known = _Known(SourceTypes(self.columns, decimals=mode))
        computing = [ComputedColumns({name: text}, known) for name, text in self.set.items()]
        return [
            [self._value(type_, column, change) for type_, column in zip(self.types, computing, strict=True)]
            for change in changes
        ]

    @staticmethod
    def _value(type_: str, column: ComputedColumns, change: Change) -> object:
        try:
            return column.of(change.semantics)(change.row or {})[0]
        except ChangeError as error:
            return REFUSED if "does not show their scale" in str(error) else f"{type_}: {error}"

    def of_rows(self, rows: AbstractContextManager[RowSource], database: str) -> list[list[object]]:
        with rows as source:
            shaped = ShapedRows(source, database, self.name, (), self.set)
            found = list(shaped.rows_within(self.name, ("id",), ("id",), Chunk(None, None)))
        return [list(row[-len(self.set) :]) for row in sorted(found, key=lambda row: int(str(row[0])))]


class _Known:
    def __init__(self, types: SourceTypes) -> None:
        self._types = types

    def known(self) -> SourceTypes:
        return self._types

    def again(self) -> SourceTypes:
        return self._types


def compare(
    types: Mapping[str, Draw], wanted: Sequence[list[object]], found: Sequence[list[object]], mode: str
) -> None:
    assert len(found) == len(wanted) == ROWS + 1
    refused = [type_ for type_ in types if is_in_bytes(type_, mode)]
    for one, other in zip(wanted, found, strict=True):
        for type_, here, there in zip(types, one, other, strict=True):
            if type_ in refused and here is not None:
                assert there is REFUSED, f"{type_}: {mode} has {there!r}, and its scale is not known"
                continue
            assert (there, type(there)) == (here, type(here)), f"{type_}: {mode} has {there!r}, and the row {here!r}"


def is_in_bytes(type_: str, mode: str) -> bool:
    """Whether a connector writes such a column as bytes whose scale no event shows."""
    if type_ == "bigint unsigned":
        return mode not in WITH_SCHEMAS
    return mode == "precise" and type_.startswith(("numeric(", "decimal("))


def captured(sources: Sources, topic: str) -> list[Change]:
    changes = sources.changes(topic, ROWS + 1)
    return sorted(changes, key=lambda change: int(str(change.key["id"])))


def mode_of(name: str) -> str | None:
    """What a feed has to say, which a decimal without digits behind the point needs."""
    return {"string": "string", "iso": "string", "precise": "precise"}.get(name)


def test_postgresql(sources: Sources, postgres_schema: tuple["psycopg.Connection[Any]", str]) -> None:
    source, schema = postgres_schema
    source.execute("CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE DOMAIN short AS varchar(5)")
    columns = ", ".join(f"c{number} {type_}" for number, type_ in enumerate(POSTGRESQL))
    source.execute(f"CREATE TABLE t (id int PRIMARY KEY, {columns})".encode())
    for mode, settings in MODES.items():
        sources.capture_postgres(f"p{mode}", schema, **{"snapshot.mode": "initial", **settings})
    marks = ", ".join("%s" for _ in POSTGRESQL)
    for number, row in enumerate(drawn_rows(POSTGRESQL)):
        source.execute(f"INSERT INTO t VALUES (%s, {marks})".encode(), [number, *row])
    target = Target(sources.postgres.dsn())
    table = Table(POSTGRESQL, target, f"{schema}.t")
    wanted = table.of_rows(open_postgresql(target), "postgresql")
    for mode in MODES:
        compare(POSTGRESQL, wanted, table.of_events(captured(sources, f"p{mode}.{schema}.t"), mode_of(mode)), mode)


def test_mariadb(sources: Sources, mariadb_source: str) -> None:
    database = mariadb_source.rsplit("/", 1)[1]
    columns = ", ".join(f"c{number} {type_}" for number, type_ in enumerate(MARIADB))
    mariadb_execute(mariadb_source, f"CREATE TABLE t (id int PRIMARY KEY, {columns})")
    for mode, settings in MODES.items():
        more = {"bigint.unsigned.handling.mode": "precise", **settings}
        sources.capture_mariadb(f"m{mode}", database, **more)
    marks = ", ".join("%s" for _ in MARIADB)
    for number, row in enumerate(drawn_rows(MARIADB)):
        mariadb_execute(mariadb_source, f"INSERT INTO t VALUES (%s, {marks})", (number, *row))
    target = Target(mariadb_source)
    table = Table(MARIADB, target, f"{database}.t")
    wanted = table.of_rows(open_mysql(target), "mysql")
    for mode in MODES:
        compare(MARIADB, wanted, table.of_events(captured(sources, f"m{mode}.{database}.t"), mode_of(mode)), mode)
