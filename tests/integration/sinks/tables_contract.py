"""What tables do at every relational sink: a class of tests, and what its subclasses bring their database as."""

from collections.abc import Sequence
from typing import Any

import pytest

from headgate.formats.change import ABSENT, Change, Operation
from headgate.formats.reducing import Reduced
from headgate.sinks.contract import (
    Applied,
    ChangeBatch,
    Claim,
    ConstraintViolatedError,
    FeedIdentity,
    OffsetRange,
    SinkColumnMissingError,
    SinkConflictError,
    SinkUnavailableError,
    ValueRefusedError,
)
from headgate.sinks.relational import writer
from headgate.sinks.relational.grouping import Group
from headgate.sinks.relational.staging import StagingTable
from support import build


class TableBench:
    """A sink and a session beside it, in which ``rows`` and ``execute`` run one statement."""

    schema = ""
    """What feeds put before the name of a table, with its dot."""
    widening: str
    """Behind ``ALTER TABLE t``: column v becomes an integer."""
    sink: Any
    writer: Any

    def execute(self, statement: str) -> Any:
        raise NotImplementedError

    def rows(self, query: str) -> Sequence[tuple]:
        raise NotImplementedError

    def claim(self, table: str, partitions: int = 1) -> Claim:
        claim = build.claim(table=table, topic=f"shop.{table}", start=dict.fromkeys(range(partitions), 0))
        self.sink.claim(claim)
        return claim

    def apply(self, claim: Claim, *changes: Change) -> Applied:
        """All changes, from the sink's positions on."""
        positions = self.sink.positions(claim)
        ranges = {
            p: OffsetRange(position, max((c.offset + 1 for c in changes if c.partition == p), default=position))
            for p, position in positions.items()
        }
        return self.writer.apply(ChangeBatch(claim, ranges, changes))


def put(offset: int, partition: int = 0, **row: object) -> Change:
    return Change(partition, offset, Operation.UPSERT, {"id": row["id"]}, row, None, 0)


def drop(offset: int, partition: int = 0, **key: object) -> Change:
    return Change(partition, offset, Operation.DELETE, key, None, None, 0)


def named(offset: int, key: str, **row: object) -> Change:
    return Change(0, offset, Operation.UPSERT, {"k": key}, {"k": key, **row}, None, 0)


