"""A feed's YAML: formats, times, and what is refused with its reason."""

import pytest

from headgate.config.feed import FeedSpecError, SourceFormat, parse_feed
from headgate.config.times import NotATimeError, parse_ts, show_ts

SINK = "sink: {type: postgresql, dsn: dbname=x}"


def feed(source: str) -> str:
    return f"feed: f\nsource: {{topics: [t], {source}}}\n{SINK}"


NOON = 1_795_262_400_000 << 18  # 2026-11-21T12:00:00Z


@pytest.mark.parametrize(
    "given", [NOON, str(NOON), "2026-11-21T12:00:00Z", "2026-11-21T13:00:00+01:00", "2026-11-21 12:00:00.000Z"]
)
def test_a_time_is_a_ts_or_rfc_3339(given: object) -> None:
    assert parse_ts(given) == NOON
    assert show_ts(NOON) == "2026-11-21T12:00:00.000Z"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("noon", "no time"),
        (True, "no time"),
        (1.5, "no time"),
        ("2026-11-21T12:00:00", "no zone"),
        (1_795_262_400, "no ts"),
        (1_795_262_400_000, "no ts"),
        (-1, "no ts"),
        (2**63, "no ts"),
    ],
)
def test_what_is_no_time_is_refused(given: object, complaint: str) -> None:
    with pytest.raises(NotATimeError, match=complaint):
        parse_ts(given)


@pytest.mark.parametrize("written", ["2026-11-21T12:00:00Z", "'2026-11-21T12:00:00Z'", str(NOON)])
def test_a_spec_keeps_the_ts_whatever_was_written(written: str) -> None:
    spec = parse_feed(feed(f"format: ticdc-canal-json, target_ts: {written}"))
    assert spec.source.target_ts == NOON
    assert parse_feed(spec.to_json()) == spec


def test_only_formats_with_evidence_give_resolved_ts() -> None:
    assert [known.value for known in SourceFormat if known.gives_resolved_ts] == ["ticdc-canal-json"]


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("format: debezium-json, target_ts: 2026-11-21T12:00:00Z", "not up to which time it is complete"),
        ("format: canal-json, target_ts: 2026-11-21T12:00:00Z", "formats that say it: ticdc-canal-json"),
        ("format: ticdc-canal-json, target_ts: tomorrow", "no time"),
        ("start: latest, start_ts: 2026-11-21T12:00:00Z", "either source.start or source.start_ts"),
        (
            "format: ticdc-canal-json, start_ts: 2026-11-21T12:00:00Z, target_ts: 2026-11-21T11:00:00Z",
            "not after source.start_ts",
        ),
        ("format: xml", "source.format"),
        ("targetts: 1", "did you mean 'target_ts'"),
    ],
)
def test_what_cannot_be_is_refused(source: str, complaint: str) -> None:
    with pytest.raises(FeedSpecError) as caught:
        parse_feed(feed(source))
    assert complaint in str(caught.value)
