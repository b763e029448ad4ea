"""The documents: short where that was decided, and every link leads to a file or a heading that exists."""

import re
import runpy
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
README_LINES_MAX: Final = 100
"""Two screens of fifty lines."""

COLUMNS_MAX: Final = 120

PAGES: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
COMMIT: Final = re.compile(
    r"(?<![-+'.\w/])(?=[0-9]*[a-f])(?=[a-f]*[0-9])(?:[0-9a-f]{7,12}|[0-9a-f]{40})(?![-+'.]?\w|[-+'])"
)
"""A commit's hash as git abbreviates it: letters and digits, not a part of a UUID, a number or a path."""
FENCED: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and Python-Markdown spell those that we use."""
    text = FENCED.sub("", page.read_text())
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


def broken(page: Path) -> list[str]:
    found = []
    for link in LINK.findall(FENCED.sub("", page.read_text())):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in headings(target)):
            found.append(link)
    return found


def test_pages_name_dates_and_versions_instead_of_commits() -> None:
    assert {str(page.relative_to(ROOT)): found for page in PAGES if (found := COMMIT.findall(page.read_text()))} == {}


def test_a_commit_is_told_from_numbers_and_identifiers() -> None:
    assert COMMIT.findall("fixed at 1fa8e63, (e088303c). a31f221 `3a3f89e1`") == [
        "1fa8e63",
        "e088303c",
        "a31f221",
        "3a3f89e1",
    ]
    others = "20261122 3.4028235e+38 5e045c13-0000-4000-8000-000000000001 x'00ff0a09' deadbeef 6f726465722d3137"
    assert COMMIT.findall(others) == []


def test_no_word_that_readers_stumble_over_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    words = runpy.run_path(str(ROOT / "infra" / "lint" / "words.py"))
    assert (words["main"](), capsys.readouterr().err) == (0, "")


def test_a_word_is_found_in_text_and_not_in_code(tmp_path: Path) -> None:
    words = runpy.run_path(str(ROOT / "infra" / "lint" / "words.py"))
    page, program = tmp_path / "page.md", tmp_path / "program.py"
    page.write_text("It begins\nAnew, up to\nwhen. `anew` ``anew``\n```\nanew\n```\nrenewed\n")
    program.write_text('"""In vain."""\nanew = 1  # meanwhile\nprint("lest it")\nname = "lest"\n')
    assert list(words["found_in"](page)) == [(2, "Anew"), (2, "up to\nwhen")]
    assert list(words["found_in"](program)) == [(1, "In vain"), (2, "meanwhile"), (3, "lest")]


def test_code_and_addresses_of_links_are_no_text() -> None:
    words = runpy.run_path(str(ROOT / "infra" / "lint" / "words.py"))
    assert list(words["found"]("It says `says` [x](says)")) == [(1, "says")]


def test_links_lead_somewhere() -> None:
    assert {str(page.relative_to(ROOT)): links for page in PAGES if (links := broken(page))} == {}


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One\n[a](#one) [b](#two) [c](gone.md) [d](page.md#one)\n```\n[e](gone.md)\n```\n")
    assert broken(page) == ["#two", "gone.md"]


def test_the_readme_fits_two_screens() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= README_LINES_MAX
    assert [line for line in lines if len(line) > COLUMNS_MAX] == []
