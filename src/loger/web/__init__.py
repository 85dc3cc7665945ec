"""The HTTP API and the web app over a bundle: ``loger serve BUNDLE``. Needs the extra ``serve``."""
