"""The source's half of a feed, as verify/settling.py asks for it: a connector that is done and sends no heartbeats."""

from headgate.sources.last_written import LastWritten


class QuietConnector:
    """Every change of the source was written to a topic that is empty by now. See settling.Feed."""

    is_running = True
    is_given_up = False

    def source_ms(self) -> int:
        return 0

    def last_written(self) -> LastWritten:
        return LastWritten()

    def beats(self, _within_seconds: float) -> tuple[int, ...]:
        return ()

    def why_unread(self) -> str:
        return ""

    def give_up(self) -> None:
        self.is_given_up = True
