"""The pages that the code makes are those in docs/."""

import pytest

from headgate_lab.pages.made import DOCS, PAGES, page


@pytest.mark.parametrize("name", PAGES)
def test_it_is_current(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == page(name), "make it anew: make docs"


def test_no_page_is_left_over() -> None:
    assert {f"reference/{path.name}" for path in (DOCS / "reference").iterdir()} == {
        name for name in PAGES if name.startswith("reference/")
    }
