"""A feed's source database: one spelling of its address, and no password on the log."""

from pathlib import Path

import pytest

from headgate.config.feed import parse_feed
from headgate.sources.database import SourceDatabaseError, same_source, source_target

FEED = "feed: f\nsource: {{topics: [t], database: {{{database}}}}}\nsink: {{type: postgresql, dsn: dbname=x}}"


def database(text: str) -> str:
    return FEED.format(database=text)


def test_an_address_is_kept_in_its_one_spelling_and_a_name_as_it_is() -> None:
    kept = same_source(parse_feed(database("dsn: 'postgresql://ann@DB.example/shop', password_file: reader")))
    assert kept.source.database is not None
    assert kept.source.database.dsn == "dbname=shop host=db.example port=5432 user=ann"
    assert same_source(kept) == kept
    assert source_target(kept.source.database).password_file == Path("reader")
    named = parse_feed(database("connection: shop"))
    assert same_source(named) is named


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("dsn: 'postgresql://ann:pen@db/shop'", r"source\.database\.dsn has a password in it"),
        ("dsn: 'mysql://ann:pen@db/shop'", r"source\.database\.dsn has a password in it"),
        ("dsn: 'oracle://ann@db/shop'", r"source\.database\.dsn begins with oracle://, and addresses begin with"),
        ("dsn: 'postgresql://ann@db/shop?service=x'", r"source\.database\.dsn"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_and_not_repeated(given: str, says: str) -> None:
    with pytest.raises(SourceDatabaseError, match=says) as refused:
        same_source(parse_feed(database(given)))
    assert "pen" not in str(refused.value)


def test_a_name_needs_a_file_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADGATE_CONNECTIONS", raising=False)
    found = parse_feed(database("connection: shop")).source.database
    assert found is not None
    with pytest.raises(SourceDatabaseError, match=r"source\.database\.connection: connection 'shop' is unknown"):
        source_target(found)
