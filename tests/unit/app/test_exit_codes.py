"""The table of exit codes: the page that is made of it, and the codes of refusals."""

import subprocess
import sys
from collections.abc import Iterator
from pkgutil import resolve_name
from typing import Any

import pytest

from headgate.app.exit_codes import MEANINGS, ExitCode, exit_code_of, exit_code_of_refusal
from headgate.records.error_codes import ERROR_CODES
from headgate.records.refusals import coded
from headgate.runtime.requests import RequestRefusedError
from headgate.sinks.contract import SinkError
from headgate.sources.offsets import SourceError
from headgate.sources.topics import TableClashError


def derived(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    for child in kind.__subclasses__():
        yield from derived(child)


def test_every_code_has_a_meaning() -> None:
    assert list(MEANINGS) == list(ExitCode)


def test_every_error_in_the_table_exists_under_its_name_and_has_its_code() -> None:
    for code, row in MEANINGS.items():
        for name in row.errors:
            kind = resolve_name(name)
            assert issubclass(kind, Exception)
            assert f"{kind.__module__}:{kind.__qualname__}" == name, "the name of where it is defined"
            assert exit_code_of(kind.__new__(kind)) is code


def test_the_table_imports_no_part_that_raises() -> None:
    code = """
import sys
import headgate.app.exit_codes
print(sorted({name.split(".")[1] for name in sys.modules if name.startswith("headgate.")}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "['app', 'records']"


def test_the_code_of_a_refused_request_is_that_of_its_reason() -> None:
    assert exit_code_of(RequestRefusedError("pause of x", "not_found: feed 'x' does not exist")) is ExitCode.NOT_FOUND
    assert exit_code_of(RequestRefusedError("pause of x", "it is paused")) is ExitCode.REQUEST_REFUSED


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
        ("not_found: feed 'x' does not exist", 43),
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
