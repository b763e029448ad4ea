"""What goes wrong while real servers are brought up, in words a newcomer can act on."""


class EmbeddedError(RuntimeError):
    """A server cannot be started or stopped; the message has the reason, the place and what to do."""


class ArtifactError(EmbeddedError):
    """A pinned file is missing, altered or cannot be fetched; nothing unverified is ever used."""


class NoJavaError(EmbeddedError):
    """No Java runtime that is new enough; the message lists where it was looked for."""


class PortTakenError(EmbeddedError):
    """Another process listens on the requested port."""
