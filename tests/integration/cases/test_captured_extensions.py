"""Case 48: types of extensions at a PostgreSQL that has them, through Debezium's connector, into the same tables."""

from contextlib import closing

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from fixtures.capture import Sources
from fixtures.installed_postgres import installed_server
from headgate.databases.address import Target
from headgate.provisioning.time_scale import scaled_seconds
from headgate.verify.comparing import compare_table
from headgate.verify.postgresql import PostgresSide
from support.cases import Case, Player, records_of_topic

# A connector starts in each test, on a machine that may be busy.
pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(scaled_seconds(900))]

TABLES = ("c48", "c48k", "c48l")


def test_types_of_extensions_arrive_as_they_are(sources: Sources) -> None:
    before, _, streamed = (Case("048").text("source.pg15.sql") or "").partition("-- streamed\n")
    with installed_server("contrib's extensions", logical=True) as server:
        target = make_conninfo(server.dsn(), dbname="target")
        with psycopg.connect(server.dsn(), autocommit=True) as source:
            source.execute(before.encode())
            source.execute("CREATE TABLE ready (id int PRIMARY KEY); INSERT INTO ready VALUES (1)")
            source.execute("CREATE DATABASE target")
            with psycopg.connect(target, autocommit=True) as connection:
                connection.execute(before.encode())
                connection.execute(f"TRUNCATE {', '.join(TABLES)}".encode())
            at = {"database.port": str(server.port), "database.password": server.password}
            sources.capture_postgres("c48", "public", **at, **{"decimal.handling.mode": "string"})
            sources.changes("c48.public.ready", 1)
            source.execute(streamed.encode())
            source.execute("INSERT INTO ready VALUES (2)")
            sources.changes("c48.public.ready", 2)
        differing: list[tuple[str, object]] = []
        for table in TABLES:
            sink = {"type": "postgresql", "dsn": target}
            player = Player({"feed": "shop", "source": {"topics": ["t"]}, "sink": sink}, f"public.{table}")
            result = player.apply(records_of_topic(sources.bootstrap, f"c48.public.{table}"))
            assert result.error is None
            with closing(PostgresSide(Target(server.dsn()))) as one, closing(PostgresSide(Target(target))) as other:
                compared = compare_table(one, other, f"public.{table}", f"public.{table}")
            differing += [(table, each.columns or each.kind) for each in compared.examples]
        sources.end_captures()
    assert differing == []
