"""A feed over tables that are written all the time, while faults are made; equal and audited at the end."""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from itertools import count
from typing import Any

import psycopg
import yaml
from confluent_kafka.admin import AdminClient, OffsetSpec

from containers.conftest import ANSWER_SECONDS, OUTCOME, ROOT, Compose, eventually
from containers.ports import ALL_BROKERS, BROKER, PORTS
from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.leaders import offsets_of
from headgate.eventlog.log import Partition
from headgate.eventlog.partition_reader import PartitionReader, read_to
from headgate_lab.demo.audit import audit
from headgate_lab.demo.audit_triggers import install_source_audit, install_target_audit
from headgate_lab.demo.compare import compare
from headgate_lab.demo.load import ShopLoad, fill, write_markers
from headgate_lab.demo.schema import SCHEMA, TABLES, create_source, create_target
from support.topic_changes import await_topics

SOURCE = f"postgresql://postgres:change-me@127.0.0.1:{PORTS['SOURCE_PORT']}/shop"
TARGET = f"postgresql://postgres:change-me@127.0.0.1:{PORTS['TARGET_PORT']}/shop"
VIEWS = f"http://127.0.0.1:{PORTS['VIEWS_PORT']}"
NUMBERS = count(1_000_000)
COORDINATORS = ("coordinator-1", "coordinator-2")
CONTAINER_NAME_LENGTH = 12
"""Of a container's id: so much is its host name, with which an owner's name begins."""


def view(path: str) -> Any:
    """What the views say, once they serve it.

    After the loss of a broker their process may end, because its Kafka client cannot be replaced
    (views/service.py, ReadingWatch). The engine starts it again, and it reads all topics before it answers.
    """
    (answer,) = eventually(lambda: _answer(path), "the views have read the topics")
    return answer


def _answer(path: str) -> tuple[Any] | None:
    try:
        with urllib.request.urlopen(f"{VIEWS}{path}", timeout=ANSWER_SECONDS) as answer:  # noqa: S310
            return (json.load(answer),)
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.SERVICE_UNAVAILABLE:
            raise
        return None
    except urllib.error.URLError as error:
        if not isinstance(error.reason, ConnectionError | TimeoutError):
            raise
        return None  # before it listens
    except (ConnectionError, http.client.IncompleteRead):
        return None  # it ended while it was asked
    except TimeoutError:
        return None  # its client hangs, or the machine is busy


