"""What strategy online relies on at MariaDB: values as text, marks, and what the log has and reads do not yet."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from fixtures.services import mariadb_connect
from headgate.migration.strategies.contract import RefusedError, SupersededError
from headgate.migration.strategies.mariadb.ranges import read_range, write_range
from headgate.migration.strategies.online.range_work import RangeWork
from integration.migration.mariadb_change import WHOLE, Change, opened
from support.waiting import END_SECONDS_MAX, eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def url(mariadb_database: str) -> str:
    return mariadb_database


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    with closing(mariadb_connect(url)) as session, session.cursor() as cursor:
        yield cursor


@pytest.fixture
def items(client: Any) -> Any:
    """A table, whose statements the fixture's cursor runs."""
    client.execute("CREATE TABLE items (id int AUTO_INCREMENT PRIMARY KEY, v int NOT NULL, note varchar(20))")
    client.execute("INSERT INTO items SELECT seq, seq, CONCAT('note ', seq) FROM seq_1_to_200")
    return client


# --- values as text ---

VALUES = {
    "bit(5)": ["b'10101'", "b'0'"],
    "tinyint": ["-128", "127"],
    "bigint unsigned": ["18446744073709551615", "9007199254740993"],
    "int(6) zerofill": ["42"],
    "decimal(38,10)": ["-1234567890123456789012345678.0123456789"],
    "float": ["0.1", "16777216", "-3.4e38"],
    "double": ["0.1", "1.7976931348623157e308", "-2.2250738585072014e-308", "1e16"],
    "year": ["0", "1970", "2155"],
    "date": ["'0000-00-00'", "'9999-12-31'"],
    "datetime(6)": ["'2026-01-02 03:04:05.678901'"],
    "timestamp(3) NULL": ["'2026-10-25 02:30:00.125'"],
    "time(6)": ["'-838:59:59.999999'", "'00:00:00.000001'"],
    "char(5) CHARACTER SET latin1": ["'é'", "''"],
    "varchar(99) CHARACTER SET utf8mb4": [r"'it''s \\ 100% \n\t\0\Z \" 😀 end '", "'NULL'", "''"],
    "longtext CHARACTER SET utf16": ["'äöü😀'"],
    "enum('a','it''s','')": ["'it''s'", "''"],
    "set('x','y','z')": ["'x,z'", "''"],
    "json": ['\'{"a": [1, "é\\\\\\\\"]}\''],
    "varbinary(20)": ["x'00ff275c0a'", "''"],
    "binary(4)": ["x'00'"],
    "longblob": ["REPEAT(x'275cff00', 5000)"],
    "uuid": ["'5e045c13-0000-4000-8000-00000000abcd'"],
    "inet6": ["'2001:db8::ff00:42:8329'"],
    "point": ["ST_GeomFromText('POINT(1.5 -2.25)', 4326)"],
}


def test_a_row_of_every_type_is_read_and_written_as_it_is(url: str, tmp_path: Path, client: Any) -> None:
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(VALUES))
    client.execute("SET sql_mode = ''")
    client.execute(f"CREATE TABLE items (id bigint PRIMARY KEY, {columns}, g bigint AS (id - 1) STORED)")
    client.execute("INSERT INTO items (id) VALUES (9223372036854775807)")
    for number, values in enumerate(VALUES.values()):
        for value in values:
            client.execute(f"INSERT INTO items (id, c{number}) SELECT COUNT(*), {value} FROM items")
    with opened(url, tmp_path, "ALTER TABLE items ADD COLUMN extra int NOT NULL DEFAULT 7") as change:
        change.copied()
        assert change.lane.differing(change.plan, WHOLE) == []
        client.execute("SELECT * FROM items ORDER BY id")
        before = client.fetchall()
        client.execute(f"SELECT * FROM {change.plan.plan.shadow} ORDER BY id")
        assert client.fetchall() == tuple((*row, 7) for row in before)
        client.execute(f"UPDATE {change.plan.plan.shadow} SET c4 = c4 + 0.0000000001, c13 = CONCAT(c13, 'x')")
        found = change.lane.differing(change.plan, WHOLE)
        assert len(found) == len(VALUES["decimal(38,10)"]) + len(VALUES["varchar(99) CHARACTER SET utf8mb4"]), (
            "they are named, and those alone"
        )
        assert change.lane.still_differing(change.plan, found) == found


