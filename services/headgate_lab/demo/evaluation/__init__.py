"""``headgate up --source DSN --sink DSN``: everything that Headgate needs, on this machine, for a user's databases."""
