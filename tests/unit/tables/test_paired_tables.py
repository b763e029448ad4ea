"""What of a table is copied: every column that goes to the sink, or an error that names the one that would be empty."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headgate.config.columns import ColumnOptions
from headgate.databases.row_source import KeyForm, RowSource, RowSourceError
from headgate.records.row_copies import RowCopy
from headgate.tables.paired_tables import PairedTable, SinkTable, is_taken, pair_table


def paired(
    source: Mapping[str, str],
    sink: Mapping[str, str],
    key: str = "id",
    *,
    ignores_case: bool = False,
    filled: frozenset[str] = frozenset(),
    logged: Mapping[str, str] | None = None,
    **columns: Any,
) -> PairedTable:
    def forms(_table: str, key: Sequence[str]) -> tuple[KeyForm, ...]:
        assert set(key) <= source.keys()
        return tuple(KeyForm.INTEGER for _ in key)

    rows = cast(
        "RowSource", SimpleNamespace(columns=lambda _: source, logged=lambda _: logged or source, key_forms=forms)
    )
    target = SinkTable("t", (key,), sink, lambda key: tuple(None for _ in key), is_taken, ignores_case, filled)
    return pair_table(rows, "s.t", target, ColumnOptions.model_validate(columns), RowCopy(keys=None))


def test_names_that_differ_in_case_are_one_column_where_the_sink_ignores_case() -> None:
    source = {"ID": "int4", "Name": "text", "qty": "int4"}
    found = paired(source, {"id": "bigint", "name": "longtext", "qty": "int"}, ignores_case=True)
    assert (found.columns, found.key, found.source_key) == (source, ("id",), ("ID",))
    shaped = paired(
        source, {"nr": "bigint", "LABEL": "longtext", "qty": "int"}, "nr", ignores_case=True,
        rename={"ID": "NR", "Name": "label"},
    )  # fmt: skip
    assert (shaped.columns, shaped.key, shaped.source_key) == (source, ("nr",), ("ID",))


def test_two_columns_that_differ_in_case_are_not_taken_for_one() -> None:
    source = {"id": "int4", "name": "text", "Name": "text"}
    assert paired(source, {"id": "int", "name": "text"}, ignores_case=True).columns == {"id": "int4", "name": "text"}
    both = {"id": "int4", "NAME": "text", "Name": "text"}
    with pytest.raises(RowSourceError, match="the sink has column name, which the source does not have"):
        paired(both, {"id": "int", "name": "text"}, ignores_case=True)


def test_a_column_that_may_have_been_renamed_is_never_copied_as_null() -> None:
    with pytest.raises(
        RowSourceError, match=r"the sink has column old, .* the source has new, .* rename old at the sink, too"
    ):
        paired({"id": "int4", "new": "text"}, {"id": "int4", "old": "text"})
    with pytest.raises(RowSourceError, match="the sink has column name, which the source does not have"):
        paired({"id": "int4", "Name": "text"}, {"id": "int4", "name": "text"})


def test_a_column_that_cannot_be_the_other_one_is_dropped_or_new() -> None:
    assert paired({"id": "int4"}, {"id": "int4", "dropped": "text"}).columns == {"id": "int4"}
    assert paired({"id": "int4", "new": "text"}, {"id": "int4"}).columns == {"id": "int4"}
    assert paired({"id": "int4", "new": "date"}, {"id": "int4", "old": "text"}).columns == {"id": "int4"}
    left_out = paired({"id": "int4", "new": "text"}, {"id": "int4", "old": "text"}, exclude=["new"])
    assert left_out.columns == {"id": "int4"}
    computed = paired({"id": "int4", "new": "text"}, {"id": "int4", "old": "text", "new": "text"}, set={"old": "'x'"})
    assert computed.columns == {"id": "int4", "new": "text"}


def test_a_column_that_the_sink_fills_is_its_own() -> None:
    source, sink = {"id": "int4", "new": "timestamp"}, {"id": "int4", "loaded_at": "timestamp"}
    found = paired(source, sink, filled=frozenset({"loaded_at"}))
    assert found.columns == {"id": "int4"}
    assert len(found.doubts) == 1
    assert found.doubts[0].startswith("column loaded_at gets its default, and new of the source is not copied")
    with pytest.raises(RowSourceError, match="the sink has column loaded_at"):
        paired(source, sink)


def test_a_column_that_changes_do_not_bring_is_not_taken_for_a_renamed_one() -> None:
    source, sink = {"id": "int4", "computed": "text"}, {"id": "int4", "old": "text"}
    assert paired(source, sink, logged={"id": "int4"}).columns == {"id": "int4"}


def test_a_column_that_include_names_must_be_at_the_source() -> None:
    with pytest.raises(RowSourceError, match=r"columns\.include names mail, which the source's table does not have"):
        paired({"id": "int4", "email": "text"}, {"id": "int4", "mail": "text"}, include=["id", "mail"])
    renamed = {"include": ["id", "email"], "rename": {"email": "mail"}}
    assert paired({"id": "int4", "email": "text"}, {"id": "int4", "mail": "text"}, **renamed).columns == {
        "id": "int4",
        "email": "text",
    }
