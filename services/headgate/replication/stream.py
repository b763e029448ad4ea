"""A lane's query: Spark's Kafka source over explicit partitions, from explicit offsets.

Spark's own progress is never the truth: every query has a fresh checkpoint directory and begins at the offsets that
the sink names, and no query ever resumes from what another has recorded there.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from pyspark.sql import DataFrame, SparkSession

from headgate.generation.changelog.shell.wire import END, WRITER
from headgate.replication.consumer_groups import group_name
from headgate.replication.frames import COLUMNS, HEADERS, MARK, Mark
from headgate.replication.poll_size import POLL_RECORDS_MAX
from headgate.replication.spark_options import check_options

Ends: TypeAlias = Mapping[tuple[str, int], int]
"""(topic, partition) → an offset."""

FETCH_WAIT_MS: Final = 0
"""A broker is not to hold a fetch back until there is something. After the last rows of a partition the connector
asks for offsets on the connection on which the next fetch is parked, so each partition would wait for that: 500 ms by
Kafka's default. Nothing asks in a loop for it: Spark fetches only what a batch has, which is there."""

FETCH_BYTES: Final = 64 << 20
"""What all consumers of a lane may hold together: an eighth of the smallest driver heap that makes sense."""

FETCH_BYTES_MIN: Final = 64 << 10
FETCH_BYTES_MAX: Final = 8 << 20
"""Per partition. A fetch of 8 MB instead of Kafka's 1 MB saves the broker half of its CPU per change and the JVM a
sixth (docs/benchmarks.md). A record larger than that is fetched all the same, alone."""

RECEIVE_BYTES: Final = 1 << 20

REQUEST_MS: Final = 10_000
ANSWER_MS: Final = 15_000
"""How long a query waits for a broker, and for an answer over several tries: all its tables wait with it. With Kafka's
30 and 60 s a topic that is deleted would hold up its neighbours for a minute."""

POLL_MS: Final = 25
"""How often Spark asks how far the log goes; 10 ms, its default, costs a quarter of a core per lane."""

POLL_RESTING_MS: Final = 100
"""The same for lanes that rest after few changes. Each time is four requests to the broker, however few tables a feed
has: at 24 times a second most of what a quiet agent and its broker do. A change waits 50 ms for it on average
(docs/benchmarks.md)."""

POLL_PARTITIONS: Final = 4
"""One millisecond more for so many partitions: to ask about 1 000 costs two milliseconds of a core, and as much of the
broker's, so 40 times a second would be a sixth of it for nothing."""


NOTES: Final[Mapping[str, str]] = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "10000",
    # Spark has it for its Kafka sink alone: a query that resumes from such records writes some batches again.
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}
"""Spark's records of batches, which are never read, are written every ten seconds and in parallel to the batches: two
files per batch were a quarter of what a small one takes (docs/adr/0057)."""


class LaneSource(msgspec.Struct, frozen=True):
    """Where a lane reads: the brokers, further client properties by Java's names, and how many rows a batch may have.

    ``group`` tells apart lanes that must not share what Spark's consumers have polled (consumer_groups.py).

    ``interval_seconds``: from the begin of one batch to that of the next, at least. ``rests``: longer, where few come.
    ``commit_seconds``: from one commit to that of the next, at least, if the sink asks for that (commit_interval.py).
    ``headers``: they are read too, so that bad changes are set aside with them. ``marks``: the topic is a change log,
    whose record headers contain the kind of record (frames.Mark). ``poll_records``: how many records a consumer hands
    over at a time (poll_size.py).
    """

    bootstrap: str
    group: str
    rows_max: int
    interval_seconds: float = 0.0
    rests: bool = False
    commit_seconds: float = 0.0
    options: Mapping[str, str] = {}
    headers: bool = False
    marks: bool = False
    poll_records: int = POLL_RECORDS_MAX


def rows_of(session: SparkSession, source: LaneSource, starts: Ends) -> DataFrame:
    """The stream of all rows of the partitions of ``starts``, from there on. Raises RefusedOptionError."""
    check_options(source.options)
    assign: dict[str, list[int]] = {}
    offsets: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(starts.items()):
        assign.setdefault(topic, []).append(partition)
        offsets.setdefault(topic, {})[str(partition)] = offset
    client = {
        "kafka.request.timeout.ms": str(REQUEST_MS),
        "kafka.default.api.timeout.ms": str(ANSWER_MS),
        "kafka.max.partition.fetch.bytes": str(_fetch_bytes(len(starts))),
        "kafka.max.poll.records": str(source.poll_records),
        "kafka.receive.buffer.bytes": str(RECEIVE_BYTES),
        **{name if name.startswith("kafka.") else f"kafka.{name}": value for name, value in source.options.items()},
        "kafka.bootstrap.servers": source.bootstrap,
        "kafka.isolation.level": "read_committed",
        "kafka.fetch.max.wait.ms": str(FETCH_WAIT_MS),
    }
    options = {
        **client,
        "kafka.group.id": group_name(source.group, client),
        "assign": msgspec.json.encode(assign).decode(),
        "startingOffsets": msgspec.json.encode(offsets).decode(),
        "failOnDataLoss": "true",
        "maxOffsetsPerTrigger": str(source.rows_max),
        "includeHeaders": str(source.headers or source.marks).lower(),
    }
    columns = (*COLUMNS, *([HEADERS] if source.headers else ()), *([_MARK] if source.marks else ()))
    return session.readStream.format("kafka").options(**options).load().selectExpr(*columns)


def _has_header(name: str) -> str:
    return f"exists(headers, header -> header.key = '{name}')"


_MARK: Final = (
    f"CASE WHEN headers IS NULL THEN {Mark.STRANGE:d} WHEN {_has_header(END)} THEN {Mark.END:d} "
    f"WHEN {_has_header(WRITER)} THEN {Mark.CHANGE:d} ELSE {Mark.STRANGE:d} END AS {MARK}"
)


def _fetch_bytes(partitions: int) -> int:
    """Large fetches for few partitions, in powers of two: consumers of one size serve one query after the other."""
    wanted = min(max(FETCH_BYTES // partitions, FETCH_BYTES_MIN), FETCH_BYTES_MAX)
    return 1 << (wanted.bit_length() - 1)


def polling_delay(partitions: int, *, rests: bool) -> str:
    """How long a query over so many partitions waits when it has found nothing; see LaneSource for ``rests``."""
    return f"{max(POLL_MS + partitions // POLL_PARTITIONS, POLL_RESTING_MS if rests else 0)}ms"


def batch_ends(execution: Any, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Up to where the batch under way goes, of each of ``places``; ``execution`` is Spark's, of the query.

    Raises Py4JError.
    """
    return _of_places(execution.availableOffsets().values().head(), places)  # a lane has one source


def log_ends(session: SparkSession, execution: Any, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Up to where the log goes now, of each of ``places``, while no batch is under way. Raises Py4JError.

    Spark's source is asked, as Spark asks it before each batch. So no other client is needed.
    """
    source, reached = execution.sources().head(), execution.availableOffsets().values().head()
    everything = session._jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.allAvailable()
    return _of_places(source.latestOffset(reached, everything), places)


def _of_places(offsets: Any, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    ends = msgspec.json.decode(offsets.json(), type=dict[str, dict[int, int]])
    return {(topic, partition): ends[topic][partition] for topic, partition in places}
