"""How long the tiles of reasons are: for every item in every user's top ten, in each language.

python benchmarks/tiles.py loger-demo/bundle [--users 1000] [--longest 20]
"""

from __future__ import annotations

import argparse

import numpy as np

from loger.explain.lists import ListRequest, recommend_block
from loger.model import LOGER
from loger.rules.wording import LANGUAGES, wording_of

BLOCK = 256


def tiles(model: LOGER, n_users: int) -> dict[str, list[str]]:
    """Every tile, by language."""
    words = {language: wording_of(language, style="tile") for language in LANGUAGES}
    out: dict[str, list[str]] = {language: [] for language in LANGUAGES}
    users = np.arange(n_users)
    for start in range(0, n_users, BLOCK):
        request = ListRequest(10, explain=True)
        found = recommend_block(model.ranker_, users[start : start + BLOCK], request).explanations
        for language in LANGUAGES:
            out[language] += [e.said(words[language]).because() for e in found]
    return out


def main() -> None:
    """Print a line per language, and the longest tiles."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle")
    parser.add_argument("--users", type=int, help="only so many; all by default")
    parser.add_argument("--longest", type=int, default=0, help="how many of the longest to print")
    given = parser.parse_args()
    model = LOGER.load(given.bundle)
    n_users = model.graph_.n_users
    every = tiles(model, n_users if given.users is None else min(given.users, n_users))
    for language, texts in every.items():
        lengths = np.array(list(map(len, texts)))
        cut = np.mean(["…" in text for text in texts])
        print(
            f"{language}: {len(texts):,} tiles, median {np.median(lengths):.0f}, longest "
            f"{lengths.max()}, {100 * cut:.1f}% with a name cut"
        )
        for text in sorted(set(texts), key=len, reverse=True)[: given.longest]:
            print(f"  {len(text)}  {text}")


if __name__ == "__main__":
    main()
