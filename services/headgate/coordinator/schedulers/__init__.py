"""Small pure functions that say which session should get which span; the first one with work uses the free capacity."""