def test_rows_that_change_their_types_and_texts_that_are_keys(url: str, tmp_path: Path, client: Any) -> None:
    client.execute(
        "CREATE TABLE items (a varchar(20) CHARACTER SET latin1, b varbinary(4), n int, d decimal(5,2), e "
        "enum('x','y'), PRIMARY KEY (a, b))"
    )
    client.execute("INSERT INTO items VALUES ('é''s', x'00', 5, 1.5, 'y'), ('é''s', x'27', NULL, -1.25, NULL)")
    change_of = (
        "MODIFY n varchar(30), MODIFY d decimal(12,4), MODIFY e enum('x','y','z'), CONVERT TO CHARACTER SET utf8mb4"
    )
    with opened(url, tmp_path, f"ALTER TABLE items {change_of}") as change:
        change.copied()
        assert change.lane.differing(change.plan, WHOLE) == []
        client.execute(f"SELECT a, n, d, e FROM {change.plan.plan.shadow} ORDER BY b")
        assert [tuple(map(str, row)) for row in client.fetchall()] == [
            ("é's", "5", "1.5000", "y"),
            ("é's", "None", "-1.2500", "None"),
        ]
        client.execute("DELETE FROM items WHERE b = x'27'")
        (key,) = change.lane.differing(change.plan, WHOLE)
        assert change.lane.still_differing(change.plan, [key]) == [key]
        assert change.lane.has(change.plan, key)


WIDER: Final = {
    "at datetime": ("'2026-01-02 03:04:05'", "datetime(6)"),
    "stamp timestamp NULL": ("'2026-01-02 03:04:05'", "timestamp(3) NULL"),
    "flag bit(1)": ("b'1'", "bit(8)"),
    "raw varbinary(20)": ("x'0027ff'", "varbinary(40)"),
    "fixed binary(4)": ("x'00ff'", "varbinary(4)"),
    "small blob": ("x'00'", "longblob"),
    "word enum('a','B,c')": ("'B,c'", "varchar(3)"),
    "words set('a','b')": ("'a,b'", "text"),
    "text tinytext": ("'x '", "mediumtext"),
    "number int": ("-2147483648", "double"),
    "digits smallint": ("-32768", "varchar(6)"),
    "born year": ("2026", "int"),
}
"""Column → a value, as it is written, and a type that holds every value: no option is needed."""


def test_types_that_hold_every_value_need_no_option_and_are_equal(url: str, tmp_path: Path, client: Any) -> None:
    client.execute(f"CREATE TABLE items (id int PRIMARY KEY, v int, {', '.join(WIDER)})")
    client.execute(f"INSERT INTO items VALUES (1, 1, {', '.join(value for value, _ in WIDER.values())})")
    client.execute(f"INSERT INTO items VALUES (2, NULL{', NULL' * len(WIDER)})")
    change_of = ", ".join(f"MODIFY {column.split(' ')[0]} {kind}" for column, (_, kind) in WIDER.items())
    client.execute("CREATE TABLE wanted LIKE items")
    client.execute("INSERT INTO wanted SELECT * FROM items")
    client.execute(f"ALTER TABLE wanted {change_of}")
    with opened(url, tmp_path, f"ALTER TABLE items {change_of}") as change:
        assert change.plan.plan.loose == ()
        change.copied()
        assert change.lane.differing(change.plan, WHOLE) == []
        both = [change.run(f"SELECT * FROM {table} ORDER BY id") for table in ("wanted", change.plan.plan.shadow)]
        assert both[0] == both[1]


def test_a_range_is_not_written_for_an_owner_that_is_none_any_more(url: str, tmp_path: Path, items: Any) -> None:
    with opened(url, tmp_path, "ALTER TABLE items ADD COLUMN extra int") as change:
        change.copied()
        work = RangeWork("m", change.server.address, change.server.password_file, change.plan.held, 1, 1, change.held)
        with pytest.raises(SupersededError):
            write_range(work, WHOLE, [list(read_range(work, WHOLE))])
        change.note("paused")
        with pytest.raises(RefusedError, match="it was resumed"):
            write_range(work, WHOLE, [list(read_range(work, WHOLE))])
        items.execute("UPDATE headgate.progress SET closed = TRUE, next_offset = 8")
        with pytest.raises(RefusedError, match="it was resumed"):
            write_range(work, WHOLE, [list(read_range(work, WHOLE))])


# --- marks, and what is hidden ---


def test_a_mark_is_logged_and_leaves_the_row_as_it_is(url: str, tmp_path: Path, client: Any) -> None:
    client.execute(
        "CREATE TABLE items (id int PRIMARY KEY, a int CHECK (a < 0), at timestamp(6) NULL DEFAULT NULL ON UPDATE "
        "CURRENT_TIMESTAMP(6), b bit(3), t varchar(3))"
    )
    client.execute("INSERT INTO items VALUES (1, -1, '2026-01-01', b'101', 'abc'), (2, -2, NULL, NULL, NULL)")
    client.execute("SELECT * FROM items")
    before = client.fetchall()
    with opened(url, tmp_path, "ALTER TABLE items ADD COLUMN extra int") as change:
        with closing(mariadb_connect(url)) as other, other.cursor() as holder:
            holder.execute("BEGIN")
            holder.execute("SELECT * FROM items WHERE id = 1 FOR UPDATE")
            (((_, start, *_),),) = ((change.run("SHOW MASTER STATUS")[0],),)
            assert change.lane.mark(change.plan).row == ("2",), "who holds a row is not waited for"
        events = change.run(f"SHOW BINLOG EVENTS IN '{change.run('SHOW MASTER STATUS')[0][0]}' FROM {start}")
        assert [event[2] for event in events].count("Update_rows_v1") == 2
        client.execute("SELECT * FROM items")
        assert client.fetchall() == before


