"""What was assumed is checked again under the lock: a cut-over that finds it otherwise leaves the table as it was."""

from pathlib import Path
from typing import Any

import pytest

from fixtures.services import database_connect
from headgate.formats.change import Change, Operation
from headgate.migration.strategies.contract import RefusedError
from headgate.migration.strategies.online import followed
from headgate.migration.strategies.online.lane import FeedBehindError
from integration.migration.played import delete, played, upsert

pytestmark = pytest.mark.integration

ADD = "ADD COLUMN extra int NOT NULL DEFAULT 7"


@pytest.fixture(params=["postgresql", "mariadb"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue("postgres_database" if request.param == "postgresql" else "mariadb_database")
    session = database_connect(found)
    client = session.cursor()
    client.execute("CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note varchar(20))")
    client.execute("INSERT INTO items VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c'), (4, 4, 'd'), (5, 5, 'e')")
    if not found.startswith("mysql"):
        client.execute("CREATE PUBLICATION captured FOR TABLE items")
    session.close()
    return found


def row(number: int, v: int, note: str = "a") -> Change:
    return upsert({"id": number}, v=v, note=note)


def test_a_row_that_the_feed_brings_otherwise_than_the_table_has_it(url: str, tmp_path: Path) -> None:
    with played(url, tmp_path, ADD) as change:
        touched = change.followed()
        change.run("UPDATE items SET v = 70 WHERE id = 1", "DELETE FROM items WHERE id = 2")
        change.send(row(1, 71), delete({"id": 2}))
        with pytest.raises(RefusedError, match="differs in 1 rows while nothing changes"):
            change.cut_over(touched)
        assert not change.is_changed
        assert change.run("SELECT v FROM items WHERE id = 1") == [(70,)]
        change.send(row(1, 70))
        change.cut_over(touched)
        assert change.is_changed
        assert sorted(change.run("SELECT id, v, note, extra FROM items")) == [
            *[(1, 70, "a", 7), (3, 3, "c", 7), (4, 4, "d", 7), (5, 5, "e", 7)]
        ]


def test_a_topic_that_gains_a_partition(url: str, tmp_path: Path) -> None:
    """A row's next change may go there, and nothing is known of it: neither marks nor the feed see it."""
    with played(url, tmp_path, ADD) as change:
        change.partition_count = 2
        with pytest.raises(RefusedError, match="has 2 partitions now, and had 1 when the copy was started"):
            change.cut_over()
        assert not change.is_changed
        change.run("UPDATE items SET v = v")
        change.partition_count = 1
        change.cut_over()
        assert change.is_changed


def test_an_event_that_lacks_a_column(url: str, tmp_path: Path) -> None:
    with played(url, tmp_path, ADD) as change:
        touched = change.followed()
        change.run("UPDATE items SET note = 'new' WHERE id = 1")
        change.send(upsert({"id": 1}, v=1))
        with pytest.raises(
            RefusedError, match=r"offset 0 of topic topic: the event does not have column note.*exclude"
        ):
            change.cut_over(touched)
        assert not change.is_changed


FUNCTION = "CREATE FUNCTION public.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'"

MEDDLING = {
    "trigger": (
        f"{FUNCTION}; CREATE TRIGGER added BEFORE INSERT ON items FOR EACH ROW EXECUTE FUNCTION public.f()",
        "CREATE TRIGGER added BEFORE INSERT ON items FOR EACH ROW SET NEW.v = 9",
        "trigger added would stay with the old table",
    ),
    "column": ("ALTER TABLE items ADD COLUMN c int", "ALTER TABLE items ADD COLUMN c int, ALGORITHM=INSTANT", "def"),
    "index": ("CREATE INDEX by_v ON items (v)", "CREATE INDEX by_v ON items (v)", "definition has changed|built again"),
    "truncate": ("TRUNCATE items", "TRUNCATE items", "truncated or built again"),
}
"""What is done between copy and cut-over: at PostgreSQL, at MariaDB → the reason."""


@pytest.mark.parametrize("case", MEDDLING)
def test_a_table_that_is_another_one_now(url: str, tmp_path: Path, case: str) -> None:
    postgres, mariadb, why = MEDDLING[case]
    with played(url, tmp_path, ADD) as change:
        change.run(mariadb if change.is_mariadb else postgres)
        with pytest.raises(RefusedError, match=why):
            change.cut_over()
        assert not change.is_changed


def test_more_rows_than_can_be_compared_under_the_lock(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "HOT_KEYS_MAX", 2)
    with played(url, tmp_path, ADD) as change:
        touched = change.followed()
        compare, compared = touched.compare, 0

        def late(*given: Any) -> None:
            """Clients write between the last comparison and the lock."""
            nonlocal compared
            compare(*given)
            compared += 1
            if compared == 1:
                change.run("UPDATE items SET note = 'a'")
                change.send(*(row(number, number) for number in range(1, 6)))

        monkeypatch.setattr(touched, "compare", late)
        with pytest.raises(FeedBehindError, match="5 rows were written since they were compared, and 2 can be"):
            change.cut_over(touched)
        assert not change.is_changed
        change.cut_over(touched)
        assert change.is_changed


KEYS: dict[str, tuple[str, Any, str | None]] = {
    "postgresql bigint": ("9007199254740993", 9007199254740993, None),
    "postgresql text": ("'it''s \\ 100%% é'", "it's \\ 100%% é", None),
    "postgresql uuid": ("'0b1c6c2e-5c3f-4f6e-9d0a-1a2b3c4d5e6f'", "0b1c6c2e-5c3f-4f6e-9d0a-1a2b3c4d5e6f", None),
    "postgresql bytea": ("'\\x00ff27'", "AP8n", "bytes"),
    "postgresql numeric(10,2)": ("-12.50", "-12.50", "string"),
    "postgresql timestamp": ("'2024-02-29 10:00:01.5'", 1709200801500000, "io.debezium.time.MicroTimestamp"),
    "postgresql date": ("'2024-02-29'", 19782, "io.debezium.time.Date"),
    "mariadb bigint unsigned": ("9007199254740993", 9007199254740993, None),
    "mariadb varchar(40)": ("'it''s \\\\ 100%% é'", "it's \\ 100%% é", None),
    "mariadb varbinary(8)": ("x'00ff27'", "AP8n", "bytes"),
    "mariadb decimal(10,2)": ("-12.50", "-12.50", "string"),
    "mariadb datetime(3)": ("'2024-02-29 10:00:01.5'", 1709200801500, "io.debezium.time.Timestamp"),
    "mariadb date": ("'2024-02-29'", 19782, "io.debezium.time.Date"),
    "mariadb bit(9)": ("b'100000001'", "AQE=", "io.debezium.data.Bits(9)"),
    "mariadb enum('x','y')": ("'y'", "y", "io.debezium.data.Enum"),
}
"""Database and type of a key → its value in SQL, in an event, and what the event's schema calls it."""


@pytest.mark.parametrize("kind", KEYS)
def test_rows_of_events_are_found_by_their_keys(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    database, _, declared = kind.partition(" ")
    url = request.getfixturevalue("postgres_database" if database == "postgresql" else "mariadb_database")
    value, said, meaning = KEYS[kind]
    session = database_connect(url)
    session.cursor().execute(f"CREATE TABLE items (id {declared} PRIMARY KEY, v int)")
    if database == "postgresql":
        session.cursor().execute("CREATE PUBLICATION captured FOR TABLE items")
    session.close()
    with played(url, tmp_path, ADD) as change:
        change.run(f"INSERT INTO items VALUES ({value.replace('%%', '%')}, 1)")
        told = {"": database} | ({} if meaning is None else {"id": meaning})
        said = said.replace("%%", "%") if isinstance(said, str) else said
        event = Change(0, 0, Operation.UPSERT, {"id": said}, {"id": said, "v": 1}, None, 0, told)
        key = change.lane.key_of(change.plan, event)
        assert len(change.lane.still_differing(change.plan, [key])) == 1, f"{key}: the copy lacks the row"
