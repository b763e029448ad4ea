"""A slice (records/slices.py) keeps the contract of every sink as a table does, and touches no row of another slice."""

from collections.abc import Iterator
from contextlib import closing
from typing import Protocol

import pytest

from headgate.databases.address import Target
from headgate.databases.key_ranges import Chunk
from headgate.databases.row_sources import open_row_source
from headgate.formats.change import Change, Operation
from headgate.sinks.contract import (
    FeedIdentity,
    Sink,
    SinkConflictError,
    SinkRefusedError,
    ValueRefusedError,
)
from headgate.sinks.misfit import MisfitError
from headgate.sinks.relational import writer
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.session import RelationalSettings
from headgate.sinks.relational.sink import RelationalSink
from headgate.sinks.row_copying import CopiedRows, CopyMark, RowCopyingWriter
from headgate.verify.comparing import compare_table
from headgate.verify.contract import UncomparableError
from headgate.verify.sides import open_side
from integration.sinks.contract import (
    FEED,
    SECONDS_MAX,
    SinkContract,
    batch_of,
    claim_of,
    delete,
    upsert,
)
from integration.sinks.relational_contract import MysqlTables, PostgresTables

pytestmark = pytest.mark.integration

OTHERS = {row_id: f"theirs {row_id}" for row_id in (*range(40), 99)}
"""Rows of tenant 10, whose keys differ from ours in the tenant only. Sorted as a text, 10 is beside 1."""

STRANGER = FeedIdentity("cluster-a", "0-8", "other")


class SliceBench(Protocol):
    sink: Sink
    address: str
    whole: str
    table: str

    def execute(self, statement: str, parameters: object = None) -> list[tuple]: ...

    def rows(self) -> dict[int, str | None]: ...

    def rows_of(self, tenant: str) -> dict[int, str | None]: ...

    def make(self, definition: str) -> None: ...


class _Rows:
    """What both databases have in common."""

    whole: str
    is_dropped = False

    def execute(self, statement: str, parameters: object = None) -> list[tuple]:
        raise NotImplementedError

    def make(self, definition: str) -> None:
        """The table again, defined otherwise."""
        self.execute("DROP TABLE orders")
        self.execute(f"CREATE TABLE orders ({definition})")

    def add_others(self) -> None:
        rows = ", ".join(f"('10', {row_id}, '{value}')" for row_id, value in OTHERS.items())
        self.execute(f"INSERT INTO orders (tenant, id, value) VALUES {rows}")

    def rows(self) -> dict[int, str | None]:
        return self.rows_of("1")

    def rows_of(self, tenant: str) -> dict[int, str | None]:
        return dict(self.execute("SELECT id, value FROM orders WHERE tenant = %s", (tenant,)))

    def drop(self) -> None:
        self.is_dropped = True
        self.execute("DROP TABLE orders")

    @property
    def table(self) -> str:
        return f"{self.whole}@tenant=1"


class PostgresSlice(PostgresTables, _Rows):
    whole = "public.orders"

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.address = dsn
        self.sink = PostgresSink(RelationalSettings(dsn, lock_wait_seconds=SECONDS_MAX))
        self.execute("CREATE TABLE orders (tenant text, id integer, value text, PRIMARY KEY (tenant, id))")
        self.add_others()


class MysqlSlice(MysqlTables, _Rows):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.address = url
        self.whole = url.rsplit("/", 1)[1] + ".orders"
        self.sink = MysqlSink(RelationalSettings(url, lock_wait_seconds=SECONDS_MAX))
        self.execute(
            "CREATE TABLE orders (tenant varchar(64) COLLATE utf8mb4_bin, id int, value text, PRIMARY KEY (id, tenant))"
        )
        self.add_others()


@pytest.fixture
def postgres_slice(postgres_database: str) -> PostgresSlice:
    return PostgresSlice(postgres_database)


@pytest.fixture
def mysql_slice(mariadb_database: str) -> MysqlSlice:
    return MysqlSlice(mariadb_database)


