"""Decisions: each page has a status, and pages that replace or amend each other say so on both sides."""

import re
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[3] / "docs" / "adr"
ALL: Final = {page.name[:4]: page for page in sorted(FOLDER.glob("0*.md"))}
PAGES: Final = ALL
STATUS: Final = re.compile(r"\*\*Status:\*\* (accepted|superseded by)\b.*\d{4}-\d\d-\d\d.*\.")
OTHER_SIDE: Final = {"supersedes": "superseded by", "amends": "amended by"}
"""What a newer page says of an older one, and what the older one says of it."""


def status(number: str) -> str:
    """The page's second paragraph, as one line."""
    return " ".join(PAGES[number].read_text().split("\n\n")[1].split())


def related(number: str, verb: str) -> set[str]:
    """Numbers of the pages that stand behind ``verb`` in the page's status."""
    lists = re.findall(rf"{verb} ((?:\[\d{{4}}\]\([^)]*\)(?:, )?)+)", status(number))
    return {each for some in lists for each in re.findall(r"\[(\d{4})\]", some)}


def test_each_has_its_number_a_status_and_what_was_decided() -> None:
    for number, page in PAGES.items():
        text = page.read_text()
        assert text.startswith(f"# {number} · "), page
        assert STATUS.fullmatch(status(number)), page
        assert "\n**Decided.** " in text, page


def test_the_index_names_every_page_once_in_order() -> None:
    index = (FOLDER / "README.md").read_text()
    assert re.findall(r"^\| \[(\d{4})\]\(([^)]*)\) \|", index, re.MULTILINE) == [
        (number, page.name) for number, page in ALL.items()
    ]


def test_relations_are_said_on_both_sides() -> None:
    for number in PAGES:
        for verb, answer in OTHER_SIDE.items():
            for other in related(number, verb):
                assert number in related(other, answer), f"{number} {verb} {other}"
            for other in related(number, answer):
                assert number in related(other, verb), f"{number} {answer} {other}"


def test_every_number_is_accounted_for() -> None:
    index = (FOLDER / "README.md").read_text()
    gaps = {f"{number:04}" for number in range(1, int(max(ALL)))} - set(ALL)
    unexplained = {gap for gap in gaps if gap not in index}
    assert unexplained == set()
