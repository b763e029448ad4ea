"""Parts of a feed whose tables have options of their own."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.formats.change import Change, Operation
from headgate.formats.decoding import UndecodableError
from headgate.replication.feed_parts import FeedParts


def parts(tables: dict[str, dict[str, object]], **more: object) -> FeedParts:
    spec: dict[str, object] = {
        "feed": "f",
        "source": {"topic_pattern": "t[.].*"},
        "sink": {"type": "postgresql", "dsn": "dbname=x"},
        "tables": tables,
    }
    return FeedParts(json.dumps(spec | more))


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


LIST = {"include": ["id", "mail"]}


@pytest.mark.parametrize(
    ("columns", "tables", "more", "is_refused"),
    [
        ({"id": "int8", "mail": "text"}, {}, {"columns": LIST}, True),
        ({"id": "int8"}, {}, {"columns": LIST}, False),
        # A topic has no columns: only a list for one table shows what it has.
        ({}, {}, {"columns": LIST}, False),
        ({}, {"s.*": {"columns": LIST}}, {}, False),
        ({}, {"s.a": {"columns": LIST}}, {}, True),
        ({}, {}, {"columns": LIST, "source": {"topics": ["t.s.a"]}}, True),
        ({}, {}, {"columns": LIST, "source": {"topics": ["t.s.a", "t.s.b"]}}, False),
    ],
)
def test_a_list_of_columns_may_be_for_several_tables(
    columns: dict[str, str], tables: dict[str, Any], more: dict[str, Any], *, is_refused: bool
) -> None:
    whole = parts(tables, **more)
    whole.sink = SimpleNamespace(check=lambda names: {names[0]: SimpleNamespace(columns=columns)})  # type: ignore[assignment]
    shaping = whole.shaping("t.s.a", None, "s.a")
    assert shaping is not None
    change = Change(0, 0, Operation.UPSERT, {"id": 1}, {"id": 1, "email": "a@b"}, None, 0, None)
    if is_refused:
        with pytest.raises(UndecodableError, match=r"does not have column mail, which columns\.include names"):
            shaping.shaped([change])
    else:
        assert [each.row for each in shaping.shaped([change])] == [{"id": 1}]
