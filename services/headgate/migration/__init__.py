"""Online schema changes: one owner schedules them, strategies do them at the database."""
