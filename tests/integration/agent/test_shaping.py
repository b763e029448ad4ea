"""A table whose columns are chosen, renamed and masked on a real lane, from its creation to a resync."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from fixtures.spare_databases import SpareDatabases
from headgate.agent.core.executor import CopyOrder, SpanId, SpanTask
from headgate.config.columns import ColumnOptions
from headgate.databases.address import Target
from headgate.eventlog.kafka import KafkaLog
from headgate.records.control import WITHHELD_HEADER, Epoch, SpanPlan, TaskState
from headgate.records.row_copies import RowCopy, shown_row_copy
from headgate.verify.comparing import TableCompared, compare_table
from headgate.verify.postgresql import PostgresSide
from headgate.verify.shaped import ShapedSide
from support.kafka_cluster import ANSWER_SECONDS
from support.topic_changes import make_topics
from support.waiting import eventually

from .conftest import Bed, reached
from .test_quarantine import executor_with_dead_letters, letters_on, log

__all__ = ["log"]

pytestmark = [pytest.mark.spark, pytest.mark.integration]

TABLE = """
CREATE TABLE people (id bigint PRIMARY KEY, email text NOT NULL UNIQUE, phone varchar(20), iban text NOT NULL,
                     status text DEFAULT 'new', card int, bio text, secret text)
"""
UNCHANGED = "__debezium_unavailable_value"
COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute
WHERE attrelid = 'people'::regclass AND attnum > 0 ORDER BY attnum
"""


class People:
    """A table at the source, its topic, and a feed that shapes it. ``write`` changes the source and the log alike."""

    def __init__(self, bed: Bed, source: str, salt: Path, columns: dict[str, Any], **more: Any) -> None:
        """``more``: other options of the table."""
        self.bed, self.source, self.columns, self.more = bed, source, columns, more
        self.database = psycopg.connect(source, autocommit=True)
        self.database.execute(TABLE)
        self.topic = f"{bed.prefix}public.people"
        make_topics(AdminClient({"bootstrap.servers": bed.bootstrap}), NewTopic(self.topic, 1, 1))
        self.plan = SpanPlan("people", self.topic, "public.people", {0: 0})
        self.id = SpanId(bed.feed, "people")
        salt.write_text("grain\n", encoding="utf-8")

    def task(self, n: int, copy: CopyOrder | None = None) -> SpanTask:
        spec = {
            "feed": self.bed.feed,
            "source": {"topic_pattern": ".*", "database": {"dsn": self.source}},
            "sink": {"type": "postgresql", "dsn": self.bed.dsn, "unique_keys": "create"},
            "on_bad_change": "quarantine",
            "tables": {"public.people": {"columns": self.columns, **self.more}},
        }
        text = msgspec.json.encode(spec).decode()
        return SpanTask(self.id, "0-7", 1, Epoch(3, n), self.plan, text, copy=copy)

    def write(self, op: str, number: int, row: dict[str, Any] | None = None, *, toast: bool = False) -> None:
        """``toast``: the update leaves a large bio alone, which the event then lacks."""
        row = None if row is None else {"id": number, **row}
        self.database.execute("DELETE FROM people WHERE id = %s", (number,))
        if row is not None:
            names = ", ".join(row)
            marks = ", ".join(f"%({name})s" for name in row)
            self.database.execute(f"INSERT INTO people ({names}) VALUES ({marks})".encode(), row)
        after = row | {"bio": UNCHANGED} if row is not None and toast else row
        value = {"before": None, "after": after, "source": {"ts_ms": 5, "connector": "postgresql"}, "op": op}
        self.bed.raw(self.plan, msgspec.json.encode({"id": number}), msgspec.json.encode(value))
        self.bed.producer.flush(ANSWER_SECONDS)

    def at_sink(self, columns: str) -> list[tuple[Any, ...]]:
        try:
            return self.bed.database.execute(f"SELECT {columns} FROM people ORDER BY 1".encode()).fetchall()
        except psycopg.errors.UndefinedTable:
            return []

    def compared(self) -> TableCompared:
        columns = ColumnOptions.model_validate(self.columns)
        with closing(PostgresSide(Target(self.source))) as here, closing(PostgresSide(Target(self.bed.dsn))) as there:
            return compare_table(
                ShapedSide(here, columns, self.more.get("where")), there, "public.people", "public.people"
            )


