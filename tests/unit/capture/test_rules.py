"""Judgements of a source database that need no server, or more of one than a test can have."""

from typing import Any

import pytest
from msgspec.structs import replace

from headgate.capture.finding import CaptureFinding, State
from headgate.capture.mysql.facts import MysqlFacts, MysqlTable
from headgate.capture.mysql.rules import mysql_findings
from headgate.capture.postgresql.facts import Partition, PostgresFacts, PostgresTable, Publication, Slot
from headgate.capture.postgresql.rules import postgresql_findings
from headgate.capture.tables import CapturedColumn, NoTableError, chosen_tables

ORDERS = PostgresTable(schema="shop", table="orders", key=("id",), columns=(CapturedColumn("id", "bigint"),))
POSTGRES = PostgresFacts(
    database="shop",
    user="debezium",
    version=180_001,
    wal_level="logical",
    is_standby=False,
    slots_max=10,
    senders_max=10,
    senders=0,
    publications=(Publication("headgate", True, frozenset({"insert", "update", "delete"}), False, frozenset()),),
    tables=(ORDERS,),
)
MARIADB = MysqlFacts(
    account="'debezium'@'%'",
    version="10.11.6-MariaDB-log",
    is_mariadb=True,
    database="shop",
    variables={
        "log_bin": "ON", "server_id": "1", "binlog_format": "ROW", "binlog_row_image": "FULL", "expire_logs_days": "10"
    },
    rights=frozenset({"RELOAD", "REPLICATION SLAVE", "BINLOG MONITOR"}),
)  # fmt: skip


def postgresql(table: PostgresTable = ORDERS, **changed: Any) -> list[CaptureFinding]:
    facts = replace(POSTGRES, tables=(table,), **changed)
    found = postgresql_findings(facts, facts.tables, publication="headgate", slot="headgate")
    return [finding for finding in found if finding.state is not State.OK]


def mysql(*tables: MysqlTable, **changed: Any) -> list[CaptureFinding]:
    found = mysql_findings(replace(MARIADB, **changed), tables)
    return [finding for finding in found if finding.state is not State.OK]


def test_a_source_that_has_all_of_it() -> None:
    assert postgresql() == []
    assert mysql(MysqlTable(schema="shop", table="orders", engine="InnoDB", key=("id",))) == []


@pytest.mark.parametrize(
    ("changed", "check", "fix"),
    [
        ({"slots_max": 0}, "max_replication_slots", "ALTER SYSTEM SET max_replication_slots = 10;"),
        ({"senders": 10}, "max_wal_senders", "ALTER SYSTEM SET max_wal_senders = 14;"),
        (
            {"slots": (Slot("headgate", "pgoutput", "shop", False, "lost", None),)},
            "slot",
            "SELECT pg_drop_replication_slot('headgate');",
        ),
    ],
)
def test_what_a_postgresql_lacks(changed: dict[str, Any], check: str, fix: str) -> None:
    (found,) = postgresql(**changed)
    assert (found.check, found.state, found.fix) == (check, State.WRONG, (fix,))


def test_a_slot_that_exists_needs_no_room() -> None:
    slots = (Slot("headgate", "pgoutput", "shop", True, "reserved", 0),)
    assert postgresql(slots=slots, slots_max=1, senders=10) == []


def test_a_slot_that_nobody_reads_is_a_warning_once_it_keeps_much() -> None:
    kept = Slot("old", "pgoutput", "shop", False, "extended", 3 * 2**30)
    (found,) = postgresql(slots=(kept,))
    assert (found.state, found.subject, found.says) == (
        State.WARNING, "old", "no client reads it, and it retains 3.0 GiB of WAL"
    )  # fmt: skip
    assert postgresql(slots=(replace(kept, retained_bytes=1000),)) == []


def test_an_old_standby_is_refused_and_a_new_one_warned_of() -> None:
    assert [found.state for found in postgresql(is_standby=True, version=150_000)] == [State.WRONG]
    assert [found.state for found in postgresql(is_standby=True, version=160_000)] == [State.WARNING]


def test_columns_that_the_connector_loses() -> None:
    columns = (CapturedColumn("span", "interval[]"), CapturedColumn("marks", "numeric(5,2)[]"))
    lost, forgotten = postgresql(replace(ORDERS, columns=columns))
    assert (lost.state, lost.fix) == (State.WARNING, ())
    assert forgotten.fix == ('ALTER TABLE "shop"."orders" REPLICA IDENTITY FULL;',)
    (lost,) = postgresql(replace(ORDERS, columns=columns, identity="f"))


def test_a_keyless_table_with_full_identity_is_a_warning() -> None:
    (found,) = postgresql(replace(ORDERS, key=(), identity="f"))
    assert (found.state, found.fix) == (State.WARNING, ())
    assert "keyless: append" in found.then


