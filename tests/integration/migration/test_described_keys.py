"""Which unique keys of a table a schema change may find rows by."""

from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fixtures.services import mariadb_execute
from headgate.databases.address import Target
from headgate.migration.statements.statement import Statement
from headgate.migration.strategies.mariadb.server import MariadbServer
from headgate.migration.strategies.target import NO_CLUSTER

pytestmark = pytest.mark.integration


def test_a_key_of_a_part_of_a_column_is_not_a_key_of_its_other_columns(mariadb_database: str, tmp_path: Path) -> None:
    mariadb_execute(
        mariadb_database,
        "CREATE TABLE items (word varchar(20) NOT NULL, n int NOT NULL, m int NOT NULL, UNIQUE KEY part (word(3), n), "
        "UNIQUE KEY whole_ (n, m))",
    )
    password = urlsplit(mariadb_database).password or ""
    file = tmp_path / "password"
    file.write_text(password, encoding="utf-8")
    target = Target(mariadb_database.replace(f":{password}@", "@"), file)
    with closing(MariadbServer("m", target, cluster_id=NO_CLUSTER)) as server:
        table = server.look(Statement("alter", None, "items", "", ""))
    assert table is not None
    assert (table.keys, table.primary) == ({"whole_": ("n", "m")}, ())
    assert table.weak_keys == {"part": ("word", "n")}
