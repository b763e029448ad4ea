"""The driver's Spark as processes, without a Spark."""

import subprocess
from pathlib import Path

import pytest

from headgate.replication.spark import SparkRuntime
from headgate.replication.spark_options import SparkOptions


def test_a_collected_jvm_has_no_family_and_who_has_got_its_number_is_left_alone(tmp_path: Path) -> None:
    runtime = SparkRuntime(SparkOptions(jars=(), scratch=tmp_path))
    jvm = subprocess.Popen(["true"])
    jvm.wait()
    with subprocess.Popen(["sleep", "1000"]) as stranger:
        jvm.pid = stranger.pid
        runtime._process = jvm
        runtime.kill()
        assert runtime.memory_bytes()["jvm"] == 0
        assert stranger.poll() is None
        stranger.kill()


class StoppedContext:
    """A context of PySpark's that another thread has stopped."""

    _jsc = None


class StoppedSession:
    sparkContext = StoppedContext()  # noqa: N815 - PySpark's name


def test_a_spark_that_another_thread_has_stopped_is_not_alive(tmp_path: Path) -> None:
    runtime = SparkRuntime(SparkOptions(jars=(), scratch=tmp_path))
    with subprocess.Popen(["sleep", "1000"]) as jvm:
        runtime._process, runtime._session = jvm, StoppedSession()  # type: ignore[assignment]
        assert not runtime.alive()
        runtime.close_unused(set())
        jvm.kill()


def test_a_spark_that_is_stopped_while_workers_are_swept_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = SparkRuntime(SparkOptions(jars=(), scratch=tmp_path))
    runtime._session = StoppedSession()  # type: ignore[assignment]
    monkeypatch.setattr(runtime, "_alive", lambda: True)
    runtime.close_unused(set())
