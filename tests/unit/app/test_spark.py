"""What Spark is told follows from the settings; what would break order or exactness is refused by its name."""

import os
from pathlib import Path

import pytest

from headgate.app.spark import _cores, new_runtime
from headgate.config.settings import SettingsError, load_settings
from headgate.replication.spark_options import REFUSED_OPTIONS, RefusedOptionError, SparkOptions, check_options
from headgate.replication.stream import LaneSource, rows_of


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
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
    ("master", "threads"),
    [("local", 1), ("local[3]", 3), ("local[4,1]", 4), ("local[*]", os.cpu_count()), ("spark://a:7077", None)],
)
def test_threads_of_a_local_master(master: str, threads: int | None) -> None:
    assert SparkOptions(jars=(), scratch=None, master=master).local_threads == threads  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("master", "here"),
    [("local", True), ("local[*]", True), ("local-cluster[2,1,1024]", False), ("spark://a:7077", False)],
)
def test_only_threads_of_the_driver_need_not_be_sent_the_package(master: str, here: bool) -> None:
    assert SparkOptions(jars=(), scratch=None, master=master).in_one_process is here  # type: ignore[arg-type]


def runtime_with(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparkOptions:
    jar, properties = tmp_path / "a.jar", tmp_path / "spark-defaults.conf"
    jar.touch()
    properties.write_text(text, encoding="utf-8")
    monkeypatch.setenv("HEADGATE_SPARK__PROPERTIES_FILE", str(properties))
    return new_runtime(load_settings({"spark": {"jars": str(tmp_path)}}), tmp_path).settings


def test_further_properties_are_given_as_spark_itself_takes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "# ours\n\nspark.executor.memory   2g\nspark.cores.max=4\nspark.driver.defaultJavaOptions = -Xss4m -Da=b\n"
    assert runtime_with(text, tmp_path, monkeypatch).options == {
        "spark.executor.memory": "2g",
        "spark.cores.max": "4",
        "spark.driver.defaultJavaOptions": "-Xss4m -Da=b",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("spark.cores.max 4\nexecutor.memory 2g", "line 2: wanted is the name of a Spark property"),
        ("spark.cores.max", "line 1: wanted"),
        ("spark.cores.max 4\nspark.cores.max=5", "line 2: spark.cores.max is given twice"),
        ("spark.speculation true", "spark.speculation=true is refused: two attempts of one task would race"),
        ("spark.master local[1]", "spark.master=local[1] is refused: it is HEADGATE_SPARK__MASTER"),
        ("spark.streaming.dynamicAllocation.enabled true", "true is refused: it is of Spark's older streams"),
        ("spark.dynamicAllocation.enabled true", "true is refused: with local[*] everything runs in one process"),
        ("spark.scheduler.mode FIFO", "spark.scheduler.mode=FIFO is refused: Headgate needs FAIR"),
    ],
)
def test_properties_that_cannot_be_say_where_and_why(
    text: str, said: str, *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError) as refused:
        runtime_with(text, tmp_path, monkeypatch)
    assert str(refused.value).startswith("HEADGATE_SPARK__PROPERTIES")
    assert said in str(refused.value)


@pytest.mark.parametrize("name", sorted(REFUSED_OPTIONS))
def test_what_breaks_order_is_refused_however_it_is_spelled(name: str) -> None:
    for spelled in (name, name.upper(), name.title()):
        with pytest.raises(RefusedOptionError, match=r"is refused: .+"):
            check_options({"kafka.security.protocol": "SSL", spelled: "1"})


@pytest.mark.parametrize(
    "name",
    ["minPartitions", "maxRecordsPerPartition", "failOnDataLoss", "kafka.isolation.level", "startingOffsets", "assign"],
)
def test_a_lane_refuses_them_before_anything_is_read(name: str) -> None:
    source = LaneSource(bootstrap="nowhere:1", group="g", rows_max=1, options={name: "1"})
    with pytest.raises(RefusedOptionError, match=f"{name}=1 is refused"):
        rows_of(None, source, {("t", 0): 0})  # type: ignore[arg-type]
