"""Whether Headgate changes the list of columns with statistics, which other writers of a table may have set."""

import pytest
from deltalake.schema import Field, PrimitiveType

from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.delta.statistics import COLUMNS, listed_columns

FIRST = "delta.dataSkippingNumIndexedCols"


def fields(**types: str) -> list[Field]:
    return [Field(name, PrimitiveType(type_)) for name, type_ in types.items()]


INEXACT = fields(id="long", name="string", total="decimal(20,0)")
EXACT = fields(id="long", name="string")


@pytest.mark.parametrize("text", ["", "`id`", "id", "`name`", "name,id"])
def test_a_list_of_others_gets_no_columns(text: str) -> None:
    """Files that exist lack statistics of them, and Arrow takes these for NULL."""
    assert listed_columns(INEXACT, (), {COLUMNS: text}) is None
    assert listed_columns(EXACT, (), {COLUMNS: text}) is None


@pytest.mark.parametrize("text", ["id,total", "`id`, `total`"])
def test_a_list_of_others_loses_what_is_wrong_and_stays_theirs(text: str) -> None:
    changed = listed_columns(INEXACT, (), {COLUMNS: text})
    assert changed == {COLUMNS: "`id`"}
    assert listed_columns([*INEXACT, *fields(more="long")], (), {COLUMNS: text} | changed) is None


@pytest.mark.parametrize("more", [{}, {FIRST: "40"}, {COLUMNS: "`id`"}])
def test_only_headgates_own_list_gets_new_columns(more: dict[str, str]) -> None:
    made = listed_columns(INEXACT, (), {})
    assert made is not None
    assert made[COLUMNS] == "`id`,`name`"
    assert listed_columns(INEXACT, (), made | more) is None
    extended = listed_columns([*INEXACT, *fields(more="long")], (), made | more)
    if more:
        assert extended is None, "someone has changed what has statistics since"
    else:
        assert extended is not None
        assert extended[COLUMNS] == "`id`,`name`,`more`"


def test_a_table_without_inexact_columns_is_left_as_it_is() -> None:
    assert listed_columns(EXACT, (), {}) is None
    assert listed_columns(INEXACT, ("total",), {}) is None
    assert listed_columns(INEXACT, (), {FIRST: "2"}) is None


def test_a_table_without_a_number_of_columns_is_refused() -> None:
    with pytest.raises(SinkRefusedError, match=rf"{FIRST}='many'.*Unset it"):
        listed_columns(INEXACT, (), {FIRST: "many"})
