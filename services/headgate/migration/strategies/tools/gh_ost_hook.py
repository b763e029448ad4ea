"""A hook of gh-ost: reports gh-ost's GH_OST_… variables to the owner of the migration (gh_ost.py).

Run as a program, by its path, with nothing but Python's own library. Its only argument is the hook's name. A hook that
fails ends gh-ost. That is wanted before the copy begins, and before the cut-over, when the owner does not accept the
report: then the migration has another owner by now, or has been cancelled. Elsewhere a report that is lost is lost.
"""

import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request

REPORT_SECONDS = 10

REPORTS = {
    "gh-ost-on-startup": ("running", "starting"),
    "gh-ost-on-row-copy-complete": ("running", "catching up"),
    "gh-ost-on-status": ("running", "copying"),
    "gh-ost-on-begin-postponed": ("running", "ready_to_complete"),
    "gh-ost-on-before-cut-over": ("running", "cutting over"),
    "gh-ost-on-success": ("complete", ""),
    "gh-ost-on-failure": ("failed", ""),
}
NUMBERS = {"progress": "GH_OST_PROGRESS", "eta": "GH_OST_ETA_SECONDS", "rowscopied": "GH_OST_COPIED_ROWS"}
DECISIVE = ("gh-ost-on-startup", "gh-ost-on-before-cut-over")


def given(hook: str, environment: dict[str, str], migration: str) -> dict[str, str]:
    """The report's parameters."""
    status, hint = REPORTS[hook]
    found = {"uuid": migration, "status": status, "hint": hint, "dryrun": environment.get("GH_OST_DRY_RUN", "false")}
    if hook == "gh-ost-on-status" and environment.get("GH_OST_STATUS", "").find("postponing") >= 0:
        found["hint"] = ""
    for name, variable in NUMBERS.items():
        if environment.get(variable):
            found[name] = environment[variable]
    if hook == "gh-ost-on-failure":
        found["message"] = environment.get("GH_OST_STATUS", "gh-ost has failed")
    return {name: value for name, value in found.items() if value}


def main(hook: str) -> int:
    """Report; the exit code for gh-ost."""
    with open(os.environ["HEADGATE_TOOL_FILE"], encoding="utf-8") as file:  # noqa: PTH123 - nothing is imported that is not used
        told = json.load(file)
    query = urllib.parse.urlencode(given(hook, dict(os.environ), told["migration"]))
    request = urllib.request.Request(  # noqa: S310 - the owner's address
        f"{told['url']}?{query}", method="POST", headers={"Authorization": f"Bearer {told['token']}"}
    )
    # A proxy that the machine's environment names is not for this.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=REPORT_SECONDS):
            return 0
    except (urllib.error.URLError, OSError) as error:
        sys.stderr.write(f"report of {hook} was not taken: {error}\n")
        return 1 if hook in DECISIVE else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
