"""The code of docs/generations.md, run as it stands on the page, but for the address and the cluster's name."""

import re
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.eventlog.kafka import KafkaLog
from support.kafka_cluster import Cluster

from .conftest import wait_until
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
    stored: list[Any] = []
    given = {
        "source": SimpleNamespace(read_behind=lambda position: changes[position + 1 :]),
        "saved": SimpleNamespace(positions={}, done=()),
        "store": stored.append,
    }
    exec(writing, given)  # noqa: S102 - the page's code
    beginning, loop = re.split(r"(?=^for )", reading, maxsplit=1, flags=re.MULTILINE)
    exec(beginning, given)  # noqa: S102 - the page's code
    with closing(given["log"]), closing(given["reader"]):

        def has_all() -> bool:
            exec(loop, given)  # noqa: S102 - the page's code
            return len(stored) >= len(changes)

        wait_until(has_all, "all changes read")
    assert sorted(change.key for change in stored) == [change.key for change in changes]


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
