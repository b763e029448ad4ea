"""docs/howto/backup-and-restore.md: the statement that saves a feed's positions, in the form that feeds take."""

import json
import re

import psycopg
import pytest

from headgate.config.start_offsets import parse_start_offsets
from headgate.databases.postgresql import progress
from support.pages import HOW_TOS

pytestmark = pytest.mark.integration


def test_saved_positions_are_offsets_to_start_from(postgres_dsn: str) -> None:
    page = (HOW_TOS / "backup-and-restore.md").read_text(encoding="utf-8")
    (statement,) = re.findall(r"<<'END'\n(.*?)\n\s*END\n", page, re.DOTALL)
    tables: str = progress._CREATE
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute(tables.replace("headgate.", "pg_temp.").encode())
        for table, topic, partition, offset in (
            ("public.orders", "shop.public.orders", 0, 17),
            ("public.orders", "shop.public.orders", 1, 4),
            ("public.a", "shop.both", 0, 9),
            ("public.b", "shop.both", 0, 5),
        ):
            connection.execute(
                "INSERT INTO pg_temp.progress (cluster_id, feed_id, feed, table_name, topic, partition, owner_rev, n, "
                "incarnation, next_offset, topic_id) VALUES ('c', '0-0', 'shop', %s, %s, %s, 0, 1, 0, %s, %s)",
                (table, topic, partition, offset, f"id-of-{topic}"),
            )
        row = connection.execute(statement.replace("headgate.", "pg_temp.").encode()).fetchone()
        connection.rollback()
    assert row is not None
    found = {
        topic: (each.topic_id, dict(each.offsets)) for topic, each in parse_start_offsets(json.dumps(row[0])).items()
    }
    assert found == {
        "shop.public.orders": ("id-of-shop.public.orders", {0: 17, 1: 4}),
        "shop.both": ("id-of-shop.both", {0: 5}),
    }
