"""The shop has everything that is hard, and makes the same rows again from the same seed."""

from random import Random

from headgate_lab.demo.schema import TABLES


def seeded(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - a workload, not a secret


def test_the_same_seed_gives_the_same_rows() -> None:
    for table in TABLES:
        first = [str(table.new_row(seeded(5), serial)) for serial in range(3)]
        assert first == [str(table.new_row(seeded(5), serial)) for serial in range(3)]
        assert first != [str(table.new_row(seeded(6), serial)) for serial in range(3)]


def test_keys_of_different_serials_differ() -> None:
    random = seeded(1)
    for table in TABLES:
        keys = {tuple(table.new_row(random, serial)[column] for column in table.key) for serial in range(500)}
        assert len(keys) == 500


def test_an_update_changes_something_and_never_a_key_or_usually_the_large_text() -> None:
    random = seeded(1)
    for table in TABLES:
        updates = [table.new_values(random, serial) for serial in range(400)]
        assert all(update and not set(update) & set(table.key) for update in updates)
        if table.large is not None:
            touched = sum(table.large in update for update in updates)
            assert 0 < touched < len(updates) / 4


def test_the_shop_has_what_is_hard_to_replicate() -> None:
    types = " ".join(column.sql_type for table in TABLES for column in table.columns)
    names = {column.name for table in TABLES for column in table.columns}
    assert len(TABLES) >= 4
    assert {"payload", "after"} <= names
    assert any(len(table.key) > 1 for table in TABLES)
    assert all(word in types for word in ("numeric", "timestamptz", "jsonb", "UNIQUE"))
    rows = [table.new_row(seeded(number), number) for table in TABLES for number in range(50)]
    texts = "".join(str(value) for row in rows for value in row.values())
    assert any(ord(character) > 0xFFFF for character in texts)
    assert any(value is None for row in rows for value in row.values())
