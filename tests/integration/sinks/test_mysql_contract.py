"""MariaDB keeps the contract of every sink, and what is its own: who is waited for, who is ended, who is told."""

from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit, urlunsplit

import pymysql
import pytest

from fixtures.services import mariadb_connect, mariadb_execute
from headgate.config.sink_spec import SinkSpec
from headgate.databases.mysql.progress import Holder
from headgate.records.control import Epoch
from headgate.sinks.contract import (
    Claim,
    SinkRefusedError,
    SinkUnavailableError,
)
from headgate.sinks.registry import open_sink
from headgate.sinks.relational.dialect import SIBLING_SECONDS
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.mysql.connection import MysqlSinkSession, connect
from headgate.sinks.relational.mysql.contention import connect_watcher, end_blockers
from headgate.sinks.relational.mysql.progress import MysqlProgress
from headgate.sinks.relational.session import RelationalSettings
from integration.sinks.contract import (
    SECONDS_MAX,
    batch_of,
    claim_of,
    upsert,
)
from integration.sinks.crash_contract import CrashContract
from integration.sinks.relational_contract import MysqlTables, RelationalContract

pytestmark = pytest.mark.integration


class MysqlBench(MysqlTables):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.table = url.rsplit("/", 1)[1] + ".orders"
        self.sink = MysqlSink(RelationalSettings(url, lock_wait_seconds=SECONDS_MAX))
        self.execute("CREATE TABLE orders (id int PRIMARY KEY, value text)")

    def rows(self) -> dict[int, str | None]:
        return dict(self.execute("SELECT id, value FROM orders"))

    def drop(self) -> None:
        self.execute("DROP TABLE orders")

    def nowhere(self) -> MysqlSink:
        return MysqlSink(RelationalSettings("mysql://x@127.0.0.1:1/x"))

    def end_session(self, claim: Claim) -> None:
        del claim  # one session has worked here
        ((holder,),) = self.execute("SELECT holder FROM headgate.progress WHERE part = 0")
        ((session,),) = self.execute("SELECT IS_USED_LOCK(%s)", (holder.split("|")[0],))
        self.execute(f"KILL {session}")


@pytest.fixture
def mysql_bench(mariadb_database: str) -> MysqlBench:
    return MysqlBench(mariadb_database)


class TestMysqlSink(RelationalContract):
    @pytest.fixture
    def bench(self, mysql_bench: MysqlBench) -> MysqlBench:
        return mysql_bench


class MysqlSite:
    """Notes of a trigger: in the same transaction, so that they show what was committed, in that order."""

    def __init__(self, url: str) -> None:
        self.spec: dict[str, object] = {"type": "mysql", "dsn": url}
        self.sink = open_sink(SinkSpec.model_validate(self.spec))
        self.table = url.rsplit("/", 1)[1] + ".orders"
        self._url = url
        self.port = urlsplit(url).port or 3306
        for statement in (
            "CREATE TABLE orders (id int PRIMARY KEY, value text)",
            "CREATE TABLE noted (id int AUTO_INCREMENT PRIMARY KEY, value text)",
            "CREATE TRIGGER i AFTER INSERT ON orders FOR EACH ROW INSERT INTO noted (value) VALUES (NEW.value)",
            "CREATE TRIGGER u AFTER UPDATE ON orders FOR EACH ROW INSERT INTO noted (value) VALUES (NEW.value)",
            "CREATE TRIGGER d AFTER DELETE ON orders FOR EACH ROW INSERT INTO noted (value) VALUES ('deleted')",
        ):
            mariadb_execute(url, statement)

    def through(self, port: int) -> dict[str, object]:
        parts = urlsplit(self._url)
        here = parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{port}")
        return self.spec | {"dsn": urlunsplit(here)}

    def history(self) -> list[str]:
        return [value for (value,) in mariadb_execute(self._url, "SELECT value FROM noted ORDER BY id")]


class TestMysqlCrashes(CrashContract):
    @pytest.fixture
    def site(self, mariadb_database: str) -> MysqlSite:
        return MysqlSite(mariadb_database)


def test_a_stranger_that_holds_the_lock_is_waited_for_then_named(mysql_bench: MysqlBench) -> None:
    claim = claim_of(mysql_bench, 1)
    mysql_bench.sink.claim(claim)
    impatient = MysqlSink(RelationalSettings(mysql_bench.url, lock_wait_seconds=1))
    with closing(mariadb_connect(mysql_bench.url)) as stranger, stranger.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT * FROM headgate.progress FOR UPDATE")
        with pytest.raises(SinkUnavailableError, match=f"session {stranger.thread_id()} .user root from .*, Sleep"):
            impatient.claim(claim_of(mysql_bench, 2))
        assert cursor.execute("SELECT 1") == 1
        cursor.execute("ROLLBACK")
    assert mysql_bench.sink.claim(claim_of(mysql_bench, 2)) == {0: 5, 1: 0}


