"""docs/change-log-format.md suffices: a program made from the page alone reads and writes beside Headgate's own."""

import ast
import json
import re
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

import pytest

from headgate.eventlog.kafka import KafkaLog
from headgate.generation import ChangeReader, ChangeWriter
from headgate.generation.changelog.shell.wire import END, OURS, POSITION, POSITIONS_PARTITIONS, WRITER
from headgate.generation.core.tokens import token_of_key
from headgate.records.control import OutcomeStatus
from support.kafka_cluster import Cluster
from support.waiting import eventually

from .conftest import WAIT_SECONDS
from .test_change_log import SET, Operator, in_order, read_all

pytestmark = pytest.mark.integration

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = (ROOT / "docs" / "change-log-format.md").read_text(encoding="utf-8")
PROGRAM: Final = ROOT / "examples" / "plain_change_log.py"


class Plain:
    """The program, run as its reader or its writer."""

    def __init__(self, cluster: Cluster, *arguments: str) -> None:
        what, *more = arguments
        command = [sys.executable, str(PROGRAM), what, cluster.bootstrap, SET, *more, "--cluster", cluster.cluster]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def give(self, positions: range) -> None:
        assert self.process.stdin is not None
        for position in positions:
            self.process.stdin.write(json.dumps({"key": f"w1-{position % 7}", "value": str(position)}) + "\n")
        self.process.stdin.flush()

    def finish(self) -> list[Any]:
        out, err = self.process.communicate(timeout=WAIT_SECONDS)
        assert self.process.returncode == 0, err
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def operator(log: KafkaLog, owner: Any) -> Operator:
    made = Operator(log)
    made.create(streams=2)
    return made


@pytest.fixture
def start_writer(cluster: Cluster) -> Iterator[Callable[[], Plain]]:
    """Starts the program as writer w1."""
    with ExitStack() as running:

        def start() -> Plain:
            opened = Plain(cluster, "write", "w1")
            running.callback(opened.process.communicate)
            running.callback(opened.process.kill)
            return opened

        yield start


def test_both_read_what_both_write_across_switches(
    cluster: Cluster, log: KafkaLog, operator: Operator, start_writer: Callable[[], Plain]
) -> None:
    plain_writer = start_writer()
    with ChangeWriter(log, SET, "w2") as ours:
        number = 0
        for streams in (4, 1, 3):
            plain_writer.give(range(number, number + 100))
            for position in range(number, number + 100):
                ours.write(f"w2-{position % 7}".encode(), str(position).encode(), position)
            number += 100
            assert operator.resize(streams).status is OutcomeStatus.DONE
        plain_writer.give(range(number, number + 50))
        plain_writer.finish()
    total = 350 + 300
    reader = Plain(cluster, "read", "plain", "--changes", str(total))
    by_key: dict[str, list[int]] = defaultdict(list)
    for change in reader.finish():
        assert change["value"] == str(change["position"])
        by_key[change["key"]].append(change["position"])
    expected = {f"{w}-{k}": list(range(k, count, 7)) for w, count in (("w1", 350), ("w2", 300)) for k in range(7)}
    assert by_key == expected, "each key's changes once, in their order"
    with ChangeReader(log, SET, "ours") as opened:
        found = read_all(opened, total)
        in_order(found)
        assert {key.decode(): positions for key, positions in found.items()} == expected
        assert (opened.gaps, opened.refused) == ([], 0)
    operator.tail.read_to_end()
    assert operator.tail.state.readers[SET].keys() == {"plain", "ours"}


def test_each_continues_where_the_other_has_stopped_writing(
    cluster: Cluster, log: KafkaLog, operator: Operator, start_writer: Callable[[], Plain]
) -> None:
    with ChangeWriter(log, SET, "w1") as ours:
        for position in range(40):
            ours.write(f"w1-{position % 7}".encode(), str(position).encode(), position)
    plain_writer = start_writer()
    plain_writer.give(range(100))
    plain_writer.finish()
    with ChangeWriter(log, SET, "w1") as ours:
        assert ours.position == 99
        ours.write(b"w1-2", b"100", 100)
    with ChangeReader(log, SET, "r") as reader:
        found = read_all(reader, 101)
        in_order(found)
        assert sorted(position for positions in found.values() for position in positions) == list(range(101))


def test_a_plain_writer_that_is_fenced_loses_and_repeats_nothing(
    cluster: Cluster, log: KafkaLog, operator: Operator, start_writer: Callable[[], Plain]
) -> None:
    plain_writer = start_writer()
    plain_writer.give(range(100))
    eventually(lambda: _is_admitted(operator), "it is admitted")
    plain_writer.process.send_signal(signal.SIGSTOP)
    assert operator.resize(4).status is OutcomeStatus.DONE, "the switch does not wait for it"
    plain_writer.process.send_signal(signal.SIGCONT)
    plain_writer.give(range(100, 150))
    plain_writer.finish()
    with ChangeReader(log, SET, "r") as reader:
        found = read_all(reader, 150)
        in_order(found)
        assert sorted(position for positions in found.values() for position in positions) == list(range(150))


def _is_admitted(operator: Operator) -> bool:
    operator.tail.read_to_end()
    return any(each.writer == "w1" for each in operator.tail.state.sets[SET].writers)


def test_the_program_uses_nothing_of_headgate() -> None:
    tree = ast.parse(PROGRAM.read_text(encoding="utf-8"))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported - set(sys.stdlib_module_names) == {"confluent_kafka", "fastavro"}


def test_the_page_says_what_the_code_does() -> None:
    spec = spec_from_file_location("plain_change_log", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    plain = module_from_spec(spec)
    spec.loader.exec_module(plain)
    shown = re.findall(r"^\| (?:`([0-9a-f]+)`|\(empty\)) \| (-?\d+) \|$", PAGE, re.MULTILINE)
    assert len(shown) == 6
    for key, token in shown:
        assert token_of_key(bytes.fromhex(key)) == plain.token_of(bytes.fromhex(key)) == int(token)
    assert {name for name in (WRITER, POSITION, END) if f"`{name}`" in PAGE} == OURS
    assert f"modulo {POSITIONS_PARTITIONS} |" in PAGE
    ids = json.loads((ROOT / "schemas" / "ids.json").read_text(encoding="utf-8"))
    for record, number in re.findall(r"`(\w+)` \((\d+)\)", PAGE):
        newest = max(int(each) for each, one in ids.items() if one["record"] == record)
        assert int(number) == newest, record
