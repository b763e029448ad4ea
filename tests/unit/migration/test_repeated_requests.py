"""A request about a feed whose answer was lost is sent again, and its first copy may be executed in between."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from headgate.eventlog.log import LEVEL_FIRST, Partition, Placed
from headgate.migration.shell.feeds import ChangeFeeds
from headgate.migration.shell.topic_tail import FeedsUnavailableError
from headgate.migration.strategies.contract import RefusedError
from headgate.migration.strategies.online.lane import CopySink
from headgate.migration.strategies.online.lane_plan import ChangeTopic
from headgate.records.base import Fact
from headgate.records.control import FeedRecorded, FeedState, OutcomeStatus, RequestSettled, WantedState
from headgate.records.keys import FeedKey, OutcomeKey, RequestKey
from headgate_lab.memory_log.log import MemoryBroker
from support import build

FEED: Final = "migration-1"
PLACE: Final = Partition("changefeed", 0)
RUNS: Final = build.feed_recorded()
STOPPED: Final = build.feed_recorded(wanted=WantedState.STOPPED, state=FeedState.STOPPED)
REMOVED: Final = build.feed_recorded(wanted=WantedState.REMOVED, state=FeedState.REMOVED)


class Cluster(MemoryBroker):
    """An owner that refuses every request, and before that executes an earlier one: the feed's record changes."""

    def __init__(self, before: FeedRecorded | None, after: FeedRecorded | None) -> None:
        super().__init__()
        self._after = after
        self.requests = 0
        if before is not None:
            self._record(before)
        self.on_committed = self._answer

    def _record(self, record: FeedRecorded) -> None:
        self.append(Placed(PLACE, Fact(FeedKey(FEED), record)), LEVEL_FIRST)

    def _answer(self, _partition: Partition, entry: object) -> None:
        key = getattr(entry, "key", None)
        if not isinstance(key, RequestKey) or getattr(entry, "value", None) is None:
            return
        self.requests += 1
        if self._after is not None:
            self._record(self._after)
        refused = RequestSettled(1, OutcomeStatus.REFUSED, "it is so already", 1)
        self.append(Placed(PLACE, Fact(OutcomeKey(key.request), refused)), LEVEL_FIRST)


def _create(feeds: ChangeFeeds) -> None:
    feeds.create(FEED, ChangeTopic("t"), CopySink("postgresql", "shop", "public.items_copy"))


ACTS: Final = [
    pytest.param(_create, None, RUNS, id="create"),
    pytest.param(lambda feeds: feeds.pause(FEED), RUNS, STOPPED, id="pause"),
    pytest.param(lambda feeds: feeds.resume(FEED), STOPPED, RUNS, id="resume"),
    pytest.param(lambda feeds: feeds.remove(FEED), RUNS, REMOVED, id="remove"),
]


@pytest.mark.parametrize(("act", "before", "after"), ACTS)
def test_a_refusal_that_an_earlier_copy_has_caused_is_tried_again(
    act: Callable[[ChangeFeeds], None], before: FeedRecorded | None, after: FeedRecorded
) -> None:
    cluster = Cluster(before, after)
    log: Any = cluster.client()
    feeds = ChangeFeeds(log)
    with pytest.raises(FeedsUnavailableError, match="it is so already"):
        act(feeds)
    act(feeds)  # the record shows that nothing is missing
    assert cluster.requests == 1


@pytest.mark.parametrize(("act", "before", "after"), ACTS)
def test_a_refusal_of_what_the_record_lacks_is_final(
    act: Callable[[ChangeFeeds], None], before: FeedRecorded | None, after: FeedRecorded
) -> None:
    assert after is not None
    log: Any = Cluster(before, None).client()
    with pytest.raises(RefusedError, match="it is so already"):
        act(ChangeFeeds(log))
