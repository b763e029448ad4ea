"""What real sinks keep of the columns of a table that Headgate alters, in the transactions that write its rows."""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from fixtures.services import mariadb_execute
from headgate.formats.change import Change, Operation
from headgate.records.control import Epoch
from headgate.sinks.contract import (
    ChangeBatch,
    Claim,
    FeedIdentity,
    OffsetRange,
    SinkMovedError,
    SinkRefusedError,
    ValueRefusedError,
)
from headgate.sinks.known_columns import ColumnNumbers, ExcludedColumns, KnownColumns
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.session import RelationalSettings
from headgate.sinks.relational.sink import RelationalSink

pytestmark = pytest.mark.integration

FEED = FeedIdentity("c", "0-1", "f")
NUMBERS = ColumnNumbers("16384", {"id": 1, "a": 2}, {"ssn": 3})
LEFT_OUT = KnownColumns(excluded=ExcludedColumns("16384", {"ssn": (3,)}))


class Bench:
    """A sink with a table."""

    def __init__(
        self, sink: Callable[[RelationalSettings], Any], dsn: str, table: str, run: Callable[[str], object]
    ) -> None:
        self._open, self._dsn, self.table, self.run = sink, dsn, table, run
        run("CREATE TABLE t (id int PRIMARY KEY, a int)")
        self.sink = self.open()
        self.claimed = self.claim(1)

    def open(self, *, keeps_columns: bool = True) -> RelationalSink[Any, Any, Any]:
        found: RelationalSink[Any, Any, Any] = self._open(
            RelationalSettings(dsn=self._dsn, keeps_columns=keeps_columns)
        )
        return found

    def claim(self, n: int, incarnation: int = 1, partitions: int = 1) -> Claim:
        claim = Claim(FEED, self.table, "t", Epoch(1, n), incarnation, dict.fromkeys(range(partitions), 0))
        self.sink.claim(claim)
        return claim

    def batch(self, claim: Claim, at: int, partition: int = 0, **row: object) -> ChangeBatch:
        change = Change(partition, at, Operation.UPSERT, {"id": row["id"]}, row, None, 0, None)
        return ChangeBatch(claim, {partition: OffsetRange(at, at + 1)}, [change])

    @property
    def kept(self) -> KnownColumns:
        return self.sink.known_columns(self.claimed)


@pytest.fixture(params=["postgresql", "mariadb"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    if request.param == "mariadb":
        address = request.getfixturevalue("mariadb_database")
        name = f"{address.rsplit('/', 1)[1]}.t"
        yield Bench(MysqlSink, address, name, lambda statement: mariadb_execute(address, statement))
        return
    database = request.getfixturevalue("postgres_database")
    with psycopg.connect(database, autocommit=True) as session:
        yield Bench(PostgresSink, database, "public.t", lambda statement: session.execute(statement.encode()))


def test_the_first_batch_keeps_the_columns_and_a_dropped_one_stays_known(bench: Bench) -> None:
    assert bench.kept == KnownColumns()
    writer = bench.sink.writer()
    writer.apply(bench.batch(bench.claimed, 0, id=1, a=1))
    assert bench.kept == KnownColumns(applied=("a", "id"))
    bench.run("ALTER TABLE t ADD COLUMN b int")
    bench.run("ALTER TABLE t DROP COLUMN a")
    writer.apply(bench.batch(bench.claimed, 1, id=2, b=2))
    assert bench.kept.applied == ("a", "b", "id")
    writer.close()


def test_nothing_is_kept_of_a_batch_that_is_refused_or_of_a_table_that_headgate_does_not_alter(bench: Bench) -> None:
    writer = bench.sink.writer()
    with pytest.raises(ValueRefusedError):
        writer.apply(bench.batch(bench.claimed, 0, id=1, a="many"))
    assert bench.kept == KnownColumns()
    writer.close()
    other = bench.open(keeps_columns=False).writer()
    other.apply(bench.batch(bench.claimed, 0, id=1, a=1))
    assert bench.kept == KnownColumns()
    other.close()


def test_numbers_are_kept_beside_the_columns_only_under_the_claim_at_its_positions(bench: Bench) -> None:
    writer = bench.sink.writer()
    writer.apply(bench.batch(bench.claimed, 0, id=1, a=1))
    bench.sink.change_known_columns(bench.claimed, {0: 1}, lambda known: known.with_numbers(NUMBERS))
    wanted = msgspec.structs.replace(LEFT_OUT, applied=("a", "id"), numbers=ColumnNumbers("16384", {"id": 1, "a": 2}))
    assert bench.kept == wanted
    with pytest.raises(SinkMovedError):
        bench.sink.change_known_columns(bench.claimed, {0: 0}, lambda known: known.with_restored(["a"]))
    assert bench.kept == wanted
    writer.close()


def test_a_rewind_begins_anew_and_a_removed_feed_leaves_nothing(bench: Bench) -> None:
    writer = bench.sink.writer()
    writer.apply(bench.batch(bench.claimed, 0, id=1, a=1))
    bench.sink.change_known_columns(bench.claimed, {0: 1}, lambda known: known.with_numbers(NUMBERS))
    bench.claimed = bench.claim(2, incarnation=2)
    assert bench.kept == LEFT_OUT
    bench.run("ALTER TABLE t DROP COLUMN a")
    again = bench.sink.writer()
    again.apply(bench.batch(bench.claimed, 0, id=1))
    assert bench.kept == KnownColumns(applied=("id",), excluded=LEFT_OUT.excluded)
    for each in (writer, again):
        each.close()
    bench.sink.seal(bench.claimed)
    bench.sink.forget(FEED)
    assert bench.kept == KnownColumns()


def test_parts_of_a_table_keep_its_columns_at_once(bench: Bench) -> None:
    whole = bench.claim(2, partitions=8)
    parts = [msgspec.structs.replace(whole, start={number: 0}) for number in range(8)]

    def apply(number: int) -> None:
        writer = bench.sink.writer()
        writer.apply(bench.batch(parts[number], 0, number, id=number, a=1))
        writer.close()

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(apply, number) for number in range(8)]:
            done.result()
    assert bench.sink.known_columns(whole).applied == ("a", "id")


def test_a_right_that_is_missing_is_named(postgres_database: str) -> None:
    role = f"clerk_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgres_database, autocommit=True) as session:
        bench = Bench(PostgresSink, postgres_database, "public.t", lambda text: session.execute(text.encode()))
        bench.run(f"CREATE ROLE {role} LOGIN PASSWORD 'pen'; GRANT ALL ON t TO {role}")
        bench.run(f"GRANT USAGE ON SCHEMA headgate TO {role}")
        bench.run(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA headgate TO {role}")
        bench.run(f"GRANT TEMPORARY ON DATABASE {session.info.dbname} TO {role}")
        dsn = make_conninfo(postgres_database, user=role, password="pen")
        writer = PostgresSink(RelationalSettings(dsn=dsn, keeps_columns=True)).writer()
        try:
            with pytest.raises(SinkRefusedError, match="permission denied for schema headgate"):
                writer.apply(bench.batch(bench.claimed, 0, id=1, a=1))
            bench.run(f"GRANT CREATE ON SCHEMA headgate TO {role}")
            writer.apply(bench.batch(bench.claimed, 0, id=1, a=1))
            assert bench.kept.applied == ("a", "id")
        finally:
            writer.close()
            bench.run(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")
