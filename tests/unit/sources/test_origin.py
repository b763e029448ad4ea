"""Where an event says that it comes from."""

import pytest

from headgate.sources.origin import Origin, origin_of

ENVELOPE = b'{"op":"c","source":{"connector":"postgresql","db":"shop","schema":"public","table":"t","lsn":1}}'


@pytest.mark.parametrize(
    ("value", "origin"),
    [
        (ENVELOPE, Origin("postgresql", "shop", "public.t")),
        (b'{"schema":{"type":"struct"},"payload":' + ENVELOPE + b"}", Origin("postgresql", "shop", "public.t")),
        (b'{"source":{"connector":"mysql","db":"shop","table":"t"}}', Origin("mysql", "shop", "t")),
        (b'{"source":{"connector":"mysql","db":"shop","table":null}}', None),
        (b'{"database":"shop","table":"t"}', None),
        (b"\xff", None),
        (None, None),
    ],
)
def test_what_an_event_says_of_its_source(value: bytes | None, origin: Origin | None) -> None:
    assert origin_of(value) == origin
