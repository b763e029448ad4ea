"""A copy of a whole table continues after what may pass, tells it, and is given up when nothing gets it on."""

from collections.abc import Callable

import pytest

from headgate.agent.core.executor import SpanId
from headgate.replication.row_copy import CopyReached, RowCopyError
from headgate.replication.table_copies import GIVE_UP_SECONDS, TableCopies
from headgate.sinks.row_copying import CopyMark

SPAN = SpanId("f", "t")


def mark(rows: int, *, is_done: bool = False, deleted: int = 0) -> CopyMark:
    return CopyMark(request="r1", upto=(str(rows),), rows=rows, is_done=is_done, deleted=deleted)


def reaching(reached: CopyMark, about: int | None = None) -> Callable[[CopyMark], CopyReached]:
    return lambda _: CopyReached(reached, about)


def failing(*, may_pass: bool) -> Callable[[CopyMark], CopyReached]:
    def copy(_: CopyMark) -> CopyReached:
        raise RowCopyError("gone", may_pass=may_pass)

    return copy


def test_words_tell_how_far_it_is_until_it_is_done() -> None:
    now = 0.0
    copies = TableCopies(lambda: now)
    assert copies.turn(SPAN, mark(0), reaching(mark(10))) == "10 rows are copied"
    now = 5.0
    assert copies.turn(SPAN, mark(10), reaching(mark(20, deleted=3), 50)) == (
        "20 rows are copied of about 50 (40 %), 3 deleted, about 8 s left"
    )
    now = 10.0
    assert copies.shown(SPAN, CopyReached(mark(40), 50)) == "40 rows are copied of about 50 (80 %), about 3 s left"
    # A statistic of the server may be behind.
    assert (
        copies.turn(SPAN, mark(20), reaching(mark(70), 50)) == "70 rows are copied of about 70 (99 %), about 0 s left"
    )
    assert copies.turn(SPAN, mark(70), reaching(mark(80, is_done=True))) is None
    assert copies.turn(SPAN, mark(80, is_done=True), failing(may_pass=False)) is None, "what is done is not begun again"


def test_an_error_within_a_turn_does_not_take_back_what_was_told() -> None:
    copies = TableCopies(lambda: 0.0)

    def copy(_: CopyMark) -> CopyReached:
        copies.shown(SPAN, CopyReached(mark(40), None))
        raise RowCopyError("gone", may_pass=True)

    assert copies.turn(SPAN, mark(10), copy) == "40 rows are copied; the copy continues after an error: gone"


def test_an_error_that_may_pass_is_borne_for_as_long_as_ranges_are_copied_now_and_then() -> None:
    now = 0.0
    copies = TableCopies(lambda: now)
    words = copies.turn(SPAN, mark(10), failing(may_pass=True))
    assert words == "10 rows are copied; the copy continues after an error: gone"
    now = GIVE_UP_SECONDS - 1
    assert copies.turn(SPAN, mark(11), failing(may_pass=True)) is not None
    now = 2 * GIVE_UP_SECONDS - 2
    assert copies.turn(SPAN, mark(11), failing(may_pass=True)) is not None
    now = 2 * GIVE_UP_SECONDS - 1
    with pytest.raises(RowCopyError, match="gone"):
        copies.turn(SPAN, mark(11), failing(may_pass=True))
    assert copies.turn(SPAN, mark(11), failing(may_pass=True)) is not None, "another request has its own hour"


def test_other_errors_end_it() -> None:
    with pytest.raises(RowCopyError, match="gone"):
        TableCopies().turn(SPAN, mark(0), failing(may_pass=False))
