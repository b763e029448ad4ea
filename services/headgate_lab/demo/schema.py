"""The shop: a small schema chosen so that everything that is hard about replicating a row happens in it.

Composite keys, keys beyond ASCII, NULLs, decimals with their scale, timestamps with zone, a secondary unique key, a
large text that most updates leave alone (PostgreSQL keeps it outside the row, so its change events do not carry it),
and columns that are called like parts of the event envelope. Every row has a ``version``, drawn by a trigger in the
source from one sequence: it grows with every change of a row, through deletes and re-creations too, which lets the
audit (``audit.py``) detect that a change was applied twice, or late.
"""

import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Final

import msgspec
from psycopg import Connection
from psycopg.sql import SQL, Composed, Identifier
from psycopg.types.json import Jsonb

SCHEMA: Final = "shop"

VERSION: Final = "version"
"""Column whose value the source draws by itself."""

LARGE_TEXT_CHARACTERS: Final = 9_000
"""Well above the 2 kB from which PostgreSQL moves a value out of its row."""

Row = dict[str, object]
"""Column → value, ``version`` left out."""

Make = Callable[[Random, int], object]
"""Gives a value; the number is new in every call, for values that must be unique."""


class ShopColumn(msgspec.Struct, frozen=True):
    """A column, how a value for it is made and how often an update touches it (0 never, 1 always)."""

    name: str
    sql_type: str
    make: Make
    share: float = 0.0


class ShopTable(msgspec.Struct, frozen=True):
    """A table of the shop. ``unique`` is a column that rows hand over to each other."""

    name: str
    key: tuple[str, ...]
    columns: tuple[ShopColumn, ...]
    initial_rows: int
    unique: str | None = None
    large: str | None = None

    @property
    def full_name(self) -> str:
        """Name with schema, as feeds and sinks write it."""
        return f"{SCHEMA}.{self.name}"

    @property
    def identifier(self) -> Identifier:
        """The quoted name with schema."""
        return Identifier(SCHEMA, self.name)

    def new_row(self, random: Random, serial: int) -> Row:
        """A whole row; its key and unique values are new if ``serial`` is."""
        return {column.name: column.make(random, serial) for column in self.columns}

    def new_values(self, random: Random, serial: int) -> Row:
        """What an update sets: some of the columns, at least one."""
        chosen = {c.name: c.make(random, serial) for c in self.columns if random.random() < c.share}
        if not chosen:
            column = max(self.columns, key=lambda c: c.share)
            chosen[column.name] = column.make(random, serial)
        return chosen


# --- values -----------------------------------------------------------------------------------------------------

_WORDS: Final = (
    "Zoë",
    "Łukasz",
    "Søren",
    "Ивана",
    "東京",
    "नमस्ते",
    "O'Neil",
    'quo"te',
    "a\\b",
    "tab\tnew\nline",
    "🦊",
    "\U0001d518\U0001d52b\U0001d526",
    "e\u0301",
)
_WAREHOUSES: Final = ("Köln", "東京", "São Paulo", "Пловдив", "\U0001d4ddord 🏭/%")
_START: Final = datetime(2020, 1, 1, tzinfo=UTC)


def _text(random: Random, _serial: int) -> str:
    return " ".join(random.choices(_WORDS, k=random.randint(1, 4)))


def _maybe(make: Make) -> Make:
    return lambda random, serial: None if random.random() < 0.3 else make(random, serial)


def _maybe_empty(random: Random, serial: int) -> str:
    return "" if random.random() < 0.2 else _text(random, serial)