@pytest.fixture
def make(bed: Bed, spare_databases: SpareDatabases, tmp_path: Path) -> Iterator[Callable[..., People]]:
    """Makes the table, whose feed has these ``columns``."""
    with spare_databases.database() as parameters, ExitStack() as opened:
        source = "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**parameters)

        def made(columns: dict[str, Any], **more: Any) -> People:
            people = People(bed, source, tmp_path / "salt", columns, **more)
            opened.callback(people.database.close)
            return people

        yield made


def row(number: int, **more: Any) -> dict[str, Any]:
    return {
        "email": f"p{number}@example.com",
        "phone": f"+49170{number:05}",
        "iban": f"DE{number:020}",
        "status": "open",
        "card": 4000 + number,
        "bio": f"bio {number}",
        "secret": "hidden",
        **more,
    }


def hashed(text: str) -> str:
    return hashlib.sha256(b"grain" + text.encode()).hexdigest()


def test_changes_of_every_kind_arrive_shaped_in_a_table_that_is_created_shaped(
    bed: Bed, make: Callable[..., People], log: KafkaLog, tmp_path: Path
) -> None:
    masks = {
        "email": {"sha256": str(tmp_path / "salt")},
        "card": {"sha256": str(tmp_path / "salt")},
        "phone": {"keep_last": 4},
        "iban": None,
        "status": {"constant": "-"},
    }
    people = make(
        {
            "include": ["id", "email", "phone", "iban", "status", "card", "bio"],
            "rename": {"id": "number", "email": "mail", "bio": "email"},
            "mask": masks,
        },
    )
    executor = executor_with_dead_letters(bed, log)
    for number in range(1, 6):
        people.write("c", number, row(number))
    executor.add_table(people.task(1), prepare=False)
    names = "number, mail, phone, iban, status, card, email"

    shown = [
        (n, hashed(f"p{n}@example.com"), f"*******{n:04}", None, "-", hashed(str(4000 + n)), f"bio {n}")
        for n in range(1, 6)
    ]
    eventually(lambda: people.at_sink(names) == shown, "the rows of the beginning")
    assert bed.database.execute(COLUMNS).fetchall() == [
        ("number", "bigint", True),
        ("mail", "character varying(64)", True),
        ("phone", "character varying(20)", False),
        ("iban", "text", False),
        ("status", "text", False),
        ("card", "character varying(64)", False),
        ("email", "text", False),
    ]

    people.write("u", 1, row(1, bio="another"))
    people.write("u", 2, row(2, status=None, card=None), toast=True)
    people.write("d", 3)
    people.write("d", 4)  # a key update is a delete and an insert
    people.write("c", 40, row(4, email="p40@example.com"))
    eventually(
        lambda: (
            people.at_sink("number, mail, status, card, email")
            == [
                (1, hashed("p1@example.com"), "-", hashed("4001"), "another"),
                (2, hashed("p2@example.com"), "-", None, "bio 2"),
                (5, hashed("p5@example.com"), "-", hashed("4005"), "bio 5"),
                (40, hashed("p40@example.com"), "-", hashed("4004"), "bio 4"),
            ]
        ),
        "updates, a large value that was left alone, deletes, and a new key",
    )
    compared = people.compared()
    assert (compared.rows, compared.differences, set(compared.columns)) == (4, 0, {"number", "email"})
    assert set(compared.columns_surplus) == {"mail", "phone", "iban", "status", "card"}

    people.write("u", 5, row(5, phone=12345))
    people.write("u", 1, row(1, bio="later"))
    eventually(lambda: people.at_sink("email") == [("bio 2",), ("bio 4",), ("bio 5",), ("later",)], "it goes on")
    ((key, letter),) = letters_on(log).items()
    assert (key.offset, letter.key, letter.value, [header.name for header in letter.headers]) == (
        10, None, None, [WITHHELD_HEADER],
    )  # fmt: skip
    assert "column phone has a value of type int, and mask keep_last takes texts only" in letter.error
    assert "12345" not in letter.error

    bed.database.execute(
        "UPDATE people SET mail = '', email = 'wrong', status = 'x'; DELETE FROM people WHERE number = 5"
    )
    people.database.execute("UPDATE people SET phone = '+4917000005' WHERE id = 5")
    assert (people.compared().rows, people.compared().differences) == (4, 4)
    executor.remove_table(people.id, seal=True)
    reached(executor, people.id, TaskState.STOPPED)
    rows = RowCopy(columns=("number",), keys=(("1",), ("2",), ("5",), ("40",)), delete=True)
    executor.add_table(people.task(2, CopyOrder("r2", shown_row_copy(rows))), prepare=False)
    reached(executor, people.id, TaskState.REPLICATING)
    assert people.at_sink("number, mail, phone, status, card, email") == [
        (1, hashed("p1@example.com"), "*******0001", "-", hashed("4001"), "later"),
        (2, hashed("p2@example.com"), "*******0002", "-", None, "bio 2"),
        (5, hashed("p5@example.com"), "*******0005", "-", hashed("4005"), "bio 5"),
        (40, hashed("p40@example.com"), "*******0004", "-", hashed("4004"), "bio 4"),
    ]
    assert people.compared().differences == 0

    bed.database.execute("UPDATE people SET email = 'wrong'; INSERT INTO people (number, mail) VALUES (77, 'surplus')")
    executor.remove_table(people.id, seal=True)
    reached(executor, people.id, TaskState.STOPPED)
    whole = CopyOrder("whole", shown_row_copy(RowCopy(keys=None, delete=True)))
    executor.add_table(people.task(3, whole), prepare=False)
    copied = [
        (1, hashed("p1@example.com"), "*******0001", "later"),
        (2, hashed("p2@example.com"), "*******0002", "bio 2"),
        (5, hashed("p5@example.com"), "*******0005", "bio 5"),
        (40, hashed("p40@example.com"), "*******0004", "bio 4"),
    ]
    eventually(lambda: people.at_sink("number, mail, phone, email") == copied, "the whole table is copied, shaped")


