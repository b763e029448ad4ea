"""Spark's classes in an archive: what it is taken from, when it is written, and that nothing depends on it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.replication import class_archive, spark_options
from headgate.replication.class_archive import ClassArchiveError

pytestmark = pytest.mark.integration

CONTEXT = "org.apache.spark.SparkContext source: "

PROGRAM = """
import sys
from pathlib import Path

from headgate.provisioning.java import java_home_for_spark
from headgate.replication.spark import SparkRuntime
from headgate.replication.spark_options import SparkOptions

folder, sys.prefix, *jars = sys.argv[1:]
options = {"spark.driver.defaultJavaOptions": f"-Xlog:class+load=info:file={folder}/loaded.log"}
spark = SparkRuntime(
    SparkOptions(
        jars=tuple(map(Path, jars)), scratch=Path(folder, "scratch"), java_home=java_home_for_spark(), options=options
    )
)
try:
    spark.start()
finally:
    spark.stop()
"""
"""Arguments: a folder, the installation that has the archive, jars. A process has one Spark: this one has its own."""


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation without an archive."""
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    return spark_options.class_archive()


def source_of_its_context(spark_jars: tuple[Path, ...], folder: Path) -> str:
    """Where a Spark that is started has its main class from."""
    arguments = [sys.executable, "-c", PROGRAM, str(folder), sys.prefix, *map(str, spark_jars)]
    ran = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    (found,) = re.findall(rf"{re.escape(CONTEXT)}(.+)", (folder / "loaded.log").read_text())
    return str(found)


def test_spark_starts_from_the_archive_that_is_there(spark_jars: tuple[Path, ...], tmp_path: Path) -> None:
    if class_archive.ensure() is None:
        pytest.skip("this Java has no archive of its own")
    assert source_of_its_context(spark_jars, tmp_path) == "shared objects file (top)"


@pytest.mark.long
def test_what_is_no_archive_of_this_java_is_left(spark_jars: tuple[Path, ...], tmp_path: Path, elsewhere: Path) -> None:
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_bytes(os.urandom(4096))
    assert source_of_its_context(spark_jars, tmp_path).endswith(".jar")


def test_a_java_without_an_archive_of_its_own_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "BASE_ARCHIVES", ("lib/no-such-archive",))
    assert class_archive.ensure() is None
    with pytest.raises(SystemExit, match="take a whole Java 17"):
        class_archive.main()


def test_what_java_has_not_written_is_an_error(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "BASE_ARCHIVES", ("bin/java",))
    monkeypatch.setattr(class_archive, "PROGRAM", "print('it did not come up')")
    with pytest.raises(ClassArchiveError, match=r"free space there\. it did not come up"):
        class_archive.ensure()
    assert not elsewhere.exists()
