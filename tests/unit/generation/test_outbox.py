"""Changes on their way to a log: each is written once and per key in order, whatever is held back and whoever dies."""

import random
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.generation.changelog.core.outbox import Outbox, OutboxFullError, PendingChange, PositionError, Written
from headgate.generation.changelog.core.planning import first_map

LOG = first_map(4, 4, random.Random(1).getrandbits)  # noqa: S311 (ids, not secrets)
TOKENS = [stream.end for stream in LOG.streams]


def change(position: int, stream: int = 0) -> PendingChange:
    return PendingChange(position, TOKENS[stream], b"k", b"v")


def positions(outbox: Outbox, closed: tuple[int, ...] = (), limit: int = 10) -> list[int]:
    batch = outbox.take(LOG, [LOG.streams[number] for number in closed], limit)
    outbox.commit()
    return [] if batch is None else [change.position for change, _ in batch.changes]


def test_what_is_closed_is_held_and_the_rest_goes_on() -> None:
    outbox = Outbox(10)
    for position, stream in enumerate([0, 1, 0, 2]):
        assert outbox.add(change(position, stream))
    assert positions(outbox, closed=(0,)) == [1, 3]
    assert outbox.written == Written(-1, 3, ((LOG.streams[0].start, LOG.streams[0].end),))
    assert outbox.has_held
    assert [outbox.written.has(position, TOKENS[stream]) for position, stream in enumerate([0, 1, 0, 2])] == [
        *(False, True, False, True),
    ]
    assert positions(outbox) == [0, 2]
    assert outbox.written == Written(3, 3)


def test_what_was_held_and_does_not_go_into_one_batch_is_not_said_to_be_written() -> None:
    """The position may not pass it: a life that ended between the two batches would have lost change 2."""
    outbox = Outbox(10)
    for position, stream in enumerate([0, 0, 0, 1]):
        outbox.add(change(position, stream))
    assert positions(outbox, closed=(0,)) == [3]
    assert positions(outbox, limit=2) == [0, 1]
    assert outbox.written == Written(1, 3, ((LOG.streams[0].start, LOG.streams[0].end),))
    later = Outbox(10)
    later.begin(outbox.written)
    assert [later.add(change(position, stream)) for position, stream in enumerate([0, 0, 0, 1])] == [
        *(False, False, True, False),
    ]
    assert positions(outbox, limit=2) == [2]
    assert outbox.written == Written(3, 3)


def test_a_batch_is_bounded_by_bytes_and_has_one_change_of_any_size() -> None:
    outbox = Outbox(10)
    for position, size in enumerate([40, 40, 40, 500, 10]):
        outbox.add(PendingChange(position, TOKENS[0], b"", b"v" * size))
    taken = []
    while (batch := outbox.take(LOG, (), 10, 100)) is not None:
        taken.append([change.position for change, _ in batch.changes])
        outbox.commit()
    assert taken == [[0, 1], [2], [3], [4]]
    assert outbox.written == Written(4, 4)


def test_the_first_change_that_waits_is_known_wherever_it_is() -> None:
    outbox = Outbox(10)
    assert outbox.first_waiting is None
    for position in range(3):
        outbox.add(change(position, position))
    assert outbox.first_waiting == 0
    outbox.take(LOG, [LOG.streams[0]], 1)
    assert outbox.first_waiting == 0, "held back"
    outbox.commit()
    assert (outbox.first_waiting, positions(outbox), outbox.first_waiting) == (0, [0, 2], None)


def test_positions_ascend_and_the_box_has_an_end() -> None:
    outbox = Outbox(1)
    outbox.add(change(5))
    with pytest.raises(PositionError, match="5 does not follow 5"):
        outbox.add(change(5))
    with pytest.raises(OutboxFullError):
        outbox.add(change(6))
    assert positions(outbox) == [5]
    assert outbox.add(change(6)), "what a full box refused can be given again"


def test_a_source_that_reconnects_sends_again_and_nothing_is_written_twice() -> None:
    outbox = Outbox(10)
    for position, stream in ((10, 0), (20, 1), (30, 0), (40, 1)):
        outbox.add(change(position, stream))
    assert positions(outbox, closed=(0,), limit=1) == [20], "10 and 30 are held or wait"
    with pytest.raises(PositionError, match=r"first ask for `writer\.position`"):
        outbox.add(change(30))
    outbox.resend()
    assert [outbox.add(change(*each)) for each in ((10, 0), (20, 1), (30, 0), (40, 1), (50, 0))] == [
        *(False, False, False, False, True),
    ]
    assert positions(outbox) == [10, 30, 40, 50]


def test_a_source_that_reconnects_must_send_the_same_positions() -> None:
    """Position 15 was never seen, but counts as written after the next crash: it would be lost."""
    outbox = Outbox(10)
    outbox.add(change(10))
    outbox.add(change(20))
    outbox.resend()
    with pytest.raises(PositionError, match="15 was not among the changes"):
        outbox.add(change(15))


def test_the_box_is_bounded_by_bytes_too_and_takes_one_change_of_any_size() -> None:
    outbox = Outbox(10, limit_bytes=100)
    large = PendingChange(1, TOKENS[0], b"k", b"v" * 150, (("h", b"12"), ("n", None)))
    assert large.size_bytes == 155
    outbox.add(large)
    with pytest.raises(OutboxFullError, match="1 changes of 155 bytes"):
        outbox.add(change(2))
    outbox.take(LOG, (), 10)
    assert not outbox.has_room, "what is on its way counts"
    outbox.commit()
    assert (outbox.waiting_bytes, outbox.has_room) == (0, True)
    outbox.add(change(2))
    outbox.add(change(3, stream=1))
    outbox.take(LOG, [LOG.streams[0]], 10)
    outbox.begin(Written(2, 2))
    assert outbox.waiting_bytes == change(3).size_bytes, "what the log has is not counted any more"


def test_a_batch_is_confirmed_before_the_next() -> None:
    outbox = Outbox(5)
    outbox.add(change(0))
    outbox.take(LOG, [], 5)
    with pytest.raises(RuntimeError):
        outbox.take(LOG, [], 5)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(0, 2**32))
def test_each_change_is_written_once_in_its_keys_order(source: list[int], seed: int) -> None:
    """The source sends again from anywhere before what is written; lives end between a batch and its commit."""
    chance = random.Random(seed)  # noqa: S311 - hypothesis' own gives too many zeros: nobody died
    log: dict[int, list[int]] = defaultdict(list)
    written = Written()
    for _ in range(2000):
        outbox = Outbox(8)
        outbox.begin(written)
        at = chance.randint(0, max(0, written.position + 1))
        closed: tuple[int, ...] = ()
        hold_ends = chance.choice([0.05, 0.2])
        while True:
            if at < len(source) and chance.random() < 0.8 and len(outbox) < 8:
                outbox.add(change(at, source[at]))
                at += 1
            if not outbox.has_held and chance.random() < 0.2:
                closed = tuple(chance.sample(range(4), 2))
            elif chance.random() < hold_ends:
                closed = ()
            batch = outbox.take(LOG, [LOG.streams[number] for number in closed], 2)
            if batch is not None and chance.random() < 0.95:
                for each, partition in batch.changes:
                    log[partition].append(each.position)
                written = batch.after
                if chance.random() < 0.1:
                    break  # the transaction stood, but the writer never knew
                outbox.commit()
            elif batch is not None:
                break
            if at == len(source) and len(outbox) == 0:
                break
        if sum(map(len, log.values())) == len(source):
            break
    assert {number: log[number] for number in range(4)} == {
        number: [at for at, stream in enumerate(source) if stream == number] for number in range(4)
    }
