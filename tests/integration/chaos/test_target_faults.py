"""What a campaign does to its target, seen by Headgate's user: a fail-over, a rotated password, a hostile schema."""

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path

import psycopg
import pymysql
import pytest
from psycopg.conninfo import make_conninfo

from fixtures.services import mariadb_connect, mariadb_execute
from headgate.config.sink_spec import SinkSpec
from headgate.records.control import Epoch
from headgate.sinks.contract import Claim, Sink, SinkRefusedError, SinkUnavailableError
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.session import RelationalSettings
from headgate_lab.chaos.targets import SinkType, make_target
from headgate_lab.chaos.targets.mysql import SOCKET
from headgate_lab.chaos.targets.target import ChaosTarget
from headgate_lab.demo.schema import TABLES, create_target
from headgate_lab.demo.services import DatabaseAddress
from support import build
from support.waiting import eventually

pytestmark = pytest.mark.integration

TABLE = TABLES[0].full_name


@pytest.fixture(params=list(SinkType))
def target(request: pytest.FixtureRequest) -> Iterator[ChaosTarget]:
    with tempfile.TemporaryDirectory(prefix="headgate-test-") as folder:
        Path(folder).chmod(0o711)
        target = make_target(request.param, Path(folder, "target"))
        try:
            target.prepare()
            if request.param is SinkType.POSTGRESQL:  # there a campaign's feed makes the tables
                make_tables(target.sink)
            yield target
        finally:
            target.stop()


def make_tables(address: DatabaseAddress) -> None:
    """As Headgate's user, but not by its search path, on which a hostile schema is first."""
    dsn = make_conninfo(address.dsn, password=address.password, options="-c search_path=pg_catalog")
    with psycopg.connect(dsn, autocommit=True) as sink:
        create_target(sink)


def sink_of(target: ChaosTarget, password: Path) -> Sink:
    """The sink as a service has it, but by the server's port."""
    address = target.sink
    password.write_text(address.password)
    spec = SinkSpec(type=address.type, dsn=address.dsn.replace(f"?unix_socket={SOCKET}", ""))
    settings = RelationalSettings(spec.dsn, password)
    return MysqlSink(settings) if address.type == "mysql" else PostgresSink(settings)


def claim_of(n: int) -> Claim:
    return build.claim(table=TABLE, topic="shop.t", epoch=Epoch(1, n))


def session_of(target: ChaosTarget, password: str) -> AbstractContextManager[object]:
    """A session of the sink's user that is kept open."""
    address = target.sink
    if address.type == "postgresql":
        return closing(psycopg.connect(make_conninfo(address.dsn, password=password)))
    return closing(mariadb_connect(mariadb_url_of(address, password)))


def mariadb_url_of(address: DatabaseAddress, password: str) -> str:
    return address.dsn.replace(f"?unix_socket={SOCKET}", "").replace("@", f":{password}@")


def run_as(target: ChaosTarget, password: str, statement: str) -> None:
    """As the sink's user, in a session that is not Headgate's: the hostile schema answers."""
    address = target.sink
    if address.type == "postgresql":
        dsn = make_conninfo(address.dsn, password=password)
        with psycopg.connect(dsn, autocommit=True) as prey, pytest.raises(psycopg.Error, match="hijacked"):
            prey.execute(statement.encode())
        return
    with pytest.raises(pymysql.Error, match="hijacked"):
        mariadb_execute(mariadb_url_of(address, password), statement)


def test_a_target_suffers_and_recovers_by_its_own_user(target: ChaosTarget, tmp_path: Path) -> None:
    sink = sink_of(target, tmp_path / "password")
    assert sink.check([TABLE])[TABLE].key
    assert sink.claim(claim_of(1)) == {0: 0}
    target.step_down()
    with pytest.raises(SinkUnavailableError):
        sink.claim(claim_of(2))
    target.step_up()
    assert sink.claim(claim_of(2)) == {0: 0}
    with session_of(target, target.sink.password):
        eventually(lambda: target.sessions() == 1)
        password = target.rotate_password()

        def all_ended() -> bool:
            target.end_sessions()
            return target.sessions() == 0

        eventually(all_ended)
    with pytest.raises(SinkRefusedError):
        sink.claim(claim_of(3))
    (tmp_path / "password").write_text(password)
    assert sink.claim(claim_of(3)) == {0: 0}
    with session_of(target, password):
        eventually(lambda: target.sessions() == 1)
    assert not target.is_hijacked()
    run_as(target, password, "SELECT length('x')" if target.sink.type == "postgresql" else "SELECT COUNT ('x')")
    assert target.is_hijacked()
