"""A batch as parts, and parts as transactions: nothing is lost, no event is divided, and positions say how far."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.sinks.contract import OffsetRange
from headgate.sinks.kafka.cloud_events import Headers
from headgate.sinks.kafka.pace import BYTES_MAX, SECONDS, TransactionPace
from headgate.sinks.kafka.parts import PART_BYTES, Made, pack, transactions, unpack

HALF = PART_BYTES // 2


def made(
    partition: int, offset: int, size: int = 10, head: bytes | None = None, headers: Headers | None = None
) -> Made:
    return partition, offset, size, head, (partition, b"k%d" % offset, b"v"), headers


def test_a_part_is_closed_when_it_is_full_or_its_head_changes() -> None:
    parts = unpack(pack([made(0, 1, HALF), made(0, 2, HALF), made(0, 3), made(1, 7, head=b"h"), made(1, 8, head=b"h")]))
    assert [(part.head, part.reached, len(part.records)) for part in parts] == [
        (None, {0: 3}, 2),
        (None, {0: 4}, 1),
        (b"h", {1: 9}, 2),
    ]


def test_headers_stay_with_their_records() -> None:
    headers = [{"ce_id": b"1"}, {"ce_id": b"2"}, {"ce_id": b"3"}]
    records = [made(0, number, HALF, headers=each) for number, each in enumerate(headers)]
    assert [part.headers for part in unpack(pack(records))] == [headers[:2], headers[2:]]
    assert [part.headers for part in unpack(pack([made(0, 1)]))] == [[]]


def test_the_records_of_one_event_stay_together() -> None:
    (part,) = unpack(pack([made(0, 1, PART_BYTES), made(0, 1, 1)]))
    assert len(part.records) == 2


def test_a_commit_of_no_records_is_one_transaction() -> None:
    ranges = {0: OffsetRange(5, 9), 1: OffsetRange(3, 3)}
    (only,) = transactions((), ranges, lambda: 1)
    assert (only.ranges, only.parts) == (ranges, [])


events = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from([1, HALF, PART_BYTES])), max_size=30)


@given(events, st.integers(1, 4 * PART_BYTES), st.integers(0, 5))
def test_transactions_together_are_the_commit(drawn: list[tuple[int, int, int]], bytes_max: int, beyond: int) -> None:
    at = {0: 100, 1: 200, 2: 300}
    records = []
    for partition, count, size in drawn:
        records += [made(partition, at[partition], size) for _ in range(count)]
        at[partition] += 1
    ranges = {p: OffsetRange(start, at[p] + beyond) for p, start in ((0, 100), (1, 200), (2, 300))}
    halves = (records[: len(records) // 2], records[len(records) // 2 :])
    if halves[0] and halves[1] and halves[0][-1][:2] == halves[1][0][:2]:
        halves = (records, [])  # a task stages whole events
    found = list(transactions([pack(half) for half in halves if half], ranges, lambda: bytes_max))
    assert [record for each in found for part in each.parts for record in part.records] == [
        record for _, _, _, _, record, _ in records
    ]
    reached = {p: span.expected for p, span in ranges.items()}
    for each in found:
        for partition, span in each.ranges.items():
            assert span.expected == reached[partition]
            reached[partition] = span.next
        for part in each.parts:
            assert all(reached[p] >= end for p, end in part.reached.items())
    assert reached == {p: span.next for p, span in ranges.items()}
    assert all(each.size >= bytes_max for each in found[:-1])


def test_transactions_shrink_where_the_target_is_slow_and_grow_again() -> None:
    pace = TransactionPace()
    pace.took(BYTES_MAX, 2 * SECONDS)
    assert pace.bytes_max == BYTES_MAX // 2
    pace.failed()
    assert pace.bytes_max == BYTES_MAX // 8
    for _ in range(9):
        pace.failed()
    assert pace.bytes_max == PART_BYTES
    pace.took(1, SECONDS / 10)
    assert pace.bytes_max == PART_BYTES  # a small one shows nothing
    for _ in range(9):
        pace.took(pace.bytes_max, SECONDS / 10)
    assert pace.bytes_max == BYTES_MAX
