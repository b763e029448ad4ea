"""A row that is written after the comparison, and that the new form refuses: no cut-over, and nothing is lost."""

from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from fixtures.services import database_connect
from headgate.formats.change import CONNECTOR
from headgate.migration.core import effects as fx
from headgate.migration.statements.reading import parse_statement
from headgate.migration.strategies.contract import RefusedError
from headgate.migration.strategies.online.lane import FeedBehindError
from integration.migration.played import Played, played, upsert

pytestmark = pytest.mark.integration

SECONDS = 2.0
"""The feed never comes: so long is waited for it under the lock."""


@pytest.fixture(params=["postgresql", "mariadb"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue("postgres_database" if request.param == "postgresql" else "mariadb_database")
    with closing(database_connect(found)) as session:
        client = session.cursor()
        client.execute("CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note varchar(20))")
        client.execute("INSERT INTO items VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c')")
        if not found.startswith("mysql"):
            client.execute("CREATE PUBLICATION captured FOR TABLE items")
    return found


def form_of(made: Played) -> str:
    table = made.server.look(parse_statement(made.spec.statement, made.server.dialect))
    return str(table.definition)


class Late(NamedTuple):
    """``write`` and ``event`` are one change; ``why`` is in the copy's reason."""

    postgresql: str
    mariadb: str
    write: str
    event: dict[str, Any]
    why: str
    lossy: tuple[str, ...] = ()


LATE = {
    "unique": Late(
        "ADD CONSTRAINT one_note UNIQUE (note)",
        "ADD CONSTRAINT one_note UNIQUE (note)",
        "UPDATE items SET note = 'b' WHERE id = 1",
        {"v": 1, "note": "b"},
        "one_note",
    ),
    "check": Late(
        "ADD CONSTRAINT small CHECK (v < 100)",
        "ADD CONSTRAINT small CHECK (v < 100)",
        "UPDATE items SET v = 500 WHERE id = 1",
        {"v": 500, "note": "a"},
        "small",
    ),
    "narrower": Late(
        "ALTER v TYPE smallint",
        "MODIFY v smallint NOT NULL",
        "UPDATE items SET v = 70000 WHERE id = 1",
        {"v": 70_000, "note": "a"},
        "column v|smallint",
        ("v",),
    ),
    "not null": Late(
        "ALTER note SET NOT NULL",
        "MODIFY note varchar(20) NOT NULL",
        "UPDATE items SET note = NULL WHERE id = 1",
        {"v": 1, "note": None},
        "note",
        ("note",),
    ),
}


@pytest.mark.parametrize("case", LATE)
def test_a_row_that_the_new_form_refuses_keeps_the_table_as_it_was(url: str, tmp_path: Path, case: str) -> None:
    late = LATE[case]
    change = late.mariadb if url.startswith("mysql") else late.postgresql
    with played(url, tmp_path, change, allow_lossy=late.lossy) as made:
        assert made.lane.still_differing(made.plan, [("1",), ("2",), ("3",)]) == []
        touched = made.followed()
        made.run(late.write)
        rows, form = made.run("SELECT * FROM items ORDER BY id"), form_of(made)
        reason = made.refused(upsert({"id": 1}, **late.event))
        assert any(part in str(reason) for part in late.why.split("|")), reason
        with pytest.raises((FeedBehindError, RefusedError)):
            made.cut_over(touched, seconds=SECONDS)
        assert not made.is_changed
        assert made.run("SELECT * FROM items ORDER BY id") == rows
        assert form_of(made) == form
        made.run("INSERT INTO items VALUES (4, 4, 'd')")  # no lock is left


TOLD_OTHERWISE = {
    "zero date": (
        "at datetime NOT NULL DEFAULT '2024-01-01 10:00:00'",
        "SET SESSION sql_mode = ''",
        "0000-00-00 00:00:00",
        {"at": 0},
        {"at": "io.debezium.time.Timestamp"},
    ),
    "year 1": (
        "at date NOT NULL DEFAULT '2024-01-01'",
        "SET SESSION sql_mode = ''",
        "0001-01-01",
        {"at": 11_323},
        {"at": "io.debezium.time.Date"},
    ),
    "boolean": ("at tinyint(1) NOT NULL DEFAULT 1", "SET SESSION sql_mode = ''", "7", {"at": True}, {}),
}
"""Column, mode of the client's session, the value that it writes, and what a connector's event has instead."""


@pytest.mark.parametrize("url", ["mariadb"], indirect=True)
@pytest.mark.parametrize("case", TOLD_OTHERWISE)
def test_a_value_that_an_event_has_otherwise_is_seen_under_the_lock(url: str, tmp_path: Path, case: str) -> None:
    column, mode, value, event, told = TOLD_OTHERWISE[case]
    with closing(Played(url, tmp_path, "ADD COLUMN extra int NOT NULL DEFAULT 7")) as made:
        made.run(f"ALTER TABLE items ADD {column}")
        for told_so in (made.strategy.plan(made.spec), made.strategy.examine(made.spec, None)):
            assert isinstance(told_so, fx.Examined)
            assert ("a zero date ('0000-00-00') in at while" in told_so.message) == (case != "boolean")
        made.make().copied()
        touched = made.followed()
        made.run(mode, f"UPDATE items SET at = '{value}' WHERE id = 1")
        sent = upsert({"id": 1}, v=1, note="a", **event)
        made.send(msgspec.structs.replace(sent, semantics={CONNECTOR: "mariadb"} | told))
        with pytest.raises(RefusedError, match="differs in 1 rows while nothing changes"):
            made.cut_over(touched)
        assert not made.is_changed
        assert made.run(f"SELECT id FROM items WHERE CAST(at AS CHAR) = '{value}'") == [(1,)]
