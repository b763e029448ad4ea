"""A sink in trouble, on a real server: what is said, whether trying again can help, and that nothing is lost."""

import datetime
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import msgspec
import psutil
import psycopg
import pytest
import trustme
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fixtures.installed_postgres import installed_postgres
from fixtures.wire import HERE, Wire
from headgate.databases import network_timeouts
from headgate.formats.change import ABSENT, Change, Operation
from headgate.provisioning.time_scale import scaled_seconds
from headgate.sinks.contract import (
    ChangeBatch,
    OffsetRange,
    SinkRefusedError,
    SinkUnavailableError,
)
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.session import RelationalSettings
from headgate.sinks.source_tables import text_of
from headgate_lab.embedded.postgres import EmbeddedPostgres
from support import build

pytestmark = pytest.mark.integration

SECONDS_MAX = scaled_seconds(60.0)

WAITS_FOR_ROW = """
SELECT EXISTS (SELECT FROM pg_locks held WHERE held.pid = waits.pid AND held.relation = 'public.t'::regclass
               AND held.mode = 'RowExclusiveLock')
FROM pg_locks waits JOIN pg_stat_activity USING (pid)
WHERE NOT waits.granted AND waits.locktype = 'transactionid' AND datname = current_catalog
"""
"""Of each session of this database that waits for another's transaction: whether it has written to the table."""

CLAIM = build.claim(topic="shop.t")


@pytest.fixture
def dsn(postgres_database: str) -> str:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    return postgres_database


def batch(first: int, count: int = 1, width: int = 1) -> ChangeBatch:
    changes = [
        Change(0, n, Operation.UPSERT, {"id": n}, {"id": n, "v": uuid.uuid4().hex * width}, None, 0)
        for n in range(first, first + count)
    ]
    return ChangeBatch(CLAIM, {0: OffsetRange(first, first + count)}, changes)


def count_of(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        return connection.execute("SELECT count(*) FROM t").fetchone()[0]  # type: ignore[index]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"password": "wrong"}, "password authentication failed"),
        ({"sslmode": "require"}, "does not support SSL"),
        ({"dbname": "nowhere"}, 'database "nowhere" does not exist'),
        ({"user": "nobody_we_know", "password": "x"}, "password authentication failed"),
    ],
)
def test_a_login_that_cannot_succeed_is_refused_for_good(dsn: str, changed: dict[str, str], says: str) -> None:
    parameters = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    sink = PostgresSink(RelationalSettings(make_conninfo("", **(parameters | changed))))
    with pytest.raises(SinkRefusedError, match=rf"{says}[\s\S]*sink\.dsn") as refused:
        sink.check(["public.t"])
    assert not refused.value.retryable


RULE = "host all clerk 127.0.0.1/32"
"""Of pg_hba.conf; the superuser, by whom the test changes the server, has a rule of its own."""


@pytest.mark.parametrize(
    ("rules", "says"),
    [("", "no pg_hba.conf entry"), (f"{RULE} reject\n", "pg_hba.conf rejects connection")],
    ids=["no entry", "reject"],
)
def test_a_user_whom_pg_hba_does_not_let_in_is_refused_until_it_does(
    clerks_server: EmbeddedPostgres, rules: str, says: str
) -> None:
    sink = PostgresSink(RelationalSettings(clerks_dsn(clerks_server)))
    position = sink.claim(CLAIM)[0]
    reloaded(clerks_server, rules)
    with pytest.raises(SinkRefusedError, match=rf"{says}[\s\S]*sink\.dsn") as refused:
        sink.positions(CLAIM)
    assert not refused.value.retryable, "the owner tries it again once a minute"
    reloaded(clerks_server, f"{RULE} scram-sha-256\n")
    assert sink.positions(CLAIM) == {0: position}


def clerks_dsn(server: EmbeddedPostgres) -> str:
    return make_conninfo(server.dsn(), user="clerk", password="x")


def reloaded(server: EmbeddedPostgres, rules: str) -> None:
    """The server goes by these rules of pg_hba.conf, besides the superuser's."""
    with psycopg.connect(server.dsn(), autocommit=True) as owner:
        ((file,),) = owner.execute("SHOW hba_file").fetchall()
        Path(file).write_text(f"host all postgres 127.0.0.1/32 scram-sha-256\n{rules}", encoding="utf-8")
        reload(owner)


