"""The changes on a table's topic, decoded as the feed into the copy decodes them."""

import time
from collections.abc import Iterator, Mapping
from typing import Final

from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.lasting_reader import OffsetGoneError
from headgate.eventlog.log import LogError, Partition
from headgate.eventlog.partition_reader import PartitionReader
from headgate.formats.change import Change
from headgate.formats.decoding import Decoder, SchemasUnavailableError, UndecodableError
from headgate.migration.shell.topic_tail import FeedsUnavailableError
from headgate.migration.strategies.contract import RefusedError
from headgate.migration.strategies.online.lane import FeedBehindError

__all__ = ["TopicChanges"]

POLL_SECONDS: Final = 0.05
"""Clients may wait for the answer."""

POLL_RECORDS_MAX: Final = 500


class TopicChanges:
    """See lane.Changes. Use it from one thread at a time."""

    def __init__(self, connection: KafkaConnection, topic: str, start: Mapping[int, int], decoder: Decoder) -> None:
        """Nothing is read yet. Raises FeedsUnavailableError."""
        self._topic, self._decoder = topic, decoder
        places = {Partition(topic, number): offset for number, offset in start.items()}
        try:
            self._reader = PartitionReader(connection, places, client_id="headgate-migration")
        except LogError as error:
            raise FeedsUnavailableError(str(error)) from error

    def read(self, upto: Mapping[int, int], seconds: float) -> Iterator[list[Change]]:
        """See Changes."""
        deadline = time.monotonic() + seconds
        while self._is_before(upto):
            if time.monotonic() >= deadline:
                raise FeedBehindError(f"the changes of topic {self._topic} could not be read in {seconds:g} s")
            if changes := self._some():
                yield changes

    def _is_before(self, upto: Mapping[int, int]) -> bool:
        at = self._reader.positions()
        return any(at.get(Partition(self._topic, number), 0) < offset for number, offset in upto.items())

    def _some(self) -> list[Change]:
        try:
            messages = self._reader.poll(POLL_RECORDS_MAX, POLL_SECONDS)
            return self._decoder.decode_batch(
                [message.key() for message in messages],
                [message.value() for message in messages],
                [int(message.partition() or 0) for message in messages],
                [int(message.offset() or 0) for message in messages],
                [int(message.timestamp()[1]) for message in messages],
            )
        except OffsetGoneError as error:
            raise RefusedError(
                f"changes are gone from topic {self._topic} before they were compared: {error}"
            ) from error
        except UndecodableError as error:
            raise RefusedError(f"topic {self._topic}: {error}") from error
        except (LogError, SchemasUnavailableError) as error:
            raise FeedsUnavailableError(str(error)) from error

    def close(self) -> None:
        """See Changes."""
        self._reader.close()
