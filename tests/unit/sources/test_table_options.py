"""Options of single tables, found by a table's plan; patterns that match nothing."""

import pytest

from headgate.config.feed import FeedSpec, FeedSpecError
from headgate.records.control import SpanPlan
from headgate.sources.table_options import by_session_options, check_patterns, spec_of
from headgate.sources.topics import TableClashError, TableNameError, sink_table, source_tables


def feed(options: dict[str, dict[str, object]], **source: object) -> FeedSpec:
    return FeedSpec.model_validate(
        {
            "feed": "f",
            "source": source or {"topics": ["t.s.a", "t.s.b"]},
            "sink": {"type": "postgresql", "dsn": "dbname=x"},
            "tables": options,
        }
    )


def plan(table: str, topic: str) -> SpanPlan:
    return SpanPlan(span=table, topic=topic, table=table, start={0: 0})


PLANS = (plan("s.a", "t.s.a"), plan("s.b", "t.s.b"))


def test_a_table_has_a_target_of_its_own() -> None:
    spec = feed({"s.a": {"table": "archive.{schema}_{table}"}})
    assert [sink_table(spec, topic) for topic in spec.source.topics] == ["archive.s_a", "s.b"]
    several = feed({"s.a": {"table": "x.y"}}, topics=["t"], tables=["s.a", "s.b"])
    assert source_tables(several) == {"x.y": "s.a", "s.b": "s.b"}
    assert spec_of(several, plan("x.y", "t")).sink.table == "x.y"


def test_a_bad_target_names_the_tables_option() -> None:
    with pytest.raises(TableNameError, match=r"tables\.s\.a\.table 'x\.\{tabel\}': \{tabel\} is unknown"):
        sink_table(feed({"s.a": {"table": "x.{tabel}"}}), "t.s.a")
    with pytest.raises(TableClashError):
        source_tables(feed({"s.a": {"table": "s.b"}}, topics=["t"], tables=["s.a", "s.b"]))


def test_tables_share_a_session_unless_their_options_differ() -> None:
    spec = feed({"s.b": {"keyless": "append", "on_bad_change": "quarantine"}})
    (own, first), (other, second) = by_session_options(spec, PLANS)
    assert (own, first) == (spec, [PLANS[0]])
    assert (other.sink.keyless, second) == ("append", [PLANS[1]])
    assert by_session_options(feed({"s.b": {"on_bad_change": "quarantine"}}), PLANS)[0][1] == list(PLANS)
    assert by_session_options(spec, []) == [(spec, [])], "the sink is checked even without tables"


def test_a_pattern_that_matches_no_table_is_refused_or_warned_about() -> None:
    spec = feed({"s.a": {"keyless": "append"}, "s.c": {"keyless": "append"}, "s.*": {}})
    with pytest.raises(FeedSpecError, match=r"no table matches s\.c\. .* them: s\.a, s\.b\. Correct the pattern"):
        check_patterns(spec, PLANS)
    pattern = feed({"s.c": {"keyless": "append"}}, topic_pattern="t[.].*")
    (warning,) = check_patterns(pattern, PLANS)
    assert warning.startswith("warning: tables: no table matches s.c.")
    assert check_patterns(pattern, [plan("s.c", "t.s.c")]) == ()
