"""The pages that the code makes are those in docs/."""

import json
from html import escape
from typing import Final

import pytest

from headgate_lab.pages.made import DOCS, PAGES, page
from support.pages import ROOT

DASHBOARD: Final = ROOT / "infra/monitoring/grafana/dashboards/headgate.json"


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


def test_the_picture_of_the_dashboard_has_every_panel() -> None:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    drawn = page("pictures/dashboard.svg")
    assert [panel["title"] for panel in panels if f">{escape(panel['title'])}<" not in drawn] == []
    assert drawn.count("no data") == 0, "the record has no series of a panel: make it again (infra/docs/dashboard.py)"
