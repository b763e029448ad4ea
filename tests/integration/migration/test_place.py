"""One database is one, whatever its address is spelled like; another one is seen, even under the same connection."""

from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import pytest

from headgate.migration.core import effects as fx
from headgate.migration.core.spec import MigrationSpec, written
from headgate.migration.shell.work import MigrationWork, _server
from headgate.migration.strategies.target import NO_CLUSTER
from headgate.records.migration import MigrationStrategy
from headgate.runtime.machine import EffectFailed
from support.connections import described
from support.migration_records import recorded

pytestmark = pytest.mark.integration


class Place:
    """A database by several connections."""

    def __init__(self, url: str, folder: Path) -> None:
        self._parts, self._password = urlsplit(url), folder / "password"
        self._password.write_text(unquote(self._parts.password or ""), encoding="utf-8")

    def connection(self, host: str = "127.0.0.1", path: str | None = None) -> str:
        parts = self._parts
        address = f"{parts.scheme}://{parts.username}@{host}:{parts.port}{path or parts.path}"
        return described(address, self._password)

    def spec(self, connection: str) -> MigrationSpec:
        return MigrationSpec(
            statement="ALTER TABLE t ADD c int", database=connection, strategy=MigrationStrategy.DIRECT
        )

    def where(self, connection: str, schema: str | None = None) -> str:
        with closing(_server("m", self.spec(connection), NO_CLUSTER)) as server:
            return server.where(schema)


@pytest.fixture(params=["postgres_database", "mariadb_database"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.getfixturevalue(request.param), tmp_path)


def test_spellings_of_an_address_are_one_database(place: Place) -> None:
    here = place.where(place.connection())
    assert place.where(place.connection("localhost")) == here
    elsewhere = "/mysql" if here.startswith("mysql") else "/postgres"
    assert place.where(place.connection(path=elsewhere)) != here
    if here.startswith("mysql"):
        assert place.where(place.connection(path=elsewhere), here.rpartition("/")[2]) == here, (
            "the table's schema counts"
        )


def test_a_migration_does_not_go_on_at_another_database(place: Place) -> None:
    work, connection = MigrationWork(cluster_id=NO_CLUSTER), place.connection("localhost")
    record = recorded(written(place.spec(connection)), server=place.where(connection))
    for effect in (fx.AdoptMigration("m", record), fx.StopMigration("m", record, is_forced=True)):
        assert not isinstance(work.run(effect), EffectFailed | fx.Broke | fx.Refused)
    moved = msgspec.structs.replace(record, server="elsewhere/7/shop")
    for kind, wanted in ((fx.AdoptMigration, fx.Broke), (fx.StartMigration, fx.Refused)):
        told: Any = work.run(kind("m", moved))
        assert isinstance(told, wanted)
        assert f"connection {connection} is " in told.reason
        assert "Change it back until the migration has ended" in told.reason
    told = work.run(fx.StopMigration("m", moved, is_forced=True))
    assert isinstance(told, EffectFailed), "that nothing of it writes any more is not known"


def test_which_database_a_known_id_is_asked_for(place: Place) -> None:
    work, spec = MigrationWork(cluster_id=NO_CLUSTER), place.spec(place.connection("localhost"))
    here = place.where(place.connection())
    for known in (here, "elsewhere/7/shop"):
        asked = fx.ExamineMigration("r", "m", spec, is_known=True, known_server=known)
        assert work.run(asked) == fx.Identified(here)
