"""MariaDB: a text by which rows are found gets another collation, and each row still has its counterpart."""

from pathlib import Path

import pytest

from fixtures.services import mariadb_execute
from headgate.formats.change import Change
from integration.migration.played import WHOLE, delete, played, upsert

pytestmark = pytest.mark.integration

KEYS = ("a", "b", "Z", "_", "é", "ß")
CHANGES = (
    ("utf8mb4_nopad_bin", "utf8mb4_bin"),
    ("utf8mb4_bin", "utf8mb4_nopad_bin"),
    ("utf8mb4_bin", "utf8mb4_unicode_ci"),
    ("utf8mb4_unicode_ci", "utf8mb4_general_ci"),
    ("utf8mb4_general_ci", "utf8mb4_uca1400_ai_ci"),
    ("latin1_swedish_ci", "utf8mb4_general_ci"),
    ("latin1_swedish_ci", "latin1_german2_ci"),
)


def row(key: str, v: int) -> Change:
    return upsert({"s": key}, v=v)


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_a_key_of_another_collation(mariadb_database: str, tmp_path: Path, before: str, after: str) -> None:
    charsets = [collation.split("_")[0] for collation in (before, after)]
    mariadb_execute(
        mariadb_database,
        f"CREATE TABLE items (s varchar(20) CHARACTER SET {charsets[0]} COLLATE {before} PRIMARY KEY, v int NOT NULL)",
    )
    for number, key in enumerate(KEYS):
        mariadb_execute(mariadb_database, "INSERT INTO items VALUES (%s, %s)", (key, number))
    with played(
        mariadb_database, tmp_path, f"MODIFY s varchar(20) CHARACTER SET {charsets[1]} COLLATE {after}"
    ) as change:
        assert change.lane.differing(change.plan, WHOLE) == []
        shadow = change.plan.held.shadow
        change.run(f"UPDATE {shadow} SET v = 99 WHERE s = 'b'", f"DELETE FROM {shadow} WHERE s = 'Z'")
        change.run(f"INSERT INTO {shadow} VALUES ('more', 1)")
        found = change.lane.differing(change.plan, WHOLE)
        assert [key for (key,) in found] == ["'Z'", "'b'", "'more'"]
        touched = change.followed()
        change.send(row("b", 1), row("Z", 2), delete({"s": "more"}))
        change.run("UPDATE items SET v = 50 WHERE s = 'a'")
        change.late(row("a", 50))
        change.cut_over(touched)
        assert sorted(change.run("SELECT s, v FROM items")) == sorted(
            [("a", 50), *((key, number) for number, key in enumerate(KEYS) if number)]
        )
