"""Bad changes of one task, written to the deadletter topic before any position moves past them."""

from collections.abc import Callable, Sequence
from typing import Any

from headgate.records.control import WITHHELD_HEADER
from headgate.replication.bad_changes import BadChange, Original, SetAside
from headgate.replication.plan import DeadLetterTarget
from headgate.replication.rows import SpanRows
from headgate.sinks.contract import ChangeRefusedError, Quarantine

_quarantines: dict[DeadLetterTarget, Any] = {}
"""Kept per worker process: each is a connection."""


def too_many(rows: SpanRows, where: str) -> str:
    """Why the change at ``where`` is not set aside any more."""
    return (
        f"{rows.work.claim.table}: topic {rows.work.topic}, {where}; it is one more than the feed may set aside in "
        "an hour (quarantine_per_hour_max)"
    )


class TaskQuarantine:
    """Sets bad changes of one task aside. ``shared_name``: the table that keeps a change of any of several tables.

    ``hides``: topic → whether the feed excludes or masks columns of a table that it carries. ``later``: whether the
    driver keeps them, just before it commits.
    """

    def __init__(
        self,
        dead_letters: DeadLetterTarget,
        shared_name: Callable[[], str],
        hides: Callable[[str], bool],
        later: Callable[[], bool] = lambda: False,
    ) -> None:
        self._dead_letters = dead_letters
        self._later = later
        self._shared_name = shared_name
        self._hides = hides
        self._shared: set[tuple[str, int, int]] = set()

    def of(self, rows: SpanRows) -> Quarantine:
        """What the sink is to do with a change of this span that it refuses."""

        def keep(refused: Sequence[ChangeRefusedError]) -> None:
            self.keep(rows, [BadChange(each.partition, each.offset, each.code, str(each)) for each in refused])

        left = max(0, rows.work.quarantine_left - len(rows.kept))
        return Quarantine(keep, left, rows.work.patient, rows.work.only)

    def keep(self, rows: SpanRows, bad: Sequence[BadChange]) -> None:
        """Returns once all are safely on the deadletter topic, or on their way to the driver, which keeps them.

        Raises what ``DeadLetterWriter.keep`` raises.
        """
        # A change that does not name its table concerns all of them. Each task that meets it sets it aside once, under
        # one name everywhere, so that it is one on the deadletter topic.
        fresh = [each for each in bad if not each.unreadable]
        topic = rows.work.topic
        shared = [each for each in bad if each.unreadable and (topic, each.partition, each.offset) not in self._shared]
        later = self._later()
        originals = [rows.original(each.partition, each.offset) for each in (*fresh, *shared)]
        if self._hides(topic):
            originals = list(map(_withheld, originals))
        if later:
            # Each span's commit keeps its own: another one's may fail.
            names = [*(rows.work.claim.table for _ in fresh), *(self._shared_name() for _ in shared)]
            rows.set_aside += map(SetAside, names, (*fresh, *shared), originals)
        elif fresh:
            self._quarantine().keep(rows.work, fresh, originals[: len(fresh)])
        if shared and not later:
            self._quarantine().keep(rows.work, shared, originals[len(fresh) :], self._shared_name())
            self._shared.update((topic, each.partition, each.offset) for each in shared)
        rows.kept.update((each.partition, each.offset) for each in bad)

    def _quarantine(self) -> Any:
        quarantine = _quarantines.get(self._dead_letters)
        if quarantine is None:
            # Imports a Kafka client and our codec, which most workers never need.
            from headgate.replication.quarantine import DeadLetterWriter  # noqa: PLC0415

            quarantine = _quarantines[self._dead_letters] = DeadLetterWriter(self._dead_letters)
        return quarantine


def _withheld(original: Original) -> Original:
    """A record without its content. Its key may have columns that are masked, which can be why it is bad."""
    return Original(None, None, [(WITHHELD_HEADER, None)], original.append_ms)
