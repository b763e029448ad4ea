"""What the broker's log of transactions says: records as Kafka 4.3.1 wrote them, and others that say nothing."""

import struct

import pytest

from headgate.eventlog.decisions import Decision, decided, transaction_partition

TOPICS = ("headgate.sync", "headgate.dispatch", "headgate.checkpoint")
KEY = b"\x00\x00\x00\x05owner"
HEAD = b"\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x27\x10"
PARTITIONS = (
    b"\x04\x0eheadgate.sync\x02\x00\x00\x00\x00\x00\x12headgate.dispatch\x02\x00\x00\x00\x00\x00"
    b"\x14headgate.checkpoint\x02\x00\x00\x00\x00\x00"
)
TIMES = b"\x00\x00\x01\xa2\x02\\zc\x00\x00\x01\xa2\x02\\z\x0c\x01\x00\x08" + bytes(8)


def value(status: int, partitions: bytes = PARTITIONS) -> bytes:
    return HEAD + bytes([status]) + partitions + TIMES


@pytest.mark.parametrize(("status", "decision"), [(2, Decision.COMMIT), (3, Decision.ABORT)])
def test_a_decision_names_what_the_transaction_wrote_to(status: int, decision: Decision) -> None:
    assert decided("owner", TOPICS, KEY, value(status)) == (decision, True)
    assert decided("owner", TOPICS[:1], KEY, value(status)) == (decision, True)
    assert decided("owner", [*TOPICS, "headgate.announce"], KEY, value(status)) == (decision, False)
    assert decided("owner", ["headgate.disp"], KEY, value(status)) == (decision, False), "a name is taken whole"


def test_the_older_form_is_understood_and_a_long_name_in_the_newer() -> None:
    old = struct.pack(">hqhib", 0, 7, 1, 10_000, 2) + struct.pack(">ih", 1, 13) + b"headgate.sync" + bytes(24)
    assert decided("owner", ["headgate.sync"], KEY, old) == (Decision.COMMIT, True)
    long = "n" * 200
    assert decided("owner", [long], KEY, value(2, b"\x02\xc9\x01" + long.encode())) == (Decision.COMMIT, True)


@pytest.mark.parametrize("status", [0, 1, 4, 5, 6, 7])
def test_other_states_decide_nothing(status: int) -> None:
    assert decided("owner", TOPICS, KEY, value(status)) is None


def test_what_is_about_another_or_not_understood_decides_nothing() -> None:
    good = value(2)
    assert decided("owne", TOPICS, KEY, good) is None
    assert decided("owner2", TOPICS, KEY, good) is None
    assert decided("owner", TOPICS, None, good) is None
    assert decided("owner", TOPICS, KEY, None) is None
    assert decided("owner", TOPICS, KEY[:3], good) is None
    assert decided("owner", TOPICS, KEY, good[:16]) is None
    assert decided("owner", TOPICS, b"\x00\x01" + KEY[2:], good) is None, "a key of a version to come"
    assert decided("owner", TOPICS, KEY, b"\x00\x02" + good[2:]) is None, "a value of a version to come"


@pytest.mark.parametrize(
    ("name", "java"), [("hello", 99_162_322), ("a", 97), ("headgate.x", 2_020_028_917), ("\U0001f600", 1_772_899)]
)
def test_the_partition_is_that_of_javas_hash(name: str, java: int) -> None:
    assert [transaction_partition(name, count) for count in (1, 7, 50)] == [abs(java) % count for count in (1, 7, 50)]


def test_the_hash_that_has_no_opposite_is_in_the_first_partition() -> None:
    assert transaction_partition("polygenelubricants", 50) == 0