def reload(owner: "psycopg.Connection[tuple[object, ...]]") -> None:
    """Have the postmaster read its files again, and wait for it.

    It tells sessions, which show it, before it reads the rules and certificates, and begins a second time after that.
    """
    deadline = time.monotonic() + SECONDS_MAX
    for _ in range(2):
        before = owner.execute("SELECT pg_conf_load_time()").fetchall()
        owner.execute("SELECT pg_reload_conf()")
        while owner.execute("SELECT pg_conf_load_time()").fetchall() == before:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.fixture(scope="module")
def clerks_server() -> Iterator[EmbeddedPostgres]:
    """A server of its own, whose rules a test may change, with a user that may write a table."""
    with tempfile.TemporaryDirectory(prefix="headgate-test-") as folder:
        Path(folder).chmod(0o711)
        with EmbeddedPostgres(Path(folder, "postgres")) as server:
            with psycopg.connect(server.dsn(), autocommit=True) as owner:
                owner.execute("CREATE USER clerk PASSWORD 'x'; GRANT CREATE, TEMP ON DATABASE postgres TO clerk")
                owner.execute("CREATE TABLE t (id int PRIMARY KEY, v text); GRANT ALL ON t TO clerk")
            yield server


def test_a_server_whose_certificate_has_expired_is_refused_until_it_has_another() -> None:
    """The embedded server speaks no TLS."""
    authority = trustme.CA()
    with installed_postgres("TLS") as dsn, tempfile.NamedTemporaryFile(suffix=".pem") as ca:
        authority.cert_pem.write_to_path(ca.name)
        with psycopg.connect(dsn, autocommit=True) as owner:
            owner.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
            certified(owner, authority.issue_cert("127.0.0.1"))
            sink = PostgresSink(RelationalSettings(make_conninfo(dsn, sslmode="verify-full", sslrootcert=ca.name)))
            assert sink.claim(CLAIM) == {0: 0}
            certified(owner, authority.issue_cert("127.0.0.1", not_before=LONG_AGO, not_after=LONG_AGO + DAY))
            with pytest.raises(SinkRefusedError, match=r"certificate verify failed[\s\S]*sink\.dsn") as refused:
                sink.positions(CLAIM)
            assert not refused.value.retryable, "the owner tries it again once a minute"
            certified(owner, authority.issue_cert("127.0.0.1"))
            assert sink.positions(CLAIM) == {0: 0}


LONG_AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


def certified(owner: "psycopg.Connection[tuple[object, ...]]", certificate: trustme.LeafCert) -> None:
    """New sessions get this certificate from the server."""
    ((folder,),) = owner.execute("SHOW data_directory").fetchall()
    files = {"server.key": certificate.private_key_pem.bytes(), "server.crt": certificate.cert_chain_pems[0].bytes()}
    for name, content in files.items():
        file = Path(str(folder), name)
        file.write_bytes(content)
        file.chmod(0o600)
        shutil.chown(file, Path(str(folder)).stat().st_uid)
    owner.execute("ALTER SYSTEM SET ssl = on")
    reload(owner)


def test_a_table_that_disappears_and_one_that_may_not_be_written_any_more(dsn: str) -> None:
    user = f"clerk_{uuid.uuid4().hex[:8]}"
    parameters = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute(
            f"CREATE USER {user} PASSWORD 'x'; GRANT CREATE, TEMP ON DATABASE {parameters['dbname']} TO {user}"
        )
        owner.execute(f"GRANT ALL ON t TO {user}")
        sink = PostgresSink(RelationalSettings(make_conninfo("", **(parameters | {"user": user, "password": "x"}))))
        writer = sink.writer()
        try:
            sink.claim(CLAIM)
            writer.apply(batch(0, 5))
            owner.execute(f"REVOKE INSERT ON t FROM {user}")
            with pytest.raises(SinkRefusedError, match=r"public\.t[\s\S]*permission denied") as refused:
                writer.apply(batch(5))
            assert "partition 0 from offset 5" in str(refused.value)
            owner.execute(f"GRANT INSERT ON t TO {user}; ALTER TABLE t RENAME TO elsewhere")
            with pytest.raises(SinkRefusedError, match=r"public\.t does not exist at the sink"):
                writer.apply(batch(5))
            owner.execute("ALTER TABLE elsewhere RENAME TO t")
            assert writer.apply(batch(5)).positions == {0: 6}
            assert count_of(dsn) == 6
        finally:
            writer.close()
            owner.execute(f"DROP OWNED BY {user} CASCADE; DROP USER {user}")


