"""PostgreSQL keeps the contract of every sink, and what is its own: who is waited for, who is ended, who is told."""

import psycopg
import pytest
from msgspec.structs import replace

from headgate.records.control import Epoch
from headgate.sinks.contract import (
    Claim,
    FeedIdentity,
    SinkUnavailableError,
)
from headgate.sinks.relational import writer
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.postgresql.connection import Label
from headgate.sinks.relational.session import RelationalSettings
from integration.sinks.contract import (
    FEED,
    SECONDS_MAX,
    claim_of,
)
from integration.sinks.relational_contract import PostgresTables, RelationalContract
from support import build
from support.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True, params=["at once", "staged"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of few rows goes either way to the same end."""
    if request.param == "staged":
        monkeypatch.setattr(writer, "CHANGES_AT_ONCE_MAX", -1)


class PostgresBench(PostgresTables):
    table = "public.orders"

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.sink = PostgresSink(RelationalSettings(dsn, lock_wait_seconds=SECONDS_MAX))
        self.execute("CREATE TABLE public.orders (id integer PRIMARY KEY, value text)")

    def rows(self) -> dict[int, str | None]:
        return dict(self.execute("SELECT id, value FROM public.orders"))

    def drop(self) -> None:
        self.execute("DROP TABLE public.orders")

    def nowhere(self) -> PostgresSink:
        return PostgresSink(RelationalSettings("host=127.0.0.1 port=1 dbname=x"))

    def end_session(self, claim: Claim) -> None:
        ended = self.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE application_name = %s AND datname = current_database()",
            (str(Label.of(claim)),),
        )
        assert ended == [(True,)]


@pytest.fixture
def postgres_bench(postgres_database: str) -> PostgresBench:
    return PostgresBench(postgres_database)


class TestPostgresSink(RelationalContract):
    @pytest.fixture
    def bench(self, postgres_bench: PostgresBench) -> PostgresBench:
        return postgres_bench


@pytest.mark.parametrize(
    "lock",
    [
        "SELECT FROM headgate.progress FOR UPDATE",
        # Open to every user of the database (ADR 0099).
        "SELECT pg_advisory_lock(hashtextextended('headgate public.orders', 0))",
    ],
    ids=["rows", "advisory lock"],
)
def test_a_stranger_that_holds_the_lock_is_waited_for_then_named(postgres_bench: PostgresBench, lock: str) -> None:
    claim = claim_of(postgres_bench, 1)
    postgres_bench.sink.claim(claim)
    impatient = PostgresSink(RelationalSettings(postgres_bench.dsn, lock_wait_seconds=0.5))
    with psycopg.connect(postgres_bench.dsn, application_name="somebody's psql") as stranger:
        stranger.execute(lock.encode())
        with pytest.raises(SinkUnavailableError, match="somebody's psql"):
            impatient.claim(claim_of(postgres_bench, 2))
        assert stranger.execute("SELECT 1").fetchone() == (1,)
    # A server ends a session, and with it an advisory lock, some time after it was closed.
    assert postgres_bench.sink.claim(claim_of(postgres_bench, 2)) == {0: 5, 1: 0}


@pytest.mark.parametrize(
    "label",
    [
        Label("shop", "public.orders", Epoch(3, 3)),
        Label("shop", "public.other", Epoch(3, 1)),
        Label("another", "public.orders", Epoch(3, 1)),
    ],
    ids=["a higher epoch", "another table", "another feed"],
)
def test_only_lower_epochs_of_the_same_feed_and_table_are_ended(postgres_bench: PostgresBench, label: Label) -> None:
    postgres_bench.sink.claim(claim_of(postgres_bench, 1))
    impatient = PostgresSink(RelationalSettings(postgres_bench.dsn, lock_wait_seconds=0.5))
    with psycopg.connect(postgres_bench.dsn, application_name=str(label)) as other:
        other.execute("SELECT FROM headgate.progress FOR UPDATE")
        with pytest.raises(SinkUnavailableError, match=str(label)):
            impatient.claim(claim_of(postgres_bench, 2))
        assert other.execute("SELECT 1").fetchone() == (1,)


def test_labels_keep_the_epoch_whatever_the_names() -> None:
    long = build.claim(
        identity=FeedIdentity("c", "0-1", "a feed with blanks and ümlauts " * 5),
        table="schema." + "t" * 90,
        topic="t",
        epoch=Epoch(10**11, 123456),
        start={},
    )
    text = str(Label.of(long))
    assert len(text.encode()) <= 63
    assert Label.parse(text) == Label.of(long)
    assert Label.parse(text).epoch == long.epoch
    other = build.claim(identity=FEED, table="schema." + "t" * 89, topic="t", start={})
    assert Label.of(other).table != Label.of(long).table
    part = replace(other, table="public.orders", span="public.orders~0-1")
    assert str(Label.of(part)) == "headgate shop public.orders~0-1 1.1"
    assert Label.parse(str(Label.of(part))) == Label.of(part)
    assert Label.of(part).table == Label.of(replace(part, span=None)).table
    assert Label.of(part).may_meet(Label.of(replace(part, span=None)))
    assert not Label.of(part).may_meet(Label.of(replace(part, span="public.orders~2")))
    assert Label.of(replace(long, span=long.table + "~0-3")).table == Label.of(long).table
    assert Label.parse("psql") is None
    assert Label.parse("headgate a b c") is None


def test_a_kept_session_serves_many_calls_and_is_replaced_when_the_server_has_ended_it(
    postgres_bench: PostgresBench,
) -> None:
    sink = PostgresSink(RelationalSettings(postgres_bench.dsn), keeps_session=True)
    claim = claim_of(postgres_bench, 1)
    with psycopg.connect(postgres_bench.dsn, autocommit=True) as watcher:

        def sessions() -> list[tuple[object, ...]]:
            return watcher.execute(
                "SELECT pid, application_name, state FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            ).fetchall()

        before = {pid for pid, *_ in sessions()}

        def only_session() -> tuple[object, ...]:
            """The sink's, once the server has ended those that were closed: that takes it a moment."""

            def begun() -> list[tuple[object, ...]]:
                return [found for found in sessions() if found[0] not in before]

            (only,) = eventually(lambda: found if len(found := begun()) == 1 else None, begun)
            return only

        positions = sink.claim(claim)
        kept = only_session()
        assert kept[1:] == ("headgate", "idle"), "it neither holds anything nor says that it works for the claim"
        assert sink.positions(claim) == positions
        assert kept in sessions()
        watcher.execute("SELECT pg_terminate_backend(%s, 5000)", (kept[0],))
        assert sink.seal(claim) == positions
        other = only_session()
        assert other != kept
        sink.close()
        watcher.execute("SELECT pg_terminate_backend(%s, 5000)", (other[0],))  # waits until it has ended
        # ``before`` may hold a session of the fixture that was ending at the time.
        assert {pid for pid, *_ in sessions()} <= before
