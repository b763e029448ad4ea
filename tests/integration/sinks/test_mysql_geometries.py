"""Spatial values of MySQL and MariaDB: events as Debezium writes them, applied to a real MariaDB, and compared."""

import json
from base64 import b64encode
from contextlib import closing

import pytest

from fixtures.services import mariadb_execute
from headgate.databases.address import Target
from headgate.verify.comparing import compare_table
from headgate.verify.mysql import MysqlSide
from support.cases import Player
from support.every_type import GEOMETRIES

pytestmark = pytest.mark.integration


@pytest.fixture(params=["", "?bulk=insert"])
def address(mariadb_database: str, request: pytest.FixtureRequest) -> str:
    return mariadb_database + request.param


def events(url: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """Inserts of the rows of table ``here``, then each row once more with the geometries of the row before it."""
    names = [f"c{number}" for number in range(len(GEOMETRIES))]
    parts = ", ".join(f"ST_SRID({name}), ST_AsWKB({name})" for name in names)
    found = []
    for row in mariadb_execute(url, f"SELECT id, {parts} FROM here ORDER BY id"):
        values = {
            name: None if wkb is None else {"srid": srid or None, "wkb": b64encode(wkb).decode()}
            for name, srid, wkb in zip(names, row[1::2], row[2::2], strict=True)
        }
        found.append({"id": row[0], **values})
    changes = [("c", None, row) for row in found]
    changes += [("u", row, {**before, "id": row["id"]}) for row, before in zip(found, found[-1:] + found, strict=False)]
    changes += [("u", {**before, "id": row["id"]}, row) for row, before in zip(found, found[-1:] + found, strict=False)]
    return [
        (
            offset,
            json.dumps({"id": (before or after)["id"]}).encode(),
            json.dumps(
                {"op": op, "before": before, "after": after, "source": {"connector": "mariadb", "table": "here"}}
            ).encode(),
        )
        for offset, (op, before, after) in enumerate(changes)
    ]


def test_geometries_are_those_of_the_source(mariadb_database: str, address: str) -> None:
    database = mariadb_database.rsplit("/", 1)[1]
    columns = ", ".join(f"c{number} {each.declared} NULL" for number, each in enumerate(GEOMETRIES))
    for table in ("here", "there"):
        mariadb_execute(mariadb_database, f"CREATE TABLE {table} (id int PRIMARY KEY, {columns})")
    for row in range(3):
        values = ", ".join(each.literals[row] if row < len(each.literals) else "NULL" for each in GEOMETRIES)
        mariadb_execute(mariadb_database, f"INSERT INTO here VALUES ({row}, {values})")
    spec = {"feed": "shop", "source": {"topics": ["t"]}, "sink": {"type": "mysql", "dsn": address}}
    assert Player(spec, f"{database}.there").apply(events(mariadb_database)).error is None
    with closing(MysqlSide(Target(mariadb_database))) as one, closing(MysqlSide(Target(mariadb_database))) as two:
        equal = compare_table(one, two, f"{database}.here", f"{database}.there")
        moved = "ST_GeomFromText('POINT(1.5 -2.25)', 4327)"
        mariadb_execute(mariadb_database, f"UPDATE there SET c0 = {moved} WHERE id = 0")
        other = compare_table(one, two, f"{database}.here", f"{database}.there")
    assert (equal.rows, equal.differences, equal.columns_unlike) == (3, 0, {})
    assert [(each.key, each.columns) for each in other.examples] == [({"id": "0"}, ("c0",))]
