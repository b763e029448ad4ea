"""Delta tables keep the contract of lake tables, in both modes."""

from pathlib import Path

import pytest

from integration.sinks.delta_bench import DeltaBench
from integration.sinks.lake_contract import LakeContract

pytestmark = pytest.mark.integration


class TestDelta(LakeContract):
    TRUNCATE_REFUSED = "TRUNCATE cannot be written to Delta tables"

    @pytest.fixture(params=["upsert", "append"])
    def bench(self, tmp_path: Path, request: pytest.FixtureRequest) -> DeltaBench:
        return DeltaBench(tmp_path, appends=request.param == "append")
