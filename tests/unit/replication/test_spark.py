"""The driver's Spark as processes, without a Spark."""

import subprocess
from pathlib import Path

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
