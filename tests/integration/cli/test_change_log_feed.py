"""A feed over a change log as users run it: real processes, writers at work, switches, an agent and the owner killed.

Writers that are killed, and what a reader sees of the same switches, are in tests/e2e/test_generations.py.
"""

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headgate.app.exit_codes import ExitCode
from headgate.config.settings import Settings
from headgate.eventlog.kafka import KafkaLog
from headgate.generation import ChangeWriter
from integration.cli.conftest import Service, headgate
from support.kafka_cluster import ANSWER_SECONDS
from support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.usefixtures("one_core_spark")]

SET = "goods"
FEED = "shop"
WRITERS = ("w0", "w1")
KEYS = 30
COUNT = 3_000
PER_SECOND = 60
BATCH = 20


class Source(threading.Thread):
    """A writer's thread: its change n sets its row n mod KEYS to n."""

    def __init__(self, settings: Settings, name: str) -> None:
        super().__init__(daemon=True)
        self._settings, self.name, self.written = settings, name, 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._write()
        except BaseException as error:
            self.error = error
            raise

    def _write(self) -> None:
        first = WRITERS.index(self.name) * 1_000
        given = {"bootstrap": self._settings.bootstrap, "cluster": self._settings.cluster}
        with ChangeWriter.open(SET, self.name, **given) as writer:
            for start in range(0, COUNT, BATCH):
                began = time.monotonic()
                for number in range(start, start + BATCH):
                    row = {"id": first + number % KEYS, "qty": number}
                    event = {"before": None, "after": row, "source": {"ts_ms": 1_700_000_000_000}, "op": "c"}
                    writer.write(json.dumps({"id": row["id"]}).encode(), json.dumps(event).encode(), number)
                writer.flush()
                self.written = start + BATCH
                time.sleep(max(0.0, BATCH / PER_SECOND - (time.monotonic() - began)))


@pytest.fixture
def database(postgres_database: str) -> Iterator[psycopg.Connection]:
    """With a table for the change log, and one that remembers what became visible, in its order."""
    with psycopg.connect(postgres_database, autocommit=True) as opened:
        opened.execute("CREATE TABLE goods (id bigint PRIMARY KEY, qty int)")
        opened.execute("CREATE TABLE history (number bigserial, id bigint, qty int)")
        opened.execute(
            "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN INSERT INTO public.history (id, qty) VALUES (NEW.id, NEW.qty); RETURN NEW; END $$"
        )
        opened.execute("CREATE TRIGGER note AFTER INSERT OR UPDATE ON goods FOR EACH ROW EXECUTE FUNCTION note()")
        yield opened


@pytest.fixture
def feed_file(settings: Settings, postgres_database: str, tmp_path: Path) -> Path:
    given = {name: value for name, value in conninfo_to_dict(postgres_database).items() if value is not None}
    password = tmp_path / "password"
    password.write_text(str(given.pop("password", "")), encoding="utf-8")
    sink = {"type": "postgresql", "dsn": make_conninfo("", **given), "password_file": str(password)}
    sink["table"] = "public.goods"
    file = tmp_path / "feed.yaml"
    file.write_text(yaml.safe_dump({"feed": FEED, "source": {"change_log": SET}, "sink": sink}), encoding="utf-8")
    return file


