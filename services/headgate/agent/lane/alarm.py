"""An alarm: one Structured Streaming query that does nothing but wake a lane when the log of its partitions grows.

Its batches carry no rows anywhere: ``foreachBatch`` tells the lane how far the log goes and comes back once the lane
rests, so Spark plans nothing while a lane is busy. What an alarm watches never changes; a lane whose spans have changed
gets another alarm, and the old one rings until the new one stands. Spark's own progress is never the truth: every
start gets a fresh checkpoint directory and the offsets that the sink names.
"""

import logging
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headgate.agent.lane.spark import check_options
from headgate.records.control import Positions

__all__ = ["Alarm", "LaneSource", "Sleeper"]

_log = logging.getLogger(__name__)

POLL_MS: Final = 25
"""How often Spark asks how far the log goes; 10 ms, its default, costs a quarter of a core per alarm."""

POLL_PARTITIONS: Final = 4
"""One millisecond more for so many partitions: to ask about 1 000 costs two milliseconds of a core, and as much of the
broker's, so 40 times a second would be a sixth of it for nothing."""

_POLLING: Final = "spark.sql.streaming.pollingDelay"

_starting = threading.Lock()
"""The polling delay is the session's; a query takes it over while it is built."""


class LaneSource(msgspec.Struct, frozen=True):
    """Where a lane reads, and how many rows a batch may have.

    ``options`` are further client properties by Java's names, for the query; ``reader`` all of librdkafka's, for tasks.
    ``one_machine``: tasks run where the driver does, and see its files.
    """

    bootstrap: str
    rows_max: int
    options: Mapping[str, str] = {}
    reader: Mapping[str, str] = {}
    one_machine: bool = False


class Sleeper(Protocol):
    """Who is to be woken. Called on Spark's threads."""

    def wake(self, ends: Mapping[tuple[str, int], int]) -> None:
        """The log has grown up to ``ends``."""
        ...

    def await_rest(self, off: threading.Event) -> None:
        """Return once all that it was woken for is done, or ``off`` is set and it was told so."""
        ...


class Alarm:
    """One query over ``starts``: per topic and partition, from which offset on it rings."""

    def __init__(self, name: str, sleeper: Sleeper, starts: Mapping[str, Positions]) -> None:
        self.name = name
        self.starts = starts
        self.places = frozenset((topic, partition) for topic, at in starts.items() for partition in at)
        self.off = threading.Event()
        self._sleeper = sleeper
        self._query: Any = None
        self._query_known = threading.Event()
        self._folder: Path | None = None

    def start(self, session: SparkSession, source: LaneSource, scratch: Path) -> None:
        """Start watching. Raises PySparkException, Py4JError or OSError; 0.3 to 0.6 s."""
        check_options(source.options)
        self._folder = Path(tempfile.mkdtemp(prefix="alarm-", dir=scratch))
        assign = {topic: sorted(partitions) for topic, partitions in sorted(self.starts.items())}
        offsets = {topic: {str(p): o for p, o in sorted(at.items())} for topic, at in sorted(self.starts.items())}
        options = {
            **{name if name.startswith("kafka.") else f"kafka.{name}": value for name, value in source.options.items()},
            "kafka.bootstrap.servers": source.bootstrap,
            "kafka.isolation.level": "read_committed",
            "assign": msgspec.json.encode(assign).decode(),
            "startingOffsets": msgspec.json.encode(offsets).decode(),
            "failOnDataLoss": "true",
        }
        stream = session.readStream.format("kafka").options(**options).load().writeStream.queryName(self.name)
        stream = stream.option("checkpointLocation", str(self._folder)).foreachBatch(self._ring)
        with _starting:
            session.conf.set(_POLLING, f"{POLL_MS + len(self.places) // POLL_PARTITIONS}ms")
            self._query = stream.start()
        self._query_known.set()
        if self.off.is_set():
            self.stop()

    def failure(self) -> str | None:
        """Why the query is over; None while it runs, or has not been started."""
        if self._query is None:
            return None
        try:
            if self._query.isActive:
                return None
            error = self._query.exception()
        except (Py4JError, OSError) as gone:
            return f"the Spark JVM does not answer: {gone}"
        return "the query ended by itself" if error is None else str(error)

    def stop(self) -> None:
        """End the query and delete its directory. The sleeper must hear of ``off``; idempotent."""
        self.off.set()
        try:
            if self._query is not None:
                self._query.stop()
        except (Py4JError, PySparkException, OSError) as error:
            _log.info("alarm %s: stopping a query that is gone: %s", self.name, error)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _ring(self, _frame: DataFrame, _batch_id: int) -> None:
        self._query_known.wait()
        if not self.off.is_set():
            self._sleeper.wake(self._log_ends())
            self._sleeper.await_rest(self.off)

    def _log_ends(self) -> dict[tuple[str, int], int]:
        """Up to where Spark has seen the log grow."""
        offset = self._query._jsq.streamingQuery().availableOffsets().iterator().next()._2().json()
        ends = msgspec.json.decode(offset, type=dict[str, dict[int, int]])
        return {(topic, partition): end for topic, found in ends.items() for partition, end in found.items()}
