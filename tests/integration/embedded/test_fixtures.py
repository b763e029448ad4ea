"""The fixtures that other tests stand on."""

import psycopg
import pytest
from confluent_kafka.admin import AdminClient

pytestmark = pytest.mark.integration


def test_the_broker_answers(kafka_bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    cluster = admin.describe_cluster().result(timeout=30)
    assert len(cluster.nodes) == 1


def test_each_test_has_an_empty_database(postgres_dsn: str, postgres_database: str) -> None:
    with psycopg.connect(postgres_database) as connection:
        row = connection.execute(
            "SELECT current_database(), count(*) FROM pg_tables WHERE schemaname = 'public'"
        ).fetchone()
        assert row is not None
        name, tables = row
    assert tables == 0
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone() == (1,)


def test_spark_gets_four_jars(spark_jars: tuple[object, ...]) -> None:
    assert len(spark_jars) == 4
