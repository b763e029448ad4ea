"""How far a copy is can be read from what its agent reports, with or without each part, and with an error behind it."""

import pytest

from headgate.records.copy_progress import CopyProgress, read_copy_progress


@pytest.mark.parametrize(
    "progress",
    [
        CopyProgress(rows=0),
        CopyProgress(rows=7, deleted=2),
        CopyProgress(rows=7, rows_about=30),
        CopyProgress(rows=7, rows_about=30, seconds_left=0),
        CopyProgress(rows=7, rows_about=30, deleted=5, seconds_left=90),
    ],
)
@pytest.mark.parametrize("behind", ["", "; the copy continues after an error: of about 3 (1 %)", "; sink: gone"])
def test_the_text_has_every_number(progress: CopyProgress, behind: str) -> None:
    assert read_copy_progress(progress.text + behind) == progress


def test_percent_is_of_the_estimate_and_never_all() -> None:
    assert CopyProgress(rows=7).percent is None
    assert CopyProgress(rows=7, rows_about=30).percent == 23
    assert CopyProgress(rows=30, rows_about=30).percent == 99


def test_other_texts_have_no_progress() -> None:
    assert read_copy_progress("10_rows") is None
    assert read_copy_progress("") is None
