"""No record that a service writes fails to encode because of what somebody outside has said."""

import enum
import types
import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.eventlog.codec import Codec
from headgate.eventlog.log import SchemaLevel
from headgate.eventlog.schema_files import schemas
from headgate.records import control, generation, timestamps
from headgate.records.base import Fact
from headgate.records.control import HeldBy, OwnerAnnounced, SpanPlan
from headgate.records.fitting import FOR_PEOPLE, NUMBER_MAX, TEXT_LENGTH_MAX, fitted, fitted_text, why_unwritable
from headgate.records.keys import ProgressKey
from headgate.records.migration import MigrationRecorded, MigrationRequested
from headgate.records.registry import KEY_FORMS
from support import build
from support.codec import decode

OURS: dict[type[msgspec.Struct], set[str]] = {
    control.OwnerAnnounced: {"owner_id", "owner_rev", "version", "schema_version", "announced_ms", "level"},
    control.MemberAnnounced: {"shards", "version", "schema_version", "announced_ms"},
    control.AgentAnnounced: {"schema_version", "capacity_spans", "heartbeat", "announced_ms"},
    control.SyncAnswered: {"owner_rev", "schema_version", "task_count", "answered_ms"},
    control.TaskReported: {"feed_id", "positions", "reported_ms", "maintained"},
    control.SpanDispatched: {
        "feed_id",
        "incarnation",
        "owner_rev",
        "moving_request",
        "failures",
        "revision",
        "copy",
        "maintain",
    },
    control.SessionEnded: {"owner_rev", "ended_ms"},
    control.SpanProgressed: {"feed_id", "positions", "progressed_ms"},
    control.FeedProgressed: {
        *(
            "feed_id",
            "incarnation",
            "owner_rev",
            "positions",
            "checkpoint_ts",
            "progressed_ms",
            "resolved_ts",
            "unapplied",
        ),
    },
    control.OperationRequested: {"feed", "spec", "table", "agent", "requested_ms", "parts"},
    control.RequestSettled: {"owner_rev", "settled_ms"},
    control.FeedRecorded: {
        *("feed_id", "owner_rev", "incarnation", "spec", "request", "changed_ms", "revision", "target_ts"),
        *("sink_id", "pinned"),
    },
    control.ChangeQuarantined: {"feed_id", "incarnation", "append_ms", "quarantined_ms", "topic_id"},
    control.HeldBy: {"span", "stage", "agent", "since_ms"},
    generation.GenerationDescribed: {"owner_rev", "chunks"},
    generation.SetRecorded: {"owner_rev", "topic", "topic_id", "partitions", "last_epoch"},
    generation.WriterReported: {"epoch", "promised_epoch", "promise", "reported_ms"},
    generation.ReaderReported: {"read_epoch", "reported_ms"},
    generation.GenerationRequested: {"topic", "partitions", "streams", "epoch", "requested_ms"},
    generation.PolicyRequested: {"requested_ms"},
    generation.AutomaticRecorded: {"owner_rev", "set_ms"},
    timestamps.TimestampSetRecorded: {"owner_rev", "ring_delay_ms", "kept_ms"},
    timestamps.RingRecorded: {"owner_rev"},
    timestamps.RangesDescribed: {"owner_rev", "chunks"},
    timestamps.StreamsListed: {"owner_rev", "chunks"},
    timestamps.TimestampPublished: {"owner_rev", "chunks", "expired_ms"},
    timestamps.TimestampsRequested: {"based_on_ms", "ring_delay_ms", "kept_ms", "requested_ms"},
    timestamps.TimestampLeft: {"left_ms", "reported_ms"},
    MigrationRequested: {"migration", "spec", "requested_ms"},
    MigrationRecorded: {
        *("owner_rev", "sequence", "spec", "action", "table", "stage", "attempt", "retries", "cutover_attempts"),
        *("eta_seconds", "note", "added_ms", "ready_ms", "started_ms", "live_ms", "ended_ms"),
        *("server", "throttle_until_ms", "waiting_ms", "cutover_after_ms"),
        *("stage_percent", "stage_ms", "throttled_ms", "approved_ms"),
    },
}
"""Fields with a text or a number in which nobody outside has a say, or that are checked where they come in
(``why_unwritable``, config/feed.py, the request's own text): counts, clocks, offsets of Kafka's, names."""

OUTSIDE_TEXT = st.text(st.characters(), max_size=20) | st.text("a\ud800é\U0001f600", min_size=TEXT_LENGTH_MAX - 3)
OUTSIDE_NUMBER = st.integers(-(2**90), 2**90)
RECORDS = [form.record for forms in KEY_FORMS.values() for form in forms]
SAYABLE = st.text(st.characters(codec="utf-8"), max_size=9)


def has_text_or_number(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, enum.Enum | bool):
        return False
    return hint in (str, int) or any(has_text_or_number(arg) for arg in typing.get_args(hint))


