"""The pages that the code makes are those in docs/."""

import pytest

from headgate_lab.pages.made import DOCS, PAGES, page


@pytest.mark.parametrize("name", PAGES)
def test_it_is_current(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == page(name), "make it anew: make docs"


def test_no_page_is_left_over() -> None:
    pages = {*(DOCS / "reference").iterdir(), *(DOCS / "pictures").glob("*.svg")}
    assert {str(path.relative_to(DOCS)) for path in pages} == {name for name in PAGES if "/" in name}


def test_pictures_load_nothing() -> None:
    """A page with a picture of ours asks no other host, and runs no script."""
    for path in (DOCS / "pictures").glob("*.svg"):
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http" not in text, path
        assert "<script" not in text, path
