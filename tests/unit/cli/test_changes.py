"""One convention for what changes something: --dry-run everywhere, and a confirmation for what cannot be undone."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from headgate import cli
from headgate.app.exit_codes import CommandError, ExitCode
from headgate.cli import changes
from headgate.cli.changes import ChangeOptions, Destruction, Permit, agreed, permitted
from headgate.cli.output import Output
from support.commands import commands
from support.terminal import at_a_terminal

READS = {
    "agent list",
    "coordinator list",
    "deadletter list",
    "deadletter show",
    "doctor",
    "feed list",
    "feed show",
    "generation autoscale show",
    "generation graph",
    "generation lineage",
    "generation list",
    "generation lookup",
    "generation reader list",
    "generation show",
    "generation timestamps list",
    "generation timestamps lookup",
    "generation timestamps reader list",
    "generation timestamps ring",
    "generation timestamps show",
    "migration list",
    "migration logs",
    "migration show",
    "source check",
    "table at",
    "table list",
    "topic list",
    "topic rights",
    "topic show",
    "topic tail",
    "version",
    "why",
}
"""Nothing is different after them."""

STARTS = {
    "jars fetch",  # fills a cache
    "serve agent",
    "serve coordinator",
    "serve generation",
    "serve ingest",
    "serve migration",
    "serve node",
    "serve views",
}
"""They run until they are ended, or fetch what they need."""

CHANGES = {
    "agent drain",
    "coordinator resign",
    "feed create",
    "feed pause",
    "feed rebalance",
    "feed skip",
    "feed update",
    "generation abort",
    "generation autoscale disable",
    "generation autoscale enable",
    "generation create",
    "generation rebalance",
    "generation repair",
    "generation resize",
    "generation timestamps create",
    "generation timestamps repair",
    "generation timestamps update",
    "migration cancel",
    "migration complete",
    "migration launch",
    "migration retry",
    "migration revert",
    "migration throttle",
    "table merge",
    "table move",
    "table optimize",
    "table pause",
    "table resume",
    "table split",
    "topic create",
    "topic grant",
    "topic register",
}
"""Another command changes it back."""

DESTROYS = {
    "cluster delete",
    "deadletter purge",
    "deadletter replay",  # every reader of the topic has the records
    "feed apply",  # --prune deletes feeds
    "feed delete",
    "feed init",  # replaces files
    "feed resume",  # --from applies changes again, or leaves them out
    "generation delete",
    "generation gc",
    "generation grow",  # Kafka removes no partitions
    "generation reader delete",
    "generation timestamps gc",
    "generation timestamps reader delete",
    "migration approve",  # what it lets run may be destructive, as with submit
    "migration cleanup",
    "migration force-cutover",  # ends other people's sessions
    "migration submit",  # not every change can be reverted
    "table resync",  # rows at the target are overwritten
    "verify",  # --repair overwrites rows
}
"""Data is lost, or nothing changes it back."""

WRITES = {
    "ask",
    "ask_all",
    "ask_for",
    "ask_owner",
    "ask_shards",
    "ask_while_paused",
    "withdraw",
    "ask_policy",
    "change_timestamps",
    "copy_rows",
    "_ask",
    "_settle",
    "resend",
    "create_topics",
    "delete_topics",
    "delete_groups",
    "remove_leftover",
    "remove_dead_letters",
    "add_schemas",
} | {
    "create_access_rules",
    "say",
    "writer",
    "Producer",
    "AdminClient",
    "admin",
    "client",
}
"""What writes to a cluster, and what makes something that could, as it is called in this folder."""


ALL = dict(commands())


def test_each_command_is_known_for_what_it_does() -> None:
    """A new command is added to one of the four lists, and then has the options of its kind."""
    kinds = (READS, STARTS, CHANGES, DESTROYS)
    assert sorted(ALL) == sorted(name for kind in kinds for name in kind)


def test_no_help_has_words_in_brackets_which_a_terminal_does_not_show() -> None:
    """rich takes them for a style. A default that is not a value is said by ``show_default``."""
    texts = {(name, each.help) for name, command in ALL.items() for each in (command, *command.params)}
    assert [text for text in sorted(texts, key=str) if re.search(r"\[[a-z/#@]", text[1] or "")] == []


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_command_has_the_options_of_its_kind_and_no_other_way_to_act(name: str) -> None:
    options = {option for each in ALL[name].params for option in each.opts}
    assert ("--dry-run" in options) == (name in CHANGES | DESTROYS)
    assert ("--yes" in options) == (name in DESTROYS)
    assert not options & {"--force", "--send", "--grant", "--confirm", "--apply", "--no-dry-run"}


def _calls_without_permit(source: str) -> Iterator[str]:
    """Functions that write and take no permit."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        takes = [each for each in (*function.args.args, *function.args.kwonlyargs) if _is_permit(each.annotation)]
        gives = any(isinstance(each, ast.Name) and each.id == "permit" for each in ast.walk(function))
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and _name(call.func) in WRITES and not (takes or gives):
                yield f"{function.name} calls {_name(call.func)}"


