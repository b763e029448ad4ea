"""The change logs that have a topic or ask for it, from the topic generation, in all shards.

Change logs have owners in different processes, and each creates its own. Two that are created on one topic at the same
moment are told apart by their requests, which are on the topic generation before any owner acts: an owner that checks
afterwards sees the other's request, or its outcome. Of two that see each other the lower request id wins, and it waits
until the other one is refused. So one that did not see the other is never overruled.
"""

from collections.abc import Iterable

import msgspec

from headgate.eventlog.log import Log
from headgate.eventlog.snapshot import all_partitions, read_snapshot
from headgate.generation.changelog.shell.wire import positions_topic
from headgate.records.control import RequestSettled, is_unsettled
from headgate.records.generation import (
    GenerationOutcomeKey,
    GenerationRequested,
    GenerationRequestKey,
    GenerationRequestKind,
    SetKey,
    SetRecorded,
)

__all__ = ["Rival", "TopicClaims", "read_claims"]


class Rival(msgspec.Struct, frozen=True, order=True):
    """A request to create a change log that is not settled."""

    request: str
    set: str


class TopicClaims(msgspec.Struct, frozen=True):
    """Topic → change logs that have it, and requests that ask for it. Topics of writers' positions count, too."""

    sets: dict[str, tuple[str, ...]]
    requests: dict[str, tuple[Rival, ...]]

    def owners(self, topics: Iterable[str], other_than: str) -> dict[str, str]:
        """Topic → name of a change log other than ``other_than`` that has it."""
        found = {topic: [name for name in self.sets.get(topic, ()) if name != other_than] for topic in topics}
        return {topic: names[0] for topic, names in found.items() if names}

    def rivals(self, topics: Iterable[str], other_than: str) -> list[Rival]:
        """Requests of change logs other than ``other_than`` that ask for one of ``topics``, the lowest id first."""
        return sorted({rival for topic in topics for rival in self.requests.get(topic, ()) if rival.set != other_than})


def read_claims(log: Log) -> TopicClaims:
    """As they are now. Raises LogError."""
    snapshot = read_snapshot(log, all_partitions(log, ("generation",)))
    sets: dict[str, tuple[str, ...]] = {}
    for key, record in snapshot.each(SetKey, SetRecorded):
        for topic in _both(record.topic):
            sets[topic] = (*sets.get(topic, ()), key.set)
    requests: dict[str, tuple[Rival, ...]] = {}
    for asked, request in snapshot.each(GenerationRequestKey, GenerationRequested):
        outcome = snapshot.get(GenerationOutcomeKey(asked.set, asked.request), RequestSettled)
        if not is_unsettled(outcome) or request.kind is not GenerationRequestKind.CREATE:
            continue
        for topic in _both(request.topic):
            requests[topic] = (*requests.get(topic, ()), Rival(asked.request, asked.set))
    return TopicClaims(sets, requests)


def _both(topic: str) -> tuple[str, ...]:
    return (topic, positions_topic(topic)) if topic else ()
