"""What an operator sees of Spark: its own pages when asked for, progress in our metrics, and a log without traces."""

import json
import re
import signal
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from headgate.app.exit_codes import ExitCode
from headgate.config.settings import Settings
from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.embedded.ports import free_ports
from integration.cli.conftest import ANSWER_SECONDS, ROWS, Service, change, headgate
from support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.usefixtures("one_core_spark")]


def fetched(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=ANSWER_SECONDS) as answer:
        return str(answer.read().decode())


def metrics_of(node: Service) -> dict[tuple[str, str], float]:
    """(name, step) → value, of what Spark says of its queries."""
    samples = [
        sample for family in text_string_to_metric_families(node.get("/metrics")[1]) for sample in family.samples
    ]
    return {
        (sample.name.removeprefix("headgate_spark_"), sample.labels.get("step", "")): sample.value
        for sample in samples
        if sample.name.startswith("headgate_spark_")
    }


def test_pages_and_metrics_tell_of_the_query_and_a_stop_amid_a_batch_leaves_no_trace(
    settings: Settings,
    *,
    shop_file: Path,
    serve: Callable[..., Service],
    postgres_database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (port,) = free_ports(1)
    monkeypatch.setenv("HEADGATE_SPARK__UI", "true")
    monkeypatch.setenv("HEADGATE_SPARK__UI_PORT", str(port))
    node = serve("node", "node", "--name", "n1")
    eventually(lambda: node.get("/readyz")[0] == 200, "coordinator and agent are ready", seconds=300)
    created = headgate("feed", "create", str(shop_file))
    assert created.exit_code == 0, created.stderr
    eventually(lambda: metrics_of(node).get(("input_rows_total", ""), 0) >= ROWS, "its rows are counted", seconds=300)

    address = f"http://127.0.0.1:{port}"
    eventually(lambda: node.said(f"Spark's pages are at {address}"), "the log says where they are")
    (application,) = json.loads(fetched(port, "/api/v1/applications"))
    assert application["name"] == "headgate-agent"
    assert re.search(r"\bshop-\d+\b", fetched(port, "/StreamingQuery/")), "the query is named after feed and lane"
    jvms = [child for child in psutil.Process(node.process.pid).children() if "java" in child.name()]
    listening = [each for jvm in jvms for each in jvm.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    assert port in {each.laddr.port for each in listening}
    assert {each.laddr.ip.removeprefix("::ffff:") for each in listening} == {"127.0.0.1"}

    told = metrics_of(node)
    assert told["batches_total", ""] >= 1
    assert told["behind_rows", ""] == 0
    for step in ("triggerExecution", "addBatch", "latestOffset", "walCommit"):
        assert told["step_seconds_total", step] > 0, step
    assert told["step_seconds_total", "triggerExecution"] >= told["step_seconds_total", "addBatch"]

    with psycopg.connect(postgres_database) as holder:
        holder.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        _append(settings, shop_file)
        with psycopg.connect(postgres_database, autocommit=True) as watcher:
            waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_catalog"
            eventually(lambda: watcher.execute(waits).fetchone() != (0,), "a batch is under way, at the sink")
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(scaled_seconds(90)) == ExitCode.DONE, node.log_file.read_text(encoding="utf-8")
    said = node.log_file.read_text(encoding="utf-8")
    assert "Traceback" not in said, said
    assert "Exception" not in said, said
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0, "the JVM has ended with the agent"


def _append(settings: Settings, shop_file: Path) -> None:
    (topic,) = re.findall(r"- (\S+orders)", shop_file.read_text(encoding="utf-8"))
    with Producer({"bootstrap.servers": settings.bootstrap}) as producer:
        for number in range(ROWS + 1, 2 * ROWS):
            key, value = change(number)
            producer.produce(topic, value, key)
        assert producer.flush(ANSWER_SECONDS) == 0
