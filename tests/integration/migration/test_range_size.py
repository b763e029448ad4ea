"""How large a range of a copy is follows from what the rows are, whether the server has statistics of them or not."""

from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psycopg
import pytest

from headgate.migration.core.spec import MigrationSpec
from headgate.migration.strategies.examining import checked_plan
from headgate.migration.strategies.online.lane_plan import lane_plan
from headgate.migration.strategies.postgresql.lane import PostgresLane
from headgate.migration.strategies.postgresql.server import PostgresServer
from headgate.migration.strategies.target import NO_CLUSTER, target_of
from headgate.records.migration import MigrationStrategy

pytestmark = pytest.mark.integration


def row_bytes(url: str, folder: Path) -> int:
    parts = urlsplit(url)
    password_file = folder / "password"
    password_file.write_text(unquote(parts.password or ""), encoding="utf-8")
    address = f"{parts.scheme}://{parts.username}@{parts.hostname}:{parts.port}{parts.path}"
    spec = MigrationSpec(
        statement="ALTER TABLE items ADD COLUMN c int",
        database="shop",
        strategy=MigrationStrategy.ONLINE,
    )
    with closing(PostgresServer("m", target_of(address, str(password_file)), cluster_id=NO_CLUSTER)) as server:
        server.take_over(1)
        lane = PostgresLane(server)
        _, plan = checked_plan(server, spec)
        return lane.row_bytes(lane_plan(plan, "topic", name_bytes_max=server.name_bytes_max))


def test_it_is_known_without_statistics_with_old_ones_and_for_long_values(
    postgres_database: str, tmp_path: Path
) -> None:
    session = psycopg.connect(postgres_database, autocommit=True)
    session.execute("CREATE TABLE items (id int PRIMARY KEY, v text) WITH (autovacuum_enabled = false)")
    assert row_bytes(postgres_database, tmp_path) == 32, "an empty table"
    session.execute("INSERT INTO items SELECT n, repeat('x', 500) FROM generate_series(1, 20000) n")
    assert 500 < row_bytes(postgres_database, tmp_path) < 600, "never analysed"
    session.execute("TRUNCATE items")
    session.execute("INSERT INTO items VALUES (0, '')")
    session.execute("ANALYZE items")
    session.execute("INSERT INTO items SELECT n, repeat('x', 500) FROM generate_series(1, 20000) n")
    assert 480 < row_bytes(postgres_database, tmp_path) < 600, "analysed when it had one row"
    session.execute("TRUNCATE items")
    session.execute("ALTER TABLE items ALTER COLUMN v SET STORAGE EXTERNAL")
    session.execute("INSERT INTO items SELECT n, repeat('x', 100000) FROM generate_series(1, 100) n")
    assert 100_000 < row_bytes(postgres_database, tmp_path) < 110_000, "values that stand elsewhere"
    session.close()
