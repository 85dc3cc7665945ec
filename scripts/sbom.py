"""Write a CycloneDX bill of materials for the wheel.

    python scripts/sbom.py dist/loger_rec-X.Y.Z-py3-none-any.whl

The bill is written next to the wheel, as NAME.cdx.json. It lists the distributions that loger
depends on, in the versions of this environment, with which the tests ran. Distributions that only
an extra needs are ``optional``. The wheel contains no third-party code. The same environment gives
the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import sys
import uuid
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

NAME = "loger-rec"
NOT_SHIPPED = {"dev", "docs", "bench"}
"""Extras for developing loger, not for using it."""


def needs(of: Distribution, extras: set[str]) -> list[tuple[str, set[str]]]:
    """The requirements of a distribution on this platform, with the extras that they name."""
    asked = [Requirement(text) for text in of.requires or ()]
    places = [{"extra": extra} for extra in sorted(extras)] or [{"extra": ""}]
    return [
        (canonicalize_name(r.name), set(r.extras))
        for r in asked
        if r.marker is None or any(r.marker.evaluate(place) for place in places)
    ]


def closure(extras: set[str]) -> dict[str, Distribution]:
    """All distributions that loger with some extras needs, including itself."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(NAME, extras)]
    while waiting:
        name, of_it = waiting.pop()
        if (name, frozenset(of_it)) in seen:
            continue
        seen.add((name, frozenset(of_it)))
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # an extra that is not installed here
        waiting += needs(found[name], of_it)
    return found


def component(of: Distribution, scope: str) -> dict[str, Any]:
    """A distribution as a CycloneDX component."""
    name, about = canonicalize_name(of.name), of.metadata
    licence = about.get("License-Expression")
    return {
        "type": "library",
        "bom-ref": name,
        "name": name,
        "version": of.version,
        "scope": scope,
        "purl": f"pkg:pypi/{name}@{of.version.replace('+', '%2B')}",
        **({"licenses": [{"expression": licence}]} if licence else {}),
    }


def bill(wheel: Path) -> dict[str, Any]:
    """The bill of a wheel."""
    own = distribution(NAME)
    extras = {canonicalize_name(e) for e in own.metadata.get_all("Provides-Extra") or ()}
    required, every = closure(set()), closure(extras - NOT_SHIPPED)
    parts = [
        component(of, "required" if name in required else "optional")
        for name, of in sorted(every.items())
        if name != NAME
    ]
    graph = [
        {"ref": name, "dependsOn": sorted({n for n, _ in needs(of, set())} & set(every))}
        for name, of in sorted(every.items())
    ]
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    itself = component(own, "required") | {"hashes": [{"alg": "SHA-256", "content": digest}]}
    text = json.dumps([itself, parts, graph], sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, text)}",
        "version": 1,
        "metadata": {"component": itself},
        "components": parts,
        "dependencies": graph,
    }


def main() -> None:
    """Write the bill of the wheel named on the command line."""
    wheel = Path(sys.argv[1])
    place = wheel.with_suffix(".cdx.json")
    made = bill(wheel)
    place.write_text(json.dumps(made, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{place}: {len(made['components'])} components")


if __name__ == "__main__":
    main()
