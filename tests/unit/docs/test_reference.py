"""The pages of docs/reference are those that the code makes."""

import pytest

from headgate_lab.cli.reference import FOLDER, pages


@pytest.mark.parametrize("name", sorted(pages()))
def test_it_is_current(name: str) -> None:
    current = (FOLDER / name).read_text(encoding="utf-8")
    assert current == pages()[name], "make it anew: .venv/bin/python -m headgate_lab.cli.reference"


def test_no_page_is_left_over() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(pages())
