"""Does the acceptance test of EM refuse rounds that help? Forced rounds of ``paper`` on demo shops.

    python benchmarks/rounds.py --seeds 1 2 3

For each round: whether EM would have made it (``promising``), NDCG of the development users before
and after, the lower end of the gain's 95% interval, and whether EM would have kept it.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from loger.config import LOGERConfig
from loger.data import split
from loger.data.demo import shop
from loger.model import LOGER
from tables import aligned

COLUMNS = ["shop, round", "made", "NDCG before", "after", "least gain", "kept"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows = []
    for seed in options.seeds:
        config = LOGERConfig.paper()
        config = replace(config, em=replace(config.em, early_stop=False))
        em = LOGER(config).em(split(shop(seed=seed).dataset))
        fitted = em.start()
        for number in range(1, options.rounds + 1):
            made, before = em.promising(fitted), fitted.trace[-1]
            following = em.round(number, fitted)
            if following is None:
                break
            fitted, after = following, following.trace[-1]
            gains = [f"{100 * x:.2f}" for x in (before.ndcg, after.ndcg, after.least_gain)]
            rows.append([f"{seed}, {number}", made, *gains, after.improves_on(before)])
    print(aligned(COLUMNS, rows))


if __name__ == "__main__":
    main()
