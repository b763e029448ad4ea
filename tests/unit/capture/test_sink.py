"""Whether a sink is its own source, which tables it lacks, and the command that creates them."""

from pathlib import Path

import pytest

from headgate.capture.mysql.facts import MysqlFacts, MysqlTable
from headgate.capture.postgresql.facts import PostgresFacts, PostgresTable
from headgate.capture.sink import creating, is_itself, missing_tables
from headgate.capture.source import Capture, Mysql, Postgres
from headgate.databases.address import AddressOptions, Target

SOURCE = AddressOptions("--source", "--source-password-file", "source")
SINK = AddressOptions("--sink", "--sink-password-file", "sink")


def postgresql(*tables: str, own_id: str | None = None, database: str = "shop") -> Postgres:
    found = tuple(PostgresTable(schema=schema, table=table) for schema, _, table in (n.partition(".") for n in tables))
    return Postgres(
        PostgresFacts(
            database=database, user="u", version=180_000, wal_level="logical", is_standby=False, slots_max=1,
            senders_max=1, senders=0, tables=found, own_id=own_id,
        ),
        found,
    )  # fmt: skip


def mariadb(*tables: str, own_id: str | None = None) -> Mysql:
    found = tuple(MysqlTable(schema=schema, table=table) for schema, _, table in (n.partition(".") for n in tables))
    return Mysql(
        MysqlFacts(
            account="u", version="10.11-MariaDB", is_mariadb=True, database="shop", variables={}, rights=frozenset(),
            tables=found, own_id=own_id,
        ),
        found,
    )  # fmt: skip


def at(dsn: str, options: AddressOptions) -> Target:
    return Target(dsn, Path("password"), options)


@pytest.mark.parametrize(
    ("source", "sink", "addresses", "same"),
    [
        (postgresql(own_id="a"), postgresql(own_id="a"), ("postgresql://u@db/s", "postgresql://u@127.0.0.1/s"), True),
        (postgresql(own_id="a"), postgresql(own_id="b"), ("postgresql://u@db/shop", "postgresql://u@db/copy"), False),
        (postgresql(), postgresql(), ("postgresql://u@db/shop", "postgresql://v@db:5432/shop"), True),
        (postgresql(), postgresql(database="copy"), ("postgresql://u@db/shop", "postgresql://u@db/copy"), False),
        # A feed names its target tables with their database.
        (mariadb(own_id="s"), mariadb(own_id="s"), ("mysql://u@db/shop", "mysql://u@db/copy"), True),
        (mariadb(), mariadb(), ("mysql://u@db/shop", "mysql://u@db:3306/copy"), True),
        (mariadb(), mariadb(), ("mysql://u@db/shop", "mysql://u@db:3307/shop"), False),
        (postgresql(own_id="s"), mariadb(own_id="s"), ("postgresql://u@db/shop", "mysql://u@db/shop"), False),
    ],
)  # fmt: skip
def test_a_sink_that_is_its_own_source(source: Capture, sink: Capture, addresses: tuple[str, str], same: bool) -> None:
    assert is_itself(source, sink, at(addresses[0], SOURCE), at(addresses[1], SINK)) is same


def test_tables_that_the_sink_lacks() -> None:
    source = postgresql("public.orders", 'shop.Order "Lines"', "public.items")
    assert [table.table for table in missing_tables(source, postgresql("public.items"))] == ["orders", 'Order "Lines"']


def test_a_file_is_run_by_the_databases_own_program() -> None:
    file = Path("my files/shop-tables.sql")
    assert creating(at("postgresql://me@copy:5433/shop", SINK), file) == (
        "psql postgresql://me@copy:5433/shop --set=ON_ERROR_STOP=1 --single-transaction "
        "--file='my files/shop-tables.sql'"
    )
    assert creating(at("mysql://me@copy:3307/shop", SINK), file) == (
        "mariadb --host=copy --port=3307 --user=me --password --default-character-set=utf8mb4 "
        "< 'my files/shop-tables.sql'"
    )


def test_an_address_without_a_user_leaves_a_word_to_replace() -> None:
    assert creating(at("host=copy", SINK), Path("t.sql")).startswith("psql SINK --set")
