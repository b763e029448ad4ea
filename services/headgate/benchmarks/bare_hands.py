"""The yardstick: the same changes moved by hand, with no fencing, no Spark and no types; a process per core.

Each process consumes its share of the partitions, cuts the payload out, decodes it with orjson, keeps the last row per
key, and writes batches by COPY into a temporary table and one INSERT … ON CONFLICT. This is as fast as Python on this
machine gets; what Headgate adds is safety, and ``ratio_to_bare_hands`` is its price.
"""

import multiprocessing
import time
from typing import Any, Final

import confluent_kafka
import orjson
import psycopg
from psycopg import sql

__all__ = ["run_bare_hands"]

BATCH_CHANGES: Final = 100_000
"""Changes per transaction and process: Headgate's batches of 200 000 over two tasks."""

RUN_SECONDS_MAX: Final = 600
_MARK: Final = b',"payload":'
_COLUMNS: Final = ("id", "name", "qty", "ver", "price", "at")


def run_bare_hands(bootstrap: str, topic: str, partitions: int, *, dsn: str, table: str, processes: int) -> float:
    """Seconds from the first poll of the first process to the last commit. Raises RuntimeError when a process fails."""
    context = multiprocessing.get_context("spawn")
    shares = [list(range(index, partitions, processes)) for index in range(processes)]
    results = context.Queue()
    ready = context.Barrier(processes + 1)
    workers = [
        context.Process(target=_move, args=((bootstrap, topic, share), (dsn, table), (ready, results)))
        for share in shares
    ]
    for worker in workers:
        worker.start()
    try:
        ready.wait(60)
        started = time.monotonic()
        for _ in workers:
            results.get(timeout=RUN_SECONDS_MAX)
        return time.monotonic() - started
    finally:
        for worker in workers:
            worker.join(10)
            if worker.is_alive():
                worker.kill()


def _move(source: tuple[str, str, list[int]], target: tuple[str, str], signals: tuple[Any, Any]) -> None:
    (bootstrap, topic, share), (dsn, table), (ready, results) = source, target, signals
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bare-hands",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 10 << 20,
            "queued.max.messages.kbytes": 256 << 10,
        }
    )
    with psycopg.connect(dsn) as connection:
        connection.execute(
            sql.SQL("CREATE TEMP TABLE stage (LIKE {})").format(sql.Identifier(*table.split("."))).as_string(connection)
        )
        connection.commit()
        ready.wait(60)
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in share])
        ended, moved = 0, 0
        last: dict[bytes, dict[str, Any] | None] = {}
        while ended < len(share):
            for message in consumer.consume(10_000, 0.2):
                if message.error():
                    ended += message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                    continue
                value = message.value()
                cut = value.find(_MARK) if value.startswith(b'{"schema":') else -1
                last[message.key()] = orjson.loads(value if cut < 0 else value[cut + len(_MARK) : -1])["after"]
                moved += 1
            if last and (moved >= BATCH_CHANGES or ended == len(share)):
                _write(connection, table, last)
                last, moved = {}, 0
    consumer.close()
    results.put(True)


def _row_id(key: bytes) -> int:
    parsed = orjson.loads(key)
    return int(parsed.get("payload", parsed)["id"])


def _write(connection: psycopg.Connection[Any], table: str, last: dict[bytes, dict[str, Any] | None]) -> None:
    lines = [
        f"{row['id']}\t{row['name']}\t{row['qty']}\t{row['ver']}\t{row['price']}\t{row['at']}"
        for row in last.values()
        if row is not None
    ]
    gone = [_row_id(key) for key, row in last.items() if row is None]
    columns = sql.SQL(", ").join(map(sql.Identifier, _COLUMNS))
    updates = sql.SQL(", ").join(
        sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in _COLUMNS if name != "id"
    )
    with connection.cursor() as cursor:
        with cursor.copy(sql.SQL("COPY stage ({}) FROM STDIN").format(columns)) as copy:
            copy.write("\n".join(lines) + "\n")
        merge = sql.SQL("INSERT INTO {0} ({1}) SELECT {1} FROM stage ON CONFLICT (id) DO UPDATE SET {2}")
        cursor.execute(merge.format(sql.Identifier(*table.split(".")), columns, updates))
        cursor.execute("TRUNCATE stage")
        if gone:
            delete = sql.SQL("DELETE FROM {} WHERE id = ANY (%s)")
            cursor.execute(delete.format(sql.Identifier(*table.split("."))), (gone,))
    connection.commit()
