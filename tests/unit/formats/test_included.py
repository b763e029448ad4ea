"""A column that `include` names and an event lacks: older events pass, values under a new name are never left out."""

from typing import Any

import pytest

from headgate.config.columns import ColumnOptions
from headgate.config.expressions import Kind
from headgate.formats.change import LACKING, LACKING_NULL, Change, Operation, Row
from headgate.formats.decoding import UndecodableError
from headgate.formats.expressions.declared import SourceColumn, SourceTypes, SourceTypesUnavailableError
from headgate.formats.shaping import Shaping

UNREACHABLE = SourceTypesUnavailableError("the types of the source's columns cannot be read")


class Catalogue:
    """The source's table: ``columns`` now, and as it was when it was last read."""

    def __init__(self, *columns: str) -> None:
        self.columns: tuple[str, ...] = columns
        self.is_reachable = True
        self.reads = 0
        self._found = self._read()

    def _read(self) -> SourceTypes:
        self.reads += 1
        return SourceTypes(dict.fromkeys(self.columns, SourceColumn(Kind.TEXT)))

    def known(self) -> SourceTypes:
        if not self.is_reachable:
            raise UNREACHABLE
        return self._found

    def again(self) -> SourceTypes:
        if not self.is_reachable:
            raise UNREACHABLE
        read = self._read()
        self._found = self._found if read == self._found else read
        return self._found

    def since(self, append_ms: int) -> SourceTypes:
        del append_ms
        return self.again()


def shaped(
    row: Row,
    catalogue: Catalogue | None = None,
    meaning: dict[str, str] | None = None,
    at_sink: frozenset[str] | None = None,
    **columns: Any,
) -> Row | None:
    options = ColumnOptions.model_validate({"include": ["id", "mail"]} | columns)
    shaping = Shaping(options, {}, None, catalogue, lambda: at_sink)
    (change,) = shaping.shaped([Change(0, 0, Operation.UPSERT, {"id": row["id"]}, dict(row), None, 0, meaning)])
    return change.row


RENAMED: Row = {"id": 1, "email": "a@b", "note": "x"}
WHY = (
    r"does not have column mail, which columns\.include names, and has email.*, which it does not name, so values may "
    r"be left out under a new name.*columns\.rename keeps"
)


def test_a_column_that_the_source_has_renamed_is_never_left_out() -> None:
    with pytest.raises(UndecodableError, match=WHY + r".*name the source's database"):
        shaped(RENAMED)
    with pytest.raises(UndecodableError, match=WHY):
        shaped(RENAMED, Catalogue("id", "email", "note"))
    renamed_since = Catalogue("id", "mail", "note")
    renamed_since.columns = ("id", "email", "note")
    with pytest.raises(UndecodableError, match=WHY):
        shaped(RENAMED, renamed_since)


def test_a_column_that_was_renamed_and_has_its_name_again_is_not_taken_for_a_new_one() -> None:
    with pytest.raises(UndecodableError, match=r"and has email, which .* The source's table did not have email"):
        shaped(RENAMED, Catalogue("id", "mail", "note"))


def test_the_new_name_can_keep_the_name_at_the_sink() -> None:
    assert shaped(RENAMED, include=["id", "email"], rename={"email": "mail"}) == {"id": 1, "mail": "a@b"}


def test_an_event_from_before_the_column_was_added_passes_where_the_source_shows_it() -> None:
    older: Row = {"id": 1, "note": "x"}
    assert shaped(older, Catalogue("id", "note", "mail")) == {"id": 1}
    with pytest.raises(UndecodableError, match=r"and has note, which .*\(source\.database\)"):
        shaped(older)


def test_a_row_of_which_nothing_is_left_out_cannot_have_the_column_under_another_name() -> None:
    assert shaped({"id": 1}) == {"id": 1}
    assert shaped({"id": 1}, Catalogue("id")) == {"id": 1}


