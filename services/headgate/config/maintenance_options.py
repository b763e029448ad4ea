"""How the tables of a lake are maintained, and how often."""

from typing import Annotated, Final

from pydantic import Field, model_validator

from headgate.config.strict import Strict

__all__ = ["MaintenanceOptions"]

EVERY_HOURS: Final = 24.0
"""A commit a minute is 1 440 small files in that time, which readers still open in seconds."""

EVERY_HOURS_MIN: Final = 0.25
"""A table pauses while it is maintained."""

EVERY_HOURS_MAX: Final = 720.0
"""A month. Who wants less than that turns it off."""

FILE_MEGABYTES: Final = 128
"""What Spark's readers take as one split."""

FILE_MEGABYTES_MAX: Final = 512
"""The files that are written together are in the agent's memory, where their rows take several times as much."""

KEEP_HOURS: Final = 168
"""Delta's own default: readers of an old version are done by then."""

KEEP_HOURS_MIN: Final = 1
"""A query that has started on the version before must be able to end."""

ORPHANS_HOURS_MIN: Final = 24
"""The commit that another program prepares names its files only at its end, which may take it hours."""

HOURS_MAX: Final = 87_600
"""Ten years."""


class MaintenanceOptions(Strict):
    """A feed's ``sink.maintenance``."""

    scheduled: bool = True
    """False: only ``headgate table optimize`` maintains tables."""
    every_hours: Annotated[float, Field(ge=EVERY_HOURS_MIN, le=EVERY_HOURS_MAX)] = EVERY_HOURS
    target_file_megabytes: Annotated[int, Field(ge=1, le=FILE_MEGABYTES_MAX)] = FILE_MEGABYTES
    """Smaller files are written together until they are about as large."""
    keep_versions_hours: Annotated[int, Field(ge=KEEP_HOURS_MIN, le=HOURS_MAX)] = KEEP_HOURS
    """Younger versions stay readable."""
    remove_orphans_after_hours: Annotated[int, Field(ge=ORPHANS_HOURS_MIN, le=HOURS_MAX)] | None = None
    """Age of files that no version names; by default a week, or ``keep_versions_hours`` if that is longer."""

    @property
    def orphans_hours(self) -> int:
        """Age at which files that no version names are removed."""
        return self.remove_orphans_after_hours or max(KEEP_HOURS, self.keep_versions_hours)

    @model_validator(mode="after")
    def _kept_files(self) -> "MaintenanceOptions":
        if self.orphans_hours < self.keep_versions_hours:
            raise ValueError(
                f"remove_orphans_after_hours ({self.orphans_hours}) must be at least keep_versions_hours "
                f"({self.keep_versions_hours}), because a file that no version names any more may be of a version that "
                "is kept. Give a larger number, or leave it out"
            )
        return self
