"""Options of Spark's JVM: the collector follows cores and heap, and what an operator says wins."""

import os
import subprocess
from collections.abc import Mapping

import pytest

from headgate.provisioning.java import find_java
from headgate.replication.java_options import VARIABLES, java_options

SERIAL, G1 = "-XX:+UseSerialGC", "-XX:+UseG1GC"


@pytest.mark.parametrize(
    ("cores", "heap", "collector"),
    [
        (1, "512m", SERIAL),
        (2, "1g", SERIAL),
        (4, "2g", SERIAL),
        (4, "2048M", SERIAL),
        (4, "2097152k", SERIAL),
        (5, "1g", G1),
        (2, "3g", G1),
        (2, "2049m", G1),
    ],
)
def test_few_cores_and_a_small_heap_are_collected_serially(cores: int, heap: str, collector: str) -> None:
    words = java_options(cores, heap).split()
    assert [word for word in (SERIAL, G1) if word in words] == [collector]


@pytest.mark.parametrize(
    ("given", "environment"),
    [
        ("-XX:+UseParallelGC", {}),
        ("-Da=b -XX:+UseG1GC", {}),
        ("", {"JDK_JAVA_OPTIONS": "-XX:+UseParallelGC"}),
        ("", {"JAVA_TOOL_OPTIONS": "-XX:+UseZGC"}),
    ],
)
def test_a_collector_that_is_named_is_the_only_one(given: str, environment: Mapping[str, str]) -> None:
    options = java_options(2, "1g", given, environment)
    assert options.count("GC") == given.count("GC"), "a JVM does not start with two"


def test_an_operators_options_come_last() -> None:
    given = "-Xms512m -XX:Tier4InvocationThreshold=5000"
    assert java_options(2, "1g", given).endswith(given)


@pytest.mark.parametrize("given", ["", "-XX:+UseG1GC", "-XX:+UseParallelGC -Xms256m"])
@pytest.mark.parametrize(("cores", "heap"), [(2, "1g"), (16, "8g")])
def test_java_takes_them(cores: int, heap: str, given: str) -> None:
    command = [str(find_java().executable), f"-Xmx{heap}", *java_options(cores, heap, given).split(), "-version"]
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