def _is_permit(annotation: ast.expr | None) -> bool:
    return isinstance(annotation, ast.Name) and annotation.id == "Permit"


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


@pytest.mark.parametrize("path", sorted(Path(str(cli.__file__)).parent.glob("*.py")), ids=lambda path: path.stem)
def test_what_writes_takes_a_permit_and_one_place_gives_them(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert list(_calls_without_permit(source)) == []
    made = [call for call in ast.walk(ast.parse(source)) if isinstance(call, ast.Call) and _name(call.func) == "Permit"]
    assert len(made) == (path.stem == "changes")


def test_a_write_without_a_permit_is_found() -> None:
    assert list(_calls_without_permit("def f(log):\n    ask(log)")) == ["f calls ask"]
    assert list(_calls_without_permit("def f(log, permit: Permit):\n    ask(log)")) == []


def test_a_change_needs_nobody_and_a_dry_run_gives_no_permit(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(permitted(ChangeOptions(), "pause feed shop", Output.TABLE), Permit)
    assert capsys.readouterr().err == ""
    assert permitted(Destruction(dry_run=True, yes=True), "delete feed shop", Output.TABLE) is None
    assert capsys.readouterr().err == "would delete feed shop; nothing was changed\n"
    with pytest.raises(CommandError, match="unknown"):
        permitted(ChangeOptions(dry_run=True), "pause feed shp", Output.TABLE, check=lambda: _raise("unknown"))
    with pytest.raises(CommandError, match="unknown"):
        permitted(Destruction(), "delete feed shp", Output.TABLE, check=lambda: _raise("unknown"))
    for agreed_to in (ChangeOptions(), Destruction(yes=True)):
        assert permitted(agreed_to, "delete feed shp", Output.TABLE, check=lambda: _raise("the owner finds out"))


def _raise(text: str) -> None:
    raise CommandError(ExitCode.NOT_FOUND, text)


ASKING = """
from headgate.cli.changes import Destruction, agreed
from headgate.app.exit_codes import CommandError
for _ in range(5):
    try:
        agreed(Destruction(), "delete feed shop")
        print("<agreed>")
    except CommandError as error:
        print(f"<{error}>")
"""


def test_a_person_is_asked_and_only_yes_agrees() -> None:
    """On a terminal of its own: y, yes, n, nothing, and Ctrl-D, the end of the input."""
    said = at_a_terminal([sys.executable, "-c", ASKING], b"y\nyes\nn\n\n\x04").decode()
    assert said.count("Delete feed shop? This cannot be undone. [y/N]:") == 5
    refused = "not confirmed, nothing was changed"
    assert re.findall("<(.*?)>", said) == ["agreed", "agreed", refused, refused, refused]


@pytest.mark.parametrize("blind", ["stdin", "stderr"])
def test_where_nobody_can_be_asked_it_is_refused(blind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminals = {name: SimpleNamespace(isatty=lambda name=name: name != blind) for name in ("stdin", "stderr")}
    monkeypatch.setattr(changes, "sys", SimpleNamespace(**terminals))
    with pytest.raises(CommandError, match="--yes, or preview it with --dry-run") as refused:
        agreed(Destruction(), "delete feed shop")
    assert refused.value.code is ExitCode.NOT_CONFIRMED
    assert agreed(Destruction(yes=True), "delete feed shop") is not None
    assert agreed(Destruction().only_if(False), "resume feed shop") is not None
