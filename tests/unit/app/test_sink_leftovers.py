"""Places that Headgate writes to, each once, and errors of those that cannot be read."""

from headgate.app.sink_leftovers import LeftoverState, SinkPlace, examine, places_once, remove_leftover
from headgate.databases.address import AddressOptions, Target

OPTIONS = AddressOptions("--sink", "--sink-password-file", "sink")


def place(kind: str, dsn: str, given_in: str = "--sink") -> SinkPlace:
    return SinkPlace(kind, Target(dsn, options=OPTIONS), given_in)


def test_a_mysql_server_has_one_schema_and_each_postgresql_database_has_its_own() -> None:
    places = [
        place("mysql", "mysql://a@db:3306/shop", "first"),
        place("mysql", "mysql://b@db/erp", "second"),
        place("postgresql", "postgresql://a@db/shop", "third"),
        place("postgresql", "host=db dbname=shop user=b", "fourth"),
        place("postgresql", "postgresql://a@db/erp", "fifth"),
    ]
    assert [each.given_in for each in places_once(iter(places))] == ["first", "third", "fifth"]


def test_an_address_that_cannot_be_parsed_is_reported_at_its_place() -> None:
    wrong = place("postgresql", "postgresql://a@db/shop?nonsense=1")
    assert places_once(iter([wrong])) == [wrong]
    found, left = examine(wrong, "k/c."), remove_leftover(wrong, "k/c.")
    assert (found.standing, left.standing) == (LeftoverState.UNKNOWN, LeftoverState.FAILED)
    for each in (found, left):
        assert "nonsense" in each.why
        assert each.by_hand == "psql SINK --command='DROP SCHEMA headgate CASCADE'"


def test_a_lake_is_named_and_stays() -> None:
    found = examine(place("delta", "file:///lake/shop", "feed shop"), "k/c.")
    assert (found.what, found.standing) == ("ledgers _headgate", LeftoverState.KEPT)
    assert "lake/shop" in found.place
