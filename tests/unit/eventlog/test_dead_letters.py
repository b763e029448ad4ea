"""What a partition of dead letters holds, with what was removed and is still there."""

from headgate.eventlog.dead_letters import DeadLetters
from headgate.eventlog.log import Delivery, Garbage, Partition
from headgate.eventlog.sharding import DEADLETTER
from headgate.records.control import ChangeQuarantined, Epoch
from headgate.records.keys import DeadLetterKey

PARTITION = Partition(DEADLETTER, 0)
KEY = DeadLetterKey("shop", "public.items", "shop.public.items", 0, 7)
OTHER = DeadLetterKey("shop", "public.items", "shop.public.items", 0, 8)


def letter(quarantined_ms: int = 1) -> ChangeQuarantined:
    return ChangeQuarantined("f1", 0, Epoch(1, 1), "decode_failed", "not JSON", None, b"{", (), 0, quarantined_ms)


def found(*records: tuple[DeadLetterKey, ChangeQuarantined | None]) -> DeadLetters:
    letters = DeadLetters(0, len(records))
    for offset, (key, value) in enumerate(records):
        letters.take(Delivery(PARTITION, offset, key, value))
    return letters


def test_a_letter_is_there_until_it_is_removed_and_its_bytes_until_they_are_compacted() -> None:
    assert found((KEY, letter())).current == {KEY: letter()}
    hidden = found((KEY, letter()), (OTHER, letter()), (KEY, None))
    assert (hidden.current, hidden.removed) == ({OTHER: letter()}, {KEY})
    compacted = found((OTHER, letter()), (KEY, None))
    assert (compacted.current, compacted.removed) == ({OTHER: letter()}, set())


def test_a_change_that_is_set_aside_again_is_there_again() -> None:
    again = found((KEY, letter()), (KEY, None), (KEY, letter(2)))
    assert (again.current, again.removed) == ({KEY: letter(2)}, set())


def test_what_cannot_be_understood_is_no_letter() -> None:
    letters = found()
    letters.take(Garbage(PARTITION, 0, "no schema 99"))
    assert (letters.current, letters.removed) == ({}, set())
