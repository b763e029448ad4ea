"""A MariaDB sink in trouble, on a real server: what is said, whether trying again helps, and that nothing is lost."""

import datetime
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import trustme

from fixtures.services import mariadb_execute
from fixtures.wire import HERE, Wire
from headgate.databases import network_timeouts
from headgate.formats.change import Change, Operation
from headgate.sinks.contract import (
    ChangeBatch,
    OffsetRange,
    SinkRefusedError,
    SinkUnavailableError,
)
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.session import RelationalSettings
from headgate_lab.embedded.mariadb import EmbeddedMariadb
from support import build

pytestmark = pytest.mark.integration

CLAIM = build.claim(table="t", topic="shop.t")


@pytest.fixture
def url(mariadb_database: str) -> str:
    mariadb_execute(mariadb_database, "CREATE TABLE t (id int PRIMARY KEY, v text)")
    return mariadb_database


def batch(first: int, count: int = 1) -> ChangeBatch:
    changes = [
        Change(0, n, Operation.UPSERT, {"id": n}, {"id": n, "v": uuid.uuid4().hex}, None, 0)
        for n in range(first, first + count)
    ]
    return ChangeBatch(CLAIM, {0: OffsetRange(first, first + count)}, changes)


def count_of(url: str) -> int:
    return int(mariadb_execute(url, "SELECT count(*) FROM t")[0][0])


def moved(url: str, port: int, user: str | None = None, host: str | None = None) -> str:
    """The same database by another address, or as another user."""
    parts = urlsplit(url)
    return f"mysql://{user or f'{parts.username}:{parts.password}'}@{host or parts.hostname}:{port}{parts.path}"


def test_rights_that_are_taken_away_and_a_table_that_disappears(url: str) -> None:
    clerk = f"clerk_{uuid.uuid4().hex[:8]}"
    database, port = url.rsplit("/", 1)[1], int(urlsplit(url).port or 0)
    mariadb_execute(url, f"CREATE USER {clerk} IDENTIFIED BY 'pen'")
    mariadb_execute(url, f"GRANT ALL ON headgate.* TO {clerk}")
    mariadb_execute(url, f"GRANT ALL ON {database}.* TO {clerk}")
    sink = MysqlSink(RelationalSettings(moved(url, port, f"{clerk}:pen")))
    writer = sink.writer()
    try:
        sink.claim(CLAIM)
        writer.apply(batch(0, 5))
        mariadb_execute(url, f"REVOKE ALL ON {database}.* FROM {clerk}")
        writer.close()  # the server looks at rights to a database when a session begins
        with pytest.raises(SinkRefusedError, match=rf"denied.*{clerk}"):
            writer.apply(batch(5))
        mariadb_execute(url, f"GRANT ALL ON {database}.* TO {clerk}")
        mariadb_execute(url, "RENAME TABLE t TO elsewhere")
        with pytest.raises(SinkRefusedError, match=r"t does not exist at the sink"):
            writer.apply(batch(5))
        mariadb_execute(url, "RENAME TABLE elsewhere TO t")
        assert writer.apply(batch(5)).positions == {0: 6}
        assert count_of(url) == 6
    finally:
        writer.close()
        mariadb_execute(url, f"DROP USER {clerk}")


@pytest.fixture
def wire(url: str) -> Iterator[Wire]:
    parts = urlsplit(url)
    made = Wire(str(parts.hostname), int(parts.port or 0))
    yield made
    made.close()


def test_a_cut_connection_is_unavailable_and_the_same_batch_goes_on_when_it_is_back(url: str, wire: Wire) -> None:
    sink = MysqlSink(RelationalSettings(moved(url, wire.port, host=HERE)))
    writer = sink.writer()
    sink.claim(CLAIM)
    writer.apply(batch(0, 3))
    wire.cut()
    for _ in range(2):
        with pytest.raises(SinkUnavailableError) as gone:
            writer.apply(batch(3, 3))
        assert gone.value.retryable
    with pytest.raises(SinkUnavailableError):
        sink.positions(CLAIM)
    wire.mend()
    assert sink.positions(CLAIM) == {0: 3}
    assert writer.apply(batch(3, 3)).positions == {0: 6}
    assert count_of(url) == 6
    writer.close()


@pytest.mark.parametrize(("number", "says"), [(1114, "The table 't' is full"), (1021, "Disk full (/tmp/x)")])
def test_a_full_disk_is_waited_for_not_taken_for_bad_changes(url: str, number: int, says: str) -> None:
    """The server's own numbers for it, raised by a trigger: they are what a full disk is known by."""
    sink = MysqlSink(RelationalSettings(url))
    writer = sink.writer()
    sink.claim(CLAIM)
    mariadb_execute(
        url,
        "CREATE TRIGGER full_disk BEFORE INSERT ON t FOR EACH ROW "
        f"SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = \"{says}\"",
    )
    with pytest.raises(SinkUnavailableError) as full:
        writer.apply(batch(0, 100))
    assert full.value.retryable
    for word in (says, "topic shop.t", "partition 0 from offset 0"):
        assert word in str(full.value)
    mariadb_execute(url, "DROP TRIGGER full_disk")
    assert writer.apply(batch(0, 100)).positions == {0: 100}
    assert count_of(url) == 100
    writer.close()


LONG_AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


