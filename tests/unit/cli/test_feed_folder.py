"""What a folder of feeds means for a cluster: which are new, which differ and in what, which are not in it."""

import io
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from headgate.app.exit_codes import ExitCode
from headgate.cli.feed_folder import Act, planned, read_folder
from headgate.cli.main import app
from headgate.config.feed import FeedSpecError, SkippedRecord, load_feed, parse_feed
from headgate.migration.core.feed_names import back_feed, forth_feed
from headgate.records.control import FeedRecorded, OutcomeStatus, RequestSettled
from headgate.records.keys import FeedKey
from support import build
from support.answering_owners import answering_owners

SPEC: dict[str, Any] = {
    "feed": "shop",
    "source": {"topics": ["shop.public.items"], "format": "debezium-json"},
    "sink": {"type": "postgresql", "dsn": "host=localhost", "table": "public.items"},
}
SKIPPED = SkippedRecord(record="shop.public.items/0/17", topic_id="aN1")


def write(folder: Path, name: str, **changed: Any) -> None:
    (folder / name).write_text(yaml.safe_dump({**SPEC, **changed}), encoding="utf-8")


def feed(**changed: Any) -> FeedRecorded:
    return build.feed_recorded(spec=parse_feed(yaml.safe_dump({**SPEC, **changed})).to_json())


