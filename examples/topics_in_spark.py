r"""Show the current record of every key of a control topic by Spark: its Kafka source and ``from_avro``.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0,org.apache.spark:spark-avro_2.13:4.0.0 \
        examples/topics_in_spark.py localhost:9092 dispatch

Each schema has a fixed id (`schemas/ids.json`), bytes 2 to 5 of a value; the Avro body begins at byte 6.
A topic holds records of several schemas, so each schema decodes those that are its own. With ``readStream`` in place of
``read`` the same frame follows the topic.
"""

import argparse
import functools
import json
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro

SCHEMAS = Path(__file__).parents[1] / "schemas"


def load_schemas(folder: Path = SCHEMAS) -> dict[int, tuple[str, str]]:
    """Schema id → name of the record, and the schema's text."""
    ids = json.loads((folder / "ids.json").read_text(encoding="utf-8"))
    return {int(number): (one["record"], (folder / one["schema"]).read_text()) for number, one in ids.items()}


def current(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """key, offset, schema, body of the newest committed record of each key that is not deleted."""
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    records = source.option("kafka.isolation.level", "read_committed").load()
    newest = records.groupBy(f.col("key").cast("string").alias("key")).agg(
        f.max_by(f.struct("offset", "value"), "offset").alias("newest")
    )
    value = f.col("newest.value")
    return newest.where(value.isNotNull()).select(
        "key",
        f.col("newest.offset").alias("offset"),
        f.conv(f.hex(f.substring(value, 2, 4)), 16, 10).cast("int").alias("schema"),
        f.expr("substring(newest.value, 6)").alias("body"),
    )


def decoded(records: DataFrame, schemas: dict[int, tuple[str, str]]) -> DataFrame:
    """key, offset, type, value (JSON) of each record; a record of an unknown schema is left out."""
    used = [row.schema for row in records.select("schema").distinct().collect() if row.schema in schemas]
    parts = [
        records.where(f.col("schema") == number).select(
            "key",
            "offset",
            f.lit(schemas[number][0]).alias("type"),
            f.to_json(from_avro("body", schemas[number][1], {"mode": "FAILFAST"})).alias("value"),
        )
        for number in sorted(used)
    ]
    nothing = records.sparkSession.createDataFrame([], "key string, offset long, type string, value string")
    return functools.reduce(DataFrame.unionByName, parts, nothing).orderBy("key")


def main() -> None:
    """One line a key, sorted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bootstrap", help="host:port of a broker")
    parser.add_argument("topic", help="announce, changefeed, checkpoint, dispatch or sync (or any other control topic)")
    parser.add_argument("--cluster", default="headgate", help="prefix of the topics' names")
    given = parser.parse_args()
    spark = SparkSession.builder.appName("topics_in_spark").config("spark.sql.shuffle.partitions", 2).getOrCreate()
    try:
        records = current(spark, given.bootstrap, f"{given.cluster}.{given.topic}").cache()
        for row in decoded(records, load_schemas()).collect():
            line = row.asDict() | {"value": json.loads(row.value)}
            print(json.dumps(line, ensure_ascii=False))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
