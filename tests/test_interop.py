"""Other tools: RecBole's files in and out, LensKit's frames, MLflow's runs."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import loger
from loger.cli import app
from loger.data.demo import shop
from loger.data.readers import recbole
from loger.encoder import TransEConfig
from loger.errors import DataError
from loger.evaluation.evaluate import evaluate
from loger.model import LOGER, LOGERConfig

QUICK = LOGERConfig(encoder=TransEConfig(dimension=8, epochs=1))


def facts_of(data: loger.Dataset) -> set[tuple[str, str, str]]:
    names, facts = data.vocabulary.names, data.facts
    known = facts.sources < 0
    rows = zip(facts.heads[known], facts.relations[known], facts.tails[known], strict=True)
    return {(names[h], data.relations[r].name, names[t]) for h, r, t in rows}


def pairs_of(data: loger.Dataset) -> set[tuple[str, str]]:
    names, given = data.vocabulary.names, data.interactions
    rows = zip(given.users, given.items + data.n_users, strict=True)
    return {(names[u], names[v]) for u, v in rows}


@pytest.mark.parametrize("marked", [False, True])
def test_recboles_files_hold_what_the_data_set_does(tmp_path: Path, marked: bool) -> None:
    data = shop(users=40, items=60).dataset.renamed("little")
    data = loger.split(data).marked() if marked else data
    rows = recbole.write(data, tmp_path / "out")
    assert rows["left out"] == int((data.facts.sources >= 0).sum())
    back = loger.load(tmp_path / "out")
    assert pairs_of(back) == pairs_of(data)
    assert (back.n_users, back.n_items) == (data.n_users, data.n_items)
    known = {(h, r, t.partition(":")[2] or t) for h, r, t in facts_of(back)}
    items = set(data.vocabulary.names[data.n_users : data.n_users + data.n_items])
    wanted = {(h, r, t) for h, r, t in facts_of(data) if h in items}
    assert {f for f in known if f[0] in items} == wanted
    assert (back.interactions.parts is not None) == marked


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(DataError, match="is not empty"):
        recbole.write(shop(users=30, items=60).dataset, tmp_path)


def test_the_command_converts_to_recbole(tmp_path: Path) -> None:
    shop(users=30, items=60).dataset.save(tmp_path / "in")
    made = ["data", "convert", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--to", "recbole"]
    done = CliRunner().invoke(app, made)
    assert done.exit_code == 0, done.output
    assert "Saved to" in done.output
    assert any((tmp_path / "out").glob("*.inter"))


def test_lenskits_frames_are_read_as_they_are_and_lists_are_what_it_takes() -> None:
    """LensKit's columns are user_id, item_id, rating, timestamp; its lists add score and rank."""
    data = shop(users=40, items=60).dataset
    names, given = data.vocabulary.names, data.interactions
    frame = pl.DataFrame(
        {
            "user_id": [names[u] for u in given.users],
            "item_id": [names[v + data.n_users] for v in given.items],
        }
    )
    assert pairs_of(loger.from_frames(frame)) == pairs_of(data)
    lists = LOGER(QUICK).fit(loger.split(data)).recommend(k=5)
    table = lists.rename({"user": "user_id", "item": "item_id"})
    collections = pytest.importorskip("lenskit.data")
    made = collections.ItemListCollection.from_df(table.to_pandas(), ["user_id"])
    first = lists["user"][0]
    own = lists.filter(pl.col("user") == first)
    assert made.lookup(first).ids().tolist() == own["item"].to_list()


@pytest.mark.filterwarnings("ignore")  # MLflow and what it stands on warn about each other
def test_a_fit_is_a_run_of_mlflow(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)  # where it keeps artifacts
    example = Path(__file__).parents[1] / "examples" / "mlflow_run.py"
    MLflowRun = runpy.run_path(str(example))["MLflowRun"]  # noqa: N806

    parts = loger.split(shop(users=60, items=60).dataset)
    store = f"sqlite:///{tmp_path}/runs.db"
    with MLflowRun(experiment="shop", name="first", tracking_uri=store) as run:
        model = LOGER(replace(QUICK, seed=3)).fit(parts, progress=run)
        report = evaluate([model], parts)
        run.log(model, report, bundle=False)
    kept = run.client.get_run(run.id)
    assert kept.info.status == "FINISHED"
    assert kept.data.params["seed"] == "3"
    assert kept.data.metrics["ndcg at 10"] == pytest.approx(report.mean("LOGER", "ndcg"))
    assert kept.data.metrics["rules with weight"] == np.count_nonzero(model.weights_)
    assert any(name.startswith("seconds ") for name in kept.data.metrics)
