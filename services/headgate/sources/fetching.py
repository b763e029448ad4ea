"""How a reader fetches: properties of its client, and the pace that many partitions want."""

from collections.abc import Mapping
from typing import Final

__all__ = [
    "FETCH_BYTES_MAX",
    "FETCH_BYTES_MIN",
    "FETCH_WAIT_MS",
    "PACED_PARTITIONS",
    "fetching",
    "pace_ms",
    "reader_properties",
]

QUEUE_KBYTES: Final = 16 << 10
"""What a reader fetches ahead; thrown away when the next task of its partitions runs in another process."""

FETCH_BYTES: Final = 64 << 20
FETCH_BYTES_MIN: Final = 1 << 20
FETCH_BYTES_MAX: Final = 8 << 20
"""Per partition, shared out among them: a fetch of 8 MB instead of 1 MB saves the broker half of its CPU per change."""

FETCH_RESPONSE_BYTES: Final = 32 << 20
"""All partitions of one fetch together: with hundreds that are behind, each may have its full share otherwise."""

FETCH_WAIT_MS: Final = 100
"""How long the broker may hold a fetch that finds nothing: also how soon an end of the log is known."""

PACED_PARTITIONS: Final = 32
"""From so many on a reader's fetches keep a pace. A fetch names all partitions which costs the broker 20 µs each,
while any new row ends it and brings the next one: of a hundred partitions with a thousand rows a second in all, the
broker did little else."""

PACE_MS_PER_PARTITION: Final = 0.5
"""Twenty to thirty times what a partition costs, so that a reader's fetches take a few percent of a core."""

PACED_BYTES_MIN: Final = 64 << 10
"""What a paced fetch waits for, no longer than its pace: some hundred rows, worth a fetch whatever it costs."""

BACK_OFF_MS: Final = 5
"""librdkafka's 1 000 ms after a full queue would leave the task without rows as soon as it has emptied it."""


def reader_properties(bootstrap: str, further: Mapping[str, str]) -> dict[str, str]:
    """Properties, by librdkafka's names, of a reader but for those that depend on what it reads."""
    return {
        "queued.max.messages.kbytes": str(QUEUE_KBYTES),
        "fetch.max.bytes": str(FETCH_RESPONSE_BYTES),
        "fetch.queue.backoff.ms": str(BACK_OFF_MS),
        "fetch.error.backoff.ms": "50",
        **further,
        "bootstrap.servers": bootstrap,
        "group.id": "headgate-lane",  # librdkafka wants one; nothing is joined or committed
        "enable.auto.commit": "false",
        "auto.offset.reset": "error",
        "enable.partition.eof": "true",
        "isolation.level": "read_committed",
    }


def fetching(partitions: int) -> dict[str, str]:
    """Properties, by librdkafka's names, that depend on how many ``partitions`` a reader has."""
    size = min(max(FETCH_BYTES // partitions, FETCH_BYTES_MIN), FETCH_BYTES_MAX)
    found = {"fetch.message.max.bytes": str(size), "fetch.wait.max.ms": str(FETCH_WAIT_MS)}
    pace = pace_ms(partitions)
    if pace:
        found |= {"fetch.min.bytes": str(PACED_BYTES_MIN), "fetch.wait.max.ms": str(pace)}
    return found


def pace_ms(partitions: int) -> int:
    """How long a fetch may wait for more than one row; 0: not at all."""
    if partitions < PACED_PARTITIONS:
        return 0
    return min(FETCH_WAIT_MS, round(PACE_MS_PER_PARTITION * partitions))
