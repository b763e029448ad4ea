"""YAML of users: nothing is lost silently, and each fault is one line with a place, a reason and what to do."""

from pathlib import Path

import pytest

from headgate.config.feed import FeedSpecError, load_feed
from headgate.config.secrets import CONNECTIONS
from headgate.config.yaml_text import YamlError, load_yaml
from headgate.databases.connections import Use, connection_names
from headgate.databases.errors import DatabaseRefusedError


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: 1\nb: 2\na: 3\n", r"line 3, column 1: 'a' is given twice, first in line 1\. Remove one of them"),
        ("x:\n  - {a: 1, a: 1}\n", r"line 2, column 12: 'a' is given twice, first in line 2"),
        ("a:\n\tb: 1\n", r"line 2, column 1: a tab indents the line.*Use spaces"),
        (
            "a: 1\n---\nb: 2\n",
            r"line 2, column 1: a second document begins there \(---\)\. Write one doc",
        ),
        ("a: b: c\n", r"line 1, column 5: a colon is where YAML allows none\. Check the indentation"),
        ("a: 'b\n", r"line 2, column 1: the text ends inside quotes\. Close them"),
        ("a: [1\n", r"line 2, column 1: expected ',' or '\]'.*while parsing a flow sequence"),
        ("a: 2026-02-30\n", r"line 1, column 4: the value is not valid: day is out of range.*put a text in quotes"),
        ("a: !!bool x\n", r"line 1, column 4: the value is not valid"),
        ("a: !!int ''\n", r"line 1, column 4: the value is not valid"),
        ("a: !!timestamp x\n", r"line 1, column 4: the value is not valid"),
        (f"a: {'9' * 5_000}\n", r"line 1, column 4: the value is not valid"),
        ("a: !!python/name:os.system x\n", r"line 1, column 4: could not determine a constructor"),
        ("a: \0\n", r"it is not YAML: special characters are not allowed, at position 3\. Remove"),
        (f"a: {'[' * 5_000}\n", r"nested too deeply\. Check that each is closed"),
    ],
)
def test_what_cannot_be_read_is_one_line_with_place_and_reason(text: str, why: str) -> None:
    with pytest.raises(YamlError, match=why) as caught:
        load_yaml(text)
    assert "\n" not in str(caught.value)
    assert "unicode string" not in str(caught.value)


def test_merged_keys_are_not_given_twice() -> None:
    text = "base: &b {x: 1, y: 1}\ndeep: {deeper: &d {<<: *b, x: 2}}\nlast: {<<: *d, x: 3}\n"
    assert load_yaml(text)["last"] == {"x": 3, "y": 1}
    assert load_yaml("1: a\n'1': b\n") == {1: "a", "1": "b"}
    assert load_yaml(b"") is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("feed: shop\nfeed: other\n", r"shop\.yaml: it is not valid YAML: line 2, column 1: 'feed' is given twice"),
        ("", r"shop\.yaml: the text is empty\. Write a feed with"),
        ("- a\n", r"shop\.yaml: it is a list, not a mapping\. Write a feed with"),
        ("shop\n", r"shop\.yaml: it is a single value, not a mapping"),
        ("feed: shop\nsource: {topics: [x], start_ts: 2026-02-30}\n", r"shop\.yaml: .*line 2.*day is out of range"),
    ],
)
def test_a_feed_that_cannot_be_read_is_named(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(FeedSpecError, match=why):
        load_feed(file)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"connections: {}\nconnections: {}\n", "line 2, column 1: 'connections' is given twice"),
        (b"", r"is empty\. Write `connections:`"),
        (b"- shop\n", r"is not a mapping\. Write `connections:`"),
        (b"connections: {\xff}\n", r"is not UTF-8 text\. Write the connections in YAML"),
    ],
)
def test_a_file_of_connections_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, why: str
) -> None:
    file = tmp_path / "connections.yaml"
    monkeypatch.setenv(CONNECTIONS, str(file))
    with pytest.raises(DatabaseRefusedError, match=r"No such file or directory\. Set it to a YAML file"):
        connection_names(Use.SINK)
    file.write_bytes(content)
    monkeypatch.setenv(CONNECTIONS, str(file))
    with pytest.raises(DatabaseRefusedError, match=rf"{CONNECTIONS}: {file}:? .*{why}"):
        connection_names(Use.SINK)
