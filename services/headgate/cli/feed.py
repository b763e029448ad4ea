"""``headgate feed``: create, inspect, pause and delete changefeeds. Each command is imported when it is called."""

from typing import ClassVar

from headgate.cli.groups import CommandGroup, Late, LateGroup


class FeedGroup(LateGroup):
    """Commands of feeds, in the order of the help."""

    late: ClassVar = {
        "init": Late("headgate.cli.feed_init:init", "Write a connector and a feed for a database."),
        "create": Late("headgate.cli.feed_files:create", "Create a feed from a file."),
        "update": Late(
            "headgate.cli.feed_files:update",
            "Change a feed: its limits, its password file, or more tables.",
        ),
        "apply": Late(
            "headgate.cli.feed_apply:apply", "Create and change feeds to match those in a folder or on standard input."
        ),
        "list": Late("headgate.cli.feed_list:list_feeds", "List feeds with their states, tables and lag."),
        "show": Late("headgate.cli.feed_list:show", "Show a feed's configuration, state, checkpoint and tables."),
        "pause": Late("headgate.cli.feed_changes:pause", "Pause a feed."),
        "resume": Late(
            "headgate.cli.feed_changes:resume",
            "Resume a paused or failed feed, from its checkpoint or from another position (--from).",
        ),
        "skip": Late("headgate.cli.feed_skip:skip", "Set aside single records that stop a table, and resume the feed."),
        "delete": Late(
            "headgate.cli.feed_changes:delete",
            "Delete a feed and its positions in the sink.",
        ),
        "rebalance": Late(
            "headgate.cli.feed_changes:rebalance",
            "Spread each feed's tables evenly over the agents, with the fewest moves.",
        ),
    }


app = CommandGroup(cls=FeedGroup, no_args_is_help=True)


@app.callback()
def feed() -> None:
    """Create, inspect and control feeds."""
