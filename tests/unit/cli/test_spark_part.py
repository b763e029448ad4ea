"""How many tasks a batch is cut into follows from the Spark master."""

import os

import pytest

from headgate.agent.lane.spark import SparkOptions
from headgate.cli.spark_part import _cores


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local[3]", 3),
        ("local[4,1]", 4),
        ("local-cluster[2,1,1024]", 2),
        ("local-cluster[2, 3, 1024]", 6),
        ("local[*]", os.cpu_count()),
        ("spark://a:7077", os.cpu_count()),
    ],
)
def test_cores_of_a_master(master: str, cores: int) -> None:
    assert _cores(master) == cores


@pytest.mark.parametrize(
    ("master", "here"),
    [("local", True), ("local[*]", True), ("local-cluster[2,1,1024]", False), ("spark://a:7077", False)],
)
def test_only_threads_of_the_driver_need_not_be_sent_the_package(master: str, here: bool) -> None:
    assert SparkOptions(jars=(), scratch=None, master=master).in_one_process is here  # type: ignore[arg-type]
