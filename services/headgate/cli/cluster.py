"""``headgate cluster``: a cluster of Headgate as a whole. Its command is imported when it is called."""

from typing import ClassVar

from headgate.cli.groups import CommandGroup, Late, LateGroup


class _Commands(LateGroup):
    late: ClassVar = {
        "delete": Late("headgate.cli.cluster_delete:delete", "Delete everything that Headgate made for a cluster."),
    }


app = CommandGroup(cls=_Commands, no_args_is_help=True)


@app.callback()
def cluster() -> None:
    """Delete everything that Headgate made."""
