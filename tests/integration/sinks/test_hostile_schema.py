"""A schema that shadows all of PostgreSQL's own objects stands first on the search path of the sink's user.

Everything that Headgate does at a sink is done once, and nothing of that schema may have been run.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headgate.databases.address import Target
from headgate.formats.change import ABSENT, Change, Operation
from headgate.migration.core import effects as fx
from headgate.records.control import Epoch
from headgate.sinks.contract import ChangeBatch, Claim, FeedIdentity, OffsetRange, Quarantine, SinkUnavailableError
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.postgresql import connection as sessions
from headgate.sinks.relational.session import RelationalSettings
from headgate.verify.comparing import compare_table
from headgate.verify.postgresql import PostgresSide
from headgate_lab.chaos.hostile_schema import is_sprung, plant, put_first
from integration.migration.played import WHOLE, Played, delete, upsert
from support import build

pytestmark = pytest.mark.integration

FEED = FeedIdentity("c", "0-1", "shop")
Execute = Callable[[str], list[tuple]]

SHADOWS_MIN = 3_000
"""PostgreSQL has some 3 300 functions and 800 operators; fewer shadows would mean that the trap is broken."""


class Trap:
    """A database with a hostile schema, a user whose path it leads, and a superuser's session beside."""

    def __init__(self, dsn: str, execute: Execute) -> None:
        self.dsn = dsn
        self.execute = execute
        self.settings = RelationalSettings(dsn)
        self.sink = PostgresSink(self.settings)


@pytest.fixture
def trap(postgres_database: str) -> Iterator[Trap]:
    role = "prey_" + conninfo_to_dict(postgres_database)["dbname"]
    with psycopg.connect(postgres_database, autocommit=True) as connection:

        def execute(statement: str) -> list[tuple]:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

        execute(f"CREATE ROLE {role} LOGIN PASSWORD 'pen'")
        execute(f"CREATE SCHEMA headgate AUTHORIZATION {role}")
        execute("CREATE TABLE t (id int PRIMARY KEY, v text, big text, n numeric(5,1), at timestamptz, b bytea)")
        execute("CREATE TABLE plain (k varchar(9) PRIMARY KEY, v text UNIQUE)")
        execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON t, plain TO {role}")
        assert plant(execute) > SHADOWS_MIN
        execute(put_first(role))
        yield Trap(make_conninfo(postgres_database, user=role, password="pen"), execute)
        execute(f"DROP OWNED BY {role}; DROP ROLE {role}; DROP SCHEMA a_trap CASCADE")


def claim_of(table: str, n: int = 1) -> Claim:
    return build.claim(identity=FEED, table=table, topic=f"shop.{table}", epoch=Epoch(1, n))


def put(offset: int, **row: object) -> Change:
    key = next(iter(row))
    return Change(0, offset, Operation.UPSERT, {key: row[key]}, row, None, 0)


def drop(offset: int, **key: object) -> Change:
    return Change(0, offset, Operation.DELETE, key, None, None, 0)


def batch(claim: Claim, start: int, *changes: Change, quarantine: Quarantine | None = None) -> ChangeBatch:
    return ChangeBatch(claim, {0: OffsetRange(start, start + len(changes))}, changes, quarantine)


@pytest.mark.parametrize("call", ["length('x')", "1 + 1", "'a' || 'b'", "(SELECT relname FROM pg_class LIMIT 1)"])
def test_the_trap_catches_a_session_that_relies_on_its_path(trap: Trap, call: str) -> None:
    with psycopg.connect(trap.dsn, autocommit=True) as prey, pytest.raises(psycopg.Error, match="hijacked"):
        prey.execute(f"SELECT {call}")
    assert is_sprung(trap.execute)


def test_a_feed_runs_nothing_of_the_schema_from_its_check_to_its_removal(trap: Trap) -> None:
    sink, claim = trap.sink, claim_of("public.t")
    sink.own_id()
    assert set(sink.check(["public.t", "plain"], FEED)) == {"public.t", "plain"}
    assert sink.published("shop", ["public.t"]) == []
    assert sink.claim(claim) == sink.positions(claim) == {0: 0}
    kept: list[object] = []
    with closing(sink.writer()) as writer:
        few = [put(0, id=1, v="a", big="B", n="1.5", at=0, b="AAE="), put(1, id=2, v="b", big="B", n=None, at=0, b="")]
        first = msgspec.structs.replace(batch(claim, 0, *few), source_table=("d", "s", "t"))
        writer.apply(first)
        writer.apply(batch(claim, 2, put(2, id=3, v="at once", big="B", n="1.5", at=1_000, b="AAE=")))
        many = [put(3 + i, id=i, v=f"v{i}", big=None, n="2.5", at=i, b="AAE=") for i in range(300)]
        writer.apply(batch(claim, 3, *many))
        writer.apply(batch(claim, 303, drop(303, id=5), put(304, id=6, v="c", big=ABSENT), drop(305, id=77)))
        bad = put(307, id=9, v="x", big="", n="99999999.9", at=0, b="")
        quarantine = Quarantine(kept.extend, 9, patient=False)
        writer.apply(batch(claim, 306, put(306, id=8, v="x", big="", n="1", at=0, b=""), bad, quarantine=quarantine))
        truncate = Change(0, 308, Operation.TRUNCATE, {}, None, None, 0)
        writer.apply(batch(claim, 308, truncate, put(309, id=1, v="left", big="", n="1", at=0, b="")))
    assert len(kept) == 1
    assert sink.source_table(claim) == ("d", "s", "t")
    assert sink.seal(claim) == {0: 310}
    sink.forget(FEED)
    assert [row[:2] for row in trap.execute("SELECT id, v FROM t")] == [(1, "left")]
    assert not is_sprung(trap.execute)


