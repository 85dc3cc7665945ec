"""How right p and q are over the hidden pairs H, at the true base rate.

    python benchmarks/calibration.py --out results          # all sets

After one M-step on train and validation's fitting users: of development users the 50 items of
highest q each (H), what p and q say where held-out interactions are as rare as they truly are, and
how many of H are held-out interactions. The error is the mean |share of hits − mean probability|
over 15 bins of equal size; as large as it would be by chance alone is what labels drawn by the
probabilities themselves come to. The encoder is shared with few_labels.py and ladder.py in
OUT/checkpoints. Figures go to OUT/calibration.json, a table of docs/tables.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from loger.config import LOGERConfig
from loger.data import load, split
from loger.encoder import TransE
from loger.engine import LocalEngine, silent
from loger.learning.em import EM
from loger.learning.estep import HIDDEN, propose_hidden
from loger.learning.fit import Fit
from tables import COMMIT
from where import DATA

SETS = ("amazon-beauty", "amazon-cellphones", "amazon-toys", "ml1m")


def calibration_error(probabilities, labels, bins=15):
    """Expected calibration error: mean |share observed − mean q| over bins of equal size by q."""
    parts = np.array_split(np.argsort(probabilities, kind="stable"), bins)
    gaps = [abs(float((labels[b] - probabilities[b]).sum())) for b in parts if len(b)]
    return float(np.sum(gaps) / len(labels))


def over_hidden(em: EM, users: int = 4000) -> list[list[Any]]:
    """For p and q: what they say of H in the mean, the share of hits, the error, and by chance."""
    fitted = em.m_step(None)[0]
    ranker, some = em.ranker(fitted), em.dev_users[:users]
    owners, items, s = propose_hidden(ranker, HIDDEN, em.engine, some)
    hits = np.asarray(em.held_out[owners, items]).astype(bool)
    found = fitted.logic.ground(em.logic_graph, owners, items, em.engine)
    logit = fitted.logic.pair_logits(em.logic_graph, found)
    rng, out = np.random.default_rng(0), list[list[Any]]()
    by_logit, by_score = em.over_hidden(fitted)
    for name, says in (("p", by_logit(logit)), ("q", by_score(s))):
        error = calibration_error(says, hits)
        chance = calibration_error(says, rng.random(len(says)) < says)
        out.append([name, float(says.mean()), float(hits.mean()), error, chance])
    return out


def problem(name: str, seed: int, scratch: Path) -> EM:
    """The EM problem of the default's settings, without derived relations."""
    config, parts = LOGERConfig(seed=seed).seeded(), split(load(DATA / name))
    folder = scratch / f"{name}.history.{seed}"
    encoder = TransE(config.encoder).fit(parts.graph, checkpoint=folder)
    fit = Fit(config, lambda: encoder, LocalEngine(), silent)
    none = LOGERConfig.paper().derived
    return fit.problem(parts, derived=none, encoder=encoder)(config.em)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    file = options.out / "calibration.json"
    kept = json.loads(file.read_text())["rows"] if file.exists() else []
    for name in options.sets:
        em = problem(name, options.seed, options.out / "checkpoints")
        kept = [row for row in kept if not row[0].startswith(f"{name},")]
        kept += [[f"{name}, {which}", *rest] for which, *rest in over_hidden(em)]
        print(*kept[-2:], sep="\n", flush=True)
        told = {
            "command": "python benchmarks/calibration.py", "seeds": [options.seed],
            "commit": COMMIT, "machine": "2 cores, busy",
            "columns": ["over H", "mean probability", "share of hits", "error", "… by chance"],
            "formats": ["", ".4f", ".4f", ".4f", ".4f"], "rows": kept,
        }  # fmt: skip
        file.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
