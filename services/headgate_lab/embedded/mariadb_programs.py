"""MariaDB's client programs out of Debian's packages, unpacked into our cache: mariadb-dump, and mariadb to read it."""

import os
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from headgate.databases.mysql.address import parse_address
from headgate.provisioning.errors import EmbeddedError
from headgate_lab.embedded import debian

__all__ = ["pipe_dump"]

_PACKAGE: Final = "mariadb-client"
_BESIDE: Final = ("mariadb-client-core",)
_DUMP: Final = "usr/bin/mariadb-dump"
_CLIENT: Final = "usr/bin/mariadb"
PIPE_SECONDS_MAX: Final = 1800.0
"""For one table: the largest that was piped, a million rows, took 4 s."""

_INSTEAD: Final = "leave MariaDB out of this benchmark"


def pipe_dump(source: str, target: str, table: str, folder: Path) -> None:
    """Pipe mariadb-dump of one table into another server. Both addresses contain passwords and name a database.

    The table, and not a lock, is what the target has first. ``folder`` takes what the programs print. Raises
    EmbeddedError, ArtifactError.
    """
    root = debian.unpacked(_PACKAGE, _DUMP, _INSTEAD, _BESIDE)
    library_path = debian.library_path(root)
    # One consistent snapshot, without a lock that the writers would wait for.
    dump = [str(root / _DUMP), *_server(source), "--single-transaction", "--skip-lock-tables", "--skip-add-locks"]
    dump += ["--quick", "--no-create-info", "--skip-triggers", _database(source), table]
    load = [str(root / _CLIENT), *_server(target), _database(target)]
    with ExitStack() as files:
        notes = [files.enter_context((folder / f"{name}.log").open("wb")) for name in ("dump", "load")]
        reading = subprocess.Popen(
            dump, stdout=subprocess.PIPE, stderr=notes[0], env=_environment(source, library_path)
        )
        loading = subprocess.Popen(load, stdin=reading.stdout, stderr=notes[1], env=_environment(target, library_path))
        if reading.stdout is not None:
            reading.stdout.close()  # so that the dump notices the end of the program that reads it
        try:
            codes = (reading.wait(PIPE_SECONDS_MAX), loading.wait(PIPE_SECONDS_MAX))
        except subprocess.TimeoutExpired as error:
            for program in (reading, loading):
                program.kill()
            raise EmbeddedError(
                f"mariadb-dump piped into mariadb has not ended within {PIPE_SECONDS_MAX:g} s. Take fewer rows"
            ) from error
    if any(codes):
        said = "".join((folder / f"{name}.log").read_text(errors="replace") for name in ("dump", "load"))
        raise EmbeddedError(f"mariadb-dump piped into mariadb has ended with {codes}: {said.strip()}")


def _server(dsn: str) -> list[str]:
    to = parse_address(dsn)
    return ["--no-defaults", f"--host={to.host}", f"--port={to.port}", "--protocol=tcp", f"--user={to.user}"]


def _database(dsn: str) -> str:
    return parse_address(dsn).database or ""


def _environment(dsn: str, library_path: str) -> dict[str, str]:
    # Not an option: those are shown to every user of the machine.
    return {**os.environ, "LD_LIBRARY_PATH": library_path, "MYSQL_PWD": parse_address(dsn).password or ""}
