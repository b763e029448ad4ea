"""Texts of delta-rs about tables that Spark has declared, as they were seen, and which a retry does not heal."""

import pytest

from headgate.sinks.delta.refusals import is_refusal, refused

MINIMUM = "Kernel error: Unsupported: Unsupported minimum reader version 9"
READER = "reader features: {'deletionVectors'} but these are not yet supported by the deltalake reader"
FEATURES = {
    "Unsupported table features required: [TypeWidening]": "Unsupported table features required: [TypeWidening]",
    "External error: Transaction failed: Unsupported table features required: [TypeWidening]": (
        "Unsupported table features required: [TypeWidening]"
    ),
    f"The table has set these {READER}.": f"The table has set these {READER}",
    "Column mapping is not supported for write operation 'OPTIMIZE' yet": "Column mapping is not supported",
    "Generic DeltaTable error: Schema evolution on column-mapped tables is not yet supported": (
        "on column-mapped tables is not yet supported"
    ),
    MINIMUM: MINIMUM,
}
"""Text → what of it is shown."""

CONFLICTS = [
    "Failed to commit transaction: 0",
    "Failed to commit transaction: Commit failed: a concurrent transaction deleted data this operation read.",
]


@pytest.mark.parametrize(("text", "shown"), FEATURES.items())
def test_a_feature_is_named_with_what_to_do(text: str, shown: str) -> None:
    assert is_refusal(ValueError(text))
    assert f"altering shop.orders: the table uses features that delta-rs does not write: {shown}. Drop them" in str(
        refused(ValueError(text), "altering shop.orders")
    )


@pytest.mark.parametrize(
    "row",
    ["Column mapping is enabled, 4711", "Feature '4711' is not supported", "Delta table is append-only, 4711"],
)
def test_a_row_that_reads_like_another_error_is_not_shown(row: str) -> None:
    text = f"Invalid data found: 1 rows failed validation check. Row: {{'value': {row!r}}}"
    assert is_refusal(ValueError(text))
    found = str(refused(ValueError(text), "writing shop.orders"))
    assert "rows violate a constraint" in found
    assert "4711" not in found


@pytest.mark.parametrize("text", FEATURES)
def test_of_a_text_about_features_no_row_is_shown(text: str) -> None:
    assert "4711" not in str(refused(ValueError(f"{text} row 4711"), "writing shop.orders"))


@pytest.mark.parametrize("text", CONFLICTS)
def test_another_commit_is_a_conflict(text: str) -> None:
    assert not is_refusal(ValueError(text))
    assert refused(ValueError(text), "altering shop.orders") is None
