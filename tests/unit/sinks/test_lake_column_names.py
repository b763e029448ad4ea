"""Names of columns that a kind of lake, or its readers, takes for its own."""

import pytest

from headgate.sinks.delta.lake import DeltaLake
from headgate.sinks.iceberg.lake import IcebergLake
from headgate.sinks.lake.appended import OWN_COLUMNS


@pytest.mark.parametrize("lake", [DeltaLake, IcebergLake])
def test_headgates_own_columns_have_names_that_readers_take(lake: type[DeltaLake | IcebergLake]) -> None:
    """Spark reads no Iceberg table with a column _partition, as the table's own."""
    assert [lake.name_problem(name) for name in OWN_COLUMNS] == [None] * len(OWN_COLUMNS)


@pytest.mark.parametrize("name", ["_partition", "_file", "_POS", "_deleted", "_spec_id", "_row_id"])
def test_a_column_of_icebergs_metadata_is_refused_there_only(name: str) -> None:
    problem = IcebergLake.name_problem(name)
    assert "of its own, and Spark does not read" in str(problem)
    assert DeltaLake.name_problem(name) is None


def test_a_column_of_delta_rs_is_refused_there_only() -> None:
    assert "begins with __delta_rs_" in str(DeltaLake.name_problem("__delta_rs_source"))
    assert IcebergLake.name_problem("__delta_rs_source") is None
