"""One spelling for one sink."""

import pytest

from headgate.config.sink_spec import SinkSpec
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.registry import same_sink


def _same(dsn: str) -> str:
    return same_sink(SinkSpec(type="postgresql", dsn=dsn)).dsn


def test_spellings_of_one_database_are_one() -> None:
    one = "dbname=shop host=db.example port=5432 user=ann"
    assert _same("postgresql://ann@DB.example/shop") == one
    assert _same("user=ann host=db.example dbname=shop") == one
    assert _same("postgresql://ann@db.example:5432/shop") == one
    assert _same(one) == one


def test_other_databases_stay_apart() -> None:
    assert _same("host=a dbname=x") != _same("host=a dbname=y")
    assert _same("host=a port=5433") != _same("host=a")


def test_a_password_never_goes_to_the_log() -> None:
    with pytest.raises(SinkRefusedError, match="password_file") as refused:
        _same("postgresql://ann:s3cret@db/shop")
    assert "s3cret" not in str(refused.value)


def test_not_a_connection_string() -> None:
    with pytest.raises(SinkRefusedError, match=r"not a libpq connection string"):
        _same("jdbc:postgresql://db/shop")
