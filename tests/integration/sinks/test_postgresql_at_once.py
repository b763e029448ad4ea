"""Small batches at PostgreSQL go the shorter way; what it does not take goes the ordinary way, to the same end."""

from collections.abc import Iterator
from itertools import count

import psycopg
import pytest

from headgate.formats.change import ABSENT, Change, Operation
from headgate.records.control import Epoch
from headgate.sinks.contract import (
    ChangeBatch,
    Claim,
    FeedIdentity,
    OffsetRange,
    SinkFencedError,
    SinkMovedError,
    ValueRefusedError,
)
from headgate.sinks.relational.postgresql import PostgresSink, at_once
from headgate.sinks.relational.session import RelationalSettings
from support import build

pytestmark = pytest.mark.integration

IDENTITY = FeedIdentity("cluster-a", "0-7", "shop")


class Bench:
    """A table, a claim of it, and a writer that has met it; ``began`` counts transactions sent as one text."""

    def __init__(self, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dsn = dsn
        self.execute("CREATE TABLE public.orders (id integer PRIMARY KEY, value varchar(5), price numeric(6,2))")
        self.sink = PostgresSink(RelationalSettings(dsn))
        self.writer = self.sink.writer()
        self.began = 0
        session = at_once.PostgresSinkSession
        begin = session.begin_with

        def counted(*given: object) -> object:
            self.began += 1
            return begin(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(session, "begin_with", counted)

    def execute(self, statement: str) -> list[tuple]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def claim(self, n: int = 1, partitions: int = 1) -> Claim:
        claim = build.claim(
            identity=IDENTITY,
            table="public.orders",
            topic="orders",
            epoch=Epoch(1, n),
            start=dict.fromkeys(range(partitions), 0),
        )
        self.sink.claim(claim)
        return claim

    def apply(self, claim: Claim, *changes: Change, start: int = 0, **more: object) -> dict[int, int]:
        ranges = {0: OffsetRange(start, start + len(changes))}
        return dict(self.writer.apply(ChangeBatch(claim, ranges, changes, **more)).positions)  # type: ignore[arg-type]

    def rows(self) -> list[tuple]:
        return self.execute("SELECT id, value, price::text FROM public.orders ORDER BY id")


@pytest.fixture
def bench(postgres_database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(postgres_database, monkeypatch)
    yield made
    made.writer.close()


def row(
    offset: int, number: int, value: object, price: object = "1.50", operation: Operation = Operation.UPSERT
) -> Change:
    values = None if operation is Operation.DELETE else {"id": number, "value": value, "price": price}
    return Change(0, offset, operation, {"id": number}, values, None, 0)


def test_rows_are_inserted_and_replaced_with_every_letter_as_it_was(bench: Bench) -> None:
    claim = bench.claim()
    assert bench.apply(claim, row(0, 1, "a'b\\"), row(1, 2, None, None), row(2, 3, "%s;\t\n")) == {0: 3}
    assert bench.apply(claim, row(3, 2, "é$1", 2), start=3) == {0: 4}
    assert bench.rows() == [(1, "a'b\\", "1.50"), (2, "é$1", "2.00"), (3, "%s;\t\n", "1.50")]
    assert bench.began == 2


def test_several_partitions_move_together_or_not_at_all(bench: Bench) -> None:
    claim = bench.claim(partitions=2)
    ranges = {0: OffsetRange(0, 1), 1: OffsetRange(0, 4)}
    bench.writer.apply(ChangeBatch(claim, ranges, [row(0, 1, "a")]))
    assert bench.sink.positions(claim) == {0: 1, 1: 4}
    with pytest.raises(SinkMovedError):
        bench.writer.apply(ChangeBatch(claim, {0: OffsetRange(1, 2), 1: OffsetRange(3, 5)}, [row(1, 2, "b")]))
    assert bench.sink.positions(claim) == {0: 1, 1: 4}
    assert [number for number, *_ in bench.rows()] == [1]


def test_who_is_fenced_out_does_not_come_to_the_table(bench: Bench) -> None:
    """Not even for a moment: its trigger counts by a sequence, which no rollback takes back."""
    bench.execute("CREATE SEQUENCE public.seen")
    bench.execute(
        "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM nextval('public.seen'); RETURN NEW; END $$"
    )
    bench.execute("CREATE TRIGGER see BEFORE INSERT ON public.orders FOR EACH ROW EXECUTE FUNCTION see()")
    old = bench.claim(1)
    bench.apply(old, row(0, 1, "a"))
    bench.claim(2)
    with pytest.raises(SinkFencedError):
        bench.apply(old, row(1, 2, "b"), start=1)
    assert bench.began == 2
    assert bench.execute("SELECT last_value FROM public.seen") == [(1,)]
    assert bench.apply(bench.claim(3), row(1, 2, "c"), start=1) == {0: 2}


def test_a_value_that_the_table_does_not_take_is_named_as_ever(bench: Bench) -> None:
    claim = bench.claim()
    assert bench.apply(claim, row(0, 1, "a"), row(1, 2, "too long"), row(2, 3, "c")) == {0: 1}
    with pytest.raises(ValueRefusedError, match="value too long"):
        bench.apply(claim, row(1, 2, "too long"), start=1)
    with pytest.raises(ValueRefusedError, match="offset 1"):
        bench.apply(claim, row(1, 2, "\x00"), start=1)
    assert bench.rows() == [(1, "a", "1.50")]


def test_what_is_not_simply_rows_goes_the_ordinary_way(bench: Bench) -> None:
    claim = bench.claim()
    bench.apply(claim, row(0, 1, "a"), row(1, 2, "b"), source_table=("shop", "public", "orders"))
    bench.apply(claim, row(2, 1, None, operation=Operation.DELETE), start=2)
    bench.apply(claim, row(3, 2, ABSENT, "9"), start=3)
    bench.apply(claim, *(row(offset, offset, "x") for offset in range(4, 4 + at_once.ROWS_MAX + 1)), start=4)
    assert bench.began == 0
    assert bench.rows()[:2] == [(2, "b", "9.00"), (4, "x", "1.50")]
    assert len(bench.rows()) == at_once.ROWS_MAX + 2


def test_a_table_that_was_altered_is_looked_at_anew(bench: Bench) -> None:
    claim = bench.claim()
    for offset, kind in zip(count(), ("varchar(9)", "text"), strict=False):
        bench.apply(claim, row(offset, offset, "abc"), start=offset)
        bench.execute(f"ALTER TABLE public.orders ALTER COLUMN value TYPE {kind}")
    bench.apply(claim, row(2, 2, "longer than nine"), start=2)
    assert [value for _, value, _ in bench.rows()] == ["abc", "abc", "longer than nine"]


def test_a_session_says_for_whom_it_works_before_it_waits(bench: Bench) -> None:
    claim = bench.claim()
    bench.apply(claim, row(0, 1, "a"))
    said = bench.execute(
        "SELECT application_name FROM pg_stat_activity "
        "WHERE application_name LIKE 'headgate shop%' AND datname = current_database()"
    )
    assert said == [("headgate shop public.orders 1.1",)]
