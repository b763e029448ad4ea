"""Two object stores may have buckets of one name."""

import msgspec

from headgate.coordinator.core.sink_ownership import sink_of


def test_a_bucket_is_that_of_its_server() -> None:
    def sink(**store: str) -> tuple[str, str] | None:
        return sink_of(
            msgspec.json.encode({"sink": {"type": "delta", "dsn": "s3://lake/tables", "store": store}}).decode()
        )

    assert sink(region="eu-central-1") == sink() == ("delta", "s3://lake/tables")
    assert sink(endpoint="https://a.example") == sink(endpoint="https://a.example", access_key_id_file="other")
    assert len({sink(), sink(endpoint="https://a.example"), sink(endpoint="https://b.example")}) == 3
