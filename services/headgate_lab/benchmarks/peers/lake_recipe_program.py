"""The other end of lake_spark.py and lake_recipe.py: statements, and Debezium's changes into Delta and Iceberg.

Changes are written as the documentation of the two writes them:

- *upsert*: in ``foreachBatch`` the latest change of each key (Delta: "Write change data into a Delta table"), then
  MERGE INTO with a delete, an update and an insert. Tables have the formats' defaults, which is copy-on-write.
- *append*: a row for each change, with its operation and its place in the topic.

Neither is exactly once: a batch that is repeated after a crash is merged or appended again.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

__all__: list[str] = []

SAYS: Final = "lake-recipe: "

ROW: Final = "id BIGINT, name STRING, qty INT, ver INT, price STRING, at STRING"
TYPES: Final = "id BIGINT, name STRING, qty INT, ver INT, price DECIMAL(12, 2), at TIMESTAMP"
COLUMNS: Final = ("id", "name", "qty", "ver", "price", "at")

SETTINGS: Final = {
    "spark.master": "local[2]",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # As many as there are cores: the defaults of 200 and 50 are for clusters.
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.extensions": (
        "io.delta.sql.DeltaSparkSessionExtension,org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    ),
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.ice.type": "hadoop",
}
"""Delta's and Iceberg's own, from their "getting started", and what a single machine needs."""


class _Recipe:
    def __init__(self, bootstrap: str, folder: Path, jars: str) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        builder: Any = SparkSession.builder
        for name, value in {**SETTINGS, "spark.jars": jars, "spark.sql.warehouse.dir": str(folder)}.items():
            builder = builder.config(name, value)
        self._session: SparkSession = builder.getOrCreate()
        self._session.sparkContext.setLogLevel("ERROR")
        self._runs = 0
        self._queries = 0

    def close(self) -> None:
        self._session.stop()

    def query(self, statement: str) -> dict[str, str]:
        """The Arrow file with its result, or Spark's error."""
        self._queries += 1
        file = self._folder / f"result-{self._queries}.arrow"
        try:
            found = self._session.sql(statement).toArrow()
        except (PySparkException, Py4JError) as error:
            return {"error": str(error)}
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, found.schema) as writer:
            writer.write_table(found)
        return {"file": str(file)}

    def execute(self, statement: str) -> dict[str, str]:
        """Spark's error, if any. What a job returns is not passed on: Arrow cannot take nested results of OPTIMIZE."""
        try:
            self._session.sql(statement).collect()
        except (PySparkException, Py4JError) as error:
            return {"error": str(error)}
        return {}

    def create(self, kind: str, path: str, rows: str | None) -> None:
        columns = TYPES if rows is not None else f"{TYPES}, op STRING, partition INT, offset BIGINT"
        using = "delta" if kind == "delta" else "iceberg"
        table = self._table(kind, path)
        self._session.sql(f"CREATE TABLE {table} ({columns}) USING {using}")
        if rows is not None:
            self._session.sql(f"INSERT INTO {table} SELECT {', '.join(COLUMNS)} FROM parquet.`{rows}`")  # noqa: S608

    def _table(self, kind: str, path: str) -> str:
        if kind == "delta":
            return f"delta.`{path}`"
        table = Path(path)
        self._session.conf.set("spark.sql.catalog.ice.warehouse", str(table.parents[1]))
        return f"ice.{table.parent.name}.{table.name}"

    def run(self, kind: str, path: str, mode: str, topic: str, rows_max: int) -> dict[str, object]:
        self._runs += 1
        table, batches = self._table(kind, path), list[float]()
        write = self._merge if mode == "upsert" else self._append
        started = time.monotonic()
        changes = (
            self._session.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", rows_max)
            .load()
        )
        query = (
            _rows(changes)
            .writeStream.foreachBatch(_timed(lambda batch: write(batch, table), batches))
            .option("checkpointLocation", str(self._folder / f"checkpoint-{self._runs}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return {"seconds": time.monotonic() - started, "batches": batches}

    def _append(self, batch: DataFrame, table: str) -> None:
        batch.writeTo(table).append()

    def _merge(self, batch: DataFrame, table: str) -> None:
        others = ", ".join(("op", *COLUMNS[1:]))
        batch.createOrReplaceTempView("changes")
        sets = ", ".join(f"t.{name} = s.{name}" for name in COLUMNS[1:])
        values = ", ".join(f"s.{name}" for name in COLUMNS)
        batch.sparkSession.sql(
            f"MERGE INTO {table} t USING (SELECT id, latest.* FROM "  # noqa: S608 - names of our own
            f"(SELECT id, max(struct(offset, {others})) AS latest FROM changes GROUP BY id)) s ON t.id = s.id "
            "WHEN MATCHED AND s.op = 'd' THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {sets} "
            f"WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT ({', '.join(COLUMNS)}) VALUES ({values})"
        )


def _rows(changes: DataFrame) -> DataFrame:
    """One row for each change; of a delete only its key."""
    read = changes.select(
        f.from_json(f.col("key").cast("string"), "id BIGINT").alias("key"),
        f.from_json(f.col("value").cast("string"), f"op STRING, after STRUCT<{_struct(ROW)}>").alias("value"),
        "partition",
        "offset",
    )
    after = "value.after"
    return read.select(
        f.col("key.id").alias("id"),
        *(f.col(f"{after}.{name}").alias(name) for name in ("name", "qty", "ver")),
        f.col(f"{after}.price").cast("decimal(12, 2)").alias("price"),
        f.col(f"{after}.at").cast("timestamp").alias("at"),
        f.col("value.op").alias("op"),
        "partition",
        "offset",
    )


def _struct(columns: str) -> str:
    return ", ".join(": ".join(column.split(" ")) for column in columns.split(", "))


def _timed(write: Callable[[DataFrame], None], batches: list[float]) -> Callable[[DataFrame, int], None]:
    def on_batch(batch: DataFrame, _number: int) -> None:
        started = time.monotonic()
        write(batch)
        batches.append(time.monotonic() - started)

    return on_batch


def _answer(what: object) -> None:
    sys.stdout.write(f"{SAYS}{json.dumps(what)}\n")
    sys.stdout.flush()


def _serve(bootstrap: str, folder: str, jars: str) -> None:
    recipe = _Recipe(bootstrap, Path(folder), jars)
    try:
        _answer("ready")
        for line in sys.stdin:
            what, *arguments = json.loads(line)
            if what == "run":
                _answer(recipe.run(*arguments))
            elif what == "query":
                _answer(recipe.query(*arguments))
            elif what == "execute":
                _answer(recipe.execute(*arguments))
            else:
                recipe.create(*arguments)
                _answer("created")
    finally:
        recipe.close()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
