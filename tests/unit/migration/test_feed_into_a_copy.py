"""What the feed into a copy, and a migration's record, say of the database: its name, and never an address."""

import json
from types import SimpleNamespace
from typing import Any, Self

import msgspec
import pytest

from headgate.migration.core import effects as fx
from headgate.migration.core.spec import MigrationSpec
from headgate.migration.shell.feeds import ChangeFeeds
from headgate.migration.shell.work import MigrationWork
from headgate.migration.strategies.contract import RefusedError
from headgate.migration.strategies.mariadb.lane import MariadbLane
from headgate.migration.strategies.online.lane import CopySink
from headgate.migration.strategies.online.lane_plan import ChangeTopic
from headgate.migration.strategies.postgresql.place import database_id
from headgate.migration.strategies.target import NO_CLUSTER
from headgate.records.control import OperationKind
from headgate.records.migration import MigrationStrategy
from support.connections import described

ADDRESS = "postgresql://ann@db.example:5432/shop"


def test_the_feed_names_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[OperationKind, str | None]] = []
    nothing: Any = SimpleNamespace()
    feeds = ChangeFeeds(nothing)
    monkeypatch.setattr(feeds, "record", lambda _feed: None)
    monkeypatch.setattr(feeds, "_ask", lambda kind, _feed, _found, spec=None: asked.append((kind, spec)))
    feeds.create("migration-1", ChangeTopic("t"), CopySink("postgresql", "shop", "public.items_copy"))
    ((kind, spec),) = asked
    assert kind is OperationKind.CREATE_FEED
    assert json.loads(spec or "")["sink"] == {
        "type": "postgresql",
        "connection": "shop",
        "table": "public.items_copy",
        "not_the_source": True,
    }


@pytest.mark.parametrize("reads_only", [False, True], ids=["submission", "dry-run"])
def test_a_connection_that_no_feed_may_write_to_is_refused_at_the_submission(reads_only: bool) -> None:
    """No session is opened for that."""
    name = described(ADDRESS, use=("migration",))
    spec = MigrationSpec(
        statement="ALTER TABLE t ADD c int", database=name, strategy=MigrationStrategy.ONLINE, topic="t"
    )
    asked = fx.ExamineMigration("r", "m", spec, reads_only=reads_only)
    told = MigrationWork(cluster_id=NO_CLUSTER).run(asked)
    assert isinstance(told, fx.ExamineRefused)
    assert f"connection {name} may be used as migration, not as sink" in told.reason
    assert "add sink to its `use`" in told.reason
    for uses, missing in ((("source",), "migration and sink"), (("sink",), "migration")):
        other = msgspec.structs.replace(spec, database=described(ADDRESS, use=uses))
        told = MigrationWork(cluster_id=NO_CLUSTER).run(fx.ExamineMigration("r", "m", other, reads_only=reads_only))
        assert isinstance(told, fx.ExamineRefused)
        assert f"add {missing} to its `use`" in told.reason, "all that is missing at once, and nothing else"


class Session:
    """Answers each question with the next of these rows."""

    def __init__(self, *rows: tuple[Any, ...]) -> None:
        self._rows = iter(rows)

    def execute(self, _statement: str) -> Any:
        return SimpleNamespace(fetchall=lambda: [next(self._rows)])


def _hidden(address: str) -> str:
    session: Any = Session((False,))
    return database_id(session, address)


def test_a_server_that_hides_its_identifier_is_recorded_without_its_address() -> None:
    found = _hidden(ADDRESS)
    assert found.startswith("postgresql/at/")
    assert not any(part in found for part in ("ann", "db.example", "5432", "shop"))
    assert found == _hidden("postgresql://bob@db.example:5432/shop?sslmode=verify-full&sslrootcert=/a@b/ca.pem")
    assert found != _hidden(ADDRESS.replace("/shop", "/other"))
    assert found != _hidden(ADDRESS.replace("db.", "db2."))
    asks: Any = Session((True,), ("postgresql/7/16384",))
    assert database_id(asks, ADDRESS) == "postgresql/7/16384"


@pytest.mark.parametrize(("loads", "bulk"), [(1, "load"), (0, "insert"), (0, "load")])
def test_a_mariadb_that_feeds_cannot_load_into_is_refused(loads: int, bulk: str) -> None:
    class Asking:
        at = SimpleNamespace(bulk=bulk)

        def asking(self) -> "Asking":
            return self

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def run(self, _statement: str) -> list[tuple[int]]:
            return [(loads,)]

    server: Any = SimpleNamespace(sessions=Asking())
    lane = MariadbLane(server)
    if loads or bulk == "insert":
        assert lane.sink_kind() == "mysql"
    else:
        with pytest.raises(RefusedError, match="bulk=insert to the connection's address"):
            lane.sink_kind()
