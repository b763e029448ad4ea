"""The nearest of known names: one place decides it for every message."""

import re
from pathlib import Path
from typing import Final

import headgate
from headgate.config.wording import did_you_mean, nearest, nearest_table
from headgate.records.name_lists import NAMES_SHOWN_MAX, number_of, shown_names

CUT: Final = re.compile(r"and \{[^}]*\} more|\bjoin\(\w+\[:\w+\]\)")

NOT_NAMES: Final = {
    "sinks/relational/rights.py": "statements that somebody has to run",
    "sources/discovery.py": "sentences, a notice each",
}
"""Where something else than a list of names is cut."""


def test_the_nearest_name_is_found_whatever_its_case() -> None:
    assert nearest("shp", ["orders", "shop"]) == "shop"
    assert nearest("PUBLIC.ITEMS", ["public.items"]) == "public.items"
    assert nearest("xyz", ["orders", "shop"]) is None
    assert nearest("xyz", []) is None


def test_tables_are_not_near_because_of_their_schema() -> None:
    assert nearest_table("public.audit_log", ["public.customers", "public.orders"]) is None
    assert nearest_table("public.ordes", ["public.orders", "sales.orders"]) == "public.orders"
    assert nearest_table("public.orders", ["public.customers", "sales.orders"]) == "sales.orders"
    assert nearest_table("orders", ["public.Orders"]) == "public.Orders"


def test_a_message_has_a_bounded_number_of_names() -> None:
    assert shown_names(["a", "b"]) == "a, b"
    assert shown_names(["t"] * (NAMES_SHOWN_MAX + 5)).endswith("t and 5 more")
    assert shown_names(["a", "b"], "; ") == "a; b"
    assert shown_names([]) == ""


def test_a_noun_agrees_with_its_number() -> None:
    assert [number_of(count, "table") for count in (0, 1, 2)] == ["0 tables", "1 table", "2 tables"]


def test_no_other_module_cuts_lists_of_names() -> None:
    root = Path(headgate.__file__).parent
    found = {str(file.relative_to(root)) for file in root.rglob("*.py") if CUT.search(file.read_text(encoding="utf-8"))}
    assert found == {"records/name_lists.py", *NOT_NAMES}


def test_no_other_module_searches_for_near_names() -> None:
    root = Path(headgate.__file__).parent
    found = [
        str(file.relative_to(root))
        for file in root.rglob("*.py")
        if "get_close_matches" in file.read_text(encoding="utf-8")
    ]
    assert found == ["config/wording.py"]


def test_no_other_module_asks_whether_a_name_was_meant() -> None:
    root = Path(headgate.__file__).parent
    found = [
        str(file.relative_to(root)) for file in root.rglob("*.py") if "id you mean" in file.read_text(encoding="utf-8")
    ]
    assert found == ["config/wording.py"]
    assert did_you_mean("a", None, "b") == "did you mean 'a', 'b'?"
    assert did_you_mean("a", begins=True) == "Did you mean 'a'?"
    assert (did_you_mean(), did_you_mean(None, begins=True)) == ("", "")