@contextmanager
def commits_that_wait(change: Change) -> Iterator[None]:
    """Between the log and InnoDB: as if a replica had to answer first, and there is none."""
    change.run("SET GLOBAL rpl_semi_sync_master_timeout = 600000")
    change.run("SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC")
    change.run("SET GLOBAL rpl_semi_sync_master_enabled = ON")
    try:
        yield
    finally:
        change.run("SET GLOBAL rpl_semi_sync_master_enabled = OFF")


def test_a_change_that_the_log_has_and_reads_do_not_is_waited_for(url: str, tmp_path: Path, items: Any) -> None:
    answers: list[bool] = []
    with opened(url, tmp_path, "ALTER TABLE items ADD COLUMN extra int") as change:
        with commits_that_wait(change):
            position = change.run("SHOW MASTER STATUS")[0][1]
            writer = threading.Thread(target=change.run, args=("UPDATE items SET v = -1 WHERE id = 1",))
            writer.start()
            eventually(lambda: change.run("SHOW MASTER STATUS")[0][1] > position, "it is in the log")
            assert change.run("SELECT v FROM items WHERE id = 1") == [(1,)], "and no read sees it"
            asker = threading.Thread(target=lambda: answers.append(change.lane.hidden(change.plan)()))
            asker.start()
            asker.join(1.0)
            assert asker.is_alive(), "it waits"
        asker.join(END_SECONDS_MAX)
        writer.join(END_SECONDS_MAX)
        assert answers == [False]
        assert change.run("SELECT v FROM items WHERE id = 1") == [(-1,)]


def test_a_prepared_transaction_is_waited_for(url: str, tmp_path: Path, items: Any) -> None:
    with opened(url, tmp_path, "ALTER TABLE items ADD COLUMN extra int") as change:
        for statement in ("XA START 'x'", "UPDATE items SET v = -1 WHERE id = 1", "XA END 'x'", "XA PREPARE 'x'"):
            items.execute(statement)
        is_hidden = change.lane.hidden(change.plan)
        assert is_hidden()
        items.execute("XA COMMIT 'x'")
        assert not is_hidden()


# --- what is refused before anything is touched ---


@pytest.mark.parametrize(
    ("setting", "why"),
    [("binlog_format = 'MIXED'", "binlog_format MIXED"), ("binlog_row_image = 'MINIMAL'", "binlog_row_image MINIMAL")],
)
def test_a_log_without_whole_rows_is_refused(url: str, tmp_path: Path, items: Any, setting: str, why: str) -> None:
    before = Change(url, tmp_path, "ALTER TABLE items ADD COLUMN extra int")
    name = setting.split(" ", maxsplit=1)[0]
    with closing(before) as change:
        ((kept,),) = change.run(f"SELECT @@global.{name}")
        change.run(f"SET GLOBAL {setting}")
        try:
            with pytest.raises(RefusedError, match=why):
                change.make()
        finally:
            change.run(f"SET GLOBAL {name} = '{kept}'")
        items.execute("SHOW TABLES")
        assert items.fetchall() == (("items",),)


def test_rights_that_are_missing_are_named(url: str, tmp_path: Path, items: Any) -> None:
    name = url.rsplit("/", 1)[1]
    host = "%"  # in a container the server sees another address than ours
    items.execute(f"CREATE OR REPLACE USER app@'{host}' IDENTIFIED BY 'secret'")
    items.execute(f"GRANT SELECT, CREATE, ALTER, DROP, INSERT ON {name}.* TO app@'{host}'")
    items.execute(f"GRANT ALL ON headgate.* TO app@'{host}'")
    as_app = f"mysql://app:secret@{url.split('@')[1]}"
    try:
        with closing(Change(as_app, tmp_path, "ALTER TABLE items ADD COLUMN extra int")) as change:
            with pytest.raises(RefusedError) as refused:
                change.make()
            for right in ("GRANT PROCESS ON", "GRANT UPDATE, DELETE, LOCK TABLES ON"):
                assert right in str(refused.value)
        items.execute(f"GRANT PROCESS ON *.* TO app@'{host}'")  # sessions that are open do not see it
        items.execute(f"GRANT UPDATE, DELETE, LOCK TABLES ON {name}.* TO app@'{host}'")
        with opened(as_app, tmp_path, "ALTER TABLE items ADD COLUMN extra int") as change:
            change.copied().cut_over()
            assert change.is_changed
    finally:
        items.execute(f"DROP USER app@'{host}'")