def test_the_first_batches_of_two_partitions_merge_beside_each_other(dsn: str) -> None:
    """The one row that both write, the source's table, is the last thing each of them asks for."""
    claim = msgspec.structs.replace(CLAIM, start={0: 0, 1: 0})
    sink = PostgresSink(RelationalSettings(dsn))
    sink.claim(claim)
    writer = sink.writer()
    first = msgspec.structs.replace(batch(0, 3), claim=claim, source_table=("d", "s", "t"))
    try:
        with psycopg.connect(dsn) as other, ThreadPoolExecutor(1) as pool:
            other.execute(
                "INSERT INTO headgate.source_tables VALUES (%s, %s, %s, %s, 0, %s)",
                ("c", "0-1", "public.t", "shop.t", text_of(("d", "s", "t"))),
            )
            applied = pool.submit(writer.apply, first)
            with psycopg.connect(dsn, autocommit=True) as looker:
                deadline = time.monotonic() + SECONDS_MAX
                while not (waiting := looker.execute(WAITS_FOR_ROW).fetchall()):
                    assert time.monotonic() < deadline, "nobody waits for the row"
                    assert not applied.done()
                    time.sleep(0.01)
            assert waiting == [(True,)]
            assert not applied.done()
            other.commit()
            assert applied.result(SECONDS_MAX).positions == {0: 3}
    finally:
        writer.close()
    assert count_of(dsn) == 3


@pytest.fixture
def wire(dsn: str) -> Iterator[Wire]:
    parameters = conninfo_to_dict(dsn)
    made = Wire(str(parameters["host"]), int(str(parameters["port"])))
    yield made
    made.close()


def test_a_cut_connection_is_unavailable_and_the_same_batch_goes_on_when_it_is_back(dsn: str, wire: Wire) -> None:
    parameters = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    sink = PostgresSink(RelationalSettings(make_conninfo("", **(parameters | {"host": HERE, "port": str(wire.port)}))))
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
    assert count_of(dsn) == 6
    writer.close()


