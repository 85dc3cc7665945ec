"""Scores and the best of them: where S is computed, and which items may be shown."""
