"""Maintenance of a lake table by the process that holds it: compaction, expiry of old versions, and removal of files.

It goes through the fence like a commit of rows: the table is read, the claim is checked on it, and each step is a
commit on exactly the version that was read. So a process that was overtaken changes nothing, and a commit of rows that
was prepared on an earlier version is refused, and repeated on the new one.

Files are removed last, in an order that no commit can be hurt by: list the files, move the table's version, read what
the kept versions need, remove the rest. An attempt whose files were listed has read the table before its version moved,
so it can never commit them. Jobs of others that rebase their commits are why only old files are removed.

The table itself remembers when it was maintained, in an application transaction like those of positions, so the next
agent of the table knows.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, TypeVar

from headgate.config.crash_points import CrashPoint, reach
from headgate.sinks.contract import Claim, SinkRefusedError
from headgate.sinks.lake.attempts import until_committed
from headgate.sinks.lake.claims import Claims, about_attempt, about_claim
from headgate.sinks.lake.tables import Lake, Stamp, VersionedTable
from headgate.sinks.maintaining import Maintained, Upkeep

__all__ = ["MAINTAINED", "Maintenance"]

MAINTAINED: Final = "headgate/maintained"
"""The application transaction whose version is when the table was maintained last, in seconds since 1970."""

T = TypeVar("T")


class Maintenance:
    """Of the tables of one lake."""

    def __init__(self, lake: Lake, claims: Claims) -> None:
        self._lake = lake
        self._claims = claims

    def last(self, claim: Claim) -> datetime | None:
        """When the table was maintained, or else created; None if it does not exist. Raises SinkError."""
        with self._lake.as_sink_errors(f"reading {claim.table}"):
            table = self._lake.table(claim.table)
            if table is None:
                return None
            at = table.transaction(MAINTAINED)
            return table.created if at is None else datetime.fromtimestamp(at, UTC)

    def run(self, claim: Claim, upkeep: Upkeep, now: datetime) -> Maintained:
        """Compact, expire and remove, under the claim. Raises SinkError; then what was done so far stays."""
        stamp = Stamp({}, about_claim(claim))
        kept, orphans = now - upkeep.keep, now - upkeep.orphans
        with self._lake.as_sink_errors(_doing(claim)):
            before = self._step(claim, lambda table: table.size)
            self._step(claim, lambda table: table.compact(upkeep.target_bytes, stamp))
            reach(CrashPoint.COMPACTED)
            expired = self._step(claim, lambda table: table.expire(kept, stamp))
            removed = self._step(claim, lambda table: table.remove_unneeded(expired.files, kept, orphans, stamp))
            mark = Stamp({MAINTAINED: int(now.timestamp())}, stamp.about)
            self._step(claim, lambda table: table.mark(mark))
            after = self._step(claim, lambda table: table.size)
        return Maintained(before.files, after.files, before.bytes, after.bytes, expired.versions, removed)

    def _step(self, claim: Claim, act: Callable[[VersionedTable], T]) -> T:
        def attempt() -> T:
            table = self._lake.table(claim.table)
            if table is None:
                raise SinkRefusedError(f"table {claim.table} does not exist")
            self._claims.check_open(claim, table)
            return act(table)

        return until_committed(_doing(claim), attempt)


def _doing(claim: Claim) -> str:
    return f"maintaining {about_attempt(claim)}"
