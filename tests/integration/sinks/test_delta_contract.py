"""Delta tables keep the contract of lake tables, in both modes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.sinks.delta_bench import DeltaBench
from integration.sinks.lake_contract import LakeContract
from integration.sinks.lake_copy_contract import LakeCopyContract
from integration.sinks.lake_stores import Fenced, a_store

pytestmark = pytest.mark.integration


class TestDeltaInStore(Fenced):
    """The fence in an object store, in the mode that uses all of it."""

    @pytest.fixture
    def bench(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeltaBench]:
        with a_store(tmp_path, monkeypatch) as store:
            yield DeltaBench(tmp_path, appends=False, store=store)


class TestDelta(LakeContract, LakeCopyContract):
    TRUNCATE_REFUSED = "TRUNCATE cannot be written to Delta tables"

    @pytest.fixture(params=["upsert", "append"])
    def bench(self, tmp_path: Path, request: pytest.FixtureRequest) -> DeltaBench:
        return DeltaBench(tmp_path, appends=request.param == "append")
