"""Iceberg tables keep the contract of lake tables, in both modes."""

from pathlib import Path

import pytest

from integration.sinks.iceberg_bench import IcebergBench
from integration.sinks.lake_contract import LakeContract

pytestmark = pytest.mark.integration


class TestIceberg(LakeContract):
    TRUNCATE_REFUSED = "TRUNCATE cannot be written to Iceberg tables"

    @pytest.fixture(params=["upsert", "append"])
    def bench(self, tmp_path: Path, request: pytest.FixtureRequest) -> IcebergBench:
        return IcebergBench(tmp_path, appends=request.param == "append")
