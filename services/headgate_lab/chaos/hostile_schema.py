"""A schema in which everything of PostgreSQL's own is shadowed, first on every user's search path.

For each function, operator, type, view and table of ``pg_catalog`` it holds one of the same name and arguments. A
session that runs one of them draws a number from a sequence, which no rollback takes back, and gets an error. So a
session that relies on its search path is found, whichever of its statements does.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

HOSTILE_SCHEMA: Final = "a_trap"

Execute = Callable[[str], Sequence[tuple[Any, ...]]]

# Functions whose types PL/pgSQL cannot take or return (internal, cstring, "any", …) are left out: statements do not
# call them.
_PLANT: Final = f"""
CREATE SCHEMA {HOSTILE_SCHEMA};
GRANT USAGE ON SCHEMA {HOSTILE_SCHEMA} TO PUBLIC;
CREATE SEQUENCE {HOSTILE_SCHEMA}.sprung;
CREATE FUNCTION {HOSTILE_SCHEMA}.spring(what text) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog AS $trap$
BEGIN
  PERFORM nextval('{HOSTILE_SCHEMA}.sprung');
  RAISE EXCEPTION 'hijacked: %', what USING ERRCODE = 'ZZ001';
END $trap$;
DO $plant$
DECLARE
  each record;
BEGIN
  FOR each IN SELECT p.oid, p.proname, p.proretset, p.prorettype::regtype AS gives, p.pronargs,
                     p.proargtypes::oid[]::regtype[]::text[] AS takes
              FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind IN ('f', 'a', 'w')
  LOOP
    BEGIN
      EXECUTE format('CREATE FUNCTION {HOSTILE_SCHEMA}.%I(%s) RETURNS %s %s LANGUAGE plpgsql AS $f$ BEGIN '
                     'PERFORM {HOSTILE_SCHEMA}.spring(%L); END $f$', each.proname,
                     array_to_string(each.takes, ', '), CASE WHEN each.proretset THEN 'SETOF' ELSE '' END, each.gives,
                     'function ' || each.proname);
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
  END LOOP;
  FOR each IN SELECT o.oid, o.oprname, NULLIF(o.oprleft, 0)::regtype AS left, o.oprright::regtype AS right,
                     o.oprresult::regtype AS gives
              FROM pg_operator o WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprright <> 0
  LOOP
    BEGIN
      EXECUTE format('CREATE FUNCTION {HOSTILE_SCHEMA}.%I(%s) RETURNS %s LANGUAGE plpgsql AS $f$ BEGIN '
                     'PERFORM {HOSTILE_SCHEMA}.spring(%L); END $f$', 'op_' || each.oid,
                     concat_ws(', ', each.left, each.right), each.gives, 'operator ' || each.oprname);
      EXECUTE format('CREATE OPERATOR {HOSTILE_SCHEMA}.%s (%s RIGHTARG = %s, FUNCTION = {HOSTILE_SCHEMA}.%I)',
                     each.oprname, COALESCE('LEFTARG = ' || each.left || ', ', ''), each.right, 'op_' || each.oid);
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
  END LOOP;
  FOR each IN SELECT c.relname, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) AS columns
              FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid JOIN pg_type t ON t.oid = a.atttypid
              WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind IN ('r', 'v') AND t.typtype <> 'p'
                AND c.relname NOT LIKE 'pg_statistic%'
                AND a.attnum > 0 GROUP BY c.relname
  LOOP
    EXECUTE format('CREATE VIEW {HOSTILE_SCHEMA}.%I AS SELECT %s FROM pg_catalog.%I WHERE {HOSTILE_SCHEMA}.spring(%L)',
                   each.relname, each.columns, each.relname, 'relation ' || each.relname);
    EXECUTE format('GRANT SELECT ON {HOSTILE_SCHEMA}.%I TO PUBLIC', each.relname);
  END LOOP;
  FOR each IN SELECT t.typname FROM pg_type t
              WHERE t.typnamespace = 'pg_catalog'::regnamespace AND t.typtype = 'b' AND t.typelem = 0
  LOOP
    BEGIN
      EXECUTE format('CREATE DOMAIN {HOSTILE_SCHEMA}.%I AS pg_catalog.%I CHECK ({HOSTILE_SCHEMA}.spring(%L))',
                     each.typname, each.typname, 'type ' || each.typname);
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
  END LOOP;
END $plant$
"""  # noqa: S608 - constants


_PLANTED: Final = f"""
SELECT (SELECT count(*) FROM pg_proc WHERE pronamespace = '{HOSTILE_SCHEMA}'::regnamespace)
     + (SELECT count(*) FROM pg_class WHERE relnamespace = '{HOSTILE_SCHEMA}'::regnamespace AND relkind = 'v')
"""  # noqa: S608 - a constant


def plant(execute: Execute) -> int:
    """Make the schema, as a superuser whose session has the server's default search path. How much it shadows."""
    execute("SET search_path = pg_catalog")
    execute(_PLANT)
    ((planted,),) = execute(_PLANTED)
    execute("RESET search_path")
    return int(planted)


def put_first(role: str) -> str:
    """The statement that puts the schema before everything else on a role's search path."""
    return f"ALTER ROLE {role} SET search_path = {HOSTILE_SCHEMA}, public, pg_catalog"


def is_sprung(execute: Execute) -> bool:
    """Whether anything in the schema has been run."""
    ((sprung,),) = execute(f"SELECT is_called FROM {HOSTILE_SCHEMA}.sprung")  # noqa: S608 - a constant
    return bool(sprung)
