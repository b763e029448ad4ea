"""Iceberg tables keep the contract of lake tables, in both modes, each with another kind of catalog."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from integration.sinks.iceberg_bench import IcebergBench
from integration.sinks.iceberg_rest_bench import RestBench
from integration.sinks.lake_contract import LakeContract
from integration.sinks.lake_copy_contract import LakeCopyContract
from integration.sinks.lake_stores import Fenced, a_store

pytestmark = pytest.mark.integration


class TestIcebergInStore(Fenced):
    """The fence in an object store, in the mode that uses all of it."""

    @pytest.fixture
    def bench(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IcebergBench]:
        with a_store(tmp_path, monkeypatch) as store:
            yield IcebergBench(tmp_path, appends=False, store=store)


CLAIMS: Final = frozenset({"test_a_process_that_was_frozen_while_another_claimed_and_wrote_nothing_is_refused"})
"""That a claim alone moves the table."""


class TestIcebergRest(Fenced, also=CLAIMS):
    """The fence at a server that compares the newest snapshot only."""

    @pytest.fixture
    def bench(self, tmp_path: Path) -> Iterator[RestBench]:
        with ExitStack() as ends:
            yield RestBench(tmp_path, ends, appends=False)


class TestIceberg(LakeContract, LakeCopyContract):
    TRUNCATE_REFUSED = "TRUNCATE cannot be written to Iceberg tables"

    @pytest.fixture(params=["append, catalog in SQLite", "upsert, catalog in PostgreSQL"])
    def bench(self, tmp_path: Path, request: pytest.FixtureRequest) -> IcebergBench:
        database = request.getfixturevalue("postgres_database") if "PostgreSQL" in request.param else None
        return IcebergBench(tmp_path, appends="append" in request.param, database=database)
