"""A Spark that hangs while it writes the archive of its classes is an error, and no process of it is left."""

from pathlib import Path

import pytest

from headgate.replication import class_archive, spark_options
from headgate.replication.class_archive import ClassArchiveError
from support.ended import has_ended
from support.waiting import eventually

HANGING: str = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])  # as Java: it has our output open
print("its process", child.pid, flush=True)
"""
"""Stands for PROGRAM: starts a child that does not end."""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation without an archive; where it would be."""
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    monkeypatch.setattr(class_archive, "_can_have_one", lambda: True)
    monkeypatch.setattr(class_archive, "java_home_for_spark", lambda: Path("/no/java"))
    return spark_options.class_archive()


def child_in(error: ClassArchiveError) -> int:
    return int(str(error).rsplit("its process ", 1)[1])


def test_a_spark_that_takes_too_long_is_killed(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "WRITE_SECONDS_MAX", 2.0)
    monkeypatch.setattr(class_archive, "PROGRAM", HANGING + "child.wait()")
    with pytest.raises(ClassArchiveError, match=r"within .* and was killed") as raised:
        class_archive.ensure()
    assert not installed.exists()
    eventually(lambda: has_ended(child_in(raised.value)), "its child has ended")


def test_a_java_that_outlives_the_program_is_not_waited_for(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "PROGRAM", HANGING + "sys.exit(3)")
    with pytest.raises(ClassArchiveError, match="ended with code 3") as raised:
        class_archive.ensure()
    assert not installed.exists()
    eventually(lambda: has_ended(child_in(raised.value)), "its child has ended")


def test_what_a_failed_program_has_begun_is_no_archive(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = 'import re, sys; open(re.search(r"ArchiveClassesAtExit=([^\\" ]+)", str(sys.argv))[1], "w"); sys.exit(1)'
    monkeypatch.setattr(class_archive, "PROGRAM", written)
    with pytest.raises(ClassArchiveError, match="ended with code 1"):
        class_archive.ensure()
    assert [path.name for path in installed.parent.iterdir() if not path.name.endswith(".lock")] == []
