"""docs/howto/backup-and-restore.md, from end to end: lost control topics, and a sink restored from a backup."""

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
import yaml
from confluent_kafka import Producer

from headgate.config.settings import Settings
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.topics import delete_topics
from integration.cli.conftest import ANSWER_SECONDS, ROWS, Service, change, headgate
from support.pages import HOW_TOS
from support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.usefixtures("one_core_spark")]

PAGE: Final = HOW_TOS / "backup-and-restore.md"
TARGET: Final = "orders"


class Shop:
    """A feed of one table, its target, and a node that runs it."""

    def __init__(self, settings: Settings, file: Path, target: str, serve: Callable[..., Service]) -> None:
        self._settings, self.file, self._target, self._serve = settings, file, target, serve
        (self.topic,) = yaml.safe_load(file.read_text(encoding="utf-8"))["source"]["topics"]
        self.nodes = 0
        self.node: Service

    def begin(self) -> None:
        self.nodes += 1
        self.node = self._serve(f"node-{self.nodes}", "node", "--name", f"n{self.nodes}")
        eventually(lambda: self.node.get("/readyz")[0] == 200, "coordinator and agent are ready", seconds=300)

    def write(self, numbers: Iterable[int]) -> None:
        with Producer({"bootstrap.servers": self._settings.bootstrap, "enable.idempotence": True}) as producer:
            for number in numbers:
                key, value = change(number)
                producer.produce(self.topic, value, key)
            assert producer.flush(ANSWER_SECONDS) == 0

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run them in one transaction; the rows of the last one."""
        with psycopg.connect(self._target) as database:
            for statement in statements:
                cursor = database.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def awaits(self, numbers: Iterable[int]) -> None:
        wanted = [(number,) for number in numbers]
        eventually(
            lambda: self.sql(f"SELECT id FROM {TARGET} ORDER BY id") == wanted, "the target has its rows", seconds=300
        )


def ok(*arguments: str) -> str:
    done = headgate(*arguments)
    assert done.exit_code == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def shop(settings: Settings, shop_file: Path, postgres_database: str, serve: Callable[..., Service]) -> Shop:
    shop = Shop(settings, shop_file, postgres_database, serve)
    shop.begin()
    ok("feed", "create", str(shop_file))
    shop.awaits(range(1, ROWS + 1))
    return shop


def test_lost_control_topics_cost_no_row_and_repeat_none(shop: Shop, settings: Settings, log: KafkaLog) -> None:
    shop.sql(f"DELETE FROM {TARGET} WHERE id = 1")  # comes back if its change is applied a second time
    shop.node.end()
    delete_topics(log.connection, settings.cluster)
    (statement,) = re.findall(r"<<'END'\n(.*?)\n\s*END\n", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    ((saved,),) = shop.sql(statement)
    shop.sql("DROP SCHEMA headgate CASCADE", "CREATE SCHEMA headgate")
    shop.write(range(ROWS + 1, ROWS + 11))

    ok("topic", "create")
    shop.begin()
    spec = yaml.safe_load(shop.file.read_text(encoding="utf-8"))
    spec["source"]["start_offsets"] = json.loads(json.dumps(saved))
    shop.file.write_text(yaml.safe_dump(spec), encoding="utf-8")
    ok("feed", "create", str(shop.file), "--dry-run")
    ok("feed", "create", str(shop.file))
    shop.awaits(range(2, ROWS + 11))


@pytest.mark.long
@pytest.mark.parametrize("has_bookkeeping", [True, False], ids=["with-positions", "tables-only"])
def test_a_restored_sink_gets_what_its_backup_lacks(shop: Shop, has_bookkeeping: bool) -> None:
    backed_up = (TARGET, *(["headgate.progress"] if has_bookkeeping else []))
    shop.sql(*(f"CREATE TABLE backup_{number} AS TABLE {name}" for number, name in enumerate(backed_up)))
    shop.write(range(ROWS + 1, ROWS + 11))
    shop.awaits(range(1, ROWS + 11))

    ok("feed", "pause", "shop")
    for number, name in enumerate(backed_up):
        shop.sql(f"TRUNCATE {name}", f"INSERT INTO {name} TABLE backup_{number}")
    ok("feed", "resume", "shop", *([] if has_bookkeeping else ["--from", "earliest", "--yes"]))
    shop.awaits(range(1, ROWS + 11))
    shop.write([ROWS + 11])
    shop.awaits(range(1, ROWS + 12))
