"""Tables that are filtered and computed on their way to a MariaDB, on a real lane, from either database.

Events have no schemas, so what their texts and numbers are is known from the source's catalogue.
"""

from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from fixtures.services import mariadb_execute
from headgate.agent.core.executor import CopyOrder, SpanTask
from headgate.config.columns import ColumnOptions
from headgate.databases.address import Target
from headgate.eventlog.kafka import KafkaLog
from headgate.records.control import SpanPlan, TaskState
from headgate.records.row_copies import RowCopy, shown_row_copy
from headgate.verify.comparing import TableCompared, compare_table
from headgate.verify.mysql import MysqlSide
from headgate.verify.postgresql import PostgresSide
from headgate.verify.shaped import ShapedSide
from support.kafka_cluster import ANSWER_SECONDS
from support.topic_changes import make_topics
from support.waiting import eventually

from .conftest import Bed, reached
from .test_quarantine import executor_with_dead_letters, letters_on, log
from .test_table_copy_to_mariadb import Run, source

__all__ = ["log", "source"]

pytestmark = [pytest.mark.spark, pytest.mark.integration]

WHERE = "status = 'open' AND qty >= 10 AND price > 9.99 AND at >= TIMESTAMP '2024-01-01 00:00:00'"
"""The price is a text in events, and the time a number."""
COLUMNS: dict[str, Any] = {
    "exclude": ["secret"],
    "rename": {"id": "number"},
    "set": {
        "status": "UPPER(status)",
        "label": "CONCAT(status, '-', secret)",
        "dozens": "qty / 12",
        "share": "CAST(price / 3 AS NUMERIC(12,4))",
        "big": "qty > 100",
        "day": "CAST(at AS DATE)",
        "month": "DATE_TRUNC('month', at)",
    },
}
SELECT = "SELECT number, status, qty, label, dozens, share, big, day, month FROM copied ORDER BY number"


class Ends:
    """``items`` at a source, and ``copied`` at a MariaDB, which the feed creates."""

    def __init__(self, bed: Bed, address: str, run: Run, target: str) -> None:
        self.bed, self.address, self.run, self.target = bed, address, run, target
        self.is_postgresql = address.startswith("postgresql")
        self.schema = "public" if self.is_postgresql else address.rsplit("/", 1)[1].partition("?")[0]
        self.topic = f"{bed.prefix}{self.schema}.items"
        make_topics(AdminClient({"bootstrap.servers": bed.bootstrap}), NewTopic(self.topic, 1, 1))
        self.place = f"{target.rsplit('/', 1)[1].partition('?')[0]}.copied"
        self.plan = SpanPlan(span="copied", topic=self.topic, table=self.place, start={0: 0})
        self.options: dict[str, Any] = {"columns": COLUMNS, "where": WHERE}
        self.source_options: dict[str, Any] = {}
        at = "timestamp" if self.is_postgresql else "datetime(6)"
        run(
            "CREATE TABLE items (id bigint PRIMARY KEY, status varchar(20), qty int, price decimal(10,2), "
            f"at {at}, secret varchar(20))",
            None,
        )

    def task(self, n: int, copy: CopyOrder | None = None) -> SpanTask:
        given = self.bed.task(self.plan, n, database={"dsn": self.address}, **self.source_options)
        spec = msgspec.json.decode(given.spec) | {"on_bad_change": "quarantine", **self.options}
        spec["sink"] = {"type": "mysql", "dsn": self.target, "keyless": self.options.get("keyless", "refuse")}
        spec.pop("keyless", None)
        return msgspec.structs.replace(given, spec=msgspec.json.encode(spec).decode(), copy=copy)

    def write(self, number: int, row: dict[str, Any] | None, *, told: dict[str, Any] | None = None) -> None:
        """As a writer does, and the connector after it. ``told``: another row in the event."""
        self.run("DELETE FROM items WHERE id = %s", (number,))
        event = None
        if row is not None:
            values = {"id": number, **row}
            names, places = ", ".join(values), ", ".join("%s" for _ in values)
            self.run(f"INSERT INTO items ({names}) VALUES ({places})", tuple(values.values()))
            event = told or values | {"at": micros(row["at"])}
        value = {"before": None, "after": event, "source": {"ts_ms": 1}, "op": "d" if row is None else "c"}
        self.bed.raw(self.plan, msgspec.json.encode({"id": number}), msgspec.json.encode(value))
        assert self.bed.producer.flush(ANSWER_SECONDS) == 0

    def sent(self, row: dict[str, Any], key: bytes | None = None) -> None:
        """An event, of whatever row, without a change at the source."""
        value = {"before": None, "after": row, "source": {"ts_ms": 1}, "op": "c"}
        self.bed.raw(self.plan, key, msgspec.json.encode(value))  # type: ignore[arg-type]
        assert self.bed.producer.flush(ANSWER_SECONDS) == 0

    def at_sink(self, statement: str = SELECT) -> list[tuple[str, ...]]:
        try:
            return [tuple(map(str, row)) for row in mariadb_execute(self.target, statement)]
        except Exception as error:
            if "doesn't exist" in str(error):
                return []
            raise

    def compared(self) -> TableCompared:
        side = PostgresSide(Target(self.address)) if self.is_postgresql else MysqlSide(Target(self.address))
        columns = ColumnOptions.model_validate(self.options["columns"])
        with closing(side) as here, closing(MysqlSide(Target(self.target))) as there:
            return compare_table(
                ShapedSide(here, columns, self.options["where"]), there, f"{self.schema}.items", self.place
            )


