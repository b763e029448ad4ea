"""The triggers of the audit (``audit.py`` explains what they are for): plain SQL, independent of Headgate.

They are ENABLE ALWAYS, so that no session gets round them by ``session_replication_role``. The target's are deferred to
the commit: an entry's number is drawn while the ending transaction still holds its locks, so that entries of one row,
and of one holder after the other, are in commit order. So if a holder is frozen in the middle of a transaction, and
commits when it wakes up, its entries appear where they belong: behind its successor's claim.
"""

from typing import Final

from psycopg import Connection
from psycopg.sql import SQL, Literal

from headgate_lab.demo.schema import TABLES

__all__ = ["AUDIT_SCHEMA", "install_source_audit", "install_target_audit"]

AUDIT_SCHEMA: Final = "audit"


_SOURCE: Final = """
CREATE SCHEMA audit;
CREATE TABLE audit.deletions ("table" text NOT NULL, key text[] NOT NULL, version bigint NOT NULL);
CREATE FUNCTION audit.key_of(row_json jsonb, columns text[]) RETURNS text[] LANGUAGE sql IMMUTABLE AS
$$ SELECT array_agg(row_json ->> name ORDER BY place) FROM unnest(columns) WITH ORDINALITY AS c(name, place) $$;
CREATE FUNCTION audit.note_deletion() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE old_key text[] := audit.key_of(to_jsonb(OLD), TG_ARGV);
BEGIN
  IF TG_OP = 'DELETE' OR audit.key_of(to_jsonb(NEW), TG_ARGV) <> old_key THEN
    INSERT INTO audit.deletions VALUES (TG_TABLE_SCHEMA || '.' || TG_TABLE_NAME, old_key, OLD.version);
  END IF;
  RETURN NULL;
END $$
"""
"""A key change is a delete of the old key, in the change log too."""

_TARGET: Final = """
CREATE SCHEMA audit;
CREATE TABLE audit.entries (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  label text NOT NULL, transaction xid8 NOT NULL DEFAULT pg_current_xact_id(),
  "table" text NOT NULL, operation text NOT NULL, key text[] NOT NULL, old_version bigint, new_version bigint,
  is_copied boolean NOT NULL DEFAULT false);
CREATE FUNCTION audit.key_of(row_json jsonb, columns text[]) RETURNS text[] LANGUAGE sql IMMUTABLE AS
$$ SELECT array_agg(row_json ->> name ORDER BY place) FROM unnest(columns) WITH ORDINALITY AS c(name, place) $$;
CREATE FUNCTION audit.is_copy() RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  IF to_regclass('headgate.row_copies') IS NULL THEN
    RETURN false;
  END IF;
  RETURN EXISTS (SELECT FROM headgate.row_copies WHERE xmin = pg_current_xact_id()::xid);
END $$;
CREATE FUNCTION audit.note_change() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  called text := current_setting('application_name');
  named text := TG_TABLE_SCHEMA || '.' || TG_TABLE_NAME;
  old_key text[] := CASE WHEN TG_OP <> 'INSERT' THEN audit.key_of(to_jsonb(OLD), TG_ARGV) END;
  new_key text[] := CASE WHEN TG_OP <> 'DELETE' THEN audit.key_of(to_jsonb(NEW), TG_ARGV) END;
BEGIN
  IF TG_OP = 'UPDATE' AND old_key = new_key THEN
    INSERT INTO audit.entries (label, "table", operation, key, old_version, new_version, is_copied)
    VALUES (called, named, 'UPDATE', new_key, OLD.version, NEW.version, audit.is_copy());
    RETURN NULL;
  END IF;
  IF TG_OP <> 'INSERT' THEN
    INSERT INTO audit.entries (label, "table", operation, key, old_version)
    VALUES (called, named, 'DELETE', old_key, OLD.version);
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO audit.entries (label, "table", operation, key, new_version, is_copied)
    VALUES (called, named, 'INSERT', new_key, NEW.version, audit.is_copy());
  END IF;
  RETURN NULL;
END $$
"""

# A transaction that copies rows from the source also keeps how far the copy is (docs/adr/0114).

_NEW_TABLES: Final = """
CREATE TABLE audit.keys (table_name text PRIMARY KEY, columns text[] NOT NULL);
CREATE FUNCTION audit.note_holder() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  IF TG_OP = 'INSERT' OR (NEW.owner_rev, NEW.n, NEW.closed) <> (OLD.owner_rev, OLD.n, OLD.closed) THEN
    INSERT INTO audit.entries (label, "table", operation, key)
    VALUES (NEW.owner_rev || '.' || NEW.n, NEW.table_name, CASE WHEN NEW.closed THEN 'SEAL' ELSE 'CLAIM' END, '{}');
  END IF;
  RETURN NULL;
END $$;
CREATE FUNCTION audit.watch_tables() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE made record;
BEGIN
  IF to_regclass('headgate.progress') IS NOT NULL
     AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgname = 'note_holder') THEN
    CREATE TRIGGER note_holder AFTER INSERT OR UPDATE ON headgate.progress
      FOR EACH ROW EXECUTE FUNCTION audit.note_holder();
    ALTER TABLE headgate.progress ENABLE ALWAYS TRIGGER note_holder;
  END IF;
  FOR made IN
    SELECT objid::regclass AS name, string_agg(quote_literal(part.name), ', ' ORDER BY part.place) AS key
    FROM pg_event_trigger_ddl_commands() JOIN pg_class ON pg_class.oid = objid
    JOIN audit.keys ON table_name = schema_name || '.' || relname
    CROSS JOIN unnest(columns) WITH ORDINALITY AS part(name, place)
    WHERE object_type = 'table' GROUP BY objid
  LOOP
    EXECUTE format(
      'CREATE CONSTRAINT TRIGGER note_change AFTER INSERT OR UPDATE OR DELETE ON %s DEFERRABLE INITIALLY DEFERRED '
      'FOR EACH ROW EXECUTE FUNCTION audit.note_change(%s)', made.name, made.key);
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER note_change', made.name);
  END LOOP;
END $$;
CREATE EVENT TRIGGER watch_tables ON ddl_command_end WHEN TAG IN ('CREATE TABLE')
  EXECUTE FUNCTION audit.watch_tables()
"""
"""Whether Headgate or a test creates a table, its triggers exist before its first row. Needs a superuser."""


def install_source_audit(source: Connection) -> None:
    """Write down deletions in the source; after create_source, before the first row."""
    source.execute(_SOURCE)
    for table in TABLES:
        names = {
            "table": table.identifier,
            "arguments": SQL(", ").join(Literal(column) for column in table.key),
        }
        source.execute(
            SQL(
                "CREATE TRIGGER note_deletion AFTER UPDATE OR DELETE ON {table}"
                " FOR EACH ROW EXECUTE FUNCTION audit.note_deletion({arguments})"
            ).format(**names)
        )
        source.execute(SQL("ALTER TABLE {table} ENABLE ALWAYS TRIGGER note_deletion").format(**names))


def install_target_audit(target: Connection) -> None:
    """Write down changes, claims and seals in the target, before its tables are created. Needs a superuser."""
    target.execute(_TARGET)
    target.execute(_NEW_TABLES)
    with target.cursor() as cursor:
        keys = [(table.full_name, list(table.key)) for table in TABLES]
        cursor.executemany("INSERT INTO audit.keys VALUES (%s, %s)", keys)