UNIQUE = replace(ORDERS, key=(), unique_index="by code", unique_columns=("code",))
PLAIN, UNLOGGED = Partition("shop", "p1", "d", is_unlogged=False), Partition("shop", "p2", "f", is_unlogged=True)


@pytest.mark.parametrize(
    ("table", "fix"),
    [
        (UNIQUE, ['"orders" REPLICA IDENTITY USING INDEX "by code"']),
        (replace(UNIQUE, identity="f"), []),
        (replace(UNIQUE, identity="i"), []),
        (replace(UNIQUE, partitions=(PLAIN,)), ['"orders" REPLICA IDENTITY FULL', '"p1" REPLICA IDENTITY FULL']),
        (
            replace(UNIQUE, unique_index=None, unique_columns=(), identity="f", partitions=(PLAIN,)),
            ['"p1" REPLICA IDENTITY FULL'],
        ),
        (replace(ORDERS, partitions=(PLAIN,)), []),
        (replace(ORDERS, partitions=(replace(PLAIN, identity="n"),)), ['"p1" REPLICA IDENTITY DEFAULT']),
        (replace(ORDERS, partitions=(PLAIN, UNLOGGED)), ['"p2" SET LOGGED']),
        (
            replace(ORDERS, columns=(CapturedColumn("marks", "numeric(5,2)[]"),), partitions=(PLAIN, UNLOGGED)),
            ['"p2" SET LOGGED', '"orders" REPLICA IDENTITY FULL', '"p1" REPLICA IDENTITY FULL'],
        ),
    ],
)
def test_each_partition_logs_what_finds_a_row(table: PostgresTable, fix: list[str]) -> None:
    typed = [line for found in postgresql(table) for line in found.fix]
    assert typed == [f'ALTER TABLE "shop".{line};' for line in fix]


def test_a_unique_index_is_a_tables_key() -> None:
    assert UNIQUE.row_key == ("code",)
    assert UNIQUE.shown_key == "key (code) of unique index by code"
    assert mysql(MysqlTable(schema="s", table="t", engine="InnoDB", unique_index="u", unique_columns=("a", "b"))) == []


@pytest.mark.parametrize(
    ("changed", "check", "state"),
    [
        ({"expire_logs_days": "0", "binlog_expire_logs_seconds": "3600"}, "log retention", State.WARNING),
        ({"binlog_row_value_options": "PARTIAL_JSON"}, "binlog_row_value_options", State.WRONG),
        ({"server_id": "0"}, "server_id", State.WRONG),
        ({"binlog_format": "MIXED"}, "binlog_format", State.WRONG),
    ],
)
def test_what_a_mysql_lacks(changed: dict[str, str], check: str, state: State) -> None:
    (found,) = mysql(variables={**MARIADB.variables, **changed})
    assert (found.check, found.state) == (check, state)
    assert found.fix[0].startswith("SET GLOBAL ")


def test_a_log_without_the_database() -> None:
    orders = MysqlTable(schema="shop", table="orders", engine="InnoDB", key=("id",))
    assert [found.check for found in mysql(orders, logged_only=("other",))] == ["binlog filter"]
    assert [found.check for found in mysql(orders, not_logged=("shop",))] == ["binlog filter"]
    assert mysql(orders, logged_only=("shop",)) == []


def test_all_privileges_are_enough() -> None:
    assert mysql(rights=frozenset({"ALL PRIVILEGES"})) == []


def test_a_pattern_chooses_tables_and_one_that_matches_none_is_refused() -> None:
    view = PostgresTable(schema="shop", table="notes", kind="v")
    other = PostgresTable(schema="shop.eu", table="orders")
    tables = [view, ORDERS, other]
    assert chosen_tables(tables, []) == [ORDERS, other]
    assert chosen_tables(tables, ["shop.*"]) == [ORDERS]
    assert chosen_tables(tables, ["shop.notes", '"shop.eu".*']) == [view, other]
    with pytest.raises(NoTableError, match=r"no table matches 'shop.order'. Did you mean 'shop.orders'"):
        chosen_tables(tables, ["shop.order"])
    with pytest.raises(NoTableError, match="has no tables that this user can see"):
        chosen_tables([], ["*"])


def test_a_table_that_is_called_like_a_slice_is_chosen_with_and_without_quotes() -> None:
    tables = [ORDERS, like := PostgresTable(schema="shop", table="o@t=1")]
    assert like.name == 'shop."o@t=1"'
    for pattern in ("shop.o@t=1", "shop.o@*", 'shop."o@t=1"'):
        assert chosen_tables(tables, [pattern]) == [like]


def test_a_pattern_reaches_into_no_name_with_a_dot() -> None:
    tables = [ORDERS, old := PostgresTable(schema="shop", table="orders.old")]
    assert chosen_tables(tables, ["shop.orders*"]) == [ORDERS]
    assert chosen_tables(tables, ['shop."orders.*']) == [old]
