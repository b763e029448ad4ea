"""Texts of delta-rs about tables that Spark has declared, as they were seen, and which a retry does not heal."""

import pytest

from headgate.sinks.delta.refusals import is_refusal, refused

FEATURES = [
    "Unsupported table features required: [TypeWidening]",
    "External error: Transaction failed: Unsupported table features required: [TypeWidening]",
    "these reader features: {'deletionVectors'} but these are not yet supported by the deltalake reader.",
    "Column mapping is not supported for write operation 'OPTIMIZE' yet",
    "Generic DeltaTable error: Schema evolution on column-mapped tables is not yet supported",
    "Kernel error: Unsupported: Unsupported minimum reader version 9",
]
CONFLICTS = [
    "Failed to commit transaction: 0",
    "Failed to commit transaction: Commit failed: a concurrent transaction deleted data this operation read.",
]


@pytest.mark.parametrize("text", FEATURES)
def test_a_feature_is_named_with_what_to_do(text: str) -> None:
    assert is_refusal(ValueError(text))
    assert f"altering shop.orders: the table uses features that delta-rs does not write: {text}. Drop them" in str(
        refused(ValueError(text), "altering shop.orders")
    )


@pytest.mark.parametrize("text", CONFLICTS)
def test_another_commit_is_a_conflict(text: str) -> None:
    assert not is_refusal(ValueError(text))
    assert refused(ValueError(text), "altering shop.orders") is None
