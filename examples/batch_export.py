"""Batch export: write everyone's recommendations to Parquet, and add a new user after the fit.

python examples/batch_export.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import polars as pl

from loger.data.demo import shop
from loger.model import LOGER


def main() -> None:
    """Fit a model, export all recommendations, then add a new user without training."""
    model = LOGER().fit(shop(users=200, items=150).dataset)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lists.parquet"
        model.recommend(k=5).write_parquet(path)
        lists = pl.read_parquet(path)
        print(f"{lists['user'].n_unique()} users, {lists.height} rows")
        bought = lists["item"][0]
        later = model.with_interactions([("a newcomer", bought)])
        print(later.recommend("a newcomer", k=3, explain=True)["because"].to_list())


if __name__ == "__main__":
    main()
