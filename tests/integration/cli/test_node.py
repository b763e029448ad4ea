"""`headgate serve node`, the whole product in one process, as a user meets it: create, look, verify, stop."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from headgate.cli.exit_codes import ExitCode
from integration.cli.conftest import ROWS, Service, eventually, headgate

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def test_a_feed_runs_is_verified_and_stops(
    *,
    shop_file: Path,
    serve: Callable[..., Service],
    spark_jars: tuple[Path, ...],
    postgres_database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADGATE_SPARK__JARS", ",".join(map(str, spark_jars)))
    monkeypatch.setenv("HEADGATE_SPARK__MASTER", "local[1]")

    node = serve("node", "node", "--name", "n1")
    eventually(lambda: node.get("/readyz")[0] == 200, "coordinator and agent are ready", seconds=120)
    created = headgate("feed", "create", str(shop_file))
    assert created.exit_code == 0, created.stderr

    def applied() -> bool:
        assert node.process.poll() is None, node.log_file.read_text(encoding="utf-8")
        (row,) = json.loads(headgate("table", "list", "shop", "-o", "json").stdout)
        return bool(row["state"] == "replicating" and row["rows"] == ROWS)

    eventually(applied, "all rows are applied", seconds=120)
    (agent,) = json.loads(headgate("agent", "list", "-o", "json").stdout)
    assert (agent["agent"], agent["state"], agent["tables"]) == ("n1", "alive", 1)
    why = headgate("why", "shop")
    assert why.exit_code == 0, why.output
    verified = headgate("verify", "shop", "--source-dsn", postgres_database, "-o", "json")
    assert verified.exit_code == 0, verified.stderr
    assert (json.loads(verified.stdout)["rows"], json.loads(verified.stdout)["differences"]) == (ROWS, 0)
    with psycopg.connect(postgres_database, autocommit=True) as database:
        database.execute("UPDATE src.orders SET what = 'other' WHERE id = 7")
    different = headgate("verify", "shop", "--source-dsn", postgres_database)
    assert different.exit_code == ExitCode.DIFFERENCE
    assert '{"id":"7"}: differs in what' in different.stderr
    assert "headgate_agent_sessions_total 1.0" in node.get("/metrics")[1]

    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(60) == ExitCode.DONE, node.log_file.read_text(encoding="utf-8")
