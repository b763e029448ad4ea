"""Iceberg tables keep the contract of lake tables, in both modes, each with another kind of catalog."""

from pathlib import Path

import pytest

from integration.sinks.iceberg_bench import IcebergBench
from integration.sinks.lake_contract import LakeContract
from integration.sinks.lake_copy_contract import LakeCopyContract

pytestmark = pytest.mark.integration


class TestIceberg(LakeContract, LakeCopyContract):
    TRUNCATE_REFUSED = "TRUNCATE cannot be written to Iceberg tables"

    @pytest.fixture(params=["append, catalog in SQLite", "upsert, catalog in PostgreSQL"])
    def bench(self, tmp_path: Path, request: pytest.FixtureRequest) -> IcebergBench:
        database = request.getfixturevalue("postgres_database") if "PostgreSQL" in request.param else None
        return IcebergBench(tmp_path, appends="append" in request.param, database=database)
