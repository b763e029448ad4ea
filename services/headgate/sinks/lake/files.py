"""Where the tables of a lake are: in a local or mounted folder, or in an object store (lake/store.py).

Libraries of tables read and write the files themselves. Here is what they do not do: whether a table may be there at
all, room for a new one, a trial of the place, and what an error means.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from headgate.config.error_values import are_values_shown
from headgate.sinks.contract import SinkError, SinkRefusedError, SinkUnavailableError

__all__ = ["ERROR_LENGTH_MAX", "Files", "LocalFiles", "LostFileError", "local_error", "without_partitions"]

ERROR_LENGTH_MAX: Final = 500
"""An error of a library may contain a plan of a query, or a statement."""

_NO_RIGHT: Final = (
    "Permission denied",
    "Read-only file system",
    "readonly database",
    "os error 13",
    "os error 30",
)


_TOO_LONG: Final = ("File name too long", "os error 36")

_PARTITION: Final = re.compile(r"(?<=/)(?P<field>[^/=\s]+)=[^/\s]*(?=/)")
"""A folder of a path that has a partition's value."""


def without_partitions(text: str) -> str:
    """A path, or a library's error, without the values of partitions in it, unless the operator wants values shown."""
    if are_values_shown():
        return text
    return _PARTITION.sub(r"\g<field>=…", text)


class LostFileError(FileNotFoundError):
    """A file that a table needs does not exist. ``location``: as the table's library names it."""

    def __init__(self, location: str) -> None:
        super().__init__(f"{location} does not exist")
        self.location = location

    def sink_error(self, doing: str) -> SinkRefusedError:
        """What it means. A file that comes back is found by the next attempt."""
        return SinkRefusedError(
            f"{doing}: file {without_partitions(self.location)} does not exist, and the table needs it. Another "
            "program has removed it. Restore it from a backup or from the bucket's versions. If it is lost, set the "
            "table back to a version that does not need it, and run `headgate feed resume FEED --from earliest`, which "
            "applies all changes of the source topic again"
        )


class Files(Protocol):
    """All below one place. Paths are below it, and have only names that it takes."""

    @property
    def hides_causes(self) -> bool:
        """Whether errors of libraries may contain keys, so that they are not shown beside what is made of them."""
        ...

    def where(self, path: Path) -> str:
        """Where that is, as libraries and people name it."""
        ...

    def delta_options(self, *, is_small: bool) -> dict[str, str] | None:
        """What delta-rs needs to use the files now. ``is_small``: those of a ledger. Raises SinkRefusedError."""
        ...

    def iceberg_properties(self) -> dict[str, str]:
        """What pyiceberg needs to use the files now. Raises SinkRefusedError."""
        ...

    def may_have(self, path: Path) -> bool:
        """Whether the library has to be asked if something is there."""
        ...

    def make_room(self, path: Path) -> None:
        """Let a table be created there. Raises OSError."""
        ...

    def read(self, path: Path) -> bytes | None:
        """A small file; None if it does not exist. Other threads run in the meantime. Raises SinkError, OSError."""
        ...

    def remove(self, paths: Sequence[Path]) -> None:
        """Remove files, and leave out those that do not exist. Raises SinkError, OSError."""
        ...

    def check(self, *, again: bool) -> None:
        """Raise SinkError unless tables can be fenced and written there, as far as a trial shows it.

        ``again``: a trial that another sink of this process has passed does not count. A key may have lost a right.
        """
        ...

    def sink_error(self, error: Exception, doing: str) -> SinkError:
        """What an error of a library means, without keys."""
        ...


class LocalFiles:
    """A folder."""

    hides_causes: Final = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def where(self, path: Path) -> str:
        """See Files."""
        return str(self._folder / path)

    def delta_options(self, *, is_small: bool) -> None:
        """See Files. None are needed."""

    def iceberg_properties(self) -> dict[str, str]:
        """See Files. None are needed."""
        return {}

    def may_have(self, path: Path) -> bool:
        """See Files. delta-rs takes a folder that does not exist for one that could be created."""
        return (self._folder / path).is_dir()

    def make_room(self, path: Path) -> None:
        """See Files."""
        (self._folder / path).mkdir(parents=True, exist_ok=True)

    def read(self, path: Path) -> bytes | None:
        """See Files."""
        try:
            return (self._folder / path).read_bytes()
        except FileNotFoundError:
            return None

    def remove(self, paths: Sequence[Path]) -> None:
        """See Files."""
        for path in paths:
            (self._folder / path).unlink(missing_ok=True)

    def check(self, *, again: bool) -> None:
        """See Files. File systems create files only where there is none, so the first write finds out the rest."""

    def sink_error(self, error: Exception, doing: str) -> SinkError:
        """See Files."""
        return local_error(error, doing)


def local_error(error: Exception, doing: str) -> SinkError:
    """What an error of files on this machine means."""
    if isinstance(error, LostFileError):
        return error.sink_error(doing)
    if any(words in str(error) for words in _TOO_LONG):
        return SinkRefusedError(
            f"{doing}: a file's name is longer than the file system takes. Choose shorter names in sink.table, and "
            "partitions with shorter values"
        )
    text = f"{doing}: {without_partitions(str(error))[:ERROR_LENGTH_MAX]}"
    if isinstance(error, PermissionError) or any(words in str(error) for words in _NO_RIGHT):
        return SinkRefusedError(f"{text}. Give user {os.geteuid()} of this process the right to write there")
    return SinkUnavailableError(text)
