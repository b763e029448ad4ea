"""How a reader's fetches depend on the number of its partitions."""

from headgate.sources.fetching import (
    FETCH_BYTES_MAX,
    FETCH_BYTES_MIN,
    FETCH_WAIT_MS,
    PACED_PARTITIONS,
    fetching,
    reader_properties,
)


def test_a_row_of_few_partitions_is_fetched_as_soon_as_it_is_there() -> None:
    assert "fetch.min.bytes" not in fetching(1)
    assert "fetch.min.bytes" not in fetching(PACED_PARTITIONS - 1)


def test_fetches_of_many_partitions_keep_a_pace_that_grows_with_them_up_to_that_of_a_reader_at_rest() -> None:
    paces = [int(fetching(partitions)["fetch.wait.max.ms"]) for partitions in range(PACED_PARTITIONS, 1_000)]
    assert all("fetch.min.bytes" in fetching(partitions) for partitions in range(PACED_PARTITIONS, 1_000))
    assert paces == sorted(paces)
    assert paces[0] < FETCH_WAIT_MS == paces[-1]


def test_partitions_share_what_one_fetch_may_bring() -> None:
    sizes = [int(fetching(partitions)["fetch.message.max.bytes"]) for partitions in (1, 8, 20, 500)]
    assert sizes[0] == sizes[1] == FETCH_BYTES_MAX
    assert FETCH_BYTES_MIN < sizes[2] < FETCH_BYTES_MAX
    assert sizes[3] == FETCH_BYTES_MIN


def test_what_a_user_says_about_fetches_is_not_overruled() -> None:
    said = reader_properties("broker:9092", {"fetch.wait.max.ms": "7", "fetch.min.bytes": "1"})
    assert {**fetching(500), **said}["fetch.wait.max.ms"] == "7"
