"""One Delta table by several addresses: links, and two feeds that begin at once."""

import threading
from pathlib import Path

import pytest

from headgate.sinks.altering import AddedColumn, ColumnChanges
from headgate.sinks.contract import Claim, FeedIdentity, SinkConflictError, SinkError
from headgate.sinks.creating import LakeType, NewColumn
from headgate.sinks.lake.sink import LakeSink
from integration.sinks.contract import SECONDS_MAX, batch_of, claim_of, upsert
from integration.sinks.delta_bench import DeltaBench

pytestmark = pytest.mark.integration

OTHER = FeedIdentity("cluster-b", "0-9", "other")


@pytest.fixture
def bench(tmp_path: Path) -> DeltaBench:
    return DeltaBench(tmp_path, appends=False)


def test_a_link_to_the_place_is_the_same_place(bench: DeltaBench) -> None:
    """It has the same ledgers, whichever way they are reached."""
    (bench.root / "link").symlink_to(bench.folder)
    claim, sink = claim_of(bench, 1), bench.opened(dsn=f"file://{bench.root}/link/")
    bench.sink.claim(claim)
    sink.claim(claim_of(bench, 2))
    sink.writer().apply(batch_of(claim_of(bench, 2), 5, upsert(5, 1, "a")))
    assert bench.rows() == {1: "a"}
    with pytest.raises(SinkConflictError, match="is being written by feed shop"):
        sink.claim(claim_of(bench, 3, identity=OTHER))


def test_a_link_in_the_middle_is_another_place(bench: DeltaBench) -> None:
    """The table is the same, and the ledgers are not."""
    moved = bench.root / "moved"
    (bench.folder / "shop").rename(moved)
    (bench.folder / "shop").symlink_to(moved)
    bench.sink.claim(claim_of(bench, 1))
    sink = bench.opened(dsn=f"file://{moved}")
    with pytest.raises(SinkConflictError, match=rf"bound to another ledger, {bench.folder}/_headgate/tables/shop/or"):
        sink.claim(claim_of(bench, 9, identity=OTHER, table="orders"))


def test_of_two_feeds_that_begin_at_once_by_two_addresses_one_has_the_table(bench: DeltaBench) -> None:
    sink, name = bench.elsewhere()
    claims = ((bench.sink, claim_of(bench, 1)), (sink, claim_of(bench, 9, identity=OTHER, table=name)))
    refused: list[tuple[LakeSink, Claim]] = []
    barrier = threading.Barrier(len(claims))

    def begin(sink: LakeSink, claim: Claim) -> None:
        barrier.wait(SECONDS_MAX)
        try:
            sink.claim(claim)
        except SinkConflictError:
            refused.append((sink, claim))

    threads = [threading.Thread(target=begin, args=each) for each in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS_MAX)
    ((loser, lost),) = refused
    ((winner, won),) = (each for each in claims if each[0] is not loser)
    with pytest.raises(SinkError):
        loser.writer().apply(batch_of(lost, 5, upsert(5, 1, "lost")))
    winner.writer().apply(batch_of(won, 5, upsert(5, 1, "won")))
    assert bench.rows() == {1: "won"}


def test_a_table_keeps_its_ledger_when_it_is_altered(bench: DeltaBench) -> None:
    """Its metadata is replaced then."""
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    bench.sink.writer().apply(batch_of(claim, 5, upsert(5, 1, "a")))
    before = bench.sink.present_table(bench.table)
    assert before is not None
    added = AddedColumn(NewColumn("note", LakeType(name="string")), "none")
    assert bench.sink.alter(claim, {0: 6, 1: 0}, before, ColumnChanges(added=(added,)))
    assert bench.native.metadata().configuration["headgate.ledger"].endswith("/_headgate/tables/shop/orders")
    bench.sink.writer().apply(batch_of(claim, 6, upsert(6, 1, "b")))
    assert bench.rows() == {1: "b"}
