"""A tour: fit a model to the demo shop, look at rules and reasons, ask what if, save and load.

python examples/tour.py
"""

from __future__ import annotations

import tempfile

from loger.baselines import EASE, MostPop
from loger.data.demo import shop
from loger.data.splits import split
from loger.evaluation.evaluate import evaluate
from loger.model import LOGER


def main() -> None:
    """Fit a model and ask it all kinds of questions."""
    dataset = shop(users=200, items=150).dataset
    model = LOGER().fit(dataset)
    print(model.measured_)
    print(model.rule_table())
    print(evaluate([LOGER(), MostPop(), EASE()], split(dataset)))
    user = model.graph_.vocabulary.names[0]
    best = model.recommend(user, k=3, explain=True)
    print(best)
    print(model.explain(user, best["item"][0]))
    print(model.what_if(user, remove=model.history(user)["item"][0]))
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        again = LOGER.load(folder)
        print(again.recommend(user, k=3)["item"].to_list() == best["item"].to_list())


if __name__ == "__main__":
    main()
