"""Delta tables keep the contract of lake tables, in both modes."""

from pathlib import Path

import pytest

from integration.sinks.delta_bench import DeltaBench
from integration.sinks.lake_contract import LakeContract
from integration.sinks.lake_copy_contract import LakeCopyContract

pytestmark = pytest.mark.integration


class TestDelta(LakeContract, LakeCopyContract):
    TRUNCATE_REFUSED = "TRUNCATE cannot be written to Delta tables"

    @pytest.fixture(params=["upsert", "append"])
    def bench(self, tmp_path: Path, request: pytest.FixtureRequest) -> DeltaBench:
        return DeltaBench(tmp_path, appends=request.param == "append")
