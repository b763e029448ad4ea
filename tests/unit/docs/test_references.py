"""What comments and pages refer to can be found: files and tests that exist, nothing outside the repository."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
CODE: Final = sorted(path for folder in ("services", "tests") for path in (ROOT / folder).rglob("*.py"))
PAGES: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
OTHERS: Final = [*(ROOT / "examples").glob("*.py"), *(ROOT / "infra").rglob("*.py")]
EXISTING: Final = {f"/{path.relative_to(ROOT)}" for path in (*CODE, *OTHERS)}

FILE: Final = re.compile(r"(?<![\w/.-])((?:[\w-]+/)+\w+\.py)\b(?:::([Tt]est\w+))?")
"""A Python file with a folder before it, and the test named behind it."""

ELSEWHERE: Final = {
    "py4j/java_gateway.py": "of a library",
    "sources/reader.py": "docs/adr/0013 says that it was removed",
}

NOT_HERE: Final = re.compile(r"anchors/|[Dd]esign(?:\.md)? §|\bseeds? 00|\bseeds/|(?<!'s )\bissue \d|work/shared")
"""Plans and notes that a reader of the repository does not have."""


def lost(text: str) -> Iterator[str]:
    for name, test in FILE.findall(text):
        homes = [path for path in EXISTING if path.endswith(f"/{name}")]
        if name in ELSEWHERE:
            continue
        if not homes:
            yield name
        elif test and not any(re.search(rf"(?:def|class) {test}\b", (ROOT / home[1:]).read_text()) for home in homes):
            yield f"{name}::{test}"


def test_code_and_pages_refer_to_files_and_tests_that_exist() -> None:
    texts = {path: path.read_text() for path in (*CODE, *PAGES) if path != Path(__file__)}
    assert {str(path.relative_to(ROOT)): found for path, text in texts.items() if (found := list(lost(text)))} == {}


def test_nothing_is_referred_to_that_is_not_in_the_repository() -> None:
    texts = {path: path.read_text() for path in (*PAGES, *CODE) if path != Path(__file__)}
    assert {
        str(path.relative_to(ROOT)): found for path, text in texts.items() if (found := NOT_HERE.findall(text))
    } == {}


def test_what_is_lost_is_found() -> None:
    text = "see agent/figures.py, cli/main.py, and tests/unit/docs/test_references.py::test_that_never_was"
    assert list(lost(text)) == ["agent/figures.py", "tests/unit/docs/test_references.py::test_that_never_was"]
    assert NOT_HERE.findall("design.md §4, anchors/x.md, issue 4") == ["design.md §", "anchors/", "issue 4"]
