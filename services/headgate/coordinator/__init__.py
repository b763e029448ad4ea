"""The coordinator decides which agent runs which span: a pure machine and the service that drives it."""
