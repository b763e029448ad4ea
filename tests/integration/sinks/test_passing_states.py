"""States of a sink that pass: none is final, and the table goes on once it is over, with the secrets of that moment."""

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fixtures.services import mariadb_execute
from headgate.formats.change import Change, Operation
from headgate.records.control import Epoch
from headgate.sinks.contract import (
    ChangeBatch,
    Claim,
    FeedIdentity,
    OffsetRange,
    Sink,
    SinkError,
    SinkRefusedError,
    SinkUnavailableError,
)
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.session import RelationalSettings
from headgate_lab.embedded.postgres import EmbeddedPostgres
from support import build

pytestmark = pytest.mark.integration

FEED = FeedIdentity("c", "0-1", "shop")


def claim_of(table: str, n: int = 1) -> Claim:
    return build.claim(identity=FEED, table=table, topic="shop.t", epoch=Epoch(1, n))


def batch(claim: Claim, offset: int) -> ChangeBatch:
    row = {"id": offset, "v": "x"}
    return ChangeBatch(
        claim, {0: OffsetRange(offset, offset + 1)}, [Change(0, offset, Operation.UPSERT, {"id": offset}, row, None, 0)]
    )


def refusals(sink: Sink, claim: Claim, offset: int) -> list[SinkError]:
    """What the check, a claim and a batch of a new session say."""
    found = []
    with closing(sink.writer()) as writer:
        for attempt in (
            lambda: sink.check([claim.table], FEED),
            lambda: sink.claim(claim),
            lambda: writer.apply(batch(claim, offset)),
        ):
            with pytest.raises(SinkError) as said:
                attempt()
            found.append(said.value)
    return found


# --- PostgreSQL ---


@pytest.fixture
def role(postgres_database: str, tmp_path: Path) -> Iterator[tuple[PostgresSink, psycopg.Connection, str, Path]]:
    """A sink of a user of its own, whose password is in a file; a superuser's session; the user's name; the file."""
    name, password = "passing_" + conninfo_to_dict(postgres_database)["dbname"], tmp_path / "password"
    password.write_text("first")
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'first'")
        connection.execute(f"CREATE SCHEMA headgate AUTHORIZATION {name}")
        connection.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON t TO {name}")
        dsn = make_conninfo(postgres_database, user=name, password=None)
        yield PostgresSink(RelationalSettings(dsn, password)), connection, name, password
        connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_a_rotated_password_is_read_at_the_next_session(
    role: tuple[PostgresSink, psycopg.Connection, str, Path],
) -> None:
    sink, connection, name, password = role
    claim = claim_of("public.t")
    sink.claim(claim)
    connection.execute(f"ALTER ROLE {name} PASSWORD 'second'")
    assert {type(error) for error in refusals(sink, claim, 0)} == {SinkRefusedError}
    password.write_text("second")
    assert sink.claim(claim_of("public.t", 2)) == {0: 0}
    with closing(sink.writer()) as writer:
        assert writer.apply(batch(claim_of("public.t", 2), 0)).positions == {0: 1}


@pytest.mark.parametrize(
    ("alter", "undo", "kind"),
    [
        ("NOLOGIN", "LOGIN", SinkRefusedError),
        ("CONNECTION LIMIT 0", "CONNECTION LIMIT -1", SinkUnavailableError),
        ("SET default_transaction_read_only = on", "RESET default_transaction_read_only", SinkUnavailableError),
    ],
)
def test_what_keeps_a_user_out_for_a_while(
    role: tuple[PostgresSink, psycopg.Connection, str, Path], alter: str, undo: str, kind: type[SinkError]
) -> None:
    sink, connection, name, _ = role
    claim = claim_of("public.t")
    sink.claim(claim)
    connection.execute(f"ALTER ROLE {name} {alter}")
    with closing(sink.writer()) as writer, pytest.raises(kind) as said:
        writer.apply(batch(claim, 0))
    assert said.value.retryable is (kind is SinkUnavailableError)
    connection.execute(f"ALTER ROLE {name} {undo}")
    with closing(sink.writer()) as writer:
        assert writer.apply(batch(claim, 0)).positions == {0: 1}