def test_a_salt_that_is_missing_is_waited_for(
    bed: Bed, make: Callable[..., People], log: KafkaLog, tmp_path: Path
) -> None:
    salt = tmp_path / "salt"
    people = make({"mask": {"email": {"sha256": str(salt)}}, "exclude": ["secret", "iban"]})
    salt.unlink()
    executor = executor_with_dead_letters(bed, log)
    people.write("c", 1, row(1))
    executor.add_table(people.task(1), prepare=False)

    def error() -> str | None:
        status = executor.status(people.id)
        return None if status is None else status.error_code

    eventually(lambda: error() == "mask_salt", "the salt is asked for")
    assert people.at_sink("id") == []
    salt.write_text("grain", encoding="utf-8")
    eventually(lambda: people.at_sink("id, email") == [(1, hashed("p1@example.com"))], "it goes on by itself")


def test_an_included_column_that_the_source_renames_stops_the_table_until_the_feed_has_its_new_name(
    bed: Bed, make: Callable[..., People], log: KafkaLog
) -> None:
    people = make({"include": ["id", "email", "card"]}, on_bad_change="fail")
    executor = executor_with_dead_letters(bed, log)
    people.database.execute("ALTER TABLE people DROP COLUMN card")
    older = {name: value for name, value in row(1).items() if name != "card"}
    people.write("c", 1, older)
    people.database.execute("ALTER TABLE people ADD COLUMN card int")
    executor.add_table(people.task(1), prepare=False)
    people.write("c", 2, row(2))
    arrived = [(1, "p1@example.com", None), (2, "p2@example.com", 4002)]
    eventually(lambda: people.at_sink("id, email, card") == arrived, "a row from before a column was added passes")

    people.database.execute("ALTER TABLE people RENAME COLUMN email TO mail")
    renamed = row(3)
    renamed["mail"] = renamed.pop("email")
    people.write("c", 3, renamed)

    def error() -> str:
        status = executor.status(people.id)
        return "" if status is None else str(status.error)

    why = "the event does not have column email, which columns.include names, and has"
    eventually(lambda: why in error(), "the table stops")
    assert "people" in error()
    assert "hidden" not in error()
    assert people.at_sink("id, email, card") == arrived
    people.columns = {"include": ["id", "mail", "card"], "rename": {"mail": "email"}}
    executor.add_table(people.task(2), prepare=False)
    arrived.append((3, "p3@example.com", 4003))
    eventually(lambda: people.at_sink("id, email, card") == arrived, "the table goes on with the new name")


WHERE = "status = 'open' AND card >= 4000 AND NOT secret LIKE 'x%'"


