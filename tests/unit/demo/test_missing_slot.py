"""A connector that has lost its replication slot: which one, and what to do, before anything is started."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.capture.postgresql.facts import PostgresFacts, Slot
from headgate.capture.source import Capture, Postgres
from headgate.databases.errors import DatabaseSilentError
from headgate_lab.demo.evaluation import running
from headgate_lab.demo.evaluation.slot import check_slot
from headgate_lab.embedded.connect import ConnectorFailedError, cause_in

FACTS = PostgresFacts(
    database="shop",
    user="debezium",
    version=150_000,
    wal_level="logical",
    is_standby=False,
    slots_max=10,
    senders_max=10,
    senders=0,
)
SLOT = Slot("mine", "pgoutput", "shop", is_active=False, wal_status="reserved", retained_bytes=0)


def folder_of(tmp_path: Path, offsets: bytes | None, **config: str) -> tuple[Path, Path]:
    connector = tmp_path / "shop-connector.json"
    connector.write_text(json.dumps({"slot.name": "mine"} | config))
    (tmp_path / "kafka").mkdir()
    if offsets is not None:
        (tmp_path / "kafka" / "connect.offsets").write_bytes(offsets)
    return tmp_path, connector


def check(tmp_path: Path, facts: PostgresFacts, offsets: bytes | None) -> None:
    folder, connector = folder_of(tmp_path, offsets)
    check_slot(folder, connector, Postgres(facts, ()), "shop")


def test_a_connector_that_has_read_needs_its_slot(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as refused:
        check(tmp_path, FACTS, b"offsets")
    said = str(refused.value)
    assert refused.value.code is ExitCode.DATABASE
    assert "replication slot mine does not exist in database shop" in said
    assert "with --remove" in said
    assert f"rm {tmp_path / 'kafka' / 'connect.offsets'}" in said
    assert "headgate table resync shop TABLE --delete" in said


@pytest.mark.parametrize(
    ("facts", "offsets"),
    [(FACTS, None), (FACTS, b""), (replace(FACTS, slots=(SLOT,)), b"offsets")],
    ids=["the first run", "nothing was read", "the slot exists"],
)
def test_nothing_is_wrong(tmp_path: Path, facts: PostgresFacts, offsets: bytes | None) -> None:
    check(tmp_path, facts, offsets)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            '{"slot.name": "mine", "tasks.max": 1}',
            'tasks.max must be a text. Put its value into quotes, such as {"tasks.max": "1"}',
        ),
        ("[1]", "is not the configuration of a connector"),
        ("{", "is not the configuration of a connector"),
    ],
)
def test_a_connectors_file_that_was_edited_and_is_wrong(tmp_path: Path, text: str, says: str) -> None:
    folder, connector = folder_of(tmp_path, b"offsets")
    connector.write_text(text)
    with pytest.raises(CommandError) as refused:
        check_slot(folder, connector, Postgres(FACTS, ()), "shop")
    assert str(refused.value).startswith(str(connector))
    assert says in str(refused.value)


def test_a_source_that_does_not_answer_does_not_hide_why_the_connector_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, connector = folder_of(tmp_path, b"offsets")

    def read(*_: object) -> Capture:
        raise DatabaseSilentError("no answer")

    monkeypatch.setattr(running, "read_source", read)
    databases = SimpleNamespace(source=None)
    plan = SimpleNamespace(folder=folder, databases=databases, feed="shop")
    with pytest.raises(ConnectorFailedError, match="the slot is gone"), running._slot_explained(plan, connector):
        raise ConnectorFailedError("the slot is gone")


TRACE = """org.apache.kafka.connect.errors.ConnectException: An exception occurred in the change event producer.
\tat io.debezium.pipeline.ErrorHandler.setProducerThrowable(ErrorHandler.java:67)
Caused by: io.debezium.DebeziumException: Could not execute heartbeat action (Error: 42)
\t... 7 more
Caused by: org.postgresql.util.PSQLException: ERROR: publication "none" does not exist
\tat org.postgresql.core.v3.QueryExecutorImpl.receiveErrorResponse(QueryExecutorImpl.java:2733)
"""


@pytest.mark.parametrize(
    ("trace", "cause"),
    [
        (TRACE, 'ERROR: publication "none" does not exist'),
        ("io.debezium.DebeziumException: The slot is gone.\n\tat x.Y.z(Y.java:1)", "The slot is gone"),
        ("java.lang.NullPointerException\n\tat x.Y.z(Y.java:1)", "java.lang.NullPointerException"),
        ("", "it has given no reason"),
    ],
)
def test_of_a_trace_the_last_cause_is_shown(trace: str, cause: str) -> None:
    assert cause_in(trace) == cause
