"""Maintenance of a sink's tables: what a feed asks for, what was done, and what a sink must be able to do for it.

Lakes need it: each commit adds files and a version, and readers of many small files are slow.
"""

from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

import msgspec

from headgate.config.maintenance_options import MaintenanceOptions
from headgate.records.name_lists import number_of
from headgate.sinks.contract import Claim

__all__ = [
    "Maintained", "MaintainsTables", "Upkeep", "upkeep_of",
]  # fmt: skip


class Upkeep(msgspec.Struct, frozen=True):
    """What is wanted: data files of ``target_bytes``, and versions that are younger than ``keep``.

    Files that no version names are kept for ``orphans``, because a program that prepares a commit has written such
    files. It is at least ``keep``.
    """

    target_bytes: int
    keep: timedelta
    orphans: timedelta


def upkeep_of(options: MaintenanceOptions) -> Upkeep:
    """What a feed asks for."""
    return Upkeep(
        target_bytes=options.target_file_megabytes << 20,
        keep=timedelta(hours=options.keep_versions_hours),
        orphans=timedelta(hours=options.orphans_hours),
    )


class Maintained(msgspec.Struct, frozen=True):
    """What was done: data files and their bytes before and after the compaction, and what was removed then.

    ``versions``: those that cannot be read any more. 0 for a lake whose log keeps the entries of its versions.
    """

    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    versions: int
    removed: int

    def __str__(self) -> str:
        now = f"{_files(self.files_before, self.bytes_before)} before, {_files(self.files_after, self.bytes_after)} now"
        expired = f"{number_of(self.versions, 'version')} expired, " if self.versions else ""
        return f"{now}; {expired}{number_of(self.removed, 'file')} removed"


def _files(count: int, size: int) -> str:
    return f"{number_of(count, 'data file')} ({_shown(size)})"


def _shown(size: int) -> str:
    return f"{size / 1_000_000:.1f} MB" if size >= 1_000_000 else f"{size / 1_000:.1f} kB"


@runtime_checkable
class MaintainsTables(Protocol):
    """What a sink must be able to do so that the agent that holds a table maintains it."""

    def maintained_at(self, claim: Claim) -> datetime | None:
        """When the claim's table was maintained last, or, if it never was, created; None if it does not exist.

        Raises SinkError.
        """
        ...

    def maintain(self, claim: Claim, upkeep: Upkeep, now: datetime) -> Maintained:
        """Compact the claim's table and remove what no kept version needs, under the claim.

        Raises SinkError; then what was done until then stays, and no row is lost.
        """
        ...
