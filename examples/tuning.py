"""Tuning: search settings with Optuna, by the NDCG of users that the fit holds out.

python examples/tuning.py
"""

from __future__ import annotations

import optuna

from loger.data.demo import shop
from loger.data.splits import split
from loger.model import LOGER


def main(trials: int = 3) -> None:
    """Search a few settings without using the test part."""
    parts = split(shop(users=120, items=100).dataset)
    base = LOGER().set_params(encoder__dimension=16, encoder__epochs=3)

    def objective(trial: optuna.Trial) -> float:
        model = base.clone().set_params(
            em__l2=trial.suggest_float("em__l2", 1e-4, 1e-1, log=True),
            em__rounds=trial.suggest_int("em__rounds", 0, 1),
        )
        model.fit(parts, progress=False)
        return float(model.trace_[-1].ndcg)

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(objective, n_trials=trials)
    best = base.clone().set_params(**study.best_params)
    print(f"best of {trials}: {study.best_value:.3f} with {study.best_params}")
    print(best.get_params()["em__l2"] == study.best_params["em__l2"])


if __name__ == "__main__":
    main()