def test_a_batch_that_runs_into_the_transaction_timeout_is_tried_again(
    role: tuple[PostgresSink, psycopg.Connection, str, Path],
) -> None:
    sink, connection, name, _ = role
    if connection.info.server_version < 170000:
        pytest.skip("transaction_timeout is of PostgreSQL 17")
    claim = claim_of("public.t")
    sink.claim(claim)
    connection.execute(
        "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(9); RETURN NEW; END $$"
    )
    connection.execute("CREATE TRIGGER s BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION slowly()")
    connection.execute(f"ALTER ROLE {name} SET transaction_timeout = '300ms'")
    with closing(sink.writer()) as writer:
        with pytest.raises(SinkUnavailableError, match="transaction timeout"):
            writer.apply(batch(claim, 0))
        connection.execute("DROP TRIGGER s ON t")
        connection.execute(f"ALTER ROLE {name} RESET transaction_timeout")  # a busy machine needs longer for any batch
        assert writer.apply(batch(claim, 0)).positions == {0: 1}


def test_a_fail_over_through_a_standby_is_waited_for() -> None:
    with tempfile.TemporaryDirectory(prefix="headgate-test-") as folder:
        Path(folder).chmod(0o711)
        with EmbeddedPostgres(Path(folder, "postgres")) as server:
            with psycopg.connect(server.dsn(), autocommit=True) as connection:
                connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
            sink, claim = PostgresSink(RelationalSettings(server.dsn())), claim_of("public.t")
            sink.claim(claim)
            with closing(sink.writer()) as writer:
                writer.apply(batch(claim, 0))
                server.restart_as_standby()
                for error in refusals(sink, claim_of("public.t", 2), 1):
                    assert isinstance(error, SinkUnavailableError), error
                with pytest.raises(SinkUnavailableError):
                    writer.apply(batch(claim, 1))
                server.promote()
                assert sink.claim(claim_of("public.t", 2)) == {0: 1}
                assert writer.apply(batch(claim_of("public.t", 2), 1)).positions == {0: 2}


# --- MariaDB ---


@contextmanager
def clerk_of(url: str, password: Path) -> Iterator[MysqlSink]:
    """A sink of a user without special rights, whose password is in a file."""
    server, database = urlsplit(url).netloc.rpartition("@")[2], url.rsplit("/", 1)[1]
    password.write_text("first")
    mariadb_execute(url, "CREATE OR REPLACE USER passing IDENTIFIED BY 'first'")
    rights = "CREATE, DROP, SELECT, INSERT, UPDATE, DELETE, CREATE TEMPORARY TABLES"
    mariadb_execute(url, f"GRANT {rights} ON headgate.* TO passing")
    mariadb_execute(url, f"GRANT SELECT, INSERT, UPDATE, DELETE ON {database}.t TO passing")
    try:
        yield MysqlSink(RelationalSettings(f"mysql://passing@{server}/{database}", password))
    finally:
        mariadb_execute(url, "DROP USER passing")


def test_a_mariadb_that_is_read_only_for_a_while_is_waited_for(mariadb_database: str, tmp_path: Path) -> None:
    mariadb_execute(mariadb_database, "CREATE TABLE t (id int PRIMARY KEY, v text)")
    claim = claim_of("t")
    with clerk_of(mariadb_database, tmp_path / "password") as sink:
        sink.claim(claim)
        mariadb_execute(mariadb_database, "SET GLOBAL read_only = 1")
        try:
            said = refusals(sink, claim_of("t", 2), 0)
        finally:
            mariadb_execute(mariadb_database, "SET GLOBAL read_only = 0")
        assert {type(error) for error in said} == {SinkUnavailableError}
        assert sink.claim(claim_of("t", 2)) == {0: 0}
        with closing(sink.writer()) as writer:
            assert writer.apply(batch(claim_of("t", 2), 0)).positions == {0: 1}


def test_a_rotated_password_of_mariadb_is_read_at_the_next_session(mariadb_database: str, tmp_path: Path) -> None:
    mariadb_execute(mariadb_database, "CREATE TABLE t (id int PRIMARY KEY, v text)")
    claim = claim_of("t")
    with clerk_of(mariadb_database, tmp_path / "password") as sink:
        sink.claim(claim)
        mariadb_execute(mariadb_database, "ALTER USER passing IDENTIFIED BY 'second'")
        assert {type(error) for error in refusals(sink, claim, 0)} == {SinkRefusedError}
        (tmp_path / "password").write_text("second")
        assert sink.claim(claim_of("t", 2)) == {0: 0}
        mariadb_execute(mariadb_database, "ALTER USER passing ACCOUNT LOCK")
        assert {type(error) for error in refusals(sink, claim_of("t", 2), 0)} == {SinkRefusedError}
        mariadb_execute(mariadb_database, "ALTER USER passing ACCOUNT UNLOCK")
        with closing(sink.writer()) as writer:
            assert writer.apply(batch(claim_of("t", 2), 0)).positions == {0: 1}
