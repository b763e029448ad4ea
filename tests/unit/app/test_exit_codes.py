"""The table of exit codes: the page that is made of it, and the codes of refusals."""

from collections.abc import Iterator
from typing import Any

import pytest

from headgate.app.exit_codes import MEANINGS, ExitCode, exit_code_of, exit_code_of_refusal
from headgate.records.error_codes import ERROR_CODES
from headgate.records.refusals import coded
from headgate.sinks.contract import SinkError
from headgate.sources.offsets import SourceError
from headgate.sources.topics import TableClashError


def derived(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    for child in kind.__subclasses__():
        yield from derived(child)


def test_every_code_has_a_meaning() -> None:
    assert list(MEANINGS) == list(ExitCode)


def test_an_error_and_a_refusal_for_it_end_a_command_alike() -> None:
    told = {
        kind.code: exit_code_of(kind.__new__(kind))  # the class decides, whatever its constructor takes
        for base in (SourceError, SinkError)
        for kind in derived(base)
        if not kind.code.startswith("quarantine")
    }
    assert len(told) > 12
    assert TableClashError.code in told
    assert {code: exit_code_of_refusal(coded(code, "why")) for code in told} == told


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("not_found: there is no feed 'x'", 43),
        ("source_topic_missing: source topic x does not exist", 32),
        ("sink_refused: table t has no primary key", 30),
        ("sink_unavailable: it does not answer", 31),
        ("feed_spec: two names", 11),
        ("feed 'x' exists: choose another name", 40),
        ("not_found", 40),
        ("", 40),
    ],
)
def test_refusals(reason: str, code: int) -> None:
    assert exit_code_of_refusal(reason) == code


def test_a_refusal_has_a_code_that_is_known() -> None:
    assert all(refusal in {*ERROR_CODES, "not_found"} for row in MEANINGS.values() for refusal in row.refusals)
    with pytest.raises(ValueError, match="no refusal has the code 'nonsense'"):
        coded("nonsense", "why")
