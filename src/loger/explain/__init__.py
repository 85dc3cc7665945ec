"""Explanations: what a score is made of, and the questions people ask of a list."""
