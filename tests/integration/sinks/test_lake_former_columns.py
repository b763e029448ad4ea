"""Tables with ``mode: append`` whose column _topic_partition still has its former name."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake.schema import Field, PrimitiveType

from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.lake.appended import FORMER_COLUMNS, OWN_COLUMNS
from integration.sinks.contract import batch_of, claim_of, upsert
from integration.sinks.delta_bench import DeltaBench
from integration.sinks.iceberg_bench import IcebergBench

pytestmark = pytest.mark.integration

Bench = DeltaBench | IcebergBench


def with_former_columns(bench: Bench) -> Bench:
    own = [pa.field(FORMER_COLUMNS.get(name, name), type_) for name, type_ in OWN_COLUMNS.items()]
    bench.drop()
    bench.lake.create(bench.table, pa.schema([*bench.columns, *own]), {"headgate.key": '["id"]'}, None)
    return bench


def advice(bench: Bench) -> str:
    with pytest.raises(SinkRefusedError, match=r"has the column _partition, which is called _topic_partition") as found:
        bench.sink.check([bench.table])
    return str(found.value)


def check_written(bench: Bench) -> None:
    bench.sink.check([bench.table])
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    bench.sink.writer().apply(batch_of(claim, 5, upsert(5, 1, "a")))
    (row,) = bench.records()
    assert row["_topic_partition"] == 0


def test_an_iceberg_column_is_renamed_as_the_error_advises(tmp_path: Path) -> None:
    bench = with_former_columns(IcebergBench(tmp_path, appends=True))
    statement = advice(bench).partition("Rename it with pyiceberg: ")[2]
    exec(statement, {"table": bench.native})  # noqa: S102 - a user would
    check_written(bench)


def test_a_delta_table_gets_another_column_as_the_error_advises(tmp_path: Path) -> None:
    bench = with_former_columns(DeltaBench(tmp_path, appends=True))
    assert "ADD COLUMN _topic_partition int)" in advice(bench)
    bench.native.alter.add_columns([Field("_topic_partition", PrimitiveType("integer"))])
    check_written(bench)
    assert bench.records()[0]["_partition"] is None


@pytest.mark.parametrize("kind", [DeltaBench, IcebergBench])
def test_such_a_table_is_still_refused_with_mode_upsert(tmp_path: Path, kind: type[Bench]) -> None:
    bench = with_former_columns(kind(tmp_path, appends=False))
    with pytest.raises(SinkRefusedError, match=r"has the columns of a table with sink\.mode: append"):
        bench.sink.check([bench.table])
