"""What happens while a model is served: kept durably, applied to its user at once, and folded into
the bundle now and then."""
