"""Our own cache folder, shared by everything of one user: `HEADGATE_CACHE`, else `~/.cache/headgate`.

Nothing in it is precious: if it is deleted, it is downloaded once more.
"""

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from headgate.provisioning.errors import EmbeddedError
from headgate.provisioning.time_scale import scaled_seconds

EXCLUSIVE_SECONDS_MAX: Final = 1_800.0
"""A holder downloads a few hundred MB or starts a Spark, each at its own limit of minutes. One that holds a lock longer
than this is frozen."""

_POLL_SECONDS: Final = 0.1


def cache_folder() -> Path:
    """The folder, made if it is missing. Raises EmbeddedError when it cannot be."""
    folder = Path(os.environ.get("HEADGATE_CACHE") or Path("~/.cache/headgate").expanduser()).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EmbeddedError(f"cannot make the cache folder {folder}: {error}; set HEADGATE_CACHE to one") from error
    return folder


@contextmanager
def exclusive(lock_file: Path) -> Iterator[None]:
    """Hold ``lock_file`` against other processes of this machine; a holder that dies lets go of it.

    Raises EmbeddedError when the file cannot be written, or when its holder keeps it for EXCLUSIVE_SECONDS_MAX.
    """
    try:
        handle = lock_file.open("a")
    except OSError as error:
        raise EmbeddedError(
            f"cannot write to {lock_file.parent}: {error}; set HEADGATE_CACHE to a folder of yours"
        ) from error
    with handle:
        _lock(handle, lock_file)
        yield


def _lock(handle: IO[str], lock_file: Path) -> None:
    seconds = scaled_seconds(EXCLUSIVE_SECONDS_MAX)
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise EmbeddedError(
                    f"another process has held {lock_file} for {seconds:g} s, so it is probably frozen. Find it with "
                    f"`fuser {lock_file}`, end it, and try again"
                ) from None
            time.sleep(_POLL_SECONDS)
        else:
            return


def write_atomically(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Have ``path`` hold ``content``: readers see the old file or the new one, never a part."""
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(descriptor, "wb") as handle:
        handle.write(content)
    Path(name).chmod(mode)
    Path(name).replace(path)
