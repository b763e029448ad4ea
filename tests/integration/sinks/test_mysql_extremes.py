"""Numbers, bits, dates and times of MySQL at their extremes, captured by the real connector, in both sinks.

From the snapshot and from the log. What the connector itself changes (docs/types.md) is expected as it comes.
"""

from contextlib import closing

import psycopg
import pytest

from fixtures.capture import Sources
from fixtures.services import mariadb_execute
from headgate.formats.change import Change
from headgate.formats.debezium_json import DebeziumJsonDecoder
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.control import Epoch
from headgate.sinks.contract import (
    ChangeBatch,
    ChangeRefusedError,
    Claim,
    FeedIdentity,
    OffsetRange,
    Quarantine,
    Sink,
)
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.session import RelationalSettings

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(scaled_seconds(900))]

TABLES = {
    "bits": "id int PRIMARY KEY, t1 tinyint(1), tb tinyint(1), b1 bit(1), b9 bit(9), b64 bit(64), "
    "tu tinyint(1) unsigned",
    "times": "id int PRIMARY KEY, d date, dt datetime, ts timestamp NULL, t time(3), y year, dn date NOT NULL, t0 time",
    "numbers": "id bigint unsigned PRIMARY KEY, d decimal(65,30), d18 decimal(18,6), i int unsigned, dd double",
}
POSTGRESQL = {
    "bits": "id int PRIMARY KEY, t1 smallint, tb boolean, b1 bit(1), b9 bit(9), b64 bit(64), tu smallint",
    "times": "id int PRIMARY KEY, d date, dt timestamp(0), ts timestamptz, t interval, y integer, dn date NOT NULL, "
    "t0 interval",
    "numbers": "id numeric(20,0) PRIMARY KEY, d numeric(65,30), d18 numeric(18,6), i bigint, dd double precision",
}
LOOSE = "SET STATEMENT sql_mode = '' FOR "
LONG = "12345678901234567890123456789012345.123456789012345678901234567890"
BEFORE = (
    "INSERT INTO bits VALUES (1, 5, 1, b'1', 341, 18446744073709551615, 200)",
    LOOSE + "INSERT INTO times VALUES (1, '0000-00-00', '0000-00-00', '0000-00-00', '-00:00:00.500', 1901, "
    "'2026-01-01', '-838:59:59')",
    f"INSERT INTO numbers VALUES (3355, {LONG}, 999999999999.999998, 4294967295, 0.1)",
)
WHILE = (
    "INSERT INTO bits VALUES (2, -128, 0, b'0', 256, 1, 0)",
    LOOSE + "INSERT INTO times VALUES (2, '2020-00-01', NULL, NULL, '25:00:00.001', 2155, '2026-01-01', '838:59:59')",
    f"INSERT INTO numbers VALUES (9223372036854775807, -0.{1:030}, 99999999999.999998, 0, 1.7976931348623157e308)",
    "INSERT INTO numbers VALUES (18446744073709551615, 0, 0, 0, 0)",
    "UPDATE numbers SET i = 1 WHERE id = 3355",
)
WANTED = {
    "bits": [
        ("1", "5", "true", "1", "101010101", "1" * 64, "200"),
        ("2", "-128", "false", "0", "100000000", "0" * 63 + "1", "0"),
    ],
    "times": [
        ("1", None, None, None, "-00:00:00.5", "1901", "2026-01-01", "-838:59:59"),
        ("2", None, None, None, "25:00:00.001", "2155", "2026-01-01", "838:59:59"),
    ],
    "numbers": [
        (
            "3355",
            "12345678901234567890123456789012345.123456789012345678901234567890",
            "999999999999.999998",
            "1",
            "0.1",
        ),
        ("9223372036854775807", f"-0.{1:030}", "99999999999.999998", "0", "1.7976931348623157e+308"),
    ],
}


def apply(sink: Sink, table: str, changes: list[Change]) -> list[str]:
    """Apply the changes; what the sink refuses is returned."""
    refused: list[ChangeRefusedError] = []
    end = max(change.offset for change in changes) + 1
    claim = Claim(FeedIdentity("c", "0-1", "f"), table, "topic", Epoch(1, 1), 0, {0: 0})
    sink.claim(claim)
    with closing(sink.writer()) as writer:
        kept = Quarantine(refused.extend, len(changes), patient=False)
        writer.apply(ChangeBatch(claim, {0: OffsetRange(0, end)}, changes, kept))
    return [str(each) for each in refused]


@pytest.fixture
def captured(sources: Sources, mariadb_source: str) -> dict[str, list[Change]]:
    for name, columns in TABLES.items():
        mariadb_execute(mariadb_source, f"CREATE TABLE {name} ({columns})")
    for statement in BEFORE:
        mariadb_execute(mariadb_source, statement)
    database = mariadb_source.rsplit("/", 1)[1]
    sources.capture_mariadb("extremes", database, **{"decimal.handling.mode": "string"})
    for name in TABLES:
        sources.changes(f"extremes.{database}.{name}", 1)
    for statement in WHILE:
        mariadb_execute(mariadb_source, statement)
    counts = {"bits": 2, "times": 2, "numbers": 4}
    return {
        name: sources.changes(f"extremes.{database}.{name}", counts[name], DebeziumJsonDecoder()) for name in TABLES
    }


def test_every_digit_bit_and_time_arrives_and_a_key_that_wrapped_around_is_kept_apart(
    captured: dict[str, list[Change]], postgres_database: str, mariadb_database: str
) -> None:
    found = {}
    database = mariadb_database.rsplit("/", 1)[1]
    with psycopg.connect(postgres_database, autocommit=True) as target:
        for name, changes in captured.items():
            target.execute(f"CREATE TABLE {name} ({POSTGRESQL[name]})")
            mariadb_execute(mariadb_database, f"CREATE TABLE {name} ({TABLES[name]})")
            here = apply(PostgresSink(RelationalSettings(postgres_database)), f"public.{name}", changes)
            there = apply(MysqlSink(RelationalSettings(mariadb_database)), f"{database}.{name}", changes)
            found[name] = here, there
            columns = ", ".join(f"{part.split()[0]}::text" for part in POSTGRESQL[name].split(", "))
            rows = target.execute(f"SELECT {columns} FROM {name} ORDER BY id").fetchall()
            assert rows == WANTED[name], name
            count = mariadb_execute(mariadb_database, f"SELECT count(*) FROM {name}")
            assert count[0][0] == len(WANTED[name]), name
    refused = found.pop("numbers")
    assert found == {"bits": ([], []), "times": ([], [])}
    for (text,) in refused:
        assert "column id: the negative number may be a bigint unsigned above 9223372036854775807" in text
