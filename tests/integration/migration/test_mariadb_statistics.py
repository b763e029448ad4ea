"""MariaDB's engine-independent statistics stay with the table before: they are not carried over."""

from contextlib import closing
from pathlib import Path

import pytest

from fixtures.services import database_connect
from integration.migration.played import played

pytestmark = pytest.mark.integration

STATISTICS = "SELECT table_name FROM mysql.{} WHERE db_name = DATABASE()"


def test_the_table_before_keeps_them(mariadb_database: str, tmp_path: Path) -> None:
    with closing(database_connect(mariadb_database)) as session:
        client = session.cursor()
        client.execute("CREATE TABLE items (id int PRIMARY KEY, v int, KEY by_v (v))")
        client.execute("INSERT INTO items VALUES (1, 1), (2, 2)")
        client.execute("ANALYZE TABLE items PERSISTENT FOR ALL")
    with played(mariadb_database, tmp_path, "ADD COLUMN extra int") as change:
        change.cut_over()
        change.lane.settle(change.plan)
        (old,) = (artifact.name.partition(".")[2] for artifact in change.lane.artifacts(change.plan))
        for table in ("table_stats", "column_stats", "index_stats"):
            assert {name for (name,) in change.run(STATISTICS.format(table))} == {old}, table
