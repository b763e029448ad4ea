"""What the broker's log of transactions says: records as Kafka 4.3.1 wrote them, and others that say nothing."""

import struct

import pytest

from headgate.eventlog.decisions import Decided, Decision, decided, decision_on, transaction_partition
from headgate.eventlog.log import Partition

TOPICS = ("headgate.sync", "headgate.dispatch", "headgate.checkpoint")
KEY = b"\x00\x00\x00\x05owner"
HEAD = b"\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x27\x10"
PARTITIONS = (
    b"\x04\x0eheadgate.sync\x02\x00\x00\x00\x00\x00\x12headgate.dispatch\x02\x00\x00\x00\x00\x00"
    b"\x14headgate.checkpoint\x02\x00\x00\x00\x00\x00"
)
TIMES = b"\x00\x00\x01\xa2\x02\\zc\x00\x00\x01\xa2\x02\\z\x0c\x01\x00\x08" + bytes(8)


def of(topic: str, *numbers: int) -> frozenset[Partition]:
    return frozenset(Partition(topic, number) for number in numbers)


def value(status: int, partitions: bytes = PARTITIONS) -> bytes:
    return HEAD + bytes([status]) + partitions + TIMES


@pytest.mark.parametrize(("status", "decision"), [(2, Decision.COMMIT), (3, Decision.ABORT)])
def test_a_decision_names_what_the_transaction_wrote_to(status: int, decision: Decision) -> None:
    assert decided("owner", KEY, value(status)) == Decided(decision, frozenset(Partition(name, 0) for name in TOPICS))


def test_the_older_form_is_understood_and_a_long_name_in_the_newer() -> None:
    old = struct.pack(">hqhib", 0, 7, 1, 10_000, 2) + struct.pack(">ih", 1, 13) + b"headgate.sync"
    old += struct.pack(">iii", 2, 3, 5) + bytes(16)
    assert decided("owner", KEY, old) == Decided(Decision.COMMIT, of("headgate.sync", 3, 5))
    long = "n" * 200
    newer = value(2, b"\x02\xc9\x01" + long.encode() + b"\x03\x00\x00\x00\x07\x00\x00\x01\x00\x00")
    assert decided("owner", KEY, newer) == Decided(Decision.COMMIT, of(long, 7, 256))


@pytest.mark.parametrize("partitions", [b"", b"\x04", PARTITIONS[:-3], b"\x02\x03\xff\xff\x02\x00\x00\x00\x00\x00"])
def test_partitions_that_cannot_be_read_decide_nothing(partitions: bytes) -> None:
    assert decided("owner", KEY, HEAD + b"\x02" + partitions) is None


ONE, TWO, THREE = (Partition("t", number) for number in (1, 2, 3))


def committed(*partitions: Partition) -> Decided:
    return Decided(Decision.COMMIT, frozenset(partitions))


def aborted(*partitions: Partition) -> Decided:
    return Decided(Decision.ABORT, frozenset(partitions))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([], None),
        ([committed(THREE)], None),
        ([committed(ONE)], committed(ONE)),
        ([committed(ONE, THREE)], committed(ONE)),
        ([aborted(ONE), committed(ONE, TWO)], committed(ONE, TWO)),
        ([committed(ONE), committed(THREE)], committed(ONE)),
        ([committed(ONE), aborted(THREE)], committed(ONE)),
        ([committed(ONE, THREE), committed(THREE)], committed(ONE)),
        ([committed(ONE, THREE), aborted(THREE)], None),
        ([committed(ONE, THREE), aborted(THREE), committed(TWO)], None),
        ([committed(ONE), aborted(TWO, THREE)], aborted(TWO)),
    ],
)
def test_the_latest_decision_that_touches_what_is_hidden_counts_unless_a_later_one_beside_differs(
    found: list[Decided], expected: Decided | None
) -> None:
    assert decision_on(found, {ONE, TWO}) == expected


@pytest.mark.parametrize("status", [0, 1, 4, 5, 6, 7])
def test_other_states_decide_nothing(status: int) -> None:
    assert decided("owner", KEY, value(status)) is None


def test_what_is_about_another_or_not_understood_decides_nothing() -> None:
    good = value(2)
    assert decided("owne", KEY, good) is None
    assert decided("owner2", KEY, good) is None
    assert decided("owner", None, good) is None
    assert decided("owner", KEY, None) is None
    assert decided("owner", KEY[:3], good) is None
    assert decided("owner", KEY, good[:16]) is None
    assert decided("owner", b"\x00\x01" + KEY[2:], good) is None, "a key of a version to come"
    assert decided("owner", KEY, b"\x00\x02" + good[2:]) is None, "a value of a version to come"


@pytest.mark.parametrize(
    ("name", "java"), [("hello", 99_162_322), ("a", 97), ("headgate.x", 2_020_028_917), ("\U0001f600", 1_772_899)]
)
def test_the_partition_is_that_of_javas_hash(name: str, java: int) -> None:
    assert [transaction_partition(name, count) for count in (1, 7, 50)] == [abs(java) % count for count in (1, 7, 50)]


def test_the_hash_that_has_no_opposite_is_in_the_first_partition() -> None:
    assert transaction_partition("polygenelubricants", 50) == 0
