"""Triggers and rules of target tables that fire on our writes: named at a feed's creation, with what to do."""

from contextlib import closing

import psycopg
import pytest

from fixtures.services import mariadb_execute
from headgate.config.sink_spec import SinkSpec
from headgate.records.name_lists import NAMES_SHOWN_MAX
from headgate.sinks.contract import ChangeBatch, OffsetRange, SinkRefusedError
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.session import RelationalSettings
from headgate.sinks.triggers import trigger_warnings
from integration.sinks.test_postgresql_tables import put
from support import build

pytestmark = pytest.mark.integration

TABLES = """
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.v := 'touched'; RETURN NEW; END $$;
CREATE TABLE plain (id int PRIMARY KEY REFERENCES plain, v text);
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE TRIGGER touches BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION touch();
CREATE TRIGGER off BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION touch();
ALTER TABLE t DISABLE TRIGGER off;
CREATE TRIGGER always BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION touch();
ALTER TABLE t ENABLE ALWAYS TRIGGER always;
CREATE TRIGGER replica BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION touch();
ALTER TABLE t ENABLE REPLICA TRIGGER replica;
CREATE RULE nothing AS ON DELETE TO t DO ALSO NOTHING;
CREATE TABLE parts (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE part_1 PARTITION OF parts FOR VALUES FROM (0) TO (100);
CREATE TRIGGER of_part BEFORE INSERT ON part_1 FOR EACH ROW EXECUTE FUNCTION touch();
"""


def test_postgresql_names_what_fires_in_the_sinks_own_sessions(postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(TABLES)
    names = ["public.plain", "public.t", "public.parts"]
    found = PostgresSink(RelationalSettings(postgres_database)).check(names)
    assert found["public.plain"].fires == (), "the foreign key's own triggers are not named"
    assert found["public.t"].fires == ("trigger always", "trigger touches", "rule nothing")
    assert found["public.parts"].fires == ("trigger of_part",)
    as_replica = PostgresSink(RelationalSettings(postgres_database, foreign_keys=False)).check(names)
    assert as_replica["public.t"].fires == ("trigger always", "trigger replica")


def test_mariadb_names_triggers_which_can_tell_our_sessions(mariadb_database: str) -> None:
    name = mariadb_database.rsplit("/", 1)[1]
    mariadb_execute(mariadb_database, "CREATE TABLE t (id int PRIMARY KEY, v text)")
    mariadb_execute(
        mariadb_database,
        "CREATE TRIGGER touches BEFORE INSERT ON t FOR EACH ROW "
        "IF @headgate IS NULL THEN SET NEW.v = 'touched'; END IF",
    )
    sink = MysqlSink(RelationalSettings(mariadb_database))
    table = f"{name}.t"
    assert sink.check([table])[table].fires == ("trigger touches",)
    claim = build.claim(table=table)
    sink.claim(claim)
    writer = sink.writer()
    writer.apply(ChangeBatch(claim, {0: OffsetRange(0, 1)}, [put(0, id=1, v="as sent")]))
    writer.close()
    mariadb_execute(mariadb_database, "INSERT INTO t VALUES (2, 'as sent')")
    assert mariadb_execute(mariadb_database, "SELECT v FROM t ORDER BY id") == [("as sent",), ("touched",)]


def test_the_warning_names_tables_and_the_way_out(postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(TABLES)
    shapes = PostgresSink(RelationalSettings(postgres_database)).check(["public.plain", "public.t"])
    spec = SinkSpec(type="postgresql", dsn=postgres_database)
    assert trigger_warnings(spec, [shapes["public.plain"]]) == ()
    (warning,) = trigger_warnings(spec, shapes.values())
    assert "public.t: trigger always, trigger touches, rule nothing" in warning
    assert "sink.foreign_keys: ignore" in warning
    (shortened,) = trigger_warnings(spec, [shapes["public.t"]] * (NAMES_SHOWN_MAX + 2))
    assert "and 2 more" in shortened


@pytest.mark.parametrize("event", ["INSERT", "UPDATE"])
@pytest.mark.parametrize("enabled", ["ENABLE", "DISABLE", "ENABLE REPLICA", "ENABLE ALWAYS"])
@pytest.mark.parametrize("foreign_keys", [True, False], ids=["origin", "replica"])
def test_a_table_is_refused_for_its_rules_exactly_where_postgresql_refuses_the_write(
    postgres_database: str, event: str, enabled: str, foreign_keys: bool
) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE log (id int)")
        connection.execute(f'CREATE RULE "No\te" AS ON {event} TO t DO ALSO INSERT INTO log VALUES (new.id)')
        connection.execute(f'ALTER TABLE t {enabled} RULE "No\te"')
        connection.execute("" if foreign_keys else "SET session_replication_role = replica")
        is_refused = False
        try:
            connection.execute("INSERT INTO t VALUES (1, 'a') ON CONFLICT (id) DO UPDATE SET v = excluded.v")
        except psycopg.errors.FeatureNotSupported:
            is_refused = True
    sink = PostgresSink(RelationalSettings(postgres_database, foreign_keys=foreign_keys))
    if not is_refused:
        assert sink.check(["public.t"])
        return
    with pytest.raises(SinkRefusedError) as caught:
        sink.check(["public.t"])
    assert f"table public.t has rules (No\te on {event})" in str(caught.value)
    advice = str(caught.value).rpartition("in their place: ")[2]
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(advice)
    assert sink.check(["public.t"])


def test_a_rule_that_comes_later_is_refused_with_the_same_words_and_nothing_is_written(postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        connection.execute("CREATE TABLE keyless (v text)")
        connection.execute("CREATE RULE also AS ON INSERT TO keyless DO ALSO NOTHING")
        sink = PostgresSink(RelationalSettings(postgres_database))
        claim = build.claim()
        sink.claim(claim)
        with closing(sink.writer()) as writer:
            writer.apply(ChangeBatch(claim, {0: OffsetRange(0, 1)}, [put(0, id=1, v="a")]))
            connection.execute("CREATE RULE late AS ON UPDATE TO t DO INSTEAD NOTHING")
            with pytest.raises(SinkRefusedError, match=r"has rules \(late on UPDATE\).*DROP RULE"):
                writer.apply(ChangeBatch(claim, {0: OffsetRange(1, 2)}, [put(1, id=2, v="b")]))
        assert connection.execute("SELECT id FROM t").fetchall() == [(1,)]
        keyless = PostgresSink(RelationalSettings(postgres_database, keyless=True))
        assert keyless.check(["public.keyless"])["public.keyless"].fires == ("rule also",)
