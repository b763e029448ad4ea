"""Errors about files of a lake do not have values of rows, which folders of partitions are named after."""

import pytest

from headgate.config.error_values import VALUES_IN_ERRORS
from headgate.sinks.lake.files import LostFileError, local_error

FILE = "s3://lake/shop/people/data/mail=ann%40example.org/day=2026-11-30/part-1.parquet"


@pytest.mark.parametrize("error", [LostFileError(FILE), OSError(f"cannot read {FILE}")], ids=["lost", "other"])
def test_a_partitions_value_is_shown_only_where_the_operator_wants_it(
    monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    said = str(local_error(error, "reading shop.people"))
    assert "people/data/mail=…/day=…/part-1.parquet" in said
    assert "example" not in said
    monkeypatch.setenv(VALUES_IN_ERRORS, "true")
    assert FILE in str(local_error(error, "reading shop.people"))
