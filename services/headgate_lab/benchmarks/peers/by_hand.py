"""The yardstick: the same changes moved by hand, with no fencing, no Spark and no types; a process per core.

Each process consumes its share of the partitions, cuts the payload out, decodes it with orjson, keeps the last row per
key, and writes batches by the database's own bulk path into a temporary table and one upsert. This is as fast as
Python on this machine gets; what Headgate adds is safety, and ``ratio_to_bare_hands`` is its price.
"""

import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Protocol

import confluent_kafka
import msgspec
import orjson
import pymysql

from headgate.eventlog.connection import KafkaConnection
from headgate_lab.benchmarks.shapes import SHAPES
from headgate_lab.embedded.clients import mariadb_client, postgres_client

BATCH_CHANGES: Final = 100_000
"""Changes per transaction and process: Headgate's batches of 200 000 over two tasks."""

RUN_SECONDS_MAX: Final = 600
START_SECONDS_MAX: Final = 60
RESULT_SECONDS_MAX: Final = 10
"""The result of a process that has ended is in the pipe already."""

_MARK: Final = b',"payload":'


class ByHand(msgspec.Struct, frozen=True):
    """What is moved where: ``database`` is ``postgresql`` or ``mariadb``, ``shape`` of shapes.SHAPES."""

    bootstrap: str
    topic: str
    partitions: int
    database: str
    dsn: str
    table: str
    shape: str = "usual"


class _Writer(Protocol):
    def write(self, lines: Sequence[str], gone: Sequence[int]) -> None:
        """One transaction: these rows, tab between their values, and these keys no more."""


def run_by_hand(work: ByHand, processes: int) -> float:
    """Seconds from the first poll of the first process to the last commit. Raises RuntimeError when a process fails."""
    context = multiprocessing.get_context("spawn")
    shares = [list(range(index, work.partitions, processes)) for index in range(processes)]
    results = context.Queue()
    ready = context.Barrier(processes + 1)
    workers = [context.Process(target=_move, args=(work, share, (ready, results))) for share in shares]
    for worker in workers:
        worker.start()
    try:
        ready.wait(START_SECONDS_MAX)
        started = time.monotonic()
        for worker in workers:
            worker.join(started + RUN_SECONDS_MAX - time.monotonic())
            if worker.exitcode != 0:
                raise RuntimeError(f"hand-written COPY: a process ended with {worker.exitcode}; its error is above")
        ended: list[float] = [results.get(timeout=RESULT_SECONDS_MAX) for _ in workers]
        return max(ended) - started
    finally:
        for worker in workers:
            worker.join(10)
            if worker.is_alive():
                worker.kill()


def _move(work: ByHand, share: list[int], signals: tuple[Any, Any]) -> None:
    ready, results = signals
    consumer = KafkaConnection(work.bootstrap).client(
        confluent_kafka.Consumer,
        group_id="bare-hands",
        enable_auto_commit=False,
        enable_partition_eof=True,
        fetch_message_max_bytes=10 << 20,
        queued_max_messages_kbytes=256 << 10,
    )
    writer: _Writer = _Mariadb(work) if work.database == "mariadb" else _Postgres(work)
    ready.wait(START_SECONDS_MAX)
    consumer.assign([confluent_kafka.TopicPartition(work.topic, partition, 0) for partition in share])
    names = SHAPES[work.shape].names
    values, line = itemgetter(*names), "\t".join(["%s"] * len(names))
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
            writer.write(
                [line % values(row) for row in last.values() if row is not None],
                [_row_id(key) for key, row in last.items() if row is None],
            )
            last, moved = {}, 0
    results.put(time.monotonic())  # one clock for all processes of a machine
    consumer.close()


def _row_id(key: bytes) -> int:
    parsed = orjson.loads(key)
    return int(parsed.get("payload", parsed)["id"])


class _Postgres:
    """COPY, then INSERT … ON CONFLICT."""

    def __init__(self, work: ByHand) -> None:
        names = SHAPES[work.shape].names
        columns = ", ".join(names)
        updates = ", ".join(f"{name} = EXCLUDED.{name}" for name in names[1:])
        self._copy = f"COPY stage ({columns}) FROM STDIN"
        self._merge = (
            f"INSERT INTO {work.table} ({columns}) SELECT {columns} FROM stage ON CONFLICT (id) DO UPDATE SET {updates}"  # noqa: S608
        )
        self._delete = f"DELETE FROM {work.table} WHERE id = ANY (%s)"  # noqa: S608
        self._connection = postgres_client(work.dsn, autocommit=False)
        self._connection.execute(f"CREATE TEMP TABLE stage (LIKE {work.table})".encode())
        self._connection.commit()

    def write(self, lines: Sequence[str], gone: Sequence[int]) -> None:
        """See _Writer."""
        with self._connection.cursor() as cursor:
            with cursor.copy(self._copy.encode()) as copy:
                copy.write("\n".join(lines) + "\n")
            cursor.execute(self._merge.encode())
            cursor.execute("TRUNCATE stage")
            if gone:
                cursor.execute(self._delete.encode(), (list(gone),))
        self._connection.commit()


_DEADLOCK: Final = 1213


class _Mariadb:
    """LOAD DATA LOCAL, then INSERT … ON DUPLICATE KEY UPDATE."""

    def __init__(self, work: ByHand) -> None:
        shape = SHAPES[work.shape]
        columns = ", ".join(shape.names)
        updates = ", ".join(f"{name} = VALUES({name})" for name in shape.names[1:])
        # The server reads no zone behind a time; all times of the bench are UTC.
        times = [column.name for column in shape.columns if column.mariadb.startswith("datetime")]
        read = ", ".join(f"@{name}" if name in times else name for name in shape.names)
        cut = ", ".join(f"{name} = TRIM(TRAILING 'Z' FROM @{name})" for name in times)
        self._file = Path(tempfile.mkstemp(prefix="bare-hands-")[1])
        self._load = f"LOAD DATA LOCAL INFILE '{self._file}' INTO TABLE stage CHARACTER SET utf8mb4 ({read})" + (
            f" SET {cut}" if cut else ""
        )
        self._merge = (
            f"INSERT INTO {work.table} ({columns}) SELECT {columns} FROM stage ON DUPLICATE KEY UPDATE {updates}"  # noqa: S608
        )
        self._delete = f"DELETE FROM {work.table} WHERE id IN %s"  # noqa: S608
        self._connection = mariadb_client(work.dsn, autocommit=False, loads_files=True)
        with self._connection.cursor() as cursor:
            cursor.execute(f"CREATE TEMPORARY TABLE stage LIKE {work.table}")
            cursor.execute("ALTER TABLE stage DROP PRIMARY KEY")

    def write(self, lines: Sequence[str], gone: Sequence[int]) -> None:
        """See _Writer."""
        self._file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        while not self._is_committed(gone):  # each time one of two continues, so it comes to an end
            self._connection.rollback()
        self._file.unlink()

    def _is_committed(self, gone: Sequence[int]) -> bool:
        """False if this was the one of two processes, each waiting for the other's rows, that the server gave up."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(self._load)
                cursor.execute(self._merge)
                cursor.execute("DELETE FROM stage")
                if gone:
                    cursor.execute(self._delete, (list(gone),))
            self._connection.commit()
        except pymysql.OperationalError as error:
            if error.args[0] != _DEADLOCK:
                raise
            return False
        return True