def test_a_bare_name_is_found_by_the_path_and_runs_nothing_of_it(trap: Trap) -> None:
    claim = claim_of("plain")
    assert trap.sink.claim(claim) == {0: 0}
    with closing(trap.sink.writer()) as writer:
        writer.apply(batch(claim, 0, put(0, k="a", v="1"), put(1, k="b", v="2"), drop(2, k="a")))
        writer.apply(batch(claim, 3, put(3, k="b", v="3"), put(4, k="c", v="2"), put(5, k="b", v=None)))
    assert trap.execute("SELECT k, v FROM plain ORDER BY k") == [("b", None), ("c", "2")]
    assert trap.execute("SELECT table_name FROM headgate.progress") == [("public.plain",)]
    assert not is_sprung(trap.execute)


def test_a_claim_that_is_blocked_runs_nothing_of_the_schema(trap: Trap) -> None:
    claim = claim_of("public.t")
    trap.sink.claim(claim)
    with psycopg.connect(trap.dsn, autocommit=False, options="-csearch_path=pg_catalog") as holder:
        holder.execute("SELECT 1 FROM headgate.progress FOR UPDATE")
        holder.execute("SELECT set_config('application_name', 'somebody', false)")
        settings = msgspec.structs.replace(trap.settings, lock_wait_seconds=0.5)
        with pytest.raises(SinkUnavailableError, match="somebody"):
            PostgresSink(settings).claim(claim_of("public.t", 2))
        holder.execute("SELECT set_config('application_name', 'headgate shop public.t 1.1', false)")
        assert trap.sink.claim(claim_of("public.t", 3)) == {0: 0}
        holder.close()
    assert not is_sprung(trap.execute)


def test_asking_whether_the_server_is_at_work_runs_nothing_of_the_schema(trap: Trap) -> None:
    with closing(sessions.connect(trap.settings)) as session:
        assert session.connection.is_at_work is not None
        assert session.connection.is_at_work() is False
    assert not is_sprung(trap.execute)


def test_a_schema_change_runs_nothing_of_the_schema_from_its_submission_to_its_clean_up(
    trap: Trap, postgres_database: str, tmp_path: Path
) -> None:
    role = conninfo_to_dict(trap.dsn)["user"]
    parts = urlsplit(postgres_database)
    for statement in (
        "CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note varchar(20) UNIQUE, at timestamptz)",
        "INSERT INTO items (id, v, note) SELECT n, n, 'n' || n FROM generate_series(1, 50) n",
        "CREATE INDEX by_v ON items (lower(note)) WHERE v > 3",
        "CREATE PUBLICATION captured FOR TABLE items",
        f"GRANT USAGE, CREATE ON SCHEMA public TO {role}",
        f"GRANT CREATE ON DATABASE {parts.path.strip('/')} TO {role}",
        f"ALTER TABLE items OWNER TO {role}",
        f"ALTER PUBLICATION captured OWNER TO {role}",
        f"ALTER ROLE {role} REPLICATION",
        f"GRANT pg_read_all_stats TO {role}",
    ):
        trap.execute(statement)
    prey = f"postgresql://{role}:pen@{parts.hostname}:{parts.port}{parts.path}"
    change = "ADD COLUMN extra int NOT NULL DEFAULT 7, ALTER v TYPE bigint, ADD CONSTRAINT both_of UNIQUE (v, id)"
    with closing(Played(prey, tmp_path, change)) as made:
        made.url = postgres_database  # what the test itself runs
        assert isinstance(made.strategy.plan(made.spec), fx.Examined)
        made.make().copied()
        assert made.lane.differing(made.plan, WHOLE) == []
        touched = made.followed()
        trap.execute("UPDATE items SET v = 70, at = NULL WHERE id = 2; DELETE FROM items WHERE id = 3")
        made.send(upsert({"id": 2}, v=70, note="n2", at=None), delete({"id": 3}))
        made.cut_over(touched)
        assert made.is_changed
        made.lane.settle(made.plan)
        made.server.drop(made.lane.artifacts(made.plan))
    assert trap.execute("SELECT count(*), sum(v), min(extra) FROM items") == [(49, 1_275 - 2 + 70 - 3, 7)]
    assert not is_sprung(trap.execute)


def test_verify_runs_nothing_of_the_schema(trap: Trap) -> None:
    trap.execute("INSERT INTO t VALUES (1, 'a', 'b', 1.5, now(), '\\x00')")

    def side() -> PostgresSide:
        return PostgresSide(Target(trap.dsn))

    with closing(side()) as one, closing(side()) as other:
        assert compare_table(one, other, "public.t", "t").differences == 0
    assert not is_sprung(trap.execute)
