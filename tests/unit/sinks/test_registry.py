"""A sink is opened by its description, anywhere: also in a Spark worker, which gets everything pickled."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.config.sink_spec import SinkSpec
from headgate.formats.change import ABSENT, Change, Operation
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.registry import open_sink
from headgate.sinks.relational.postgresql import PostgresSink


def test_a_postgresql_sink_opens_without_connecting_and_travels() -> None:
    sink = open_sink(SinkSpec(type="postgresql", dsn="host=nowhere.invalid"))
    assert isinstance(sink, PostgresSink)
    assert isinstance(pickle.loads(pickle.dumps(sink)), PostgresSink)  # noqa: S301
    sink.close()


def test_a_type_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SinkRefusedError, match=r"'oracle' does not exist. Choose one of postgresql, mysql"):
        open_sink(SinkSpec.model_construct(type="oracle", dsn=""))


def test_a_missing_password_file_is_named(tmp_path: Path) -> None:
    sink = open_sink(SinkSpec(type="postgresql", dsn="host=127.0.0.1 port=1", password_file=tmp_path / "nowhere"))
    with pytest.raises(SinkRefusedError, match=r"password_file .*/nowhere: No such file"):
        sink.check([])


def test_absent_stays_the_one_absent_when_a_change_travels() -> None:
    change = Change(0, 0, Operation.UPSERT, {"id": 1}, {"id": 1, "big": ABSENT}, None, 0)
    assert pickle.loads(pickle.dumps(change)).row["big"] is ABSENT  # noqa: S301


def test_importing_sinks_needs_neither_spark_nor_kafka() -> None:
    code = (
        "import sys, headgate.sinks.registry, headgate.formats.debezium_json;"
        "print([m for m in sys.modules if m.split('.')[0] in ('pyspark', 'py4j', 'confluent_kafka')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