@pytest.fixture
def ends(bed: Bed, source: tuple[str, Run], mariadb_database: str) -> Ends:
    return Ends(bed, *source, mariadb_database)


def micros(text: str) -> int:
    """A timestamp as connectors write it."""
    return (datetime.fromisoformat(text) - datetime(1970, 1, 1)) // timedelta(microseconds=1)


def row(**more: Any) -> dict[str, Any]:
    given = {"status": "open", "qty": 30, "price": "10.00", "at": "2024-02-29 12:00:00.500000", "secret": "s"}
    return given | more


def shown(number: int, qty: int = 30) -> tuple[str, ...]:
    moments = ("2024-02-29", "2024-02-01 00:00:00")
    return (str(number), "OPEN", str(qty), "open-s", str(qty // 12), "3.3333", str(int(qty > 100)), *moments)


def test_rows_leave_and_enter_a_filtered_table_of_a_mariadb(ends: Ends, log: KafkaLog) -> None:
    executor = executor_with_dead_letters(ends.bed, log)
    for number in range(1, 5):
        ends.write(number, row(qty=30 if number < 4 else 5))
    executor.add_table(ends.task(1), prepare=False)
    eventually(lambda: ends.at_sink() == [shown(1), shown(2), shown(3)], "the rows that the filter keeps")

    ends.write(1, row(status="closed"))  # leaves
    ends.write(2, row(qty=9))  # leaves
    ends.write(4, row(qty=200))  # enters
    ends.write(3, row(qty=31))  # stays
    ends.write(5, row(status=None))  # unknown is not true
    ends.write(2, row(qty=11))  # comes back
    ends.write(6, row())
    ends.write(6, None)
    ends.write(7, row(price="9.99"))  # as texts, 9.99 is above 10.00
    ends.write(8, row(at="2023-12-31 23:59:59.999999"))
    left = [shown(2, 11), shown(3, 31), shown(4, 200)]
    eventually(lambda: ends.at_sink() == left, "rows left the filter, and one entered it")
    compared = ends.compared()
    assert (compared.rows, compared.differences) == (3, 0), compared
    assert {"label", "dozens", "share", "big", "day", "month", "status"} <= set(compared.columns)

    mariadb_execute(ends.target, "UPDATE copied SET label = 'x', share = 1 WHERE number = 2")
    mariadb_execute(ends.target, "INSERT INTO copied (number, status) VALUES (1, 'LEFT')")
    assert ends.compared().differences == 2
    executor.remove_table(task_id := ends.task(1).id, seal=True)
    reached(executor, task_id, TaskState.STOPPED)
    rows = RowCopy(columns=("number",), keys=(("1",), ("2",)), delete=True)
    executor.add_table(ends.task(2, CopyOrder("r2", shown_row_copy(rows))), prepare=False)
    eventually(lambda: ends.at_sink() == left, "named rows are copied, computed as changes are")
    assert ends.compared().differences == 0
    assert letters_on(log) == {}


def test_old_events_of_a_renamed_column_are_set_aside_and_name_it(ends: Ends, log: KafkaLog) -> None:
    executor = executor_with_dead_letters(ends.bed, log)
    old = {"id": 1, "state": "open", "qty": 30, "price": "10.00", "at": 0, "secret": "s"}
    ends.write(1, row(), told=old)
    ends.write(2, row())
    executor.add_table(ends.task(1), prepare=False)
    eventually(lambda: ends.at_sink() == [shown(2)], "the events after the rename are applied")
    ((key, letter),) = letters_on(log).items()
    assert (key.offset, letter.value) == (0, None)
    assert "where: the event's row does not have column status" in letter.error


def test_a_table_without_a_key_gets_the_rows_that_the_filter_keeps(ends: Ends, log: KafkaLog) -> None:
    mariadb_execute(ends.target, "CREATE TABLE copied (number bigint, status text, qty int, dozens int)")
    ends.options["where"] = "status = 'open' AND qty >= 10"
    columns = {
        "include": ["id", "status", "qty"], "rename": {"id": "number"},
        "set": {"status": "UPPER(status)", "dozens": "qty / 12"},
    }  # fmt: skip
    ends.options |= {"columns": columns, "keyless": "append"}
    executor = executor_with_dead_letters(ends.bed, log)
    for number, more in enumerate(({}, {"qty": 9}, {"status": "closed"}, {"qty": 24}), 1):
        ends.sent({"id": number, **row(**more), "at": 0})
    executor.add_table(ends.task(1), prepare=False)
    query = "SELECT number, status, qty, dozens FROM copied ORDER BY number"
    eventually(lambda: ends.at_sink(query) == [("1", "OPEN", "30", "2"), ("4", "OPEN", "24", "2")], "two of four rows")
    assert letters_on(log) == {}


MARIADB = """
CREATE TABLE items (id bigint PRIMARY KEY, flag tinyint(1), big bigint unsigned, at datetime(6), price decimal(20,0),
                    name varchar(20) COLLATE utf8mb4_general_ci, code char(5),
                    mood enum('sad','glad'), seen timestamp(6))
"""
KEPT = (
    "flag = 1 AND big >= 9223372036854775807 AND at = TIMESTAMP '2024-02-29 12:00:00.000001' AND price > 1000 "
    "AND name = 'Abc' AND name < 'a' AND code = 'x' AND mood = 'glad' AND seen > TIMESTAMPTZ '2024-01-01 00:00:00Z'"
)
LARGE = 9223372036854775807


@pytest.mark.parametrize("source", ["mariadb"], indirect=True)
def test_types_of_a_mariadb_mean_the_same_in_events_copies_and_comparisons(ends: Ends, log: KafkaLog) -> None:
    ends.run("DROP TABLE items", None)
    ends.run(MARIADB, None)
    columns = {"exclude": ["big"], "set": {
        "large": "CAST(big AS NUMERIC(20,0))", "twice": "CAST(price * 2 AS NUMERIC(30,0))", "upper": "UPPER(name)",
        "next": "CAST(flag + 1 AS BIGINT)",
    }}  # fmt: skip
    ends.options |= {"where": KEPT, "columns": columns}
    at, seen = "2024-02-29 12:00:00.000001", "2024-02-29 12:00:00.500000"
    good = {"flag": 1, "big": LARGE, "at": at, "price": 1234, "name": "Abc", "code": "x", "mood": "glad", "seen": seen}
    # An event has the decimal as digits: 1234 is base64, too.
    forms = {"at": micros(at), "seen": "2024-02-29T12:00:00.5Z", "price": "1234"}
    ends.source_options = {"decimal_handling_mode": "string"}
    others: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"flag": 0}, {}),
        ({"big": 5}, {"big": 5}),
        ({"at": "2024-02-29 12:00:00.000002"}, {"at": micros("2024-02-29 12:00:00.000002")}),
        ({"price": 999}, {"price": "999"}),
        ({"name": "ABC"}, {}),  # equal for the column's collation, and not for the filter
        ({"name": "abc"}, {}),
        ({"mood": "sad"}, {}),
        ({"seen": "2023-01-01 00:00:00.000000"}, {"seen": "2023-01-01T00:00:00Z"}),
    ]
    for number, (row_, event) in enumerate([({}, {}), *others], 1):
        values = good | row_
        ends.write(number, values, told={"id": number, **values, **forms, **event})
    ends.write(20, good, told={"id": 20, **good, **forms, "big": -1})  # wrapped around by the connector
    executor = executor_with_dead_letters(ends.bed, log)
    executor.add_table(ends.task(1), prepare=False)
    query = "SELECT id, large, price, name, twice, upper, `next`, at, seen FROM copied"
    wanted = [("1", str(LARGE), "1234", "Abc", "2468", "ABC", "2", at, seen)]
    eventually(lambda: bool(letters_on(log)), "the number that was wrapped around is set aside")
    eventually(lambda: ends.at_sink(query) == wanted, f"the only row that fits, not {ends.at_sink(query)}")
    (letter,) = letters_on(log).values()
    assert "where: column big has a value" in letter.error
    assert "bigint.unsigned.handling.mode=precise" in letter.error
    ends.run("DELETE FROM items WHERE id = 20", None)

    compared = ends.compared()
    assert (compared.rows, compared.differences) == (1, 0), compared
    mariadb_execute(ends.target, "DELETE FROM copied")
    executor.remove_table(task_id := ends.task(1).id, seal=True)
    reached(executor, task_id, TaskState.STOPPED)
    everything = RowCopy(keys=None, delete=True)
    executor.add_table(ends.task(2, CopyOrder("r2", shown_row_copy(everything))), prepare=False)
    eventually(lambda: ends.at_sink(query) == wanted, "a copy of the table keeps the same row")
    assert ends.compared().differences == 0
