"""What the examples do for a program that is not ours, each run as a user runs it; and kcat, where it is installed.

A request that is granted, a table's move, is made by its example in integration/views/test_views.py.
"""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.config.settings import Settings
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.snapshot import read_snapshot
from headgate.provisioning import artifacts
from headgate.provisioning.java import java_home_for_spark
from integration.cli.conftest import Service
from integration.examples.conftest import example
from support.waiting import eventually

pytestmark = pytest.mark.integration


def test_the_topics_are_read_without_anything_of_ours(
    settings: Settings, log: KafkaLog, serve: Callable[..., Service]
) -> None:
    owner = serve("owner", "coordinator")
    eventually(lambda: owner.get("/readyz")[0] == 200, "there is an owner")

    def differences() -> list[object]:
        """Of what it read and what we read behind it: the owner goes on announcing itself."""
        read = example("read_topics.py", settings.bootstrap, "announce", "--cluster", settings.cluster)
        assert read.returncode == 0, read.stderr
        lines = [json.loads(line) for line in read.stdout.splitlines()]
        by_key: dict[str, Any] = {line["key"]: line for line in lines}
        standing = read_snapshot(log)
        said, announced = by_key["coordinator/0"], standing.owner(0)
        assert said["type"] == "OwnerAnnounced"
        assert announced is not None
        pairs = (
            (set(by_key), {key.text() for key in standing.current if key.topic == "announce"}),
            ((said["value"]["owner_id"], said["value"]["owner_rev"]), (announced.owner_id, announced.owner_rev)),
        )
        return [pair for pair in pairs if pair[0] != pair[1]]

    eventually(lambda: not differences(), lambda: f"both read the same: {differences()}")


@pytest.mark.spark
@pytest.mark.long  # a Spark of its own, for what no part of the product does
def test_spark_reads_the_same_records(
    settings: Settings,
    log: KafkaLog,
    serve: Callable[..., Service],
    spark_jars: tuple[Path, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner = serve("owner", "coordinator")
    eventually(lambda: owner.get("/readyz")[0] == 200, "there is an owner")
    jars = ",".join(map(str, (*spark_jars, *artifacts.ensure("spark-avro"))))
    monkeypatch.setenv(
        "PYSPARK_SUBMIT_ARGS", f"--master local[1] --jars {jars} --conf spark.ui.enabled=false pyspark-shell"
    )
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("JAVA_HOME", str(java_home_for_spark()))
    owner.end()  # so that both read the same
    read = example("topics_in_spark.py", settings.bootstrap, "announce", "--cluster", settings.cluster)
    assert read.returncode == 0, read.stderr
    by_key: dict[str, Any] = {line["key"]: line for line in map(json.loads, read.stdout.splitlines())}
    standing = read_snapshot(log)
    assert set(by_key) == {key.text() for key in standing.current if key.topic == "announce"}
    announced = standing.owner(0)
    assert announced is not None
    said = by_key["coordinator/0"]
    assert (said["type"], said["value"]["owner_id"]) == ("OwnerAnnounced", announced.owner_id)


def test_a_request_is_one_record_and_its_outcome_another(
    settings: Settings, log: KafkaLog, serve: Callable[..., Service]
) -> None:
    owner = serve("owner", "coordinator")
    eventually(lambda: owner.get("/readyz")[0] == 200, "there is an owner")
    asked = example("request_a_move.py", settings.bootstrap, "shop", "orders", "a2", "--cluster", settings.cluster)
    assert asked.returncode == 1, asked.stderr
    settled = json.loads(asked.stdout)
    assert settled["status"] == "refused"
    assert "shop" in settled["reason"]
    left = [key.text() for key, reads in read_snapshot(log).current.items() if reads and key.topic == "changefeed"]
    assert not [key for key in left if key.startswith("request/")], "whoever asks deletes the request"


def test_whoever_asks_nobody_or_for_nothing_is_told(settings: Settings, log: KafkaLog) -> None:
    missing = example("read_topics.py", settings.bootstrap, "nothing", "--cluster", settings.cluster)
    assert (missing.returncode, f"{settings.prefix}nothing" in missing.stderr) == (1, True)
    elsewhere = example("request_a_move.py", settings.bootstrap, "shop", "orders", "a2", "--cluster", "no-such")
    assert (elsewhere.returncode, "topic no-such.changefeed does not exist" in elsewhere.stderr) == (1, True)
    for refused in (missing, elsewhere):
        assert "Traceback" not in refused.stderr
    assert log.cluster_id, "there is a cluster"


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (Debian: apt-get install kcat)")
def test_kcat_shows_keys_and_schema_ids(settings: Settings, log: KafkaLog, serve: Callable[..., Service]) -> None:
    owner = serve("owner", "coordinator")
    eventually(lambda: owner.get("/readyz")[0] == 200, "there is an owner")
    # kcat ends where nothing has come for half a second, and an owner writes more often.
    owner.end()
    topic = f"{settings.prefix}announce"
    command = ["kcat", "-b", settings.bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q"]
    keys = subprocess.run([*command, "-f", "%k\n"], capture_output=True, text=True, check=True).stdout.split()
    assert "coordinator/0" in keys
    # Debian's kcat is built without Avro: it unpacks the frame (a byte, a big-endian number), not the body.
    framed = subprocess.run(
        [*command, "-s", "value=>bI", "-f", "%s\n"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    # Both numbers stand side by side: the byte is 0, so it reads like a leading zero of the schema's id.
    assert {line[0] for line in framed} == {"0"}
    assert {int(line) for line in framed} <= {1101, 1102, 1201, 1202, 2301}
