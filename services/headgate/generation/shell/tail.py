"""The records of one set as they come: what writers, readers and commands know of generations.

Writers report to the owner. All other followers of a set skip these reports undecoded: with many writers most of the
topic is reports, and each follower would decode each of them. (Writers themselves share one tail: shared_tail.py.)
"""

import time
from collections.abc import Callable, Iterable

from headgate.eventlog.connection import KafkaConnection, KafkaProperty
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.log import Delivery, Garbage, LevelTooLowError, Log, LogError, Partition, Placed, Writer
from headgate.eventlog.replay import read_on_to
from headgate.eventlog.sharding import ANNOUNCE, shard_of
from headgate.eventlog.topics import topic_name
from headgate.generation.core.state import GenerationState, evolve, new_state
from headgate.records.base import Fact
from headgate.records.generation import WriterKey

__all__ = [
    "RECORDS_MAX",
    "WRITE_SECONDS_MAX",
    "GenerationTail",
    "open_generation_log",
    "partition_of_set",
    "write_at_level",
]

RECORDS_MAX: int = 1_000
"""Records of one look."""

WRITE_SECONDS_MAX: float = 10.0
"""For the broker to acknowledge one small record."""

LEVEL_SECONDS_MAX: float = 30.0
"""How long an owner's first announcement is waited for: it campaigns and announces itself within some seconds."""


def write_at_level(write: Callable[[], None], follow: Callable[[], object], state: GenerationState) -> None:
    """Write, and until an owner has announced the schema level for it, ``follow`` the topic into ``state``.

    Raises LogError: no owner has, or LevelTooLowError.
    """
    deadline = time.monotonic() + LEVEL_SECONDS_MAX
    while True:
        try:
            write()
        except LevelTooLowError as error:
            if time.monotonic() < deadline:
                follow()
                continue
            if state.owner_rev >= 0:
                raise
            raise LogError(
                f"no owner of change logs has announced itself within {LEVEL_SECONDS_MAX:g} s: is `headgate serve "
                "generation` running?"
            ) from error
        else:
            return


def partition_of_set(log: Log, name: str) -> Partition:
    """The partition that holds the records of a set."""
    return Partition("generation", shard_of(name, log.shards))


def open_generation_log(bootstrap: str, cluster: str, kafka: dict[str, KafkaProperty] | None = None) -> KafkaLog:
    """The control topics, for a process that needs none but ``generation``. Raises LogError."""
    connection = KafkaConnection(bootstrap, kafka)
    try:
        return _generation_log(connection, bootstrap, cluster)
    except BaseException:
        connection.close()
        raise


def _generation_log(connection: KafkaConnection, bootstrap: str, cluster: str) -> KafkaLog:
    broker = connection.broker_cluster_id()
    topic = topic_name(cluster, "generation")
    # All topics: a broker with auto.create.topics.enable creates one that is asked for by its name.
    found = connection.admin.list_topics(timeout=10.0).topics.get(topic)
    if found is None or not found.partitions:
        raise LogError(
            f"control topic {topic} does not exist on Kafka at {bootstrap}: create the cluster's topics (headgate "
            f"topic create), or check the cluster's name {cluster!r}"
        )
    return KafkaLog(connection, cluster, shards=len(found.partitions), broker_cluster_id=broker)


class GenerationTail:
    """Reads the partition of one set; ``state`` is derived from its records."""

    def __init__(
        self, log: Log, name: str, client: str, *, reports_of: Callable[[str], bool] = lambda _writer: False
    ) -> None:
        """``client`` names the process in what it writes; ``reports_of``: the writers whose reports are read.

        Raises LogError.
        """
        self._log = log
        self._partition = partition_of_set(log, name)
        # Owners' announcements contain the schema level, below which no records about generations can be written.
        self._reader = log.reader({ANNOUNCE: 0, self._partition: 0})
        self._reader.pass_over(
            lambda key: isinstance(key, WriterKey) and not (key.set == name and reports_of(key.writer))
        )
        self._client = client
        self._writer: Writer | None = None
        self.state: GenerationState = new_state(self._partition.number)

    @property
    def position(self) -> int:
        """The next offset of the set's partition: all before it is in ``state``."""
        return self._reader.positions()[self._partition]

    @property
    def stopped(self) -> str | None:
        """Why records may be missing from ``state``, None if none are."""
        return self._reader.stopped

    def follow(self, timeout_seconds: float) -> bool:
        """Take what is new, waiting at most so long for the first; whether there was anything. Raises LogError."""
        items = self._reader.poll(RECORDS_MAX, timeout_seconds)
        self._adopt(items)
        return bool(items)

    def _adopt(self, items: Iterable[Delivery | Garbage]) -> None:
        for item in items:
            if isinstance(item, Delivery):
                evolve(self.state, item.key, item.value, item.offset)

    def stable_end(self) -> int:
        """Up to where all that is committed can be read now. Raises LogError."""
        return self._log.stable_offsets([self._partition])[self._partition]

    def read_to_end(self) -> None:
        """Take all up to the end that the topic has now. Raises LogError."""
        self._adopt(read_on_to(self._reader, self._log.end_offsets([self._partition])))

    def read_what_is_committed(self) -> None:
        """Take all that anybody can have read by now, whatever transaction is open behind it. Raises LogError."""
        self._adopt(read_on_to(self._reader, self._log.stable_offsets([self._partition])))

    def say(self, fact: Fact) -> None:
        """Write a record and wait until it is stored; before that, until an owner has announced the level for it.

        Raises LogError if no owner has; LevelTooLowError.
        """
        writer = self._writer = self._writer or self._log.writer(self._client)  # most only read
        placed = [Placed(self._partition, fact)]
        write_at_level(lambda: writer.write(placed, WRITE_SECONDS_MAX), lambda: self.follow(0.2), self.state)

    def close(self) -> None:
        """Let go. Idempotent."""
        self._reader.close()
        if self._writer is not None:
            self._writer.close()
