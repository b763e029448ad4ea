"""The table of exit codes and the page that documents it."""

from pathlib import Path

from headgate.cli.exit_codes import MEANINGS, ExitCode

PAGE = Path(__file__).parents[3] / "docs" / "exit-codes.md"


def test_every_code_has_a_meaning() -> None:
    assert set(MEANINGS) == set(ExitCode)


def test_page_shows_the_table() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][1:]
    wanted = [f"| {code.value} | {code.name.lower()} | {says} | {do} |" for code, (says, do) in MEANINGS.items()]
    assert rows == wanted
