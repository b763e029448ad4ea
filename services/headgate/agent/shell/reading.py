"""The reader of a session: announce, changefeed and dispatch of every shard, from the beginning.

If the log fails, the session waits until its own lease is over. A Kafka client that stops delivering is replaced
(eventlog/lasting_reader.py). Until all is read again the session is ``blind``: it does not see what its owners decide,
and is not ready.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from headgate.agent.shell.session import IdWatch
from headgate.eventlog.log import Delivery, Garbage, Log, LogError, NewerSchemaError, Partition
from headgate.eventlog.sharding import ANNOUNCE

__all__ = ["TURN_SECONDS", "SessionReader"]

_log = logging.getLogger(__name__)

TURN_RECORDS_MAX: Final = 5_000
"""Most records of one turn: decoding them takes a twentieth of a second."""

TURN_SECONDS: Final = 0.05
"""Longest pause between looks at the tasks (TiCDC's tick): a report is not noticeably older than what it reports."""


class SessionReader:
    """Reads for one session. ``watch`` sees every record; ``on_garbage`` is called for each that cannot be decoded."""

    def __init__(self, log: Log, session: str, watch: IdWatch, on_garbage: Callable[[], None]) -> None:
        """Begin at the start of the log. Raises LogError."""
        topics = ("changefeed", "dispatch")
        self._partitions = [ANNOUNCE, *(Partition(topic, shard) for topic in topics for shard in range(log.shards))]
        self._log = log
        self._session = session
        self._watch = watch
        self._on_garbage = on_garbage
        self._complaints: set[str] = set()
        self._reader = log.reader(dict.fromkeys(self._partitions, 0))

    def read(self) -> list[Delivery]:
        """What has come within TURN_SECONDS, none if the log fails. Raises NewerSchemaError, IdInUseError."""
        deliveries = []
        began = time.monotonic()
        try:
            polled = self._reader.poll(TURN_RECORDS_MAX, TURN_SECONDS)
        except NewerSchemaError:
            raise
        except LogError as error:
            self._complain("cannot read", error)
            polled = []
        else:
            self._complaints.clear()
        now = time.monotonic()
        if not polled:
            time.sleep(max(0.0, began + TURN_SECONDS - now))  # a log that fails, fails at once
        for item in polled:
            if isinstance(item, Garbage):
                self._on_garbage()
                _log.warning("%s at %d is skipped: %s", item.partition, item.offset, item.reason)
                continue
            self._watch.read(item.key, item.value)
            deliveries.append(item)
        return deliveries

    @property
    def blind(self) -> str | None:
        """Why records may be missing from what was read, None if none are."""
        return self._reader.stopped

    def end_offsets(self) -> dict[Partition, int] | None:
        """Where the log ends now; None if it does not answer."""
        try:
            return self._log.end_offsets(self._partitions)
        except LogError as error:
            self._complain("cannot see the end of the log", error)
            return None

    def reached(self, ends: dict[Partition, int]) -> bool:
        """Whether all below ``ends`` was read."""
        at = self._reader.positions()
        return all(end == 0 or at.get(partition, 0) >= end for partition, end in ends.items())

    def close(self) -> None:
        """Let go of the log."""
        self._reader.close()

    def _complain(self, what: str, error: LogError) -> None:
        """Log a fault of the log once, not at every poll."""
        if what not in self._complaints:
            self._complaints.add(what)
            _log.warning("session %s %s: %s", self._session, what, error)