def test_rows_enter_and_leave_a_filter_and_are_compared_and_copied_as_it_says(
    bed: Bed, make: Callable[..., People], log: KafkaLog
) -> None:
    people = make({"exclude": ["secret", "iban"], "rename": {"id": "number"}, "mask": {"card": None}}, where=WHERE)
    executor = executor_with_dead_letters(bed, log)
    for number, more in enumerate([{}, {"status": "closed"}, {"card": None}, {"secret": "xyz"}, {}, {"card": 1}], 1):
        people.write("c", number, row(number, **more))
    executor.add_table(people.task(1), prepare=False)
    eventually(lambda: people.at_sink("number, bio") == [(1, "bio 1"), (5, "bio 5")], "rows that the filter keeps")

    people.write("u", 1, row(1, status="closed"))  # leaves it
    people.write("u", 2, row(2))  # enters it
    people.write("u", 3, row(3, card=None, bio="never there"), toast=True)
    people.write("u", 5, row(5, phone="1"), toast=True)  # stays, without its large value
    people.write("d", 6)  # was never there
    arrived = [(2, "+4917000002", "bio 2"), (5, "1", "bio 5")]
    eventually(lambda: people.at_sink("number, phone, bio") == arrived, "a row left, and one entered")
    compared = people.compared()
    assert (compared.rows, compared.differences) == (2, 0)

    people.write("u", 4, row(4), toast=True)  # enters it, and the event does not have the whole row
    people.write("u", 5, row(5, phone="2"))

    def error() -> str:
        status = executor.status(people.id)
        return "" if status is None else str(status.error)

    eventually(lambda: "the feed's `where` lets it in only now" in error(), "the row that is not whole is waited for")
    assert "people" in error()
    assert "xyz" not in error()
    assert "hidden" not in error()
    people.write("u", 4, row(4, bio="whole"))
    arrived = [(2, "+4917000002", "bio 2"), (4, "+4917000004", "whole"), (5, "2", "bio 5")]
    eventually(lambda: people.at_sink("number, phone, bio") == arrived, "the whole row follows")
    assert letters_on(log) == {}

    bed.database.execute("UPDATE people SET phone = 'wrong' WHERE number = 2; DELETE FROM people WHERE number = 5")
    bed.database.execute("INSERT INTO people (number, email, phone) VALUES (1, 'left', '1'), (77, 'surplus', '2')")
    assert people.compared().differences == 4
    executor.remove_table(people.id, seal=True)
    reached(executor, people.id, TaskState.STOPPED)
    rows = RowCopy(columns=("number",), keys=(("1",), ("2",), ("5",), ("77",)), delete=True)
    executor.add_table(people.task(2, CopyOrder("r2", shown_row_copy(rows))), prepare=False)
    reached(executor, people.id, TaskState.REPLICATING)
    assert people.at_sink("number, phone, bio") == arrived
    assert people.compared().differences == 0

    bed.database.execute("INSERT INTO people (number, email) VALUES (3, 'kept out'), (78, 'surplus')")
    bed.database.execute("DELETE FROM people WHERE number = 2")
    executor.remove_table(people.id, seal=True)
    reached(executor, people.id, TaskState.STOPPED)
    whole = CopyOrder("whole", shown_row_copy(RowCopy(keys=None, delete=True)))
    executor.add_table(people.task(3, whole), prepare=False)
    eventually(lambda: people.at_sink("number, phone, bio") == arrived, "the whole table is copied, filtered")

    bed.database.execute("UPDATE people SET phone = 'wrong'")
    executor.remove_table(people.id, seal=True)
    reached(executor, people.id, TaskState.STOPPED)
    some = CopyOrder("some", shown_row_copy(RowCopy(keys=None, where="email = 'p4@example.com' OR status = 'closed'")))
    executor.add_table(people.task(4, some), prepare=False)
    chosen = [(2, "wrong", "bio 2"), (4, "+4917000004", "whole"), (5, "wrong", "bio 5")]
    eventually(lambda: people.at_sink("number, phone, bio") == chosen, "of the rows that the feed has, one is chosen")
    eventually(lambda: executor.status(people.id).error_code is None, "the copy has ended")  # type: ignore[union-attr]
    assert people.at_sink("number, phone, bio") == chosen


def test_a_filter_that_needs_a_value_that_the_event_lacks_sets_the_change_aside(
    bed: Bed, make: Callable[..., People], log: KafkaLog
) -> None:
    people = make({"exclude": ["secret"]}, where="status = 'open' AND bio LIKE 'b%'")
    executor = executor_with_dead_letters(bed, log)
    people.write("c", 1, row(1))
    people.write("u", 1, row(1, phone="1"), toast=True)
    people.write("u", 1, row(1, status="closed"), toast=True)  # decided without the large value
    people.write("c", 2, row(2))
    executor.add_table(people.task(1), prepare=False)
    eventually(lambda: people.at_sink("id") == [(2,)], "one row left, and one is there")
    ((key, letter),) = letters_on(log).items()
    assert (key.offset, letter.key, letter.value) == (1, None, None)
    assert "where: column bio has a large value that did not change" in letter.error


