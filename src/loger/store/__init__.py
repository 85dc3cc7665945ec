"""A fitted model on disk, and its lists as files."""
