"""Headers of a change log's records: whatever somebody writes there is read, or refused with its header's name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.generation.changelog.core.reading import Marker
from headgate.generation.changelog.shell.wire import (
    END,
    POSITION,
    WRITER,
    NotOursError,
    change_headers,
    end_headers,
    given_headers,
    marker_in,
    writer_in,
)

BYTES = st.one_of(st.none(), st.binary(max_size=24), st.integers().map(lambda number: str(number).encode()))


def test_what_is_written_is_read_again() -> None:
    change = [("x", b"1"), *change_headers("w", 7), ("x", None)]
    assert (marker_in(change), writer_in(change)) == (None, ("w", 7))
    assert given_headers(change) == (("x", b"1"), ("x", None))
    end = end_headers("w", 3, -1)
    assert (marker_in(end), writer_in(end)) == (Marker(3, "w"), ("w", -1))


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        (None, "does not have the headers headgate-writer and headgate-position"),
        ([(WRITER, b"w")], "does not have the headers"),
        ([(WRITER, b"\xff"), (POSITION, b"1")], "header headgate-writer is not UTF-8"),
        ([(WRITER, b"w"), (POSITION, b"1.5")], "header headgate-position is not a decimal number"),
        ([(WRITER, b"w"), (POSITION, b"9" * 5_000)], "header headgate-position is not a decimal number"),
        ([(WRITER, b"w"), (POSITION, b"1"), (END, b"")], "header headgate-end is not a decimal number"),
        ([(WRITER, b"w"), (POSITION, b"1"), (END, None)], "header headgate-end is not a decimal number"),
    ],
)
def test_a_record_that_no_writer_wrote_is_refused_with_the_reason(
    headers: list[tuple[str, bytes | None]] | None, why: str
) -> None:
    with pytest.raises(NotOursError, match=why):
        (marker_in(headers), writer_in(headers))


@given(st.lists(st.tuples(st.sampled_from([WRITER, POSITION, END, "other"]), BYTES), max_size=5))
def test_whatever_headers_say_is_read_or_refused(headers: list[tuple[str, bytes | None]]) -> None:
    try:
        marker, (writer, position) = marker_in(headers), writer_in(headers)
    except NotOursError:
        return
    assert isinstance(writer, str)
    assert isinstance(position, int)
    assert marker is None or marker.writer == writer
