"""Which files a process may read as secrets, which folders it may write to, and which hosts it may connect to.

Feeds and migrations are stored on topics. Anyone who can write to those topics chooses the file whose content is sent
as a password, and the host that it is sent to. So secrets are taken from one folder only, which the operator of the
process names, tables are written only below folders that the operator lists, and hosts, if the operator wants that, are
taken from a list. The settings are read from the environment of every process that opens a database, a folder of tables
or a registry: coordinators, agents, Spark's workers, the migration service, and commands.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

SECRETS_DIR: Final = "HEADGATE_SECRETS_DIR"
ALLOWED_HOSTS: Final = "HEADGATE_ALLOWED_HOSTS"
ALLOWED_FOLDERS: Final = "HEADGATE_ALLOWED_FOLDERS"
"""Folders, and places in object stores, separated by commas, below which sinks may write tables. None by default."""
BUCKETS: Final = "s3://"
"""How places in object stores begin."""
CONNECTIONS: Final = "HEADGATE_CONNECTIONS"
"""The file of named connections (databases/connections.py)."""
SECRETS_DIR_DEFAULT: Final = "/run/secrets"
"""Where Docker and Kubernetes put what a container is given."""

_NOT_OURS: Final = "kubernetes.io"
"""Kubernetes puts a pod's own token below /run/secrets in a folder of this name: it is not a sink's password."""


class NotPermittedError(ValueError):
    """A file or a host that a feed names and this process must not use. The message names it and what to do."""


def rules() -> dict[str, str]:
    """The settings as this process has them, for processes that it starts elsewhere."""
    return {
        name: value for name in (SECRETS_DIR, ALLOWED_HOSTS, ALLOWED_FOLDERS, CONNECTIONS) if (value := setting(name))
    }


def setting(name: str) -> str:
    """As config/settings.py reads it: the variable, or the file that the variable with ``_FILE`` names."""
    file = os.environ.get(f"{name}_FILE")
    return read_secret(Path(file)) if file else os.environ.get(name, "")


def read_secret(file: Path) -> str:
    """A file's text without the line ends at its end, as editors and ``echo`` leave them, on Windows too.

    Raises OSError, UnicodeDecodeError.
    """
    return file.read_text(encoding="utf-8").rstrip("\r\n")


def secret(given: Path, option: str) -> Path:
    """The file that ``given`` means: a name in the folder for secrets, or a whole path in it.

    Its own path, not what links lead to, so that a secret that is replaced is read again. Raises NotPermittedError for
    whatever is not in the folder, ``..`` and links out of it included.
    """
    folder = Path(setting(SECRETS_DIR) or SECRETS_DIR_DEFAULT)
    path = folder / given
    try:
        inside = path.resolve().relative_to(folder.resolve())
    except (ValueError, OSError, RuntimeError):
        inside = None
    if ".." in path.parts or inside is None or not inside.parts or _NOT_OURS in {*path.parts, *inside.parts}:
        raise NotPermittedError(
            f"{option} {given} is not in {folder}, the folder for secrets. Feeds and migrations are on topics, so "
            "they may name files of that folder only. Put the file there and give its name, or start this process with "
            f"{SECRETS_DIR} set to the folder that it is in, which should have nothing else"
        )
    return path


def check_hosts(hosts: Iterable[str], option: str) -> None:
    """Raise NotPermittedError for a host that is not in the operator's list, if one is set. ``""`` is not a host."""
    allowed = {name.strip().lower() for name in setting(ALLOWED_HOSTS).split(",") if name.strip()}
    if not allowed:
        return
    for host in hosts:
        if host.lower() not in allowed:
            what = f"names host {host}, which is not in" if host else "names no host, and not every one is in"
            raise NotPermittedError(
                f"{option} {what} {ALLOWED_HOSTS}. Add it there for this process, or correct {option}"
            )


def check_folder(folder: Path, option: str) -> None:
    """Raise NotPermittedError unless ``folder``, wherever links lead, is one of the operator's folders or below one."""
    try:
        is_inside = any(folder.resolve().is_relative_to(Path(each).resolve()) for each in _allowed(is_bucket=False))
    except (OSError, RuntimeError):
        is_inside = False
    if not is_inside:
        raise _not_listed(f"folder {folder}", option)


def check_bucket(place: str, option: str) -> None:
    """Raise NotPermittedError unless ``place``, ``s3://bucket/prefix``, is one of the operator's places or below one.

    A prefix ends at a slash: ``s3://lake/a`` does not permit ``s3://lake/ab``.
    """
    parts = place.split("/")
    is_inside = any(
        parts[: len(listed)] == listed for each in _allowed(is_bucket=True) for listed in [each.rstrip("/").split("/")]
    )
    if not is_inside or {".", ".."} & set(parts):
        raise _not_listed(place, option)


def _allowed(*, is_bucket: bool) -> list[str]:
    names = [name.strip() for name in setting(ALLOWED_FOLDERS).split(",") if name.strip()]
    return [name for name in names if name.startswith(BUCKETS) == is_bucket]


def _not_listed(what: str, option: str) -> NotPermittedError:
    allowed = [*_allowed(is_bucket=False), *_allowed(is_bucket=True)]
    where = (
        f"not below a folder in {ALLOWED_FOLDERS} ({', '.join(allowed)})"
        if allowed
        else (f"not permitted, because {ALLOWED_FOLDERS} is not set")
    )
    return NotPermittedError(
        f"{option}: {what} is {where}. Feeds are on topics, so they may write to folders that the "
        f"operator lists only. Start this process with {ALLOWED_FOLDERS} naming the folder, or correct {option}"
    )
