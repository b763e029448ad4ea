"""Reading a log to an end that was captured before: the one loop that decides what "caught up" means.

The end is the read_uncommitted one, so nothing committed can lie beyond it unseen. A reader that stops short of it is
held up by an open transaction of another producer: after a role's own ``init`` that proves a second transactional
writer on the topic. It may end by itself, within its timeout; after that something is wrong and the wait would never
end, so the loop fails loudly (tests/integration/eventlog/test_replay.py).
"""

import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from typing import ClassVar, Final, Protocol, TypeVar

from headgate.eventlog.log import Delivery, Garbage, Log, LogError, Partition

__all__ = [
    "HANGING_AGAIN_SECONDS",
    "HANGING_SECONDS",
    "READ_STALL_SECONDS_MAX",
    "ReplayStalledError",
    "read_on_to",
    "read_to_end",
]

READ_STALL_SECONDS_MAX: Final = 30.0
"""How long a command that looks at the topics waits without any progress: our transactions' timeout (10 s), the
broker's round that ends them (10 s), and a restart's margin. A person waits; a role is more patient, because its giving
up ends it (candidate.CAMPAIGN_STALL_SECONDS_MAX)."""

HANGING_SECONDS: Final = 5.0
"""How long a replay makes no progress before it is checked whether a broker has lost a transaction's end: ``init`` has
ended all that brokers know of, within a second as a rule."""

HANGING_AGAIN_SECONDS: Final = 20.0
"""After which it is checked again: the answer may be unavailable while a broker has just been restarted."""

POLL_RECORDS_MAX: Final = 1000
"""Records held at a time; decoding, not the client, is what limits."""

POLL_SECONDS: Final = 0.2
"""How often the limit is looked at while nothing comes."""


ItemT_co = TypeVar("ItemT_co", covariant=True)


class Reader(Protocol[ItemT_co]):
    """A reader of control topics or of others: what both have in common."""

    def poll(self, records_max: int, timeout_seconds: float) -> Sequence[ItemT_co]:
        """Up to ``records_max`` items, waiting at most so long for the first. Raises LogError."""
        ...

    def positions(self) -> Mapping[Partition, int]:
        """Per partition the offset up to which everything visible has been delivered."""
        ...


class ReplayStalledError(LogError):
    """The end cannot be reached: a transaction that does not end is before it, or the broker is silent."""

    code: ClassVar[str] = "replay-stalled"


def read_to_end(
    log: Log,
    partitions: Sequence[Partition],
    start: Mapping[Partition, int] | None = None,
    *,
    stall_seconds_max: float = READ_STALL_SECONDS_MAX,
    monotonic: Callable[[], float] = time.monotonic,
) -> Generator[Delivery | Garbage, None, None]:
    """Everything visible in ``partitions`` from ``start`` (default: the beginning) to the end as it is now.

    An owner calls its writer's ``init`` before this, so that its predecessor can add nothing behind the end.
    Raises LogError, ReplayStalledError, NewerSchemaError.
    """
    begin = {partition: offset for partition, offset in (start or {}).items() if partition in partitions}
    begin |= log.first_offsets([partition for partition in partitions if partition not in begin])
    ends = log.end_offsets(partitions)
    reader = log.reader(begin, is_brief=True)
    try:
        yield from read_on_to(reader, ends, stall_seconds_max=stall_seconds_max, monotonic=monotonic)
    finally:
        reader.close()


def read_on_to(
    reader: Reader[ItemT_co],
    ends: Mapping[Partition, int],
    *,
    stall_seconds_max: float = READ_STALL_SECONDS_MAX,
    monotonic: Callable[[], float] = time.monotonic,
    unpin: Callable[[Collection[Partition]], str] | None = None,
) -> Iterator[ItemT_co]:
    """The same with a reader that stays open: until its positions have reached ``ends``, which may be passed.

    ``unpin`` ends transactions whose end a broker has lost in these partitions; it returns why records are still
    hidden there, if they are.
    """
    # Only what is short of its end counts: heartbeats keep one partition moving while another is held up permanently.
    short = _short(reader, ends)
    moved_at = monotonic()
    unpin_at, why = HANGING_SECONDS, ""
    while short:
        yield from reader.poll(POLL_RECORDS_MAX, POLL_SECONDS)
        before, short = short, _short(reader, ends)
        still = monotonic() - moved_at
        if short != before:
            moved_at, unpin_at = monotonic(), HANGING_SECONDS
        elif still > stall_seconds_max:
            raise ReplayStalledError(_stalled(short, ends, stall_seconds_max, why))
        elif unpin is not None and still > unpin_at:
            unpin_at = still + HANGING_AGAIN_SECONDS
            why = unpin(short)


def _short(reader: Reader[ItemT_co], ends: Mapping[Partition, int]) -> dict[Partition, int]:
    """Positions of the partitions that have not reached their ends."""
    positions = reader.positions()
    return {partition: positions[partition] for partition, end in sorted(ends.items()) if positions[partition] < end}


def _stalled(short: Mapping[Partition, int], ends: Mapping[Partition, int], seconds: float, why: str) -> str:
    places = ", ".join(f"{p.topic}/{p.number} at {position} of {ends[p]}" for p, position in short.items())
    return (
        f"replay has not advanced for {seconds:g} s: {places}. An open transaction blocks it: another "
        "producer's, or one whose end a restarted broker has lost (docs/bugs.md, B20). Find it with "
        "kafka-transactions.sh find-hanging and end it with kafka-transactions.sh abort"
        f"{f'. What is known: {why}' if why else ''}"
    )