def _large_text(random: Random, serial: int) -> str:
    return f"{serial} ä€𝄞 " + random.randbytes(LARGE_TEXT_CHARACTERS // 2).hex()


def _decimal(digits: int, scale: int) -> Make:
    return lambda random, _: Decimal(random.randint(-(10**digits) + 1, 10**digits - 1)).scaleb(-scale)


def _moment(random: Random, _serial: int) -> datetime:
    return _START + timedelta(seconds=random.randint(0, 200_000_000), microseconds=random.randint(0, 999_999))


def _day(random: Random, _serial: int) -> date:
    return date(1900, 1, 1) + timedelta(days=random.randint(0, 60_000))


def _document(random: Random, serial: int) -> Jsonb:
    return Jsonb({"payload": _text(random, serial), "after": None, "n": serial, "list": [1, 2.5, True]})


def _number(low: int, high: int) -> Make:
    return lambda random, _: random.randint(low, high)


def _email(_random: Random, serial: int) -> str:
    return f"customer.{serial}@exämple.org"


def _order_id(random: Random, _serial: int) -> uuid.UUID:
    return uuid.UUID(int=random.getrandbits(128))


# --- the tables -------------------------------------------------------------------------------------------------

TABLES: Final[tuple[ShopTable, ...]] = (
    ShopTable(
        name="customers",
        key=("id",),
        unique="email",
        initial_rows=3_000,
        columns=(
            ShopColumn("id", "bigint", lambda _, serial: serial),
            ShopColumn("email", "text NOT NULL UNIQUE", _email, 0.1),
            ShopColumn("name", "text NOT NULL", _text, 0.3),
            ShopColumn("born", "date", _maybe(_day), 0.2),
            ShopColumn("credit", "numeric(12,2) NOT NULL", _decimal(12, 2), 0.7),
            ShopColumn("joined", "timestamptz NOT NULL", _moment, 0.1),
            ShopColumn("active", "boolean", _maybe(lambda random, _: random.random() < 0.5), 0.3),
        ),
    ),
    ShopTable(
        name="products",
        key=("sku",),
        large="description",
        initial_rows=400,
        columns=(
            ShopColumn("sku", "text", lambda random, serial: f"{random.choice(_WORDS)}/{serial}"),
            ShopColumn("name", "text NOT NULL", _text, 0.4),
            ShopColumn("price", "numeric NOT NULL", _decimal(15, 4), 0.7),
            ShopColumn("rating", "double precision", _maybe(lambda random, _: random.gauss(0, 1e6)), 0.4),
            ShopColumn("description", "text NOT NULL", _large_text, 0.05),
            ShopColumn("after", "text", _maybe(_maybe_empty), 0.3),
            ShopColumn("changed", "timestamptz", _maybe(_moment), 0.5),
        ),
    ),
    ShopTable(
        name="orders",
        key=("id",),
        initial_rows=3_000,
        columns=(
            ShopColumn("id", "uuid", _order_id),
            ShopColumn("customer", "bigint NOT NULL", _number(1, 10_000)),
            ShopColumn(
                "status", "text NOT NULL", lambda random, _: random.choice(("new", "paid", "sent", "Rückgabe")), 0.7
            ),
            ShopColumn("total", "numeric(14,2)", _maybe(_decimal(14, 2)), 0.5),
            ShopColumn("placed", "timestamptz NOT NULL", _moment),
            ShopColumn("delivered", "timestamptz", _maybe(_moment), 0.3),
            ShopColumn("payload", "jsonb", _maybe(_document), 0.3),
            ShopColumn("after", "text", _maybe(_maybe_empty), 0.2),
        ),
    ),
    ShopTable(
        name="order_lines",
        key=("order_no", "line_no"),
        initial_rows=4_000,
        columns=(
            ShopColumn("order_no", "bigint", lambda _, serial: serial // 4),
            ShopColumn("line_no", "integer", lambda _, serial: serial % 4 + 1),
            ShopColumn("quantity", "integer NOT NULL", _number(-(2**31), 2**31 - 1), 0.7),
            ShopColumn("price", "numeric(18,6)", _maybe(_decimal(18, 6)), 0.3),
            ShopColumn("comment", "text", _maybe(_maybe_empty), 0.3),
        ),
    ),
    ShopTable(
        name="stock",
        key=("warehouse", "sku"),
        initial_rows=2_000,
        columns=(
            ShopColumn("warehouse", "text", lambda random, _: random.choice(_WAREHOUSES)),
            ShopColumn("sku", "text", lambda _, serial: f"Ä-{serial}"),
            ShopColumn("quantity", "bigint NOT NULL", _number(-(2**63), 2**63 - 1), 0.9),
            ShopColumn("counted", "timestamptz", _maybe(_moment), 0.5),
            ShopColumn("label", "bytea", _maybe(lambda random, _: random.randbytes(12)), 0.1),
        ),
    ),
)
"""In the order in which they are shown; two of them have composite keys."""


def with_altered(tables: Sequence[ShopTable], altered: ShopTable) -> tuple[ShopTable, ...]:
    """``tables`` with one of them as it is now."""
    return tuple(altered if table.name == altered.name else table for table in tables)


NEW_COLUMN: Final = ShopColumn(
    "channel", "text DEFAULT 'shop'", lambda random, _: random.choice(("app", "fax", "Börse")), 0.5
)
"""What a table gets under load; rows from before have the default."""

TABLE_WITH_NEW_COLUMN: Final = next(
    msgspec.structs.replace(table, columns=(*table.columns, NEW_COLUMN)) for table in TABLES if table.name == "orders"
)


# --- DDL --------------------------------------------------------------------------------------------------------


def create_source(connection: Connection) -> None:
    """Create the shop with the trigger that draws versions. Needs an empty database."""
    _create_tables(connection)
    connection.execute(
        SQL(
            """CREATE SEQUENCE {schema}.versions;
            CREATE FUNCTION {schema}.draw_version() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN NEW.version := nextval('{schema}.versions'); RETURN NEW; END $$"""
        ).format(schema=Identifier(SCHEMA))
    )
    for table in TABLES:
        connection.execute(
            SQL(
                "CREATE TRIGGER draw_version BEFORE INSERT OR UPDATE ON {table}"
                " FOR EACH ROW EXECUTE FUNCTION {schema}.draw_version()"
            ).format(table=table.identifier, schema=Identifier(SCHEMA))
        )


def create_target(connection: Connection) -> None:
    """Create the same tables, empty; versions come with the changes."""
    _create_tables(connection)


def _create_tables(connection: Connection) -> None:
    connection.execute(SQL("CREATE SCHEMA {schema}").format(schema=Identifier(SCHEMA)))
    for table in TABLES:
        connection.execute(_create_table(table))
        if table.large is not None:
            connection.execute(
                SQL("ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL").format(
                    table=table.identifier, column=Identifier(table.large)
                )
            )


def _create_table(table: ShopTable) -> Composed:
    columns = [SQL("{name} ").format(name=Identifier(c.name)) + SQL(c.sql_type) for c in table.columns]
    columns.append(SQL("{version} bigint NOT NULL").format(version=Identifier(VERSION)))
    columns.append(SQL("PRIMARY KEY ({key})").format(key=SQL(", ").join(map(Identifier, table.key))))
    return SQL("CREATE TABLE {table} ({columns})").format(table=table.identifier, columns=SQL(", ").join(columns))
