"""Schema changes as the views show them."""

import msgspec
import pytest

from headgate.eventlog.log import Delivery, Partition
from headgate.eventlog.snapshot import Snapshot
from headgate.migration.core.spec import MigrationSpec, written
from headgate.records.migration import MigrationKey, MigrationStrategy
from headgate.views.history import History
from headgate.views.routes import ROUTES, ViewContext, answer_to
from support.migration_records import recorded

SPEC = written(MigrationSpec(statement="ALTER TABLE t ADD c int", database="shop", strategy=MigrationStrategy.ONLINE))


def known(**specs: str) -> ViewContext:
    snapshot = Snapshot()
    for offset, (name, spec) in enumerate(specs.items()):
        record = recorded(spec, sequence=-offset, stage="copying", stage_percent=40)
        snapshot.take(Delivery(Partition("migration", 0), offset, MigrationKey(name), record))
    return ViewContext(snapshot=snapshot, history=History(), shards=1, lag=lambda _feed, _table: [])


ROUTE = {route.path: route for route in ROUTES}


def test_migrations_are_listed_in_the_order_of_submission() -> None:
    found = answer_to(ROUTE["/v1/migrations"], known(a=SPEC, b=SPEC), {}, {})
    assert [(row["id"], row["percent"], row["database"]) for row in found] == [("b", 40, "shop"), ("a", 40, "shop")]


def test_one_migration_is_shown_and_another_does_not_exist() -> None:
    route = ROUTE["/v1/migrations/{migration}"]
    found = answer_to(route, known(a=SPEC), {"migration": "a"}, {})
    assert found["statement"] == "ALTER TABLE t ADD c int"
    assert answer_to(route, known(a=SPEC), {"migration": "b"}, {}) is None


@pytest.mark.parametrize(
    "more",
    [{"database": "postgresql://ann@db/shop"}, {"database": "db", "password_file": "secret"}, {"database": "h:1/d"}],
)
def test_an_address_of_an_earlier_version_is_not_shown(more: dict[str, str]) -> None:
    spec = msgspec.json.encode({"statement": "x", "strategy": "direct", **more}).decode()
    (row,) = answer_to(ROUTE["/v1/migrations"], known(a=spec), {}, {})
    assert row["database"] == ""


def test_a_spec_that_nobody_can_read_is_shown_without_it() -> None:
    (row,) = answer_to(ROUTE["/v1/migrations"], known(a="{"), {}, {})
    assert row["statement"] == ""
