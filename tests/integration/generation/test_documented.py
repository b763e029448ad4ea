"""The code of docs/generations.md, run as it stands on the page, but for the address and the cluster's name."""

import re
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from typer.testing import CliRunner

import headgate
from headgate.cli.main import app
from headgate.eventlog.kafka import KafkaLog
from headgate.generation import ChangeWriter
from support.kafka_cluster import Cluster

from .conftest import WAIT_SECONDS
from .test_change_log import Operator

pytestmark = pytest.mark.integration

PAGE: Final = Path(__file__).parents[3] / "docs" / "generations.md"


def code_on_the_page(bootstrap: str, cluster: str) -> list[str]:
    return [
        code.replace("127.0.0.1:9092", bootstrap)
        .replace(f'bootstrap="{bootstrap}"', f'bootstrap="{bootstrap}", cluster="{cluster}"')
        .replace('cluster="headgate"', f'cluster="{cluster}"')
        for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    ]


def test_the_pages_code_writes_and_reads_a_change_log(
    cluster: Cluster, log: KafkaLog, owner: object, kafka_bootstrap: str
) -> None:
    Operator(log).create()
    writing, reading = code_on_the_page(kafka_bootstrap, cluster.cluster)[:2]
    changes = [SimpleNamespace(key=b"k%d" % number, value=b"v", number=number) for number in range(3)]
    stored: list[tuple[bytes, bytes]] = []
    positions: list[dict[str, int]] = [{}]
    given = {
        "source": SimpleNamespace(read_behind=lambda position: changes[position + 1 :]),
        "load_positions": lambda: positions[-1],
        "save_positions": positions.append,
        "database": SimpleNamespace(transaction=nullcontext),
        "apply": lambda *change: stored.append(change),
        "is_stopping": lambda: len(stored) >= len(changes),
    }
    exec(writing, given)  # noqa: S102 - the page's code
    exec(reading, given)  # noqa: S102 - the page's code
    assert sorted(stored) == [(change.key, change.value) for change in changes]
    assert sum(positions[-1].values()) >= len(changes)


def test_the_pages_code_passes_strict_type_checks(tmp_path: Path) -> None:
    """As the program of somebody who has installed the package, with what it leaves out declared."""
    around = """\
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from headgate.generation.core.stream_id import StreamId


class Change(Protocol):
    key: bytes
    value: bytes
    number: int
    timestamp_us: int


class Source(Protocol):
    def read_behind(self, position: int) -> Iterable[Change]: ...


class Database(Protocol):
    def transaction(self) -> AbstractContextManager[None]: ...


source: Source
database: Database
writes: Iterable[Change]


def append(stream: StreamId, write: Change) -> None: ...
def read(streams: frozenset[StreamId], start_ms: int, end_ms: int | None) -> None: ...
def load_positions() -> dict[str, int]: ...
def save_positions(positions: dict[str, int]) -> None: ...
def apply(key: bytes | None, value: bytes | None) -> None: ...
def is_stopping() -> bool: ...
"""
    (tmp_path / "around.pyi").write_text(around)
    for number, code in enumerate(code_on_the_page("127.0.0.1:9092", "headgate")):
        (tmp_path / f"page_{number}.py").write_text(f"from around import *\n\n{code}")
    examples = PAGE.parents[1] / "examples"
    for name in ("follow_change_log.py", "plain_change_log.py"):
        (tmp_path / name).write_text((examples / name).read_text())
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nstrict = True\ncache_dir = cache\n"
        # These ship no types, whoever uses them.
        "[mypy-confluent_kafka.*,fastavro.*]\nignore_missing_imports = True\nfollow_imports = skip\n"
    )
    command = [sys.executable, "-m", "mypy", *sorted(path.name for path in tmp_path.glob("*.py"))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (Path(headgate.__file__).parent / "py.typed").exists()


def test_the_example_keeps_a_table_in_step(cluster: Cluster, log: KafkaLog, owner: object, tmp_path: Path) -> None:
    operator = Operator(log)
    operator.create()
    file = tmp_path / "orders.sqlite"
    command = [sys.executable, str(PAGE.parents[1] / "examples" / "follow_change_log.py")]
    command += [cluster.bootstrap, "orders", str(file), "--cluster", cluster.cluster, "--changes", ""]
    with ChangeWriter(log, "orders", "w") as writer, closing(sqlite3.connect(file)) as database:
        for first, count in ((0, 30), (30, 30)):
            for position in range(first, first + count):
                writer.write(b"k%d" % (position % 7), None if position % 7 == 3 else b"%d" % position, position)
            writer.flush()
            command[-1] = str(count)
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_SECONDS)
            assert done.returncode == 0, done.stderr
            assert operator.resize(4 if first == 0 else 1)
            rows = dict(database.execute("SELECT key, value FROM changes"))
            last = {b"k%d" % (position % 7): b"%d" % position for position in range(first + count)}
            assert rows == {key: value for key, value in last.items() if key != b"k3"}


def test_the_pages_code_writes_and_reads_by_time(
    cluster: Cluster, log: KafkaLog, owner: object, kafka_bootstrap: str
) -> None:
    where = ("--bootstrap", cluster.bootstrap, "--cluster", cluster.cluster)
    made = ("create", "shop", "--nodes", "3", "--vnodes", "256", "--shards", "8")
    result = CliRunner().invoke(app, ["generation", "timestamps", *made, *where])
    assert result.exit_code == 0, result.output
    writing, reading = code_on_the_page(kafka_bootstrap, cluster.cluster)[2:]
    appended: list[Any] = []
    read: list[Any] = []
    given = {
        "writes": [SimpleNamespace(key=b"k%d" % number, timestamp_us=time.time_ns() // 1_000) for number in range(3)],
        "append": lambda stream, _write: appended.append(stream),
        "read": lambda streams, *_times: read.append(streams),
    }
    exec(writing, given)  # noqa: S102 - the page's code
    exec(reading, given)  # noqa: S102 - the page's code
    (streams,) = read
    assert len(streams) == 3 * 256 * 8
    assert len(appended) == 3
    assert set(appended) <= streams
