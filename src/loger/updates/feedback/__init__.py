"""Which reasons work: what was shown beside what was clicked."""
