"""Files that are named on the command line: their documents, and how much of them is read."""

import io
from pathlib import Path

import pytest
import yaml

from headgate.config import given_files
from headgate.config.given_files import STANDARD_INPUT, documents_of, given_bytes


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\n---\nb: 2\n",
        "---\na: 1\n---\nb: 2\n",
        "--- # first\na: 1\n... # end\n---\nb: 2\n",
        "%YAML 1.1\n---\na: 1\n...\n%YAML 1.1\n---\nb: 2\n",
        "\ufeff# feeds\na: 1\n---\nb: 2\n",
        "---\n  # only a comment\n---\na: 1\n---\n---\nb: 2\n---\n",
        "--- {a: 1}\n--- {b: 2}\n",
        "a: 1\r\n---\r\nb: 2\r\n",
    ],
)
def test_documents(text: str) -> None:
    assert [yaml.safe_load(each) for each in documents_of(text)] == [{"a": 1}, {"b": 2}]


def test_a_mark_within_a_text_separates_nothing() -> None:
    assert [yaml.safe_load(each) for each in documents_of("a: |\n  x\n  ---\n  y\n")] == [{"a": "x\n---\ny\n"}]


def test_nothing_but_comments_is_no_document() -> None:
    assert documents_of("") == documents_of("# x\n---\n  # y\n") == []


def test_more_than_the_bound_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(given_files, "GIVEN_BYTES_MAX", 4)
    (tmp_path / "f").write_bytes(b"12345")
    for file in (tmp_path / "f", STANDARD_INPUT):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"12345")))
        with pytest.raises(OSError, match="it has more than"):
            given_bytes(file)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"1234")))
    assert given_bytes(STANDARD_INPUT) == b"1234"
