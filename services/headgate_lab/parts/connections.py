"""The databases that services know by name: the file of connections, and a file with the password of each."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import yaml

__all__ = ["CONNECTIONS_FILE", "NamedDatabase", "password_file_of", "write_connections"]

CONNECTIONS_FILE: Final = "connections.yaml"


class NamedDatabase(msgspec.Struct, frozen=True):
    """A database as an operator describes it: ``kind`` and ``address`` as in a feed, and what it may be used for."""

    kind: str
    address: str
    password: str
    use: Sequence[str]


def write_connections(folder: Path, databases: Mapping[str, NamedDatabase]) -> None:
    """Write the file of connections, by name, and the files of passwords, which only this user can read."""
    described = {}
    for name, database in databases.items():
        file = folder / password_file_of(name)
        file.touch(mode=0o600)
        file.write_text(database.password, encoding="utf-8")
        described[name] = {
            "kind": database.kind,
            "address": database.address,
            "password_file": file.name,
            "use": list(database.use),
        }
    text = yaml.safe_dump({"connections": described}, sort_keys=False)
    (folder / CONNECTIONS_FILE).write_text(text, encoding="utf-8")


def password_file_of(name: str) -> str:
    """In the folder for secrets."""
    return f"{name}.password"
