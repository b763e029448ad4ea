"""A source whose discriminator does not fit is told from a table that is wrong for every source."""

import pytest

from headgate.records.slices import Slice
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.misfit import MisfitError
from headgate.sinks.relational.table import RelationalTable, check_slice


def refusal(value: str, type_: str, key: tuple[str, ...] = ("id", "tenant")) -> SinkRefusedError:
    table = RelationalTable(
        name="shop.orders", schema="shop", relation="orders", identifier="", columns={"tenant": type_}, key=key,
        generated=frozenset(), folding=(), secondary_unique=False, version=None,
        part=Slice("shop.orders", "tenant", value),
    )  # fmt: skip
    integers = range(-(1 << 63), 1 << 63) if type_ == "bigint" else None
    with pytest.raises(SinkRefusedError) as refused:
        check_slice(table, "shop.orders", [key], is_exact=integers is None, integers=integers)
    return refused.value


@pytest.mark.parametrize(("value", "type_"), [("legacy", "bigint"), ("07", "bigint"), ("legacy", "varchar(5)")])
def test_a_value_that_the_column_does_not_hold_is_a_misfit(value: str, type_: str) -> None:
    assert isinstance(refusal(value, type_), MisfitError)


def test_a_key_without_the_column_is_wrong_for_every_source() -> None:
    assert not isinstance(refusal("7", "bigint", ("id",)), MisfitError)
