"""What comes after a fit: changes, events, feedback."""
