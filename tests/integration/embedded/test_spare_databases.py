"""A database that was a test's before is as good as new, or it is not used again."""

from collections.abc import Iterator

import psycopg
import pytest

from fixtures.spare_databases import SpareDatabases

pytestmark = pytest.mark.integration

REFUSES_TO_BE_EMPTIED = """
CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no'; END$$;
CREATE EVENT TRIGGER refuses ON ddl_command_start EXECUTE FUNCTION refuse()
"""


@pytest.fixture
def spare(postgres_dsn: str) -> Iterator[SpareDatabases]:
    found = SpareDatabases(postgres_dsn)
    yield found
    found.close()


def number_and_name(parameters: dict[str, object]) -> tuple[int, str]:
    with psycopg.connect(**parameters) as connection:  # type: ignore[arg-type]
        statement = "SELECT oid::int, datname FROM pg_database WHERE datname = current_database()"
        found = connection.execute(statement).fetchone()
    assert found is not None
    return found


def test_an_emptied_one_is_used_again_under_another_name(spare: SpareDatabases) -> None:
    with spare.database() as first:
        number, name = number_and_name(first)
        still_there = psycopg.connect(**first)
        still_there.execute(
            "CREATE TABLE rows (id serial PRIMARY KEY); CREATE SCHEMA own; CREATE TYPE own.k AS ENUM ()"
        )
        still_there.commit()
    with spare.database() as second:
        again, other_name = number_and_name(second)
        assert again == number
        assert other_name != name
        with psycopg.connect(**second) as connection:
            assert connection.execute("SELECT 1 FROM pg_class WHERE oid >= 16384").fetchall() == []
            connection.execute("CREATE TABLE rows (id serial PRIMARY KEY)")
    with pytest.raises(psycopg.OperationalError):
        still_there.execute("SELECT 1")
    still_there.close()


def test_one_that_somebody_has_connected_to_since_is_not_used_again(spare: SpareDatabases) -> None:
    with spare.database() as first:
        number, _ = number_and_name(first)
    with psycopg.connect(**first), spare.database() as second:
        assert number_and_name(second)[0] != number


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE PUBLICATION left_behind FOR ALL TABLES",
        "ALTER DATABASE {} SET timezone = 'Asia/Tokyo'",
        "GRANT CONNECT ON DATABASE {} TO pg_monitor",
        "SELECT lo_create(0)",
        REFUSES_TO_BE_EMPTIED,
    ],
)
def test_one_in_which_something_is_left_is_not_used_again(spare: SpareDatabases, statement: str) -> None:
    with spare.database() as first:
        number, name = number_and_name(first)
        with psycopg.connect(**first) as connection:
            connection.execute(statement.format(name))
    with spare.database() as second:
        assert number_and_name(second)[0] != number
