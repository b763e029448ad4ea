"""Arrow batches as Spark gives them to a task become chunks of one partition each, in order, with all their columns."""

from collections.abc import Sequence

import pyarrow as pa

from headgate.replication.frames import HEAD, Chunk, chunks_of

HEADER = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def batch(rows: Sequence[tuple[str, int, int]], headers: Sequence[object] | None = None) -> pa.RecordBatch:
    """Of (topic, partition, offset)."""
    columns = [
        pa.array([topic for topic, _, _ in rows], pa.string()),
        pa.array([partition for _, partition, _ in rows], pa.int32()),
        pa.array([offset for _, _, offset in rows], pa.int64()),
        pa.array([1000 + offset for _, _, offset in rows], pa.int64()),
        pa.array([None if offset == 7 else b"k%d" % offset for _, _, offset in rows], pa.binary()),
        pa.array([None if offset == 8 else b"v%d" % offset for _, _, offset in rows], pa.binary()),
    ]
    names = ["topic", "partition", "offset", "append_ms", "key", "value"]
    if headers is not None:
        columns.append(pa.array(headers, HEADER))
        names.append("headers")
    return pa.RecordBatch.from_arrays(columns, names=names)


def places(chunks: Sequence[Chunk]) -> list[tuple[str, int, list[int]]]:
    return [(chunk.topic, chunk.partition, list(chunk.offsets)) for chunk in chunks]


def test_each_stretch_of_one_partition_is_a_chunk() -> None:
    rows = [("t", 0, 5), ("t", 0, 6), ("t", 1, 3), ("u", 1, 4), ("u", 1, 9), ("v", 1, 1), ("t", 2, 2)]
    chunks = list(chunks_of(iter([batch(rows[:2]), batch([]), batch(rows[2:])])))
    assert places(chunks) == [("t", 0, [5, 6]), ("t", 1, [3]), ("u", 1, [4, 9]), ("v", 1, [1]), ("t", 2, [2])]
    assert chunks[0].values == [b"v5", b"v6"]
    assert (chunks[2].appended_ms, chunks[2].keys) == ([1004, 1009], [b"k4", b"k9"])


def test_what_is_absent_is_none_and_numbers_are_pythons_own() -> None:
    (chunk,) = chunks_of(iter([batch([("t", 0, 7), ("t", 0, 8)])]))
    assert (chunk.keys, chunk.values) == ([None, b"k8"], [b"v7", None])
    assert [type(one) for one in (chunk.offsets[0], chunk.appended_ms[0], chunk.partition)] == [int, int, int]
    assert chunk.headers_at(0) == [], "none were asked for"


def test_headers_stay_with_their_rows_also_behind_what_is_dropped() -> None:
    headers = [None, [{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None]
    first, chunk = chunks_of(iter([batch([("s", 0, 1), ("t", 0, 4), ("t", 0, 5)], headers)]))
    assert first.headers_at(0) == []
    assert chunk.headers_at(0) == [("a", b"1"), ("a", None)]
    assert places([chunk.from_offset(5)]) == [("t", 0, [5])]
    assert chunk.from_offset(5).headers_at(0) == []


HEADS = [b'{"schema":1,"payload":', b'{"schema":2,"payload":']


def cut(rows: Sequence[tuple[str, int, int]], numbers: Sequence[int]) -> Chunk:
    with_numbers = batch(rows).append_column(HEAD, pa.array(numbers, pa.int32()))
    (chunk,) = chunks_of(iter([with_numbers]), HEADS)
    return chunk


def test_what_was_cut_off_all_values_of_a_chunk_is_known_of_it() -> None:
    chunk = cut([("t", 0, 4), ("t", 0, 8)], [2, 2])
    assert (chunk.head, chunk.values) == (HEADS[1], [b"v4", None])
    assert chunk.value_at(0) == HEADS[1] + b"v4}"
    assert chunk.value_at(1) is None
    assert chunk.from_offset(8).head == HEADS[1]
    assert chunk.as_written().values == [HEADS[1] + b"v4}", None]
    assert chunk.as_written().head is None


def test_values_of_which_some_were_cut_are_whole_again() -> None:
    chunk = cut([("t", 0, 4), ("t", 0, 5), ("t", 0, 6), ("t", 0, 8)], [1, 0, 2, 1])
    assert (chunk.head, chunk.values) == (None, [HEADS[0] + b"v4}", b"v5", HEADS[1] + b"v6}", None])


def test_values_that_all_passed_whole_are_as_they_came() -> None:
    chunk = cut([("t", 0, 4)], [0])
    assert (chunk.head, chunk.values, chunk.as_written()) == (None, [b"v4"], chunk)
