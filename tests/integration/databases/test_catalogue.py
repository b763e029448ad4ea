"""How each kind of database describes a table: columns by number, and which keys are unique by their columns alone."""

from contextlib import closing
from typing import Any

import psycopg
import pytest

from fixtures.services import mariadb_execute
from headgate.databases.address import Target
from headgate.databases.catalogue import CatalogueColumn, Product
from headgate.databases.mysql import catalogue as mysql
from headgate.databases.mysql.session import MysqlSession, open_session
from headgate.databases.postgresql import catalogue as postgresql
from headgate.databases.postgresql.session import PostgresSession, open_connection

pytestmark = pytest.mark.integration


def _told(column: CatalogueColumn) -> tuple[Any, ...]:
    return column.number, column.type, column.kind, column.is_nullable, column.default, column.generated


def test_postgresql(postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as admin:
        admin.execute("CREATE DOMAIN small AS varchar(5) COLLATE \"C\" CHECK (VALUE <> '')")
        admin.execute(
            "CREATE TABLE t (gone int, id int GENERATED ALWAYS AS IDENTITY, name small NOT NULL DEFAULT 'a', "
            'twice int GENERATED ALWAYS AS (id * 2) STORED, word text COLLATE "C", price numeric(9, 2) DEFAULT 1, '
            "PRIMARY KEY (id) INCLUDE (word), UNIQUE (name, word) DEFERRABLE)"
        )
        admin.execute("ALTER TABLE t DROP COLUMN gone")
        admin.execute("CREATE TYPE mood AS ENUM ('so, so', 'glad')")
        admin.execute("ALTER TABLE t ADD COLUMN feels mood, ADD COLUMN felt mood[]")
        admin.execute("COMMENT ON TABLE t IS 'all of it'")
        admin.execute("COMMENT ON COLUMN t.id IS 'one\n''more'''")
        admin.execute("CREATE UNIQUE INDEX partly ON t (price) WHERE price > 0")
        admin.execute("CREATE UNIQUE INDEX computed ON t (lower(name), price)")
        ((oid,),) = admin.execute("SELECT 't'::regclass::oid").fetchall()
    with closing(
        PostgresSession(open_connection(Target(postgres_database), application_name="test", lock_seconds=5))
    ) as session:
        form = postgresql.read_form(session.execute, oid)
        definition = postgresql.read_definition(session, "public", "t")
        assert postgresql.read_definition(session, "public", "other") is None
        enums = postgresql.read_enums(session)
    assert definition is not None
    assert definition.form == form
    assert (definition.comment, definition.comments) == ("all of it", {"id": "one\n'more'"})
    mood = postgresql.EnumType("public", "mood", ("so, so", "glad"))
    assert definition.enums == {"feels": mood, "felt": mood}
    assert enums == {mood}
    columns = {column.name: column for column in form.columns}
    assert {name: _told(column) for name, column in columns.items()} == {
        "id": (2, "integer", "int4", False, None, None),
        "name": (3, "public.small", "small", False, "'a'::character varying", None),
        "twice": (4, "integer", "int4", True, None, "(id * 2)"),
        "word": (5, "text", "text", True, None, None),
        "price": (6, "numeric(9,2)", "numeric", True, "1", None),
        "feels": (7, "public.mood", "mood", True, None, None),
        "felt": (8, "public.mood[]", "_mood", True, None, None),
    }
    assert columns["id"].identity == "a"
    assert columns["name"].base == "character varying(5)"
    assert (columns["word"].collation, columns["word"].is_deterministic) == ('pg_catalog."C"', True)
    assert form.generated == {"twice"}
    assert form.nullable_defaults == ("price",)
    assert form.primary is not None
    assert form.primary.columns == ("id",), "a column that the index only includes is not of the key"
    assert {key.name: (key.columns, key.finds_rows, key.is_immediate) for key in form.keys} == {
        "t_pkey": (("id",), True, True),
        "t_name_word_key": (("name", "word"), False, False),
        "partly": (("price",), False, True),
        "computed": (("price",), False, True),
    }


def test_mariadb(mariadb_database: str) -> None:
    database = mariadb_database.rpartition("/")[2]
    mariadb_execute(
        mariadb_database,
        "CREATE TABLE t (id int AUTO_INCREMENT PRIMARY KEY, word varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin "
        "NOT NULL DEFAULT 'NULL', doc json COMMENT 'a ''b''', twice int AS (id * 2) VIRTUAL, "
        "price decimal(9,2) DEFAULT 1, UNIQUE KEY part (word(3), price), UNIQUE KEY both_ (word, price)) "
        "COMMENT 'all of it'",
    )
    with closing(open_session(Target(mariadb_database), MysqlSession)) as session:
        form = mysql.read_form(session.execute, database, "t", is_mariadb=session.is_mariadb)
        assert mysql.read_form(session.execute, database, "other", is_mariadb=True).columns == ()
        definition = mysql.read_definition(session, database, "t")
        assert mysql.read_definition(session, database, "other") is None
    assert definition is not None
    assert (definition.product, definition.form) == (Product.MARIADB, form)
    assert (definition.comment, definition.comments) == ("all of it", {"doc": "a 'b'"})
    columns = {column.name: column for column in form.columns}
    assert {name: _told(column) for name, column in columns.items()} == {
        "id": (1, "int(11)", "int", False, None, None),
        "word": (2, "varchar(20)", "varchar", False, "'NULL'", None),
        "doc": (3, "longtext", "json", True, None, None),
        "twice": (4, "int(11)", "int", True, None, "`id` * 2"),
        "price": (5, "decimal(9,2)", "decimal", True, "1.00", None),
    }
    assert columns["id"].is_identity
    assert (columns["word"].charset, columns["word"].collation) == ("utf8mb4", "utf8mb4_bin")
    assert form.nullable_defaults == ("price",)
    assert form.primary is not None
    assert {key.name: (key.columns, key.is_primary, key.finds_rows, key.prefixed) for key in form.keys} == {
        "PRIMARY": (("id",), True, True, ()),
        "both_": (("word", "price"), False, True, ()),
        "part": (("word", "price"), False, False, ("word",)),
    }
