"""Measures of recommendations: pure functions on arrays, and the report made of them."""
