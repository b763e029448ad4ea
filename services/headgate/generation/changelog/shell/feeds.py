"""A feed coordinator's use of generations: finds the start of a change log, and reports as its reader."""

import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from headgate.eventlog.clock import wall_ms
from headgate.eventlog.log import Log, LogError
from headgate.generation.changelog.core.bounds import read_epoch_of, starts_of
from headgate.generation.changelog.shell.topic_claims import read_claims
from headgate.generation.core.ranges import MapError
from headgate.generation.shell.tail import GenerationTail
from headgate.records.base import Fact
from headgate.records.control import Positions
from headgate.records.generation import ReaderKey, ReaderReported
from headgate.sources.change_logs import ChangeLogMissingError, ChangeLogSeen, ChangeLogUnavailableError

__all__ = ["FeedChangeLogs"]

ResultT = TypeVar("ResultT")


class FeedChangeLogs:
    """See sources.change_logs.ChangeLogs. For several threads; one change log is asked by one at a time."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._tails: dict[str, GenerationTail] = {}

    def look(self, name: str) -> ChangeLogSeen:
        """The change log as it is now."""

        def seen(tail: GenerationTail) -> ChangeLogSeen:
            record = tail.state.sets.get(name)
            if record is None or not record.generations:
                raise ChangeLogMissingError(
                    f"change log {name!r} does not exist. Create it with `headgate generation create`, or correct "
                    "source.change_log"
                )
            return ChangeLogSeen(record.topic, record.partitions, starts_of(tail.state, name))

        return self._ask(name, seen)

    def names_by_topic(self) -> Mapping[str, str]:
        """Topic → name of each change log; that of its writers' positions holds no table either."""
        try:
            return {topic: names[0] for topic, names in read_claims(self._log).sets.items()}
        except LogError as error:
            raise ChangeLogUnavailableError(f"the topic generation cannot be read: {error}") from error

    def report(self, name: str, reader: str, positions: Positions) -> None:
        """Let nothing be retired that ``reader`` has yet to read."""

        def say(tail: GenerationTail) -> None:
            if name not in tail.state.sets:
                raise ChangeLogMissingError(f"change log {name!r} no longer exists")
            said = tail.state.readers.get(name, {}).get(reader)
            epoch = read_epoch_of(tail.state, name, positions)
            if said is None or said.read_epoch != epoch:
                tail.say(Fact(ReaderKey(name, reader), ReaderReported(epoch, wall_ms())))

        self._ask(name, say)

    def forget(self, name: str, reader: str) -> None:
        """Nothing has to wait for ``reader`` any more."""

        def forget(tail: GenerationTail) -> None:
            if reader in tail.state.readers.get(name, {}):
                tail.say(Fact(ReaderKey(name, reader), None))

        self._ask(name, forget)

    def _ask(self, name: str, question: Callable[[GenerationTail], ResultT]) -> ResultT:
        try:
            with self._lock:
                if name not in self._tails:
                    self._tails[name] = GenerationTail(self._log, name, "feeds-of-coordinator")
                self._tails[name].read_what_is_committed()
                return question(self._tails[name])
        except (LogError, MapError) as error:
            raise ChangeLogUnavailableError(f"change log {name}: {error}") from error
