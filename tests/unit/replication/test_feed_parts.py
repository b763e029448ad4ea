"""Parts of a feed whose tables have options of their own."""

import json

from headgate.replication.feed_parts import FeedParts


def parts(tables: dict[str, dict[str, object]]) -> FeedParts:
    spec = {
        "feed": "f",
        "source": {"topic_pattern": "t[.].*"},
        "sink": {"type": "postgresql", "dsn": "dbname=x"},
        "tables": tables,
    }
    return FeedParts(json.dumps(spec))


def test_tables_share_parts_unless_they_need_other_sessions() -> None:
    whole = parts({"s.log": {"keyless": "append"}, "s.old": {"keyless": "append"}, "s.a": {"on_bad_change": "fail"}})
    assert whole.of_table("t.s.a") is whole.of_table("t.s.b") is whole
    log = whole.of_table("t.s.log")
    assert log is whole.of_table("t.s.log") is whole.of_table("t.s.old")
    assert (log is whole, log.spec.sink.keyless) == (False, "append")


def test_a_feed_without_options_of_tables_has_one() -> None:
    whole = parts({})
    assert whole.of_table("t.s.log") is whole


def test_everything_is_closed_together() -> None:
    whole = parts({"s.log": {"keyless": "append"}})
    closed: list[FeedParts] = []

    class Writer:
        def __init__(self, owner: FeedParts) -> None:
            self._owner = owner

        def close(self) -> None:
            closed.append(self._owner)

    log = whole.of_table("t.s.log")
    for each in (whole, log):
        each._writer = Writer(each)  # type: ignore[assignment]
    whole.close()
    assert closed == [whole, log]