class TestPostgresSlice(SinkContract):
    @pytest.fixture(params=["at once", pytest.param("staged", marks=pytest.mark.long)])
    def bench(
        self, postgres_slice: PostgresSlice, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[PostgresSlice]:
        if request.param == "staged":
            monkeypatch.setattr(writer, "CHANGES_AT_ONCE_MAX", -1)
        yield postgres_slice
        _check_others(postgres_slice)


class TestMysqlSlice(SinkContract):
    @pytest.fixture
    def bench(self, mysql_slice: MysqlSlice) -> Iterator[MysqlSlice]:
        yield mysql_slice
        _check_others(mysql_slice)


def _check_others(bench: _Rows) -> None:
    if not bench.is_dropped:
        assert bench.rows_of("10") == OTHERS


@pytest.fixture(params=["postgres", "mysql"])
def bench(request: pytest.FixtureRequest) -> SliceBench:
    found: SliceBench = request.getfixturevalue(f"{request.param}_slice")
    return found


def _truncate(offset: int) -> Change:
    return Change(0, offset, Operation.TRUNCATE, {}, None, None, 2_000)


# --- rows ---


@pytest.mark.parametrize("at_once_max", [-1, 256], ids=["staged", "at once"])
def test_the_same_keys_of_two_sources_are_two_rows(
    bench: SliceBench, monkeypatch: pytest.MonkeyPatch, at_once_max: int
) -> None:
    monkeypatch.setattr(writer, "CHANGES_AT_ONCE_MAX", at_once_max)
    first = claim_of(bench, 1, start={0: 5})
    second = claim_of(bench, 1, table=f"{bench.whole}@tenant=10", topic="shop.ten.orders", start={0: 5})
    applying = bench.sink.writer()
    for claim, text in ((first, "one"), (second, "ten")):
        bench.sink.claim(claim)
        applying.apply(batch_of(claim, 5, upsert(5, 1, text), upsert(6, 2, text), upsert(7, 3, text)))
    applying.apply(batch_of(first, 8, delete(8, 1), upsert(9, 2, None)))
    assert bench.rows() == {2: None, 3: "one"}
    assert bench.rows_of("10") == OTHERS | dict.fromkeys((1, 2, 3), "ten")
    applying.apply(batch_of(second, 8, _truncate(8), upsert(9, 4, "after")))
    assert (bench.rows(), bench.rows_of("10")) == ({2: None, 3: "one"}, {4: "after"})
    applying.close()


def test_a_source_that_has_the_discriminators_column_is_refused_at_its_row(bench: SliceBench) -> None:
    claim = claim_of(bench, 1, start={0: 5})
    bench.sink.claim(claim)
    strange = Change(0, 5, Operation.UPSERT, {"id": 1}, {"id": 1, "value": "x", "tenant": "10"}, None, 2_000)
    applying = bench.sink.writer()
    with pytest.raises(ValueRefusedError, match="column tenant: the source's table has a column of the name"):
        applying.apply(batch_of(claim, 5, strange))
    applying.close()
    assert (bench.rows(), bench.rows_of("10")) == ({}, OTHERS)


def test_copied_rows_and_their_deletes_are_of_the_slice(bench: SliceBench) -> None:
    claim = claim_of(bench, 1, start={0: 5})
    bench.sink.claim(claim)
    applying = bench.sink.writer()
    applying.apply(batch_of(claim, 5, upsert(5, 1, "old"), upsert(6, 2, "old")))
    assert isinstance(applying, RowCopyingWriter)
    rows = CopiedRows(
        claim=claim,
        positions={0: 7},
        key=("id",),
        upserts=[{"id": 1, "value": "copied"}],
        deletes=[{"id": 2}],
        mark=CopyMark(request="r", upto=("1",)),
    )
    applying.copy(rows)
    applying.close()
    assert (bench.rows(), bench.rows_of("10")) == ({1: "copied"}, OTHERS)
    assert isinstance(bench.sink, RelationalSink)
    assert bench.sink.copied(claim, "r").upto == ("1",)
    other = claim_of(bench, 1, table=f"{bench.whole}@tenant=10", start={0: 5})
    assert bench.sink.copied(other, "r").upto is None


# --- who may write ---


@pytest.mark.parametrize(
    ("mine", "theirs", "is_free"),
    [
        ("@tenant=1", "@tenant=2", True),
        ("@tenant=1", "@tenant=1", False),
        ("@tenant=a", "@tenant=A", False),
        ("@tenant=1", "", False),
        ("", "@tenant=1", False),
        ("@tenant=1", "@shard=2", False),
    ],
)
def test_a_row_has_one_feed(bench: SliceBench, mine: str, theirs: str, *, is_free: bool) -> None:
    bench.sink.claim(claim_of(bench, 1, table=bench.whole + theirs, identity=STRANGER))
    claim = claim_of(bench, 1, table=bench.whole + mine)
    if is_free:
        bench.sink.claim(claim)
        bench.sink.check([claim.table], FEED) if mine else None
    else:
        with pytest.raises(SinkConflictError, match="is being written by feed other"):
            bench.sink.claim(claim)


@pytest.mark.parametrize("theirs", ["orders@tenant=1", "orders"])
def test_two_topics_of_a_feed_do_not_write_the_same_rows_under_two_names(bench: SliceBench, theirs: str) -> None:
    claim = claim_of(bench, 1, table=theirs, topic="shop.two.orders")
    bench.sink.claim(claim)
    with pytest.raises(
        SinkConflictError, match=r"topics shop\.two\.orders and shop\.public\.orders of feed shop write"
    ):
        bench.sink.claim(claim_of(bench, 1))
    bench.sink.claim(claim_of(bench, 1, table=f"{bench.whole}@tenant=2")) if "@" in theirs else None
    bench.sink.seal(claim)
    bench.sink.claim(claim_of(bench, 2))


def test_a_table_of_a_longer_name_is_another_table(bench: SliceBench) -> None:
    bench.sink.claim(claim_of(bench, 1, table=f"{bench.whole}@x", identity=STRANGER))
    bench.sink.claim(claim_of(bench, 1, table=f"{bench.whole}2", identity=STRANGER))
    bench.sink.claim(claim_of(bench, 1))


def test_a_slice_of_a_dropped_table_is_not_new_once_another_was_claimed(bench: SliceBench) -> None:
    """A table that is created for it would lack the other's rows."""
    assert isinstance(bench.sink, RelationalSink)
    first, second = claim_of(bench, 1), claim_of(bench, 1, table=f"{bench.whole}@tenant=2", topic="shop.two.orders")
    assert bench.sink.is_new(second)
    bench.sink.claim(first)
    assert not bench.sink.is_new(second)
    rewound = claim_of(bench, 1, table=f"{bench.whole}@tenant=2", topic="shop.two.orders", incarnation=1)
    assert bench.sink.is_new(rewound), "the other slice is rewound with the feed, too"
    bench.sink.claim(claim_of(bench, 1, table=f"{bench.whole}@tenant=3", identity=STRANGER))
    assert not bench.sink.is_new(rewound), "another feed's rows stay where they are"


def test_a_removed_feed_leaves_the_rows_of_others_claimed(bench: SliceBench) -> None:
    theirs = claim_of(bench, 1, table=f"{bench.whole}@tenant=2", identity=STRANGER)
    bench.sink.claim(theirs)
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    bench.sink.seal(claim)
    bench.sink.forget(FEED)
    with pytest.raises(SinkConflictError, match="is being written by feed other"):
        bench.sink.claim(claim_of(bench, 1, table=bench.whole, identity=FeedIdentity("cluster-a", "0-9", "third")))


def test_a_table_that_is_called_like_a_slice_keeps_the_progress_of_older_versions(bench: SliceBench) -> None:
    space = bench.whole.partition(".")[0]
    mark = "`" if isinstance(bench, MysqlSlice) else '"'
    bench.execute(f"CREATE TABLE {mark}orders@tenant=1{mark} (id int PRIMARY KEY, value text)")
    whole, slice_ = f'{space}."orders@tenant=1"', f"{space}.orders@tenant=1"
    claim = claim_of(bench, 1, table=whole, start={0: 5})
    bench.sink.claim(claim)
    applying = bench.sink.writer()
    applying.apply(batch_of(claim, 5, upsert(5, 1, "whole"), upsert(6, 2, "whole")))
    sink = bench.sink
    assert isinstance(sink, RelationalSink)
    assert isinstance(applying, RowCopyingWriter)
    copied = [{"id": 1, "value": "whole"}]
    upto = CopyMark(request="r", upto=("1",))
    applying.copy(CopiedRows(claim=claim, positions={0: 7}, key=("id",), upserts=copied, deletes=[], mark=upto))
    sink.change_known_columns(claim, {0: 7}, lambda known: known.with_applied(["value"]))
    for kept in ("progress", "row_copies", "known_columns"):
        bench.execute(f"UPDATE headgate.{kept} SET table_name = %s", (slice_,))  # as older versions named it
    assert not sink.is_new(claim_of(bench, 1, table=f"{space}.orders@tenant=2")), "it may be that of a slice"
    for name in (slice_, whole):
        with pytest.raises(SinkConflictError, match="is being written by feed shop"):
            bench.sink.claim(claim_of(bench, 1, table=name, identity=STRANGER))
    later = claim_of(bench, 2, table=whole, start={0: 5})
    assert bench.sink.claim(later) == {0: 7}
    assert (sink.known_columns(later).applied, sink.copied(later, "r").upto) == (("value",), ("1",))
    other = claim_of(bench, 1, table=slice_, identity=STRANGER)
    assert sink.is_new(other), "a row of the table that is called like the slice is of another table"
    applying.apply(batch_of(claim_of(bench, 2, table=whole, start={0: 5}), 7, upsert(7, 3, "whole")))
    applying.close()
    found = bench.execute(f"SELECT count(*) FROM {space}.{mark}orders@tenant=1{mark}")
    assert (found, bench.rows(), bench.rows_of("10")) == ([(3,)], {}, OTHERS)
    with pytest.raises(SinkConflictError, match="is being written by feed shop"):
        bench.sink.claim(claim_of(bench, 1, table=slice_, identity=STRANGER))


# --- tables that do not fit ---


@pytest.mark.parametrize(
    ("definition", "why"),
    [
        ("id int PRIMARY KEY, value text", "has no column tenant"),
        ("tenant {text} NOT NULL, id int PRIMARY KEY", r"finds rows by \(id\), and its primary key must be made of"),
        ("tenant {text} PRIMARY KEY, id int", r"finds rows by \(tenant\)"),
        ("tenant date, id int, PRIMARY KEY (tenant, id)", "column tenant of table .* is of type date"),
        ("tenant {short}, id int, PRIMARY KEY (tenant, id)", "too short for the value '10'"),
        (
            "tenant {text}, id int, mail {text}, PRIMARY KEY (tenant, id), UNIQUE (mail)",
            r"has a unique key of \(mail\), without tenant",
        ),
    ],
)
def test_a_table_whose_rows_could_be_mixed_is_refused(bench: SliceBench, definition: str, why: str) -> None:
    is_mysql = isinstance(bench, MysqlSlice)
    suffix = " COLLATE utf8mb4_bin" if is_mysql else ""
    bench.make(definition.format(text=f"varchar(64){suffix}", short=f"varchar(1){suffix}"))
    with pytest.raises(SinkRefusedError, match=why):
        bench.sink.check([f"{bench.whole}@tenant=10"])


def test_a_discriminator_may_be_an_integer(bench: SliceBench) -> None:
    bench.make("tenant smallint, id int, value text, PRIMARY KEY (id, tenant)")
    for value in ("07", "-0", "40000", "a", "1.0"):
        with pytest.raises(MisfitError, match=f"which does not hold the value '{value}'"):
            bench.sink.check([f"{bench.whole}@tenant={value}"])
    applying = bench.sink.writer()
    claims = [
        claim_of(bench, 1, table=f"{bench.whole}@tenant={tenant}", topic=f"t{tenant}", start={0: 5})
        for tenant in ("-1", "1")
    ]
    for claim in claims:
        bench.sink.claim(claim)
        applying.apply(batch_of(claim, 5, upsert(5, 1, claim.topic), upsert(6, 2, claim.topic), delete(7, 2)))
    applying.apply(batch_of(claims[0], 8, _truncate(8), upsert(9, 4, "after")))
    applying.close()
    assert sorted(bench.execute("SELECT tenant, id, value FROM orders")) == [(-1, 4, "after"), (1, 1, "t1")]
    with open_row_source(Target(bench.address)) as rows:
        assert [row[0] for row in rows.rows_within(bench.table, ("value",), ("id",), Chunk(None, None))] == ["1"]


def test_a_collation_that_takes_two_tenants_for_one_is_refused(mysql_slice: MysqlSlice) -> None:
    mysql_slice.make("tenant varchar(64) COLLATE utf8mb4_general_ci, id int, PRIMARY KEY (tenant, id)")
    with pytest.raises(SinkRefusedError, match="compared letter by letter"):
        mysql_slice.sink.check([f"{mysql_slice.whole}@tenant=a"])


def test_a_slice_looks_like_a_table_without_the_discriminator(bench: SliceBench) -> None:
    (shape,) = bench.sink.check([bench.table]).values()
    assert (shape.table, sorted(shape.columns), shape.key) == (bench.table, ["id", "value"], ("id",))


# --- rows that are read ---


def test_only_the_rows_of_the_slice_are_read(bench: SliceBench) -> None:
    for row_id in (1, 2, 50):
        bench.execute(f"INSERT INTO orders (tenant, id, value) VALUES ('1', {row_id}, 'ours')")
    target = Target(bench.address)
    with open_row_source(target) as rows:
        assert rows.columns(bench.table).keys() == {"id", "value"}
        assert rows.primary_key(bench.table) == ("id",)
        assert rows.has_rows(bench.table)
        assert not rows.has_rows(f"{bench.whole}@tenant=2")
        found = [row[0] for row in rows.rows_within(bench.table, ("value",), ("id",), Chunk(("1",), None))]
        assert found == ["2", "50"]
        named = rows.rows(bench.table, ("value",), ("id",), [("1",), ("3",), ("50",)])
        assert sorted(named) == [("1", "ours"), ("50", "ours")]
        assert len(list(rows.rows_within(f"{bench.whole}@tenant=10", (), ("id",), Chunk(None, None)))) == len(OTHERS)


def test_only_the_rows_of_the_slice_are_compared(bench: SliceBench) -> None:
    source = f"{bench.whole.partition('.')[0]}.source_orders"
    bench.execute("CREATE TABLE source_orders (id int PRIMARY KEY, value text)")
    for row_id in (1, 2, 50):
        bench.execute(f"INSERT INTO orders (tenant, id, value) VALUES ('1', {row_id}, 'ours')")
        bench.execute(f"INSERT INTO source_orders VALUES ({row_id}, 'ours')")
    with closing(open_side(Target(bench.address))) as here, closing(open_side(Target(bench.address))) as there:
        compared = compare_table(here, there, source, bench.table)
        assert (compared.rows, compared.differences, set(compared.columns)) == (3, 0, {"id", "value"})
        assert not compared.columns_surplus
        bench.execute("UPDATE orders SET value = 'other' WHERE tenant = '1' AND id = 2")
        bench.execute("DELETE FROM orders WHERE tenant = '1' AND id = 1")
        bench.execute("INSERT INTO orders (tenant, id, value) VALUES ('1', 3, 'surplus')")
        compared = compare_table(here, there, source, bench.table)
        assert sorted((example.key["id"], example.kind) for example in compared.examples) == [
            ("1", "missing"), ("2", "differs"), ("3", "surplus"),
        ]  # fmt: skip
        with pytest.raises(UncomparableError, match="has no column shard, by which the feed finds its rows"):
            compare_table(here, there, source, f"{bench.whole}@shard=1")