class TablesContract:
    """Subclasses have a fixture ``database``."""

    def test_a_table_of_nothing_but_its_key(self, database: TableBench) -> None:
        database.execute("CREATE TABLE t (id int PRIMARY KEY)")
        claim = database.claim(f"{database.schema}t")
        database.apply(claim, put(0, id=1))
        database.apply(claim, put(1, id=1), put(2, id=2), drop(3, id=1))
        assert list(database.rows("SELECT id FROM t")) == [(2,)]

    def test_a_column_the_sink_lacks_is_refused_until_it_is_added(self, database: TableBench) -> None:
        database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        claim = database.claim(f"{database.schema}t")
        database.apply(claim, put(0, id=1, v="a"))
        with pytest.raises(SinkColumnMissingError, match=r"no column w.*partition 0, offset 1.*ADD COLUMN .w."):
            database.apply(claim, put(1, id=2, v="b", w=1))
        assert database.rows("SELECT id FROM t") == [(1,)]
        database.execute("ALTER TABLE t ADD COLUMN w int DEFAULT 5")
        database.apply(claim, put(1, id=2, v="b", w=1), put(2, id=3, v="old shape"))
        assert database.rows("SELECT * FROM t ORDER BY id") == [(1, "a", 5), (2, "b", 1), (3, "old shape", 5)]

    def test_a_key_that_is_not_the_tables_is_refused(self, database: TableBench) -> None:
        database.execute("CREATE TABLE t (id int, part int, PRIMARY KEY (id, part))")
        claim = database.claim(f"{database.schema}t")
        with pytest.raises(ValueRefusedError, match=r"key columns \(id\) are not the table's \(id, part\).*offset 0"):
            database.apply(claim, put(0, id=1, part=1))

    def test_an_absent_column_without_a_row_at_the_sink_is_refused_by_name(self, database: TableBench) -> None:
        database.execute("CREATE TABLE t (id int PRIMARY KEY, v text, big text)")
        claim = database.claim(f"{database.schema}t")
        applied = database.apply(
            claim, put(0, id=1, v="a", big="B"), put(1, id=9, v="b", big=ABSENT), put(2, id=3, v="c")
        )
        assert applied.positions == {0: 1}
        with pytest.raises(ConstraintViolatedError, match=r"not have the row.*partition 0, offset 1"):
            database.apply(claim, put(1, id=9, v="b", big=ABSENT))
        assert database.apply(claim, drop(1, id=1), put(2, id=1, v="b", big=ABSENT)).positions == {0: 2}
        assert database.rows("SELECT * FROM t") == []

    def test_deleted_and_made_again_is_a_new_row(self, database: TableBench) -> None:
        database.execute("CREATE TABLE t (id int PRIMARY KEY, v text, extra varchar(9) DEFAULT 'fresh')")
        claim = database.claim(f"{database.schema}t")
        database.apply(claim, put(0, id=1, v="a"))
        database.execute("UPDATE t SET extra = 'old'")
        database.apply(claim, put(1, id=1, v="b"))
        assert database.rows("SELECT * FROM t") == [(1, "b", "old")]
        applied = database.apply(claim, drop(2, id=1), put(3, id=1, v="c"))
        assert (applied.deletes, applied.upserts) == (1, 1)
        assert database.rows("SELECT * FROM t") == [(1, "c", "fresh")]
        database.apply(claim, put(4, id=1, v="d"), drop(5, id=1))
        assert database.rows("SELECT * FROM t") == []

    def test_a_partial_update_that_comes_again_after_the_delete_waits_until_that_comes_again(
        self, database: TableBench
    ) -> None:
        """As after a crash of the connector: the row must neither stop the table for good, nor come back."""
        database.execute("CREATE TABLE t (id int PRIMARY KEY, v text, big text)")
        claim = database.claim(f"{database.schema}t")
        database.apply(claim, put(0, id=1, v="a", big="B"), put(1, id=1, v="b", big=ABSENT), drop(2, id=1))
        again = put(3, id=1, v="b", big=ABSENT)
        with pytest.raises(ConstraintViolatedError, match=r"delete follows.*partition 0, offset 3"):
            database.apply(claim, again)
        assert (database.sink.positions(claim), database.rows("SELECT * FROM t")) == ({0: 3}, [])
        assert database.apply(claim, again, put(4, id=2, v="c", big="C"), drop(5, id=1)).positions == {0: 6}
        assert [tuple(row) for row in database.rows("SELECT * FROM t")] == [(2, "c", "C")]

    def test_truncate_empties_the_table(self, database: TableBench) -> None:
        database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        claim = database.claim(f"{database.schema}t")
        database.apply(claim, put(0, id=1, v="a"))
        truncate = Change(0, 2, Operation.TRUNCATE, {}, None, None, 0)
        database.apply(claim, put(1, id=2, v="b"), truncate, put(3, id=3, v="c"))
        assert database.rows("SELECT * FROM t") == [(3, "c")]
        database.execute("CREATE TABLE two (id int PRIMARY KEY)")
        claim = database.claim(f"{database.schema}two", partitions=2)
        with pytest.raises(ValueRefusedError, match="has several partitions"):
            database.apply(claim, truncate)

    def test_a_column_that_was_widened_takes_what_it_refused_before(self, database: TableBench) -> None:
        database.execute("CREATE TABLE t (id int PRIMARY KEY, v smallint)")
        claim = database.claim(f"{database.schema}t")
        with pytest.raises(ValueRefusedError, match=r"(?i)out of range"):
            database.apply(claim, put(0, id=1, v=70_000))
        database.execute(f"ALTER TABLE t {database.widening}")
        assert database.apply(claim, put(0, id=1, v=70_000)).positions == {0: 1}

    def test_a_conflict_names_the_feed_that_holds_the_table(self, database: TableBench) -> None:
        database.execute("CREATE TABLE t (id int PRIMARY KEY)")
        database.claim(f"{database.schema}t")
        with pytest.raises(SinkConflictError, match=r"feed shop \(0-1\)"):
            database.sink.check([f"{database.schema}t"], FeedIdentity("c", "0-2", "second"))

    def test_a_table_that_never_stops_being_altered_is_unavailable_not_written(
        self, database: TableBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
        claim = database.claim(f"{database.schema}t")
        database.apply(claim, put(0, id=1, v=1))
        fill, count = StagingTable.fill, iter(range(99))

        def altered_meanwhile(self: StagingTable, reduced: Reduced) -> list[Group]:
            groups = fill(self, reduced)
            database.execute(f"ALTER TABLE t ADD COLUMN c{next(count)} int")
            return groups

        monkeypatch.setattr(writer, "CHANGES_AT_ONCE_MAX", -1)
        monkeypatch.setattr(StagingTable, "fill", altered_meanwhile)
        with pytest.raises(SinkUnavailableError, match="t was altered while") as altered:
            database.apply(claim, put(1, id=1, v=2))
        assert altered.value.retryable
        assert database.rows("SELECT v FROM t") == [(1,)]
        assert database.sink.positions(claim) == {0: 1}