@pytest.fixture
def holding(mysql_bench: MysqlBench) -> Iterator[MysqlSinkSession]:
    session = connect(RelationalSettings(mysql_bench.url))
    yield session
    session.close()


@pytest.mark.parametrize(
    ("feed_id", "epoch", "survives"),
    [("0-7", Epoch(3, 3), True), ("0-9", Epoch(3, 1), True), ("0-7", Epoch(3, 1), False)],
    ids=["a higher epoch", "another feed", "a lower epoch"],
)
def test_only_lower_epochs_of_the_same_feed_and_table_are_ended(
    mysql_bench: MysqlBench, holding: MysqlSinkSession, feed_id: str, epoch: Epoch, *, survives: bool
) -> None:
    mysql_bench.sink.claim(claim_of(mysql_bench, 1))
    impatient = MysqlSink(RelationalSettings(mysql_bench.url, lock_wait_seconds=1))
    holder = str(Holder(holding.prove_life(), feed_id, epoch))
    holding.execute("START TRANSACTION")
    holding.execute("UPDATE headgate.progress SET holder = %s", (holder,))
    if survives:
        with pytest.raises(SinkUnavailableError, match=f"session {holding.id}"):
            impatient.claim(claim_of(mysql_bench, 2))
        assert holding.execute("SELECT 1") == [(1,)]
    else:
        assert mysql_bench.sink.claim(claim_of(mysql_bench, 2)) == {0: 5, 1: 0}


@pytest.mark.parametrize(("locks", "survives"), [("tables", True), ("progress", False)])
def test_another_part_of_the_table_is_given_a_moment(
    mysql_bench: MysqlBench, holding: MysqlSinkSession, locks: str, *, survives: bool
) -> None:
    """Who was the last to lock the table's row may long be done with it, and at work for another part."""
    claim = claim_of(mysql_bench, 2)
    mysql_bench.sink.claim(claim_of(mysql_bench, 1))
    holding.execute(
        f"UPDATE headgate.{locks} SET holder = %s", (str(Holder(holding.prove_life(), "0-7", Epoch(3, 1))),)
    )
    settings = RelationalSettings(mysql_bench.url)
    with closing(connect_watcher(settings)) as watching, closing(connect(settings)) as blocked:

        def look(waited_seconds: float) -> None:
            name = MysqlProgress(watching).name_to_claim(claim)
            end_blockers(watching, blocked, claim, name, lambda epoch: epoch < claim.epoch, waited_seconds)

        look(SIBLING_SECONDS / 2)
        if survives:
            assert holding.execute("SELECT 1") == [(1,)]
            look(SIBLING_SECONDS)
        with pytest.raises(pymysql.Error):
            holding.execute("SELECT 1")


def test_a_token_of_a_session_that_is_gone_ends_nobody(mysql_bench: MysqlBench, holding: MysqlSinkSession) -> None:
    """Session numbers begin anew with the server: only who holds the token's lock now may be ended."""
    mysql_bench.sink.claim(claim_of(mysql_bench, 1))
    mysql_bench.execute("UPDATE headgate.progress SET holder = 'headgate 0123|0-7|3.0'")
    impatient = MysqlSink(RelationalSettings(mysql_bench.url, lock_wait_seconds=1))
    holding.execute("START TRANSACTION")
    holding.execute("SELECT * FROM headgate.progress FOR UPDATE")
    with pytest.raises(SinkUnavailableError):
        impatient.claim(claim_of(mysql_bench, 2))
    assert holding.execute("SELECT 1") == [(1,)]


def test_a_session_of_another_user_that_cannot_be_ended_is_named(mysql_bench: MysqlBench) -> None:
    database = mysql_bench.table.partition(".")[0]
    mysql_bench.execute("CREATE OR REPLACE USER clerk IDENTIFIED BY 'pen'")
    try:
        for scope in (database, "headgate"):
            mysql_bench.execute(f"GRANT ALL ON {scope}.* TO clerk")
        host = mysql_bench.url.rsplit("@", 1)[1]
        clerk = MysqlSink(RelationalSettings(f"mysql://clerk:pen@{host}"))
        first = claim_of(mysql_bench, 1)
        mysql_bench.sink.claim(first)
        with mysql_bench.freeze_while_applying(batch_of(first, 5, upsert(5, 1, "frozen"))) as frozen:
            try:
                with pytest.raises(SinkRefusedError, match=r"under epoch 3\.1, which has ended.*CONNECTION ADMIN"):
                    clerk.claim(claim_of(mysql_bench, 2))
            finally:
                frozen.kill()
    finally:
        mysql_bench.execute("DROP USER clerk")
