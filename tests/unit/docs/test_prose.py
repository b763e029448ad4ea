"""Prose of pages that are made is filled, and nothing else is touched."""

from headgate_lab.pages.prose import COLUMNS_MAX, filled

LONG = "A sentence that is repeated. " * 8


def test_prose_is_filled_and_no_word_is_lost() -> None:
    page = filled(f"# Head\n\n{LONG}\n\n- {LONG}\n- short\n")
    assert max(map(len, page.splitlines())) <= COLUMNS_MAX
    assert page.split() == f"# Head\n\n{LONG}\n\n- {LONG}\n- short\n".split()
    assert "\n  " in page, "an item's lines are indented"


def test_code_tables_and_headings_stay_as_they_are() -> None:
    wide = "x " * 80
    page = f"# {wide}\n\n| {wide}|\n\n```\n{wide}\n- {wide}\n```\n\n    {wide}\n"
    assert filled(page) == page


def test_code_in_a_line_is_not_divided() -> None:
    code = "`headgate migration submit 'ALTER TABLE items ADD COLUMN note text' --database shop`"
    assert code in filled(f"{LONG}{code} {LONG}\n")