FULL_DISK = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'could not extend file "base/5/16390": No space left on device' USING ERRCODE = 'disk_full';
END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION full_disk()
"""
"""What PostgreSQL says, with which SQLSTATE, when the disk is full (seen with a tablespace on a tmpfs of 8 MB)."""


def test_a_full_disk_is_waited_for_not_taken_for_bad_changes(dsn: str) -> None:
    sink = PostgresSink(RelationalSettings(dsn))
    writer = sink.writer()
    sink.claim(CLAIM)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(FULL_DISK)
        with pytest.raises(SinkUnavailableError, match="No space left on device") as full:
            writer.apply(batch(0, 100))
        assert full.value.retryable
        for word in ("public.t", "topic shop.t", "partition 0 from offset 0"):
            assert word in str(full.value)
        connection.execute("DROP TRIGGER full_disk ON t")
    assert writer.apply(batch(0, 100)).positions == {0: 100}
    writer.close()


def test_a_server_that_is_stopped_and_started_is_unavailable_in_between_and_nothing_is_lost() -> None:
    with tempfile.TemporaryDirectory(prefix="headgate-test-") as name:
        Path(name).chmod(0o711)
        server = EmbeddedPostgres(Path(name) / "pg").start()
        try:
            with psycopg.connect(server.dsn(), autocommit=True) as connection:
                connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
            sink = PostgresSink(RelationalSettings(server.dsn()))
            writer = sink.writer()
            sink.claim(CLAIM)
            writer.apply(batch(0, 3))
            for end in (server.stop, server.kill):
                end()
                with pytest.raises(SinkUnavailableError):
                    sink.positions(CLAIM)
                with pytest.raises(SinkUnavailableError):
                    writer.apply(batch(3))
                server.start()
                assert writer.apply(batch(sink.positions(CLAIM)[0], 2)).positions
            # A kill may take the last commits with it (synchronous_commit=off): rows and position go together.
            assert {0: count_of(server.dsn())} == sink.positions(CLAIM)
            writer.apply(batch(sink.positions(CLAIM)[0], 2))
            assert {0: count_of(server.dsn())} == sink.positions(CLAIM)
            writer.close()
        finally:
            server.stop()


@pytest.mark.skipif(shutil.which("localedef") is None, reason="no localedef to make a locale with a decimal comma")
def test_money_is_the_same_amount_where_the_locale_has_a_decimal_comma(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="headgate-test-") as name:
        Path(name).chmod(0o711)
        locales = Path(name) / "locales"
        locales.mkdir()
        made = subprocess.run(
            ["localedef", "-i", "de_DE", "-f", "UTF-8", str(locales / "de_DE.UTF-8")],
            check=False,
            capture_output=True,
            text=True,
        )
        if made.returncode:
            pytest.skip(f"localedef made no de_DE.UTF-8: {made.stderr}")
        monkeypatch.setenv("LOCPATH", str(locales))
        with (
            EmbeddedPostgres(Path(name) / "pg", settings={"lc_monetary": "de_DE.UTF-8"}) as server,
            psycopg.connect(server.dsn(), autocommit=True) as connection,
        ):
            connection.execute("CREATE TABLE t (id money PRIMARY KEY, v money, w money[])")
            assert connection.execute("SELECT '12.50'::money::numeric").fetchall() != [(Decimal("12.50"),)]
            sink = PostgresSink(RelationalSettings(server.dsn()))
            sink.claim(CLAIM)
            writer = sink.writer()
            key = {"id": "-1234.56"}
            first = Change(0, 0, Operation.UPSERT, key, {**key, "v": 12.5, "w": ["0.01", None]}, None, 0)
            writer.apply(ChangeBatch(CLAIM, {0: OffsetRange(0, 1)}, [first]))
            other = Change(0, 1, Operation.UPSERT, key, {**key, "v": "7", "w": ABSENT}, None, 0)
            writer.apply(ChangeBatch(CLAIM, {0: OffsetRange(1, 2)}, [other]))
            found = connection.execute("SELECT id::numeric, v::numeric, w::numeric[] FROM t").fetchall()
            assert found == [(Decimal("-1234.56"), Decimal("7.00"), [Decimal("0.01"), None])]
            gone = Change(0, 2, Operation.DELETE, key, None, None, 0)
            assert writer.apply(ChangeBatch(CLAIM, {0: OffsetRange(2, 3)}, [gone])).deletes == 1
            writer.close()


# --- a sink that stands still ---


def frozen(server: EmbeddedPostgres) -> list[psutil.Process]:
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
        with EmbeddedPostgres(Path(name) / "server") as server:
            with psycopg.connect(server.dsn(), autocommit=True) as connection:
                connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
            sink = PostgresSink(RelationalSettings(f"{server.dsn()}?connect_timeout=5"))
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
            assert {0: count_of(server.dsn())} == sink.positions(CLAIM)
            writer.close()


def test_a_connection_on_which_nothing_arrives_any_more_is_given_up(
    dsn: str, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_timeouts, "SILENCE_SECONDS", 1)
    sink = PostgresSink(RelationalSettings(make_conninfo(dsn, host=HERE, port=wire.port)))
    sink.claim(CLAIM)
    writer = sink.writer()
    writer.apply(batch(0, 3))
    wire.mute()
    with pytest.raises(SinkUnavailableError, match="not working on our statement"):
        writer.apply(batch(3, 3))
    monkeypatch.undo()  # a busy machine may be silent for longer than that
    assert writer.apply(batch(sink.positions(CLAIM)[0], 3)).positions
    assert {0: count_of(dsn)} == sink.positions(CLAIM)
    writer.close()


def test_a_statement_that_takes_its_time_is_waited_for(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_timeouts, "SILENCE_SECONDS", 1)
    sink = PostgresSink(RelationalSettings(dsn))
    sink.claim(CLAIM)
    writer = sink.writer()
    writer.apply(batch(0))
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(4); RETURN NEW; END';"
            "CREATE TRIGGER slow BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION slow()"
        )
    assert writer.apply(batch(1)).positions == {0: 2}
    writer.close()
