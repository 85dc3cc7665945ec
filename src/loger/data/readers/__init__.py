"""One module per format that data sets are read from or written to."""
