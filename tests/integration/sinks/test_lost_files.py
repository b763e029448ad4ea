"""A file of rows that another program has removed: the table stops, and the error names the file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.databases.key_ranges import Chunk
from headgate.sinks.contract import SinkRefusedError
from integration.sinks.contract import batch_of, claim_of, upsert
from integration.sinks.delta_bench import DeltaBench
from integration.sinks.iceberg_bench import IcebergBench
from integration.sinks.lake_stores import a_store

pytestmark = pytest.mark.integration

Bench = DeltaBench | IcebergBench


@pytest.fixture(params=[DeltaBench, IcebergBench], ids=["delta", "iceberg"])
def kind(request: pytest.FixtureRequest) -> type[Bench]:
    return request.param


@pytest.fixture(params=["in a folder", "in a store"])
def bench(
    kind: type[Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Bench]:
    if request.param == "in a folder":
        yield kind(tmp_path, appends=False)
        return
    with a_store(tmp_path, monkeypatch) as store:
        yield kind(tmp_path, appends=False, store=store)


def lose(bench: Bench) -> str:
    """Remove the table's one file of rows; its name."""
    if bench.store is None:
        (file,) = (bench.folder / "shop").rglob("*.parquet")
        file.unlink()
        return file.name
    (name,) = (each for each in bench.store.server.objects if "/shop/" in each and each.endswith(".parquet"))
    bench.store.server.remove(name)
    return name.rpartition("/")[2]


def test_a_file_that_is_missing_is_named_with_what_to_do(bench: Bench) -> None:
    claim, writer = claim_of(bench, 1), bench.sink.writer()
    bench.sink.claim(claim)
    writer.apply(batch_of(claim, 5, upsert(5, 1, "a")))
    lost = lose(bench)
    for act in (
        lambda: writer.apply(batch_of(claim, 6, upsert(6, 1, "b"))),
        lambda: [*bench.sink.rows().rows_within(bench.table, ["value"], ["id"], Chunk(None, None))],
    ):
        with pytest.raises(SinkRefusedError, match=rf"shop\.orders.*{lost} does not exist.*Restore it from a backup"):
            act()
