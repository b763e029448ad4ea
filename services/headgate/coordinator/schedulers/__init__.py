"""Pure functions that propose which session gets which span; the first one with work uses the free capacity."""
