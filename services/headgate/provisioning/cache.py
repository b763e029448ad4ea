"""Our own cache folder, shared by everything of one user: `HEADGATE_CACHE`, else `~/.cache/headgate`.

Nothing in it is precious: whoever deletes it pays with one more download.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headgate.provisioning.errors import EmbeddedError


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

    Raises EmbeddedError when the file cannot be written.
    """
    try:
        handle = lock_file.open("a")
    except OSError as error:
        raise EmbeddedError(
            f"cannot write to {lock_file.parent}: {error}; set HEADGATE_CACHE to a folder of yours"
        ) from error
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


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
