"""A record without its defaults reads the same whichever version holds it."""

import msgspec

from headgate.records.control import FeedRecorded, FeedState, SpanPlan, WantedState
from headgate.records.defaults import without_defaults


class Inner(msgspec.Struct, frozen=True):
    name: str
    added: int = 0


class Outer(msgspec.Struct, frozen=True):
    items: tuple[Inner, ...]
    one: Inner | None = None
    added: tuple[str, ...] = ()
    kept: dict[int, str] = msgspec.field(default_factory=dict)


def test_fields_at_their_default_are_left_out_at_any_depth() -> None:
    bare = Outer((Inner("a"), Inner("b", 2)))
    assert without_defaults(bare) == {"items": ({"name": "a"}, {"name": "b", "added": 2})}
    full = Outer((), Inner("c", 0), ("x",), {1: "y"})
    assert without_defaults(full) == {"items": (), "one": {"name": "c"}, "added": ("x",), "kept": {"1": "y"}}


def test_what_a_record_says_is_all_there() -> None:
    plan = SpanPlan("t", "db.t", "t", {0: 7})
    feed = FeedRecorded("0-1", 3, 1, "{}", (plan,), WantedState.RUNNING, FeedState.NORMAL, None, None, None, 5)
    assert "revision" not in without_defaults(feed)
    assert without_defaults(msgspec.structs.replace(feed, revision=2))["revision"] == 2
    # A field without a default is said even where it is nothing.
    assert without_defaults(feed)["error"] is None
