"""Which columns can name a row to every database, and what is said of one that cannot."""

from typing import Final

import pytest

from headgate.databases.row_source import KeyForm, RowSourceError, forms_of_key

FORMS: Final = {"int4": KeyForm.INTEGER, "text": KeyForm.TEXT}


def test_each_column_of_the_key_has_the_form_of_its_type() -> None:
    types = {"id": "int4", "place": "text", "price": "numeric"}
    assert forms_of_key("t", ["place", "id"], types, FORMS) == (KeyForm.TEXT, KeyForm.INTEGER)


@pytest.mark.parametrize(("column", "its_type"), [("price", "numeric"), ("gone", "None")])
def test_a_column_of_another_type_is_refused_and_the_forms_are_named(column: str, its_type: str) -> None:
    with pytest.raises(RowSourceError) as refused:
        forms_of_key("shop.t", ["id", column], {"id": "int4", "price": "numeric"}, FORMS)
    assert f"rows of shop.t cannot be named by column {column}, which is of type {its_type}" in str(refused.value)
    assert str(refused.value).endswith("are written the same way everywhere: integer, text")
