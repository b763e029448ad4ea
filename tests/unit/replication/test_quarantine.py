"""What is set aside can be written, whatever the reason says: else the table would stand still for ever."""

from headgate.records.fitting import TEXT_LENGTH_MAX
from headgate.replication.bad_changes import BadChange, Original
from headgate.replication.quarantine import _fact
from support.codec import encode

from .conftest import work


def test_a_reason_of_any_length_and_characters_is_kept_as_far_as_it_can_be_written() -> None:
    original = Original(b"key", b"\xff value", (("name", b"\xff"),), 5)
    for reason in ("odd \ud800", "long " * 1_000_000, "é" * 9_000):
        fact = _fact(work("a", {0: 0}), "public.a", BadChange(0, 3, "value_refused", reason), original)
        _, value = encode(fact)
        assert value is not None
        assert b"\xff value" in value
        assert len(value) < 5 * TEXT_LENGTH_MAX
