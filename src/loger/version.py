"""The version of loger, where everything can read it."""

__version__ = "0.2.0"