def test_new_changed_equal_and_other_feeds(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", feed="same")
    write(tmp_path, "b.yml", feed="new")
    write(tmp_path, "c.yaml", batch_rows_max=7, sink={**SPEC["sink"], "foreign_keys": "ignore"})
    (tmp_path / "notes.txt").write_text("no feed", encoding="utf-8")
    known = {"shop": feed(), "same": feed(feed="same"), "other": feed(feed="other")}
    steps = planned(read_folder(tmp_path), known, prune=False)
    assert [(step.act, step.feed) for step in steps] == [
        (Act.CREATE, "new"),
        (Act.UPDATE, "shop"),
        (Act.NONE, "other"),
        (Act.NONE, "same"),
    ]
    assert [(each.option, each.before, each.after) for each in steps[1].differences] == [
        ("batch_rows_max", 200_000, 7),
        ("sink.foreign_keys", "enforce", "ignore"),
    ]
    pruned = planned(read_folder(tmp_path), known, prune=True)
    assert [step.feed for step in pruned if step.act is Act.DELETE] == ["other"]
    assert pruned[2].act is Act.DELETE, "deletions come last"


@pytest.mark.parametrize("given", [{}, {"skip": [{"record": SKIPPED.record}]}], ids=["not said", "without its id"])
def test_records_that_a_command_has_named_stay_named(tmp_path: Path, given: dict[str, Any]) -> None:
    write(tmp_path, "shop.yaml", **given)
    (step,) = planned(read_folder(tmp_path), {"shop": feed(skip=[SKIPPED.model_dump()])}, prune=True)
    assert (step.act, step.differences) == (Act.NONE, ())
    write(tmp_path, "shop.yaml", skip=[])
    (step,) = planned(read_folder(tmp_path), {"shop": feed(skip=[SKIPPED.model_dump()])}, prune=True)
    assert (step.act, step.differences[0].option, step.differences[0].after) == (Act.UPDATE, "skip", [])


def test_a_stored_feed_that_cannot_be_read_is_replaced(tmp_path: Path) -> None:
    write(tmp_path, "shop.yaml")
    (step,) = planned(read_folder(tmp_path), {"shop": build.feed_recorded(spec='{"feed": "shop"}')}, prune=False)
    assert (step.act, step.feed) == (Act.UPDATE, "shop")


def test_every_file_that_is_wrong_is_named_and_nothing_is_planned(tmp_path: Path) -> None:
    write(tmp_path, "good.yaml")
    write(tmp_path, "typo.yaml", feed="typo", batch_rows=1)
    write(tmp_path, "secret.yaml", feed="secret", sink={**SPEC["sink"], "dsn": "host=h password=x"})
    write(tmp_path, "twice.yaml")
    with pytest.raises(FeedSpecError) as wrong:
        read_folder(tmp_path)
    said = str(wrong.value)
    assert "typo.yaml: feed: unknown option 'batch_rows'" in said
    assert "secret.yaml: sink.dsn must not contain a password" in said
    assert "twice.yaml: good.yaml also defines feed 'shop'" in said
    assert said.endswith("Nothing was changed")


def test_a_folder_without_feeds_deletes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owners = answering_owners(monkeypatch)
    before = owners.written()
    for folder, why in ((tmp_path, "has no feed"), (tmp_path / "nosuch", "No such file or directory")):
        result = CliRunner().invoke(app, ["feed", "apply", str(folder), "--prune", "--yes"])
        assert (result.exit_code, why in " ".join(result.output.split())) == (ExitCode.FEED_SPEC, True), result.output
    assert owners.written() == before


def test_control_characters_of_a_file_do_not_reach_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering_owners(monkeypatch).outcome = RequestSettled(1, OutcomeStatus.DONE, "", 1)
    write(tmp_path, "shop.yaml", source={**SPEC["source"], "unavailable_value": "a\x1b[2J\x9bb"})
    shown = CliRunner().invoke(app, ["feed", "apply", str(tmp_path), "--timeout", "30"]).stdout
    assert "source.unavailable_value" in shown
    assert not {"\x1b", "\x9b"} & set(shown)


def test_feeds_of_schema_changes_are_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their owner deletes them, and a change ends in an error if another client does."""
    owners = answering_owners(monkeypatch)
    for name in (forth_feed("m1"), back_feed("m1"), forth_feed("unknown")):
        owners.put(FeedKey(name), feed(feed=name))
    write(tmp_path, "new.yaml", feed="new")
    shown = CliRunner().invoke(app, ["feed", "apply", str(tmp_path), "--prune"]).stdout
    gone = [f"- {name} is not in the folder" for name in sorted(("lake", "shop", forth_feed("unknown")))]
    assert shown.splitlines() == ["+ new", *gone]


def test_what_differs_is_shown_and_a_deletion_is_asked_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owners = answering_owners(monkeypatch)
    owners.outcome = RequestSettled(1, OutcomeStatus.DONE, "as it was asked", 1)
    write(tmp_path, "new.yaml", feed="new")
    arguments = ["feed", "apply", str(tmp_path), "--timeout", "30"]
    result = CliRunner().invoke(app, [*arguments, "--prune"])
    assert result.exit_code == ExitCode.NOT_CONFIRMED
    assert "this would delete feeds lake, shop" in " ".join(result.output.split())
    assert result.stdout.splitlines() == ["+ new", "- lake is not in the folder", "- shop is not in the folder"]
    done = CliRunner().invoke(app, [*arguments, "--prune", "--yes"])
    assert done.exit_code == 0, done.output
    assert "new: create: done" in done.stderr
    assert "shop: delete: done" in done.stderr
    write(tmp_path, "new.yaml", batch_rows_max=7)
    changed = CliRunner().invoke(app, arguments)
    assert changed.exit_code == 0, changed.output
    assert changed.stdout.splitlines() == [
        "~ shop", "    batch_rows_max: 200000 → 7", "= lake is not in the folder"
    ]  # fmt: skip


def typed(*words: str, text: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["feed", *words, "--bootstrap", "127.0.0.1:1"], input=text)
    return done.exit_code, done.stderr


OFFSETS = '{"shop.public.items": {"0": 17}}'


@pytest.mark.parametrize(
    ("command", "good"),
    [
        (["create", "-"], yaml.safe_dump(SPEC)),
        (["update", "-"], yaml.safe_dump(SPEC)),
        (["apply", "-", "--yes"], yaml.safe_dump(SPEC)),
        (["resume", "shop", "--from", "-", "--yes"], OFFSETS),
    ],
)
def test_a_command_that_takes_a_file_reads_standard_input(command: list[str], good: str) -> None:
    code, said = typed(*command, text="neither a feed nor offsets")
    assert code in (ExitCode.FEED_SPEC, ExitCode.USAGE), said
    assert "No such file" not in said
    code, said = typed(*command, text=good)
    assert "no Kafka broker accepts connections" in said, said


def test_doctor_reads_a_feed_from_standard_input() -> None:
    done = CliRunner().invoke(app, ["doctor", "--bootstrap", "127.0.0.1:1", "--feed", "-"], input="feed: [")
    assert (done.exit_code, "standard input: it is not valid YAML" in done.stderr) == (ExitCode.FEED_SPEC, True), (
        done.output
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "standard input has no feed. Give feeds in YAML"),
        ("# nothing\n---\n", "standard input has no feed"),
        (f"{yaml.safe_dump(SPEC)}---\nfeed: x\n", "standard input, document 2: source: it is missing"),
        (f"{yaml.safe_dump(SPEC)}---\n{yaml.safe_dump(SPEC)}", "document 2: standard input, document 1 also defines"),
    ],
)
def test_feeds_of_standard_input_that_are_refused(text: str, says: str) -> None:
    code, said = typed("apply", "-", text=text)
    assert (code, says in said) == (ExitCode.FEED_SPEC, True), said


def test_the_documents_of_standard_input_are_feeds(monkeypatch: pytest.MonkeyPatch) -> None:
    two = "".join(f"---\n{yaml.safe_dump({**SPEC, 'feed': name})}" for name in ("one", "two"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"# two feeds\n{two}".encode())))
    assert list(read_folder(Path("-"))) == ["one", "two"]


def test_a_step_of_feeds_on_standard_input_speaks_of_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    answering_owners(monkeypatch).outcome = RequestSettled(1, OutcomeStatus.DONE, "", 1)
    text = yaml.safe_dump({**SPEC, "feed": "new"})
    done = CliRunner().invoke(app, ["feed", "apply", "-", "--timeout", "30"], input=text)
    assert "= lake is not on standard input" in done.stdout.splitlines(), done.output


def test_standard_input_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by ``<&-``, with which Python has no sys.stdin."""
    monkeypatch.setattr("sys.stdin", None)
    for read in (read_folder, load_feed):
        with pytest.raises(FeedSpecError, match="standard input: Bad file descriptor"):
            read(Path("-"))


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_bytes(b"feed: \xff")
    code, said = typed("create", str(tmp_path / "shop.yaml"), text="")
    assert (code, "is not UTF-8 text" in said) == (ExitCode.FEED_SPEC, True), said
