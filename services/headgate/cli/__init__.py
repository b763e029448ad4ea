"""The headgate command: what people type, and nothing that decides."""