def done(*arguments: str) -> str:
    result = headgate(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def table() -> dict[str, Any]:
    (row,) = json.loads(done("table", "list", FEED, "-o", "json"))
    return dict(row)


def generations() -> list[dict[str, Any]]:
    return list(json.loads(done("generation", "list", SET, "-o", "json")))


@pytest.mark.long
def test_a_feed_follows_one_sixteen_four_sixty_four_and_one_stream_while_agent_and_owner_are_killed(
    settings: Settings,
    log: KafkaLog,
    feed_file: Path,
    database: psycopg.Connection,
    serve: Callable[..., Service],
) -> None:
    serve("coordinator", "coordinator")
    owner = serve("owner", "generation")
    agents = {name: serve(name, "agent", "--name", name) for name in ("a1", "a2")}
    topic = f"{log.cluster}-changes.public.goods"
    missing = headgate("feed", "create", str(feed_file), "--dry-run")
    assert missing.exit_code == ExitCode.SOURCE, missing.output
    assert "change log 'goods' does not exist" in missing.stderr
    done("generation", "create", SET, "--topic", topic, "--partitions", "128", "--timeout", "120")
    for agent in agents.values():
        eventually(lambda agent=agent: agent.get("/readyz")[0] == 200, "the agent is ready", 300)
    done("feed", "create", str(feed_file), "--timeout", "60")
    sources = [Source(settings, name) for name in WRITERS]
    for source in sources:
        source.start()

    def written(share: float) -> None:
        eventually(lambda: all(source.written >= share * COUNT for source in sources), f"{share} is written")

    def switched(streams: int) -> None:
        done("generation", "resize", SET, "--streams", str(streams), "--timeout", "120")

    written(0.1)
    eventually(lambda: table()["state"] == "replicating", "it is replicated")
    switched(16)
    written(0.2)
    other = next(name for name in agents if name != table()["agent"])
    done("table", "move", FEED, "public.goods", other, "--timeout", "120")
    written(0.3)
    killed = table()["agent"]
    assert killed == other
    agents[killed].process.kill()
    agents[killed].process.wait(ANSWER_SECONDS)
    switched(4)
    written(0.5)
    owner.process.kill()
    owner.process.wait(ANSWER_SECONDS)
    serve("second_owner", "generation")
    switched(64)
    written(0.7)
    switched(1)
    for source in sources:
        source.join(300)
        assert source.error is None
        assert source.written == COUNT
    wanted = {
        1_000 * number + key: max(range(key, COUNT, KEYS)) for number in range(len(WRITERS)) for key in range(KEYS)
    }
    _is_applied_in_order(database, wanted)
    assert table()["agent"] != killed
    eventually(lambda: "superseded" not in {each["phase"] for each in generations()}, "the feed has read all streams")
    _is_refused_by_its_topic(feed_file, topic)
    done("feed", "pause", FEED, "--timeout", "120")
    database.execute("TRUNCATE goods, history")
    done("feed", "resume", FEED, "--from", "earliest", "--yes", "--timeout", "120")
    _is_applied_in_order(database, wanted)
    unknown = headgate("generation", "reader", "delete", SET, "nobody", "--yes")
    assert unknown.exit_code == ExitCode.NOT_FOUND, unknown.output
    assert f"reader 'nobody' does not exist. Known are: feed.{FEED}" in unknown.stderr
    done("feed", "delete", FEED, "--yes", "--timeout", "120")
    switched(2)
    eventually(lambda: "superseded" not in {each["phase"] for each in generations()}, "nobody is waited for")


def test_a_feed_reads_the_partitions_that_its_change_log_gains_while_it_runs(
    settings: Settings, log: KafkaLog, feed_file: Path, database: psycopg.Connection, serve: Callable[..., Service]
) -> None:
    serve("coordinator", "coordinator")
    serve("owner", "generation")
    agent = serve("a1", "agent", "--name", "a1")
    topic = f"{log.cluster}-changes.public.goods"
    done("generation", "create", SET, "--topic", topic, "--partitions", "2", "--streams", "2", "--timeout", "120")
    eventually(lambda: agent.get("/readyz")[0] == 200, "the agent is ready", 300)
    done("feed", "create", str(feed_file), "--timeout", "60")
    given = {"bootstrap": settings.bootstrap, "cluster": settings.cluster}

    def write(writer: ChangeWriter, first: int) -> None:
        for number in range(first, first + 10 * KEYS):
            row = {"id": number % KEYS, "qty": number}
            event = {"before": None, "after": row, "source": {"ts_ms": 1_700_000_000_000}, "op": "c"}
            writer.write(json.dumps({"id": row["id"]}).encode(), json.dumps(event).encode(), number)
        writer.flush()

    def spans() -> dict[str, str]:
        return {row["span"]: row["state"] for row in json.loads(done("table", "list", FEED, "-o", "json"))}

    with ChangeWriter.open(SET, "w0", **given) as writer:
        write(writer, 0)
        eventually(lambda: spans() == {"public.goods": "replicating"}, "the table is replicated")
        done("generation", "grow", SET, "--partitions", "6", "--yes", "--timeout", "120")
        write(writer, 300)
        done("generation", "resize", SET, "--streams", "4", "--timeout", "120")
        write(writer, 600)
        wanted = dict.fromkeys(("public.goods~0-1", "public.goods~2-5"), "replicating")
        eventually(lambda: spans() == wanted, "the new partitions are a part of the table")
        _is_applied_in_order(database, {key: 900 - KEYS + key for key in range(KEYS)})
        done("table", "merge", FEED, "public.goods", "--timeout", "120")
        # Partitions are free some seconds after their streams are applied: feeds report what they have read from time
        # to time.
        merged = ("generation", "resize", SET, "--streams", "1", "--timeout", "120")
        eventually(lambda: headgate(*merged).exit_code == ExitCode.DONE, "a partition is free for the one stream")
        write(writer, 900)
    _is_applied_in_order(database, {key: 1_200 - KEYS + key for key in range(KEYS)})
    eventually(lambda: spans() == {"public.goods": "replicating"}, lambda: f"the table is one again: {spans()}")


def test_why_names_the_stream_that_others_wait_for(
    settings: Settings, log: KafkaLog, feed_file: Path, database: psycopg.Connection, serve: Callable[..., Service]
) -> None:
    assert not database.execute("SELECT id FROM goods").fetchall()
    serve("coordinator", "coordinator")
    serve("owner", "generation")
    topic = f"{log.cluster}-changes.public.goods"
    done("generation", "create", SET, "--topic", topic, "--partitions", "3", "--timeout", "120")
    done("feed", "create", str(feed_file), "--timeout", "60")

    def reasons() -> list[dict[str, Any]]:
        held = headgate("why", FEED, "-o", "json")
        assert held.exit_code == ExitCode.HELD, held.output
        return list(json.loads(held.stdout)["reasons"])

    def write(writer: ChangeWriter, first: int) -> None:
        for number in range(first, first + 50):
            writer.write(b"%d" % number, b"{}", number)
        writer.flush()

    given = {"bootstrap": settings.bootstrap, "cluster": settings.cluster}
    with ChangeWriter.open(SET, "w0", **given) as writer:
        write(writer, 0)
        assert {reason["stage"] for reason in reasons()} == {"agent missing"}, "nothing waits for another stream"
        done("generation", "resize", SET, "--streams", "2", "--timeout", "120")
        assert {reason["stage"] for reason in reasons()} == {"agent missing"}, "nothing stands on the new streams"
        write(writer, 50)

    def is_measured() -> bool:
        waiting = [reason["detail"] for reason in reasons() if reason["stage"] == "source"]
        return len(waiting) == 2 and all("it ends at " in detail for detail in waiting)

    eventually(is_measured, "the end of the first stream is measured")
    missing, *waiting = reasons()
    assert missing["stage"] == "agent missing"
    assert [each["detail"].split(":")[0] for each in waiting] == ["partition 1", "partition 2"]
    for each in waiting:
        assert (each["stage"], each["table"]) == ("source", "public.goods")
        assert "of partition 0, which is applied up to offset 0; it ends at " in each["detail"]
    parent, *children = json.loads(done("generation", "reader", "list", SET, "-o", "json"))
    assert (parent["reader"], parent["partition"], parent["position"], parent["waits_for"]) == (
        f"feed.{FEED}", 0, 0, [],
    )  # fmt: skip
    assert parent["end"] >= 50
    assert [(each["partition"], each["end"], each["waits_for"]) for each in children] == [
        (1, None, [parent["stream"]]), (2, None, [parent["stream"]]),
    ]  # fmt: skip


def _is_applied_in_order(database: psycopg.Connection, wanted: dict[int, int]) -> None:
    eventually(lambda: dict(database.execute("SELECT id, qty FROM goods").fetchall()) == wanted, "all is applied")
    found: dict[int, list[int]] = {}
    for key, value in database.execute("SELECT id, qty FROM history ORDER BY number").fetchall():
        found.setdefault(key, []).append(value)
    for key, values in found.items():
        assert all(before < after for before, after in itertools.pairwise(values)), (key, values)


def _is_refused_by_its_topic(feed_file: Path, topic: str) -> None:
    spec = yaml.safe_load(feed_file.read_text(encoding="utf-8"))
    other = feed_file.with_name("other.yaml")
    other.write_text(yaml.safe_dump(spec | {"feed": "other", "source": {"topics": [topic]}}), encoding="utf-8")
    refused = headgate("feed", "create", str(other), "--dry-run")
    assert refused.exit_code == ExitCode.SOURCE, refused.output
    assert "Use source.change_log: goods" in refused.stderr
