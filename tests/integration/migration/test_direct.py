"""Strategy direct: it waits for the table's lock without holding clients up, and does what the server can do."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headgate.migration.core import effects as fx
from headgate.migration.core.spec import MigrationSpec, written
from headgate.migration.shell.work import open_strategy
from headgate.migration.strategies import direct
from headgate.migration.strategies.target import NO_CLUSTER
from headgate.records.migration import MigrationStrategy
from integration.migration.test_schema_changes import Place
from support.migration_records import recorded
from support.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture(params=["mariadb_database", "postgres_database"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    found = Place(request.getfixturevalue(request.param), tmp_path)
    found.run("CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL DEFAULT 0)", "INSERT INTO items (id) VALUES (5)")
    return found


class Direct:
    """One migration by strategy direct. ``is_examined``: it is submitted; else another owner has started it."""

    def __init__(self, place: Place, statement: str, *, is_examined: bool = True) -> None:
        self.spec = MigrationSpec(
            statement=statement,
            database=place.spec(MigrationStrategy.DIRECT, "t", "FORCE", allow_lossy=False).database,
            strategy=MigrationStrategy.DIRECT,
            cutover_threshold_seconds=1.0,
        )
        self.record = recorded(written(self.spec))
        self.strategy: Any = open_strategy(statement, self.spec, cluster_id=NO_CLUSTER)
        examined = self.strategy.examine(self.spec, None) if is_examined else None
        assert not isinstance(examined, fx.ExamineRefused), examined

    def start(self) -> None:
        started = self.strategy.start(fx.StartMigration("m", self.record, None, 1))
        assert isinstance(started, fx.Progressed), started

    def watch(self) -> Any:
        return self.strategy.watch(fx.WatchMigration("m", self.record, 1))

    def ended(self) -> Any:
        eventually(lambda: not isinstance(self.watch(), fx.Progressed), "it has ended")
        return self.watch()

    def close(self) -> None:
        self.strategy.close()


def columns(place: Place) -> set[str]:
    query = "SELECT column_name FROM information_schema.columns WHERE table_name = 'items'"
    return {name for (name,) in place.run(query)}


@pytest.fixture
def holder(place: Place) -> Iterator[Any]:
    """A client that has read the table and does not end its transaction."""
    with closing(place.connect()) as session:
        cursor = session.cursor()
        cursor.execute("BEGIN")
        cursor.execute("SELECT COUNT(*) FROM items")
        cursor.fetchall()
        yield cursor


def test_the_table_is_asked_for_again_while_somebody_holds_it(place: Place, holder: Any) -> None:
    with closing(Direct(place, "ALTER TABLE items ADD COLUMN extra int")) as change:
        change.start()
        again = re.compile(r"try ([2-9]|1\d) of 11, again after \d+ s")
        eventually(lambda: again.search(change.watch().throttle_reason), "it says why it waits")
        assert change.watch().is_working, "it is not stale"
        assert place.run("SELECT v FROM items") == [(0,)], "clients pass meanwhile"
        holder.execute("COMMIT")
        assert isinstance(change.ended(), fx.Completed)
    assert columns(place) == {"id", "v", "extra"}


def test_it_is_not_asked_for_without_an_end(place: Place, holder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "LOCK_PAUSES", (0,))
    with closing(Direct(place, "ALTER TABLE items ADD COLUMN extra int")) as change:
        change.start()
        broke = change.ended()
        assert isinstance(broke, fx.Broke)
        assert "not to be had in 2 tries of 1 s (--cutover-threshold). The table is as before" in broke.reason
        holder.execute("COMMIT")
    assert columns(place) == {"id", "v"}


def test_one_that_waits_can_be_cancelled(place: Place, holder: Any) -> None:
    with closing(Direct(place, "ALTER TABLE items ADD COLUMN extra int")) as change:
        change.start()
        eventually(lambda: change.watch().throttle_reason, "it waits")
        stopped = change.strategy.stop(fx.StopMigration("m", change.record, False, owner_rev=1))
        assert isinstance(stopped, fx.Stopped), stopped
        holder.execute("COMMIT")
    assert columns(place) == {"id", "v"}


PARTED = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (1000), PARTITION p1 VALUES LESS THAN (2000))"
FUNCTION = "CREATE FUNCTION public.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'"
CASES: dict[str, dict[str, tuple[str, ...]]] = {
    "mysql": {
        "foreign key added": ("ALTER TABLE items ADD CONSTRAINT f FOREIGN KEY (v) REFERENCES others (id)",),
        "foreign key dropped": (
            "ALTER TABLE items ADD CONSTRAINT f FOREIGN KEY (v) REFERENCES others (id)",
            "ALTER TABLE items DROP FOREIGN KEY f",
        ),
        "trigger on it": (
            "CREATE TRIGGER t BEFORE INSERT ON items FOR EACH ROW SET NEW.v = 9",
            "ALTER TABLE items ADD COLUMN extra int, DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)",
        ),
        "referred to": (
            "ALTER TABLE others ADD CONSTRAINT f FOREIGN KEY (id) REFERENCES items (id)",
            "ALTER TABLE items ADD COLUMN extra int",
        ),
        "column beside a foreign key": (
            "ALTER TABLE items ADD CONSTRAINT f FOREIGN KEY (v) REFERENCES others (id)",
            "ALTER TABLE items ADD COLUMN extra int",
        ),
        "column of a foreign key renamed": (
            "ALTER TABLE items ADD CONSTRAINT f FOREIGN KEY (v) REFERENCES others (id)",
            "ALTER TABLE items RENAME COLUMN v TO w",
        ),
        "foreign key without a name": (
            "ALTER TABLE items ADD FOREIGN KEY (v) REFERENCES others (id)",
            "ALTER TABLE items ADD FOREIGN KEY (id) REFERENCES others (id)",
        ),
        "one foreign key for another": (
            "ALTER TABLE items ADD CONSTRAINT f FOREIGN KEY (v) REFERENCES others (id)",
            "ALTER TABLE items DROP FOREIGN KEY f, ADD CONSTRAINT g FOREIGN KEY (v) REFERENCES others (id), ADD w int",
        ),
        "partition added": (
            f"ALTER TABLE items {PARTED}",
            "ALTER TABLE items ADD PARTITION (PARTITION p2 VALUES LESS THAN (3000))",
        ),
        "partition dropped": (f"ALTER TABLE items {PARTED}", "ALTER TABLE items DROP PARTITION p1"),
        "engine": ("ALTER TABLE items ENGINE=Aria",),
        "counter": ("ALTER TABLE items MODIFY id int AUTO_INCREMENT", "ALTER TABLE items AUTO_INCREMENT = 70"),
        "versioned": ("ALTER TABLE items ADD SYSTEM VERSIONING",),
    },
    "postgresql": {
        "foreign key added": ("ALTER TABLE items ADD CONSTRAINT f FOREIGN KEY (v) REFERENCES public.others (id)",),
        "foreign key dropped": (
            "ALTER TABLE items ADD CONSTRAINT f FOREIGN KEY (v) REFERENCES others (id)",
            "ALTER TABLE items DROP CONSTRAINT f",
        ),
        "trigger disabled": (
            FUNCTION,
            "CREATE TRIGGER t BEFORE INSERT ON items FOR EACH ROW EXECUTE FUNCTION public.f()",
            "ALTER TABLE items DISABLE TRIGGER t",
        ),
        "view on it": ("CREATE VIEW w AS SELECT id FROM items", "ALTER TABLE items ADD COLUMN extra int"),
        "referred to": (
            "ALTER TABLE others ADD CONSTRAINT f FOREIGN KEY (id) REFERENCES items (id)",
            "ALTER TABLE items ALTER v TYPE bigint",
        ),
        "owner": ("ALTER TABLE items OWNER TO CURRENT_USER",),
        "replica identity": ("ALTER TABLE items REPLICA IDENTITY FULL",),
        "row security": ("ALTER TABLE items ENABLE ROW LEVEL SECURITY",),
        "using": ("ALTER TABLE items ALTER v TYPE text USING (v * 100)::text",),
        "constraint in two steps": (
            "ALTER TABLE items ADD CONSTRAINT c CHECK (v >= 0) NOT VALID",
            "ALTER TABLE items VALIDATE CONSTRAINT c",
        ),
        "index taken": (
            "CREATE UNIQUE INDEX by_v ON items (v)",
            "ALTER TABLE items ADD CONSTRAINT u UNIQUE USING INDEX by_v",
        ),
        "cluster mark": ("CREATE INDEX by_v ON items (v)", "ALTER TABLE items CLUSTER ON by_v"),
        "unlogged": ("ALTER TABLE items SET UNLOGGED",),
    },
}
"""Statements before, and the one that is submitted, which must be done as the server does it."""


UNSEEN = {"counter"}
"""Statements of MariaDB that leave the definition as it was: another owner runs them again, which changes nothing."""


@pytest.mark.parametrize("case", sorted({*CASES["mysql"], *CASES["postgresql"]}))
def test_it_does_what_the_server_can_do(place: Place, case: str) -> None:
    statements = CASES["mysql" if place.is_mariadb else "postgresql"].get(case)
    if statements is None:
        pytest.skip("the other database has it")
    place.run("UPDATE items SET v = 5", *statements[:-1])
    with closing(Direct(place, statements[-1])) as change:
        change.start()
        ended = change.ended()
        assert isinstance(ended, fx.Completed), ended
    with closing(Direct(place, statements[-1], is_examined=False)) as another:  # its owner was killed before it knew
        seen = another.strategy.adopt(fx.AdoptMigration("m", change.record, owner_rev=2))
        assert isinstance(seen, fx.NotThere if place.is_mariadb and case in UNSEEN else fx.Completed), seen


def test_another_foreign_key_that_is_gone_is_not_the_statement(place: Place) -> None:
    """Somebody else dropped it while no owner was there. The statement did not run."""
    if not place.is_mariadb:
        pytest.skip("PostgreSQL remembers the statement in its transaction")
    place.run(
        "UPDATE items SET v = 5",
        "ALTER TABLE items ADD KEY (v), ADD CONSTRAINT f FOREIGN KEY (v) REFERENCES others (id)",
    )
    statement = "ALTER TABLE items ADD CONSTRAINT g FOREIGN KEY (v) REFERENCES others (id) ON DELETE CASCADE"
    with closing(Direct(place, statement)) as change:
        change.start()
        assert isinstance(change.ended(), fx.Completed)
    place.run("ALTER TABLE items DROP FOREIGN KEY g", "ALTER TABLE items DROP FOREIGN KEY f")
    with closing(Direct(place, statement, is_examined=False)) as another:
        assert isinstance(another.strategy.adopt(fx.AdoptMigration("m", change.record, owner_rev=2)), fx.NotThere)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_one_that_never_began_leaves_nothing(place: Place, *, is_stopped: bool) -> None:
    with closing(Direct(place, "ALTER TABLE items ADD COLUMN extra int")) as change:
        place.run("ALTER TABLE items ADD COLUMN extra int")
        if is_stopped:
            ended = change.strategy.stop(fx.StopMigration("m", change.record, False, owner_rev=1))
            assert isinstance(ended, fx.Stopped), ended
        else:
            ended = change.strategy.start(fx.StartMigration("m", change.record, None, 1))
            assert isinstance(ended, fx.Refused), ended
    assert place.run("SELECT id FROM headgate.migration_owner") == []
    assert place.run("SELECT id FROM headgate.migration") == []
