"""Who may ask what: the server's own key, and keys that are signed with it and may do less.

The server's key may do everything. From it anybody who has it makes keys for others, without
asking the server:

>>> key_for("secret", scope="any")
'any.0.f1ff5ba9cc9c675e6f17b1bfa8564627d1bb105b54e0596bf3c0a9dbdc394b2c'

A key of scope ``any`` asks about any user but changes nothing. A key of one user asks about this
user, about items, and about somebody new by their history.
"""

from __future__ import annotations

import hmac
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Literal, NamedTuple

from starlette.datastructures import Headers

from loger.web.config import ServeConfig
from loger.web.problems import ProblemError

Scope = Literal["admin", "any", "own"]
ADMIN = ("/v1/events", "/v1/reload")
"""What changes lists for others; so does any change of a mask."""
OWN = (
    "/v1/recommendations", "/v1/what-if", "/v1/explain", "/v1/explain/reasoner", "/v1/why-not",
    "/v1/counterfactual", "/v1/profile", "/v1/history", "/v1/items", "/v1/facts", "/v1/images",
    "/v1/rules", "/v1/masks", "/v1/about",
)  # fmt: skip
"""What a key of one user may ask: examples of rules and searches of entities name others."""
ACCESS = "loger.access"
"""Where a request's scope holds what its key may do."""


class Access(NamedTuple):
    """What a request may do."""

    scope: Scope = "admin"
    user: str | None = None
    """Whose key it is, in scope ``own``."""

    def check(self, method: str, path: str) -> None:
        """Refuse a path that a key is not for."""
        changes = path in ADMIN or (path.startswith("/v1/masks/") and method in ("PUT", "DELETE"))
        if changes and self.scope != "admin":
            raise ProblemError(403, f"{method} {path[:80]} needs the API key of the server itself")
        if self.scope == "own" and path not in OWN:
            raise ProblemError(403, f"a key of one user is not for {path[:80]}")

    def check_user(self, user: str | None) -> None:
        """Refuse a question about somebody else; somebody new has no name."""
        if self.scope == "own" and user not in (None, self.user):
            raise ProblemError(403, "this key is for another user")


def key_for(secret: str, user: str | None = None, *, scope: Scope = "own", expires: int = 0) -> str:
    """A key that may do less than the server's own.

    Args:
        secret: the server's key, as in ``LOGER_API_KEY``.
        user: whose key it is, in scope ``own``.
        scope: ``own`` or ``any``.
        expires: until when it holds, in seconds since 1970; 0: for as long as the server's.
    """
    if (scope == "own") != (user is not None) or scope == "admin":
        raise ValueError("a key is of scope 'any', or of a user and of scope 'own'")
    name = "" if user is None else "." + urlsafe_b64encode(user.encode()).decode().rstrip("=")
    said = f"{scope}{name}.{expires}"
    return f"{said}.{_signature(secret, said)}"


def access(config: ServeConfig, headers: Headers) -> Access:
    """What the key in a request's headers may do; no key, or a wrong one, is refused."""
    if config.api_key is None:
        return Access("admin" if config.loopback else "any")
    bearer = headers.get("authorization", "").removeprefix("Bearer ")
    key = headers.get("x-api-key", bearer)
    if hmac.compare_digest(key.encode("utf-8", "replace"), config.api_key.encode()):
        return Access()
    said, _, signature = key.rpartition(".")
    right = _signature(config.api_key, said)
    if hmac.compare_digest(signature.encode("utf-8", "replace"), right.encode()):
        scope, *name, expires = said.split(".")  # what we signed is as key_for wrote it
        if 0 < int(expires) < time.time():
            raise ProblemError(401, "the API key has expired; ask for another one")
        user = urlsafe_b64decode(name[0] + "=" * (-len(name[0]) % 4)).decode() if name else None
        return Access("own" if scope == "own" else "any", user)
    raise ProblemError(401, "give the API key in the header X-API-Key")


def _signature(secret: str, said: str) -> str:
    text = f"loger key {said}".encode("utf-8", "replace")
    return hmac.digest(secret.encode(), text, "sha256").hex()
