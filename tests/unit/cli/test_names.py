"""The TAB key: every place of a name completes it, and nothing is offered or said where that cannot be done."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from headgate.cli import names
from headgate.cli.main import app
from headgate.config.secrets import CONNECTIONS
from headgate.eventlog.sharding import DEADLETTER
from headgate.records.control import ChangeQuarantined, Epoch
from headgate.records.keys import DeadLetterKey
from support.answering_owners import Owners, answering_owners
from support.commands import commands

FEEDS, TABLES, AGENTS = {"shop"}, {"public.items"}, {"a1"}
DATABASES = {"orders"}

LETTER = ChangeQuarantined("f1", 0, Epoch(1, 1), "decode_failed", "not JSON", None, b"{", (), 0, 0)

AT_NAMES: dict[str, set[str]] = {
    "feed": FEEDS,
    "max_feed_lag": {"shop="},
    "table": TABLES,
    "agent": AGENTS,
    "migration": {"m1"},
    "name": {"s"},
    "log_name": {"s"},
    "reader_name": {"r1"},
    "generation": {"1"},
    "database": DATABASES,
    "replica": DATABASES,
    "registry": {"avro"},
    "source": DATABASES,
    "source_connection": DATABASES,
    "sink": DATABASES,
    "place": {"shop.public.items/0/7"},
    "places": {"shop.public.items/0/7"},
    "remove_node": {"a"},
    "topics": {"orders.public.items"},
    "feed_topic": {"orders.public.items"},
    "copied_topic": {"orders.public.items"},
    "change_log": {"t"},
    "who": {"agent", "coordinator"},
    "service": {"agent", "coordinator"},
}
"""What each place of a name offers in the cluster of this test, whatever the command."""

OF_TIMESTAMPS: dict[str, set[str]] = {"name": {"t"}, "generation": {"5"}, "reader_name": {"r2"}}

OF_LETTERS: dict[str, set[str]] = {"topic": {"shop.public.items"}, "code": {"decode_failed"}}

OF_ITS_OWN: dict[str, dict[str, set[str]]] = {
    "why": {"name": {"shop", "m1"}},
    "deadletter list": OF_LETTERS,
    "deadletter replay": OF_LETTERS,
    "deadletter purge": OF_LETTERS,
    "migration submit": {"topic": {"shop.public.items"}},
}

NEW_NAMES = {
    "feed init": {"feed"},
    "generation create": {"name"},
    "generation timestamps create": {"name"},
    "serve agent": {"name"},
    "serve node": {"name"},
    "serve ingest": {"name"},
    "migration submit": {"migration"},
    "feed skip": {"places"},
}
"""Names that a command gives to something, or that nothing records yet: none that exists is meant."""

FILES = {"doctor": {"feed"}}

FREE_TEXTS = {
    "older_than": "a length of time",
    "statement": "SQL",
    "file": "a path",
    "folder": "a path",
    "key": "a row's key",
}
"""Arguments that are no names."""


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy with other tests has all the time it needs."""
    monkeypatch.setattr(names, "NAMES_SECONDS_MAX", 120.0)


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, patient: None) -> Owners:
    file = tmp_path / "connections.yaml"
    file.write_text(
        "connections: {orders: {kind: postgresql, address: 'host=127.0.0.1', use: [source, sink, migration]}}\n"
        "registries: {avro: {url: 'http://127.0.0.1:1'}}\n",
        encoding="utf-8",
    )
    monkeypatch.setenv(CONNECTIONS, str(file))
    monkeypatch.setattr(names, "topics_of_others", lambda _flags: ["orders.public.items"])
    found = answering_owners(monkeypatch)
    found.add_topic(DEADLETTER)
    found.put(DeadLetterKey("shop", "public.items", "shop.public.items", 0, 7), LETTER)
    return found


def offered(command: str, made: Any, place: Any, incomplete: str = "") -> set[str]:
    """What the TAB key offers at one place, behind the words that are typed before it."""
    context = made.context_class(made)
    context.params = {"name": "t" if "timestamps" in command else "s"}
    return {item.value for item in place.shell_complete(context, incomplete)}


def test_every_name_completes_at_every_command(owners: Owners) -> None:
    tried = set()
    for command, made in commands():
        for place in made.params:
            expected = AT_NAMES | (OF_TIMESTAMPS if "timestamps" in command else {}) | OF_ITS_OWN.get(command, {})
            if place.name in NEW_NAMES.get(command, set()) | FILES.get(command, set()):
                assert place.name in expected
                assert place._custom_shell_complete is None, (command, place.name)
            elif place.name in expected:
                assert expected[place.name] <= offered(command, made, place), (command, place.name)
                tried.add(place.name)
            elif place.param_type_name == "argument":
                assert place.name in FREE_TEXTS or place._custom_shell_complete, (command, place.name)
    assert tried == set(AT_NAMES) | set(OF_LETTERS)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("headgate generation show s --generation ", ["1"]),
        ("headgate generation show --generation ", []),
        ("headgate generation timestamps show t --generation ", ["5"]),
        ("headgate verify shop --table ", ["public.items"]),
        ("headgate verify other --table ", []),
        ("headgate verify sh", ["shop"]),
        ("headgate deadletter show shop ", ["shop.public.items/0/7"]),
        ("headgate deadletter show other ", []),
        ("headgate deadletter list shop --code ", ["decode_failed"]),
        ("headgate generation timestamps update t --remove-node ", ["a"]),
    ],
)
def test_a_line_is_completed_by_what_was_typed_before(
    owners: Owners, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: str, expected: list[str]
) -> None:
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    monkeypatch.setenv("_HEADGATE_COMPLETE", "complete_bash")
    with pytest.raises(SystemExit):
        get_command(app).main(prog_name="headgate")
    assert capsys.readouterr().out.split() == expected


def test_a_name_that_begins_otherwise_is_not_offered(owners: Owners) -> None:
    found = dict(commands())
    (place,) = (each for each in found["verify"].params if each.name == "feed")
    assert offered("verify", found["verify"], place, "sh") == {"shop"}
    assert offered("verify", found["verify"], place, "x") == set()


def test_a_name_that_a_shell_would_evaluate_is_not_offered(patient: None) -> None:
    plain = ["public.items~0-3.6", "shop", "m-1_2"]
    others = ["$(id)", "a b", "`id`", "x\\$(id)", "it's", "*", "a;b", "", "naïve", 'say "x"', "a\nb"]
    assert names.within_bounds(lambda: [*plain, *others]) == sorted(plain)


def test_whatever_goes_wrong_is_not_said(patient: None, capfd: pytest.CaptureFixture[str]) -> None:
    def fails() -> list[str]:
        raise RuntimeError("no such cluster")

    assert names.within_bounds(fails) == []
    assert capfd.readouterr() == ("", "")


def completed(words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The installed script, as bash runs it for the last of these words."""
    script = str(Path(sys.executable).with_name("headgate"))
    variables = {
        **os.environ,
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
        "_HEADGATE_COMPLETE": "complete_bash",
        **environment,
    }
    return subprocess.run([script], capture_output=True, text=True, check=False, timeout=120, env=variables)


def test_a_broker_that_never_answers_ends_the_wait_in_silence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = completed(f"headgate feed pause --bootstrap {address} ")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("words", "environment"),
    [("headgate table move ", {"HEADGATE_BOOTSTRAP": "127.0.0.1:1"}), ("headgate why ", {"HEADGATE_SHARDS": "many"})],
)
def test_a_cluster_that_cannot_be_asked_completes_to_nothing(words: str, environment: dict[str, str]) -> None:
    done = completed(words, **environment)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
