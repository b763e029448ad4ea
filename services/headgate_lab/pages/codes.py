"""docs/error-codes.md and docs/exit-codes.md."""

from typing import Final

from headgate.app.exit_codes import MEANINGS
from headgate.records.error_codes import ERROR_CODES

_ERROR_CODES_HEAD: Final = (
    "# Error codes of tables",
    "",
    "These are the codes that `headgate table list`, `feed show` and `why` print. A code never changes its meaning.",
    "",
    "- A *retried* error is retried after 1, 2, 4 … 60 s, until the table has written rows again.",
    "- `sink_refused` is retried once a minute, first by another agent. Passwords are read again each time.",
    "- Every other error waits for `headgate feed resume`.",
    "",
    "A feed whose broken tables make no progress for 30 minutes is `failed`. Its other tables continue. Tables with",
    "`sink_refused` or `sink_unavailable` are still retried once a minute, and the feed recovers by itself. The others",
    "wait for `headgate feed resume`.",
    "",
    "This page is made from `services/headgate/records/error_codes.py` by `make docs`.",
    "",
    "| code | stage | retried | meaning | what to do |",
    "|---|---|---|---|---|",
)

_EXIT_CODES_HEAD: Final = (
    "# Exit codes",
    "",
    "Every `headgate` command ends with one of these. A number never changes its meaning. If the reason of a",
    "refused request starts with a code of [error-codes.md](error-codes.md) or with `not_found`, the exit code is that",
    "of the cause (11, 30, 31, 32, 43), whichever command sent the request. As in shells, 130 means that Ctrl-C ended",
    "the command, and 141 that the program that read its output has gone (`| head`). This page is made from",
    "`services/headgate/app/exit_codes.py` by `make docs`.",
    "",
    "| code | name | meaning | what to do |",
    "|---|---|---|---|",
)


def error_codes_page() -> str:
    """docs/error-codes.md."""
    rows = [
        f"| `{row.code}` | {row.stage} | {'yes' if row.retryable else 'no'} | {row.meaning} | {row.advice} |"
        for row in ERROR_CODES.values()
    ]
    return "\n".join([*_ERROR_CODES_HEAD, *rows, ""])


def exit_codes_page() -> str:
    """docs/exit-codes.md."""
    rows = [f"| {code.value} | {code.name.lower()} | {row.says} | {row.do} |" for code, row in MEANINGS.items()]
    return "\n".join([*_EXIT_CODES_HEAD, *rows, ""])