def rows(dsn: str, table: str) -> int:
    with psycopg.connect(dsn) as connection:
        (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone() or (0,)
        return int(count)


def owner() -> str:
    """The coordinator that decides, or decided last, by the name that it announces."""
    return str(eventually(lambda: view("/v1/owners")[0]["owner"], "a coordinator decides"))


def deciding(compose: Compose) -> tuple[str, str]:
    """The owner's name and its service. A container's id begins its owner's name."""
    name = owner()
    (service,) = (each for each in COORDINATORS if name.startswith(compose.container(each)[:CONTAINER_NAME_LENGTH]))
    return name, service


def holders() -> dict[str, str | None]:
    return {row["span"]: row["agent"] for row in view("/v1/tables") if row["feed"] == "busy"}


def all_run(but: str | None = None) -> bool:
    found = [row for row in view("/v1/tables") if row["feed"] == "busy"]
    return all(row["state"] == "replicating" and row["agent"] not in (None, but) for row in found) and bool(found)


def goes_on(what: str) -> None:
    """A row that is written now arrives by feed shop, and every table of the busy feed, if there is one, runs."""
    number = next(NUMBERS)
    with psycopg.connect(SOURCE, autocommit=True) as source, psycopg.connect(TARGET, autocommit=True) as target:
        source.execute("INSERT INTO orders VALUES (%s, 1, 1, %s)", (number, what))
        arrived = "SELECT count(*) FROM orders WHERE id = %s"
        try:
            eventually(lambda: target.execute(arrived, (number,)).fetchone() == (1,), f"a row arrives, {what}")
        except AssertionError as late:
            raise AssertionError(f"{late}: {who_is_late(number)}") from late
    eventually(lambda: all_run() or not holders(), f"all tables run, {what}")


def who_is_late(number: int, bootstrap: str = ALL_BROKERS) -> str:
    """Whether Kafka Connect has sent the order to its topic, so that Headgate is the one that has not applied it."""
    connection, at = KafkaConnection(bootstrap), Partition("shop.public.orders", 0)
    first, end = (
        offsets_of(connection, [at], which, "looking for the row")[at]
        for which in (OffsetSpec.earliest(), OffsetSpec.latest())
    )
    with PartitionReader(connection, {at: first}, client_id="test") as reader:
        has_come = any(_order_in(message.value()) == number for message in read_to(reader, {at: end}, ANSWER_SECONDS))
    if has_come:
        return f"the row is on {at.topic}, so Headgate has not applied it (tables: {view('/v1/tables')})"
    return (
        f"the row is not on {at.topic}, so Kafka Connect has not sent it, and Headgate is not to blame. Ask Connect "
        "for /connectors/shop/status: a connector that is UNASSIGNED sends nothing, even if its task is RUNNING"
    )


def _order_in(value: bytes | None) -> int | None:
    after = (json.loads(value) if value else {}).get("after")
    return None if after is None else int(after["id"])


def create_shop(compose: Compose) -> None:
    """Feed shop of two tables, with its snapshot at the target."""
    _await_topics("public.customers", "public.orders")
    created = compose.command("feed", "create", "/feeds/shop.yaml", *OUTCOME)
    assert created["status"] == "done", created
    eventually(lambda: (rows(TARGET, "customers"), rows(TARGET, "orders")) == (100, 1000), "the snapshot has come")


@contextmanager
def busy_feed(compose: Compose) -> Iterator[ShopLoad]:
    """Writers at the source from here on; at its end all rows are the same, and none was written twice."""
    with psycopg.connect(SOURCE, autocommit=True) as source, psycopg.connect(TARGET, autocommit=True) as target:
        install_target_audit(target)
        create_target(target)
        create_source(source)
        install_source_audit(source)
        keys = fill(source, 1)
        _create(compose)
        load = ShopLoad(SOURCE, 1, 2, 20.0, keys)
        load.start()
        try:
            yield load
        finally:
            load.stop()
        _await_markers(target, write_markers(source, 1))
        differences = {table.name: compare(source, target, table).differences for table in TABLES}
        assert differences == {table.name: 0 for table in TABLES}
        found = audit(source, target)
        assert found.double_writes == 0, found


def _create(compose: Compose) -> None:
    topics = _await_topics(*(table.full_name for table in TABLES))
    feed = yaml.safe_load((ROOT / "infra/docker/feeds/shop.yaml").read_text(encoding="utf-8"))
    feed |= {"feed": "busy", "source": feed["source"] | {"topics": topics}}
    file = ROOT / "infra/docker/feeds" / f"busy-{compose.project}.yaml"
    file.write_text(yaml.safe_dump(feed), encoding="utf-8")
    try:
        created = compose.command("feed", "create", f"/feeds/{file.name}", *OUTCOME)
    finally:
        file.unlink()
    assert created["status"] == "done", created
    eventually(all_run, "all tables run")


def _await_topics(*tables: str) -> list[str]:
    topics = [f"shop.{table}" for table in tables]
    await_topics(AdminClient({"bootstrap.servers": BROKER}), *topics)  # Debezium makes one for each table
    return topics


def _await_markers(target: "psycopg.Connection[Any]", markers: dict[str, Any]) -> None:
    def arrived() -> bool:
        for name, key in markers.items():
            where = " AND ".join(f"{column} = %s" for column in key)
            found = target.execute(f"SELECT 1 FROM {SCHEMA}.{name} WHERE {where}", list(key.values())).fetchone()
            if found is None:
                return False
        return True

    eventually(arrived, "the last row of each table has come")
