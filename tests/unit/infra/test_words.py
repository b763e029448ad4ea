"""The words that `make lint` refuses in texts."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[3] / "infra" / "lint" / "words.py"


@pytest.fixture(scope="module")
def words() -> Any:
    spec = importlib.util.spec_from_file_location("words", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "text",
    [
        "the place was noted",
        "it looks again",
        "when to look\nagain",
        "the needy tables",
        "the readers of a set",
        "who reckons",
    ],
)
def test_a_word_that_readers_stumble_over_is_found(words: Any, text: str) -> None:
    assert len(list(words.found(text))) == 1


@pytest.mark.parametrize("text", ["`noted`", "a note for readers", "it looks for rows", "notes"])
def test_code_and_other_uses_are_left(words: Any, text: str) -> None:
    assert list(words.found(text)) == []