def test_computed_columns_are_the_same_in_changes_copies_and_comparisons(
    bed: Bed, make: Callable[..., People], log: KafkaLog
) -> None:
    people = make(
        {
            "exclude": ["secret", "iban"],
            "rename": {"id": "number"},
            "mask": {"phone": {"keep_last": 4}},
            "set": {
                "email": "LOWER(email)",
                "domain": "SPLIT_PART(email, '@', 2)",
                "prefix": "LEFT(iban, 2) || '-' || status",
                "double": "card * 2",
                "share": "ROUND(CAST(card AS NUMERIC) / 3, 2)",
                "has_card": "card IS NOT NULL",
                "loud": "UPPER(bio)",
                "region": "'eu'",
            },
        }
    )
    executor = executor_with_dead_letters(bed, log)
    people.write("c", 1, row(1, email="P1@Example.com"))
    people.write("c", 2, row(2, card=None))
    people.write("c", 3, row(3))
    executor.add_table(people.task(1), prepare=False)
    names = "number, email, domain, prefix, double, share::text, has_card, loud, region"
    first = (1, "p1@example.com", "Example.com", "DE-open", 8002, "1333.67", True, "BIO 1", "eu")
    second = (2, "p2@example.com", "example.com", "DE-open", None, None, False, "BIO 2", "eu")
    third = (3, "p3@example.com", "example.com", "DE-open", 8006, "1334.33", True, "BIO 3", "eu")
    eventually(lambda: people.at_sink(names) == [first, second, third], "the rows of the beginning")
    assert [column for column in bed.database.execute(COLUMNS).fetchall() if column[0] not in ("phone", "status")] == [
        ("number", "bigint", True),
        ("card", "integer", False),
        ("bio", "text", False),
        ("email", "text", False),
        ("domain", "text", False),
        ("prefix", "text", False),
        ("double", "bigint", False),
        ("share", "numeric", False),
        ("has_card", "boolean", False),
        ("loud", "text", False),
        ("region", "text", False),
    ]
    people.write("u", 1, row(1, status="paid"), toast=True)  # what is computed of the large value stays
    people.write("d", 2)
    people.write("u", 3, row(3, status=None, card=1_500_000_000, bio=None))
    people.write("c", 4, row(4, card=None, bio="x" * 20_000))
    left = [
        (1, "p1@example.com", "example.com", "DE-paid", 8002, "1333.67", True, "BIO 1", "eu"),
        (3, "p3@example.com", "example.com", None, 3_000_000_000, "500000000", True, None, "eu"),
        (4, "p4@example.com", "example.com", "DE-open", None, None, False, "X" * 20_000, "eu"),
    ]
    eventually(lambda: people.at_sink(names) == left, "an update without its large value, a delete, and others")
    people.database.execute("UPDATE people SET bio = 'bio 1' WHERE id = 1")  # as the source really has it
    compared = people.compared()
    assert (compared.rows, compared.differences) == (3, 0)
    assert {"domain", "double", "share", "has_card", "loud", "region"} <= set(compared.columns)

    bed.database.execute("UPDATE people SET loud = 'wrong', double = 1 WHERE number = 1")
    bed.database.execute("UPDATE people SET has_card = NULL, domain = '' WHERE number = 4")
    assert people.compared().differences == 2
    executor.remove_table(people.id, seal=True)
    reached(executor, people.id, TaskState.STOPPED)
    rows = RowCopy(columns=("number",), keys=(("1",), ("4",)), delete=True)
    executor.add_table(people.task(2, CopyOrder("r2", shown_row_copy(rows))), prepare=False)
    reached(executor, people.id, TaskState.REPLICATING)
    assert people.at_sink(names) == left
    assert people.compared().differences == 0

    bed.database.execute("UPDATE people SET region = 'us', share = 0; DELETE FROM people WHERE number = 3")
    executor.remove_table(people.id, seal=True)
    reached(executor, people.id, TaskState.STOPPED)
    whole = CopyOrder("whole", shown_row_copy(RowCopy(keys=None, delete=True)))
    executor.add_table(people.task(3, whole), prepare=False)
    eventually(lambda: people.at_sink(names) == left, "the whole table is copied")
    assert people.compared().differences == 0
    assert letters_on(log) == {}

    people.write("u", 1, row(1, bio=5))
    people.write("u", 3, row(3))
    eventually(lambda: people.at_sink(names)[1] == third, "it goes on")
    ((_, letter),) = letters_on(log).items()
    assert (letter.key, letter.value) == (None, None)
    assert "columns.set.loud: column bio has a value that expressions cannot read" in letter.error
