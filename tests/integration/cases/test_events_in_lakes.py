"""The cases of writers that leave NULLs out, in tables of lakes of both modes."""

from pathlib import Path

import pyarrow as pa
import pytest

from headgate.config.source_spec import SourceSpec
from headgate.formats.change import Change
from headgate.formats.registry import DecoderNeeds, format_of
from headgate.sinks.contract import ValueRefusedError
from integration.sinks.contract import batch_of, claim_of
from integration.sinks.delta_bench import DeltaBench
from integration.sinks.iceberg_bench import IcebergBench
from support.cases import Case

pytestmark = pytest.mark.integration

COLUMNS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("a", pa.string()), pa.field("b", pa.string())]
)


class InDelta(DeltaBench):
    columns = COLUMNS


class InIceberg(IcebergBench):
    columns = COLUMNS


def changes_of(case: Case, **options: bool) -> list[Change]:
    source = SourceSpec.model_validate({"topics": ["t"], "format": case.format, **options})
    decoder = format_of(case.format).decoder(DecoderNeeds(source, keyless=False, schemas=None))
    records = case.records()
    keys = [None if record.key is None else record.key.encode() for record in records]
    values = [None if record.value is None else record.value.encode() for record in records]
    return list(decoder.decode_batch(keys, values, [0] * len(records), range(len(records)), [0] * len(records)))


def newest(lake: InDelta | InIceberg) -> list[list[object]]:
    """The rows of the table; of a change log, the last of each key."""
    rows = sorted(lake.records(), key=lambda row: (row["id"], row.get("_offset", 0)))
    return list({row["id"]: [row["id"], row["a"], row["b"]] for row in rows}.values())


@pytest.mark.parametrize("at_once", [True, False], ids=["in one batch", "one by one"])
@pytest.mark.parametrize("mode", ["upsert", "append"])
@pytest.mark.parametrize("kind", [InDelta, InIceberg])
@pytest.mark.parametrize("number", ["055", "550", "510"])
def test_columns_that_are_left_out_become_null(
    tmp_path: Path, number: str, kind: type[InDelta | InIceberg], mode: str, *, at_once: bool
) -> None:
    case = Case(number)
    options = {"output_nulls": False} if case.format == "maxwell-json" else {}
    lake = kind(tmp_path, appends=mode == "append")
    claim, writer = claim_of(lake, 1, start={0: 0}), lake.sink.writer()
    lake.sink.claim(claim)
    changes = changes_of(case, **options)
    for part in [changes] if at_once else [[change] for change in changes]:
        writer.apply(batch_of(claim, part[0].offset, *part))
    ((_, rows),) = case.wanted("pg")
    assert newest(lake) == rows


@pytest.mark.parametrize("kind", [InDelta, InIceberg])
def test_rows_of_maxwell_without_its_option_are_refused(tmp_path: Path, kind: type[InDelta | InIceberg]) -> None:
    lake = kind(tmp_path, appends=False)
    claim = claim_of(lake, 1, start={0: 0})
    lake.sink.claim(claim)
    with pytest.raises(ValueRefusedError, match=r"column b: .*source\.output_nulls.*offset 0"):
        lake.sink.writer().apply(batch_of(claim, 0, *changes_of(Case("510"))))
    assert lake.records() == []
