"""Start offsets as people write them: plain, or with the id of the topic that they belong to."""

import pytest

from headgate.config.feed import parse_feed
from headgate.config.start_offsets import StartOffsets, StartOffsetsError, as_json, parse_start_offsets

FEED = "{feed: f, source: {topics: [t], start_offsets: {t: %s}}, sink: {type: postgresql, dsn: 'host=x'}}"


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ('{"t":{"0":17,"1":3}}', StartOffsets(offsets={0: 17, 1: 3})),
        ('{"t":{"topic_id":"id-1","offsets":{"0":17}}}', StartOffsets(offsets={0: 17}, topic_id="id-1")),
    ],
)
def test_both_forms_are_read_and_written_as_they_were_given(text: str, offsets: StartOffsets) -> None:
    assert parse_start_offsets(text) == {"t": offsets}
    assert as_json({"t": offsets}) == text


@pytest.mark.parametrize("given", ["{0: 17}", "{topic_id: id-1, offsets: {0: 17}}"])
def test_a_feed_with_start_offsets_survives_its_own_record(given: str) -> None:
    spec = parse_feed(FEED % given)
    assert spec.source.start_offsets["t"].offsets == {0: 17}
    assert parse_feed(spec.to_json()) == spec


def test_plain_offsets_stand_in_a_feeds_record_as_before() -> None:
    """An update compares the record's text with the new one: a feed of an older version would not be updatable."""
    assert '"start_offsets":{"t":{"0":17}}' in parse_feed(FEED % "{0: 17}").to_json()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "offsets: "),
        ('{"t": 5}', "t: "),
        ('{"t": {"a": 5}}', "t.offsets.a.[key]: 'a' is not allowed: write a whole number"),
        ('{"t": {"0": -1}}', "-1 is not allowed: it must be at least 0"),
        ('{"t": {"0": 1, "topic_id": "x"}}', "t.offsets: it is missing"),
        ('{"t": {"0": 1}', "offsets: "),
    ],
)
def test_what_is_not_valid_names_its_place(text: str, said: str) -> None:
    with pytest.raises(StartOffsetsError) as caught:
        parse_start_offsets(text)
    assert said in str(caught.value)