def test_one_list_may_be_for_tables_that_do_not_have_all_of_its_columns() -> None:
    assert shaped({"id": 1, "note": "x"}, at_sink=frozenset({"id"})) == {"id": 1}
    assert shaped({"id": 1, "note": "x"}, Catalogue("id", "note"), at_sink=frozenset({"id"})) == {"id": 1}
    with pytest.raises(UndecodableError, match=WHY):
        shaped(RENAMED, at_sink=frozenset({"id", "mail"}))
    with pytest.raises(UndecodableError, match=WHY):
        shaped(RENAMED, at_sink=frozenset({"id", "address"}), rename={"mail": "address"})


def test_a_writer_that_leaves_nulls_out_is_believed_only_if_the_source_has_the_column() -> None:
    meaning = {LACKING: LACKING_NULL}
    assert shaped({"id": 1, "note": "x"}, None, meaning) == {"id": 1}
    assert shaped({"id": 1, "note": "x"}, Catalogue("id", "note", "mail"), meaning) == {"id": 1}
    with pytest.raises(UndecodableError, match=WHY):
        shaped(RENAMED, Catalogue("id", "email", "note"), meaning)


def test_events_wait_for_a_source_that_does_not_answer() -> None:
    catalogue = Catalogue("id", "note", "mail")
    catalogue.is_reachable = False
    with pytest.raises(SourceTypesUnavailableError):
        shaped({"id": 1, "note": "x"}, catalogue)


def test_the_source_is_not_asked_for_every_row() -> None:
    catalogue = Catalogue("id", "note", "mail")
    shaping = Shaping(ColumnOptions(include=("id", "mail")), {}, None, catalogue)
    rows: list[Row] = [{"id": n, "note": "x"} for n in range(50)] + [
        {"id": n, "mail": "m", "note": ""} for n in range(50)
    ]
    changes = [Change(0, n, Operation.UPSERT, {"id": row["id"]}, row, None, 0, None) for n, row in enumerate(rows)]
    assert len(shaping.shaped(changes)) == 100
    assert catalogue.reads == 2


def upserts(*rows: Row, meaning: dict[str, str] | None = None) -> list[Change]:
    return [
        Change(0, number, Operation.UPSERT, {"id": row["id"]}, dict(row), None, 0, meaning)
        for number, row in enumerate(rows)
    ]


def test_the_sink_is_not_asked_where_its_writer_leaves_nulls_out() -> None:
    def asked() -> frozenset[str]:
        raise AssertionError("nobody needs the sink")

    shaping = Shaping(ColumnOptions(include=("id", "mail")), {}, None, None, asked)
    assert len(shaping.shaped(upserts({"id": 1, "note": "x"}, meaning={LACKING: LACKING_NULL}))) == 1


def test_sparse_rows_do_not_ask_the_source_again_and_again() -> None:
    names = [f"c{number}" for number in range(12)]
    catalogue = Catalogue("id", "note", *names)
    shaping = Shaping(ColumnOptions(include=("id", *names)), {}, None, catalogue)
    rows: list[Row] = [
        {"id": bits, "note": "x"} | {name: "" for at, name in enumerate(names) if bits >> at & 1}
        for bits in range(1000)
    ]
    assert len(shaping.shaped(upserts(*rows, *rows))) == 2000
    assert catalogue.reads <= 1 + len(names)


def test_a_column_that_the_sink_gets_later_is_missed_in_rows_that_passed_before() -> None:
    present = ["id"]
    shaping = Shaping(ColumnOptions(include=("id", "mail")), {}, None, None, lambda: frozenset(present))
    assert len(shaping.shaped(upserts(RENAMED))) == 1
    present.append("mail")
    with pytest.raises(UndecodableError, match=WHY):
        shaping.shaped(upserts(RENAMED))


def test_a_row_is_not_refused_for_what_the_source_was_before_it_came() -> None:
    class Older(Catalogue):
        def again(self) -> SourceTypes:
            return self.known()

        def since(self, append_ms: int) -> SourceTypes:
            assert append_ms == 0
            raise UNREACHABLE

    with pytest.raises(SourceTypesUnavailableError):
        shaped({"id": 1, "note": "x", "new": 1}, Older("id", "mail", "note"))
    with pytest.raises(SourceTypesUnavailableError):
        shaped({"id": 1, "note": "x"}, Older("id", "note"))