@pytest.mark.parametrize("record", [*RECORDS, HeldBy], ids=lambda record: record.__name__)
def test_of_every_text_and_number_it_is_known_who_says_it(record: type[msgspec.Struct]) -> None:
    hints = typing.get_type_hints(record)
    fields = {name for name in record.__struct_fields__ if has_text_or_number(hints[name])}
    assert fields == {name for name in FOR_PEOPLE.get(record, ()) if name in fields} | OURS.get(record, set())


def values_of(hint: Any, *, outside: bool) -> st.SearchStrategy[Any]:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*(values_of(arg, outside=outside) for arg in args))
    if origin is dict:
        return st.dictionaries(values_of(args[0], outside=False), values_of(args[1], outside=False), max_size=2)
    if origin is tuple:
        return st.lists(values_of(args[0], outside=outside), max_size=2).map(tuple)
    if issubclass(hint, msgspec.Struct):
        return records_of(hint)
    if issubclass(hint, enum.Enum):
        return st.sampled_from(hint)
    return {
        int: OUTSIDE_NUMBER if outside else st.integers(0, NUMBER_MAX),
        str: OUTSIDE_TEXT if outside else SAYABLE,
        bytes: st.binary(max_size=9),
        bool: st.booleans(),
        float: st.floats(allow_nan=False),
        type(None): st.none(),
    }[hint]


def records_of(record: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    hints, people = typing.get_type_hints(record), FOR_PEOPLE.get(record, ())
    fields = {name: values_of(hints[name], outside=name in people) for name in record.__struct_fields__}
    if record is OwnerAnnounced:
        fields["level"] = st.integers(1, schemas().level)
    return st.builds(record, **fields)


def facts_of(form: Any) -> st.SearchStrategy[Fact]:
    hints = typing.get_type_hints(form)
    key = {name: st.integers(0, 9) if hints[name] is int else SAYABLE for name in form.__struct_fields__}
    return st.builds(Fact, st.builds(form, **key), records_of(form.record))


@given(st.sampled_from([form for forms in KEY_FORMS.values() for form in forms]).flatmap(facts_of))
def test_what_is_fitted_is_written_and_read_as_it_was(fact: Fact) -> None:
    codec = Codec(schemas(), SchemaLevel(schemas().level, schemas().level))
    assert fact.value is not None
    record = fitted(fact.value)
    assert fitted(record) is record
    assert decode(fact.key.topic, *codec.encode(Fact(fact.key, record))) == (fact.key, record)


def test_what_fits_is_left_as_it_is() -> None:
    record = build.span_progressed(
        epoch=control.Epoch(1, 2),
        positions={0: 3},
        seen_ts=5,
        resolved_ts=6,
        rows=7,
        bytes=8,
        lag_ms=9,
        progressed_ms=10,
    )
    assert fitted(record) is record
    assert fitted_text("Zürich " * 1_000) == "Zürich " * 1_000


def test_what_does_not_fit_is_shortened_clamped_or_spelt_out() -> None:
    assert fitted_text("a" * 9_000).endswith("a … (cut)")
    assert len(fitted_text("\ud800" * 9_000)) == TEXT_LENGTH_MAX
    assert fitted_text("x\ud800y") == "x\\ud800y"
    told = build.span_progressed(
        epoch=control.Epoch(1, 2),
        positions={0: 3},
        seen_ts=2**80,
        resolved_ts=2**64 - 1,
        rows=-1,
        bytes=8,
        lag_ms=2**63,
        progressed_ms=10,
    )
    fit = fitted(told)
    assert (fit.seen_ts, fit.resolved_ts, fit.rows, fit.lag_ms) == (NUMBER_MAX, None, 0, NUMBER_MAX)
    held = build.feed_progressed(held_by=HeldBy("t", "sink", None, 1, "\udfff"), progressed_ms=1)
    assert fitted(held).held_by == HeldBy("t", "sink", None, 1, "\\udfff")
    assert fitted(SpanPlan("t", "db.t", "t", {0: 2**70})).start == {0: 2**70}, "what others go by is not changed"


def test_names_and_offsets_that_nothing_can_write_are_said() -> None:
    assert why_unwritable(SpanPlan("t", "db.t", "t", {0: 0})) is None
    assert "surrogate" in (why_unwritable(SpanPlan("z\ud800", "db.t", "z\ud800", {0: 0})) or "")
    assert f"offset {2**70}" in (why_unwritable(SpanPlan("t", "db.t", "t", {0: 2**70})) or "")
    assert "offset -3" in (why_unwritable(SpanPlan("t", "db.t", "t", {0: -3})) or "")
    with pytest.raises(ValueError, match="surrogates"):
        Codec(schemas()).encode(Fact(ProgressKey("f", "z\ud800", "a", "s"), None))
