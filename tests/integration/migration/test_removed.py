"""A migration of strategy triggers that was under way at an upgrade: it fails, and its triggers do not stay."""

from contextlib import closing

import msgspec
import pytest

from headgate.migration.core import effects as fx
from headgate.migration.core.spec import written
from headgate.migration.shell.work import MigrationWork, open_strategy
from headgate.migration.statements.statement import Statement
from headgate.migration.strategies.contract import CopyPlan, Memory
from headgate.migration.strategies.target import NO_CLUSTER
from headgate.records.migration import Artifact, MigrationStrategy
from integration.migration.test_instant import table
from integration.migration.test_under_a_feed import Table
from support.migration_records import recorded

__all__ = ["table"]

pytestmark = pytest.mark.integration

POSTGRES = (
    "CREATE FUNCTION public.hg{0}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    "CREATE TRIGGER hg{0} AFTER DELETE ON items FOR EACH ROW EXECUTE FUNCTION public.hg{0}()",
)
MARIADB = tuple(
    f"CREATE TRIGGER hg{{0}}_{event[0]} AFTER {event} ON items FOR EACH ROW SET @x = 1"
    for event in ("insert", "update", "delete")
)


def test_it_fails_and_its_triggers_are_dropped(table: Table) -> None:
    spec = table.spec(MigrationStrategy.TRIGGERS, "ADD COLUMN c int")
    copy = Artifact("table", f"{table.name.split('.')[0]}.items_hg")
    record = recorded(written(spec), artifacts=(copy,))
    with closing(open_strategy("m", spec, cluster_id=NO_CLUSTER)) as strategy:
        server = strategy._server
        assert server.take_over(1) is None
        now = server.look(Statement("alter", None, "items", "", ""))
        plan = CopyPlan(now, now, "items_hg", (), ())
        server.note(Memory(1, 1, "begun", msgspec.json.encode(plan).decode()))
        for statement in ("CREATE TABLE items_hg (id int)", *(POSTGRES if table.kind == "postgresql" else MARIADB)):
            table.run(statement.format(server.mark))
    made = "SELECT trigger_name FROM information_schema.triggers WHERE event_object_table = 'items'"
    assert table.run(made)
    work = MigrationWork(cluster_id=NO_CLUSTER)
    broke = work.run(fx.AdoptMigration("m", record, owner_rev=2))
    assert isinstance(broke, fx.Broke)
    assert "strategy triggers was removed" in broke.reason
    assert work.run(fx.StopMigration("m", record, True, 2)) == fx.Stopped((copy,))
    assert not table.run(made)
    assert work.run(fx.CleanUpMigration("m", record, owner_rev=2)) == fx.CleanedUp(())
    assert not table.run("SELECT 1 FROM information_schema.tables WHERE table_name = 'items_hg'")
    assert isinstance(work.run(fx.StartMigration("m", record, None, 2)), fx.Refused)
    work.close()
