"""The path reasoner φ: the LSTM walker and the search that it orders."""