class Secured:
    """A server that has a certificate, and who says so."""

    def __init__(self, folder: Path) -> None:
        authority, stranger = trustme.CA(), trustme.CA()
        self.ca, self.other_ca = str(folder / "ca.pem"), str(folder / "other.pem")
        authority.cert_pem.write_to_path(self.ca)
        stranger.cert_pem.write_to_path(self.other_ca)
        self._authority, self._key, self._chain = authority, str(folder / "key.pem"), str(folder / "cert.pem")
        settings = {"ssl-ca": self.ca, "ssl-cert": self._chain, "ssl-key": self._key}
        self.certify()
        self.server = EmbeddedMariadb(folder / "mariadb", settings=settings)

    def certify(self, **validity: datetime.datetime) -> None:
        """Issue the certificate that the server reads when it starts, or is told to FLUSH SSL."""
        certificate = self._authority.issue_cert("127.0.0.1", **validity)
        certificate.private_key_pem.write_to_path(self._key)
        certificate.cert_chain_pems[0].write_to_path(self._chain)


def test_tls_is_spoken_where_it_is_asked_for_and_never_given_up_in_silence(url: str) -> None:
    with tempfile.TemporaryDirectory(prefix="headgate-test-") as name:
        Path(name).chmod(0o711)
        secured = Secured(Path(name))
        with secured.server as server:
            mariadb_execute(server.dsn(), "CREATE DATABASE shop")
            mariadb_execute(server.dsn(), "CREATE USER spy REQUIRE SSL")
            mariadb_execute(server.dsn(), "CREATE TABLE shop.t (id int PRIMARY KEY, v text)")
            sink = MysqlSink(RelationalSettings(f"{server.dsn('shop')}?ssl_ca={secured.ca}"))
            sink.claim(CLAIM)
            assert sink.writer().apply(batch(0, 3)).positions == {0: 3}
            secured.certify(not_before=LONG_AGO, not_after=LONG_AGO + datetime.timedelta(days=1))
            mariadb_execute(server.dsn(), "FLUSH SSL")
            with pytest.raises(SinkRefusedError, match=r"certificate has expired[\s\S]*ssl_ca of sink\.dsn"):
                sink.positions(CLAIM)
            secured.certify()
            mariadb_execute(server.dsn(), "FLUSH SSL")
            assert sink.positions(CLAIM) == {0: 3}
            with pytest.raises(SinkRefusedError, match=r"Access denied.*spy"):
                MysqlSink(RelationalSettings(f"mysql://spy@127.0.0.1:{server.port}/shop")).check([])
            with pytest.raises(SinkRefusedError, match=r"(?i)certificate[\s\S]*ssl_"):
                MysqlSink(RelationalSettings(f"{server.dsn('shop')}?ssl_ca={secured.other_ca}")).check([])
        with pytest.raises(SinkRefusedError, match=r"(?i)ssl[\s\S]*ssl_ca of sink\.dsn"):
            MysqlSink(RelationalSettings(f"{url}?ssl_ca={secured.ca}")).check([])
        with pytest.raises(SinkRefusedError, match=r"sink\.dsn cannot be used.*no-such-file"):
            MysqlSink(RelationalSettings(f"{url}?ssl_ca={name}/no-such-file")).check([])


# --- a sink that stands still ---


def frozen(server: EmbeddedMariadb) -> list[psutil.Process]:
    """The processes of a server, stopped: the kernel goes on to acknowledge what is sent to them."""
    assert server._process is not None
    processes = psutil.Process(server._process.pid).children(recursive=True)
    for process in processes:
        process.suspend()
    return processes


def test_a_server_that_is_frozen_is_unavailable_and_once_thawed_takes_each_change_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(network_timeouts, "SILENCE_SECONDS", 1)
    with tempfile.TemporaryDirectory(prefix="headgate-test-") as name:
        Path(name).chmod(0o711)
        with EmbeddedMariadb(Path(name) / "server") as server:
            mariadb_execute(server.dsn(), "CREATE DATABASE shop")
            mariadb_execute(server.dsn("shop"), "CREATE TABLE t (id int PRIMARY KEY, v text)")
            sink = MysqlSink(RelationalSettings(server.dsn("shop")))
            sink.claim(CLAIM)
            writer = sink.writer()
            writer.apply(batch(0, 3))
            processes = frozen(server)
            try:
                monkeypatch.setattr(network_timeouts, "CONNECT_SECONDS", 2)
                with pytest.raises(SinkUnavailableError, match="not working on our statement"):
                    writer.apply(batch(3, 3))
                for ask in (lambda: sink.positions(CLAIM), lambda: writer.apply(batch(3, 3))):
                    with pytest.raises(SinkUnavailableError, match="cannot open a session"):
                        ask()
            finally:
                monkeypatch.undo()  # a busy machine may need longer than that
                for process in processes:
                    process.resume()
            writer.apply(batch(sink.positions(CLAIM)[0], 3))
            assert {0: count_of(server.dsn("shop"))} == sink.positions(CLAIM)
            writer.close()


def test_a_connection_on_which_nothing_arrives_any_more_is_given_up(
    url: str, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_timeouts, "SILENCE_SECONDS", 1)
    sink = MysqlSink(RelationalSettings(moved(url, wire.port, host=HERE)))
    sink.claim(CLAIM)
    writer = sink.writer()
    writer.apply(batch(0, 3))
    wire.mute()
    with pytest.raises(SinkUnavailableError, match="not working on our statement"):
        writer.apply(batch(3, 3))
    monkeypatch.undo()  # a busy machine may be silent for longer than that
    assert writer.apply(batch(sink.positions(CLAIM)[0], 3)).positions
    assert {0: count_of(url)} == sink.positions(CLAIM)
    writer.close()


def test_a_statement_that_takes_its_time_is_waited_for(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_timeouts, "SILENCE_SECONDS", 1)
    sink = MysqlSink(RelationalSettings(url))
    sink.claim(CLAIM)
    writer = sink.writer()
    writer.apply(batch(0))
    mariadb_execute(url, "CREATE TRIGGER slow BEFORE INSERT ON t FOR EACH ROW DO SLEEP(4)")
    assert writer.apply(batch(1)).positions == {0: 2}
    writer.close()
