"""PostgreSQL under writers that die or freeze at every named point of the commit path."""

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headgate.config.sink_spec import SinkSpec
from headgate.sinks.registry import open_sink
from integration.sinks.crash_contract import CrashContract

pytestmark = pytest.mark.integration

TABLES = """
CREATE TABLE public.orders (id integer PRIMARY KEY, value text);
CREATE TABLE public.noted (id bigint GENERATED ALWAYS AS IDENTITY, value text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO public.noted (value) VALUES (coalesce(NEW.value, 'deleted')); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON public.orders
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note();
"""


class PostgresSite:
    table = "public.orders"

    def __init__(self, dsn: str) -> None:
        self.spec: dict[str, object] = {"type": "postgresql", "dsn": dsn}
        self.sink = open_sink(SinkSpec.model_validate(self.spec))
        self.port = int(str(conninfo_to_dict(dsn)["port"]))
        self._dsn = dsn
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(TABLES)

    def through(self, port: int) -> dict[str, object]:
        return self.spec | {"dsn": make_conninfo(self._dsn, host="127.0.0.1", port=port)}

    def history(self) -> list[str]:
        with psycopg.connect(self._dsn) as connection:
            return [value for (value,) in connection.execute("SELECT value FROM public.noted ORDER BY id")]


class TestPostgresCrashes(CrashContract):
    @pytest.fixture
    def site(self, postgres_database: str) -> PostgresSite:
        return PostgresSite(postgres_database)
