"""The path reasoner φ: the LSTM walker, and the search whose paths it orders."""
