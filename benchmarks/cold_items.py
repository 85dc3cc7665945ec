"""Items that arrive after the fit: how well ``update`` does with their facts alone.

    python benchmarks/cold_items.py --sets amazon-toys ml1m --out docs/tables/cold-items.json

A tenth of the items is removed from the data, with all their interactions and facts, and a model is
fitted on the rest. Then it gets the facts that are known without any interaction, and ranks items
for everyone who took some of the removed ones. The benchmark reports Recall@50 of these
interactions, among the new items and among all items. It compares with chance, with a content kNN
on the same facts (tf-idf cosine to the user's items) and, with --refit, with a model that had the
facts from the start. The fit itself tunes all settings, on validation interactions of other items.
With --texts, items also have the words of ``item_short_names.txt.gz`` and a relation to items with
similar names.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp

from loger.data import load, split
from loger.data.assemble import assemble, facts_of
from loger.data.dataset import Dataset
from loger.encoder import TransEConfig
from loger.graph import history
from loger.model import LOGER, LOGERConfig
from loger.tables.columns import worded
from loger.tables.nearest import by_words, similar_name
from tables import COMMIT
from where import DATA

K = 50
SAID = "name_says"


@dataclass
class Cold:
    """A data set without some items, what was taken out of it, and what may be told later."""

    name: str
    warm: Dataset
    with_facts: Dataset
    facts: pl.DataFrame
    taken: dict[str, set[str]]
    """User → new items that they took."""
    items: list[str]


def tables(data: Dataset, users: int, seed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Interactions and facts of some of the users, by name."""
    rng = np.random.default_rng([seed, 1])
    chosen = rng.permutation(data.n_users)[: users or None]
    events, words = data.interactions, data.vocabulary
    names, first = np.array(words.names, dtype=object), data.n_users
    keep = np.isin(events.users, chosen)
    rows = pl.DataFrame(
        {
            "user": names[events.users[keep]].tolist(),
            "item": names[events.items[keep] + first].tolist(),
        }
    )
    if events.times is not None:
        rows = rows.with_columns(time=pl.Series(events.times[keep]))
    place = np.full(len(events), -1)
    place[keep] = np.arange(int(keep.sum()))
    facts = data.facts
    users_gone = np.setdiff1d(np.arange(data.n_users), chosen)
    source = np.where(facts.sources >= 0, place[facts.sources], -1)
    lost = ((facts.sources >= 0) & (source < 0)) | np.isin(facts.heads, users_gone)
    lost |= np.isin(facts.tails, users_gone)
    kinds = np.array([words.type_of(e) for e in range(len(words))], dtype=object)
    titles = np.array([r.name for r in data.relations], dtype=object)
    stay = ~lost
    table = pl.DataFrame(
        {
            "head": names[facts.heads[stay]].tolist(),
            "relation": titles[facts.relations[stay]].tolist(),
            "tail": names[facts.tails[stay]].tolist(),
            "head_type": kinds[facts.heads[stay]].tolist(),
            "tail_type": kinds[facts.tails[stay]].tolist(),
            "source": source[stay],
        }
    )
    return rows, table


def words_of_names(name: str, items: list[str]) -> pl.DataFrame:
    """The words of items' names as facts, those that two items or more have."""
    lines = gzip.decompress((DATA / name / "item_short_names.txt.gz").read_bytes()).decode()
    pairs = [line.split(" ", 1) for line in lines.splitlines() if " " in line]
    texts = pl.DataFrame(pairs, schema=["head", "tail"], orient="row")
    words = worded(texts.filter(pl.col("head").is_in(items)))
    words = words.filter(pl.len().over("tail") > 1)
    kinds = {"head_type": pl.lit("item"), "tail_type": pl.lit("word")}
    source = pl.lit(-1, pl.Int64)
    return words.with_columns(relation=pl.lit(SAID), source=source, **kinds)


def without_items(
    name: str, users: int, seed: int, share: float = 0.1, texts: bool = False
) -> Cold:
    data = load(DATA / name)
    rows, facts = tables(data, users, seed)
    if texts:
        more = words_of_names(name, rows["item"].unique().sort().to_list())
        facts = pl.concat([facts, more.select(facts.columns)])
    items = rows["item"].unique().sort().to_list()
    rng = np.random.default_rng([seed, 2])
    cold = sorted(rng.permutation(items)[: round(share * len(items))].tolist())
    is_cold = pl.col("item").is_in(cold)
    here = (pl.col("head_type") == "item") & pl.col("head").is_in(cold)
    there = (pl.col("tail_type") == "item") & pl.col("tail").is_in(cold)
    warm_items = [v for v in items if v not in set(cold)]
    other = ((pl.col("head_type") != "item") | pl.col("head").is_in(items)) & (
        (pl.col("tail_type") != "item") | pl.col("tail").is_in(items)
    )
    facts = facts.filter(other)
    indexed = rows.with_row_index("row").filter(~is_cold)
    place = {r: k for k, r in enumerate(indexed["row"])}
    new_source = [place.get(s, -2) if s >= 0 else -1 for s in facts["source"]]
    facts = facts.with_columns(source=pl.Series(new_source)).filter(pl.col("source") > -2)
    told = facts.filter((here | there) & (pl.col("source") == -1)).drop("source")
    kept = facts.filter(~(here | there))
    if texts:  # of new items the update finds them
        near = by_words(kept.filter(relation=SAID))
        near = facts_of(near, similar_name(SAID), "item", "item")
        near = near.with_columns(source=pl.lit(-1, pl.Int64)).select(kept.columns)
        kept = pl.concat([kept, near])
    warm_rows = indexed.drop("row")
    interaction = data.relations[0].name
    named = {"interaction": interaction, "users": warm_rows["user"].unique().sort().to_list()}
    warm = assemble(name, warm_rows, kept, items=warm_items, **named)
    both = pl.concat([kept, told.with_columns(source=pl.lit(-1, pl.Int64))])
    with_facts = assemble(name, warm_rows, both, items=[*warm_items, *cold], **named)
    taken: dict[str, set[str]] = {}
    for user, item in rows.filter(is_cold).select("user", "item").iter_rows():
        taken.setdefault(user, set()).add(item)
    known = set(warm_rows["user"])
    return Cold(name, warm, with_facts, told, {u: v for u, v in taken.items() if u in known}, cold)


def content_knn(model: LOGER) -> sp.csr_array:
    """tf-idf cosine of items by their facts; [items, items]."""
    graph = model.graph_.given
    heads, relations, tails = graph.triples()
    n, first = graph.n_items, graph.n_users
    rows, columns = [], []
    for a, b, side in ((heads, tails, 0), (tails, heads, 1)):
        of = (a >= first) & (a < first + n) & (relations > 0) & (b >= first)
        rows.append(a[of] - first)
        columns.append((relations[of].astype(np.int64) * 2 + side) * graph.n_entities + b[of])
    row, key = np.concatenate(rows), np.concatenate(columns)
    distinct, column = np.unique(key, return_inverse=True)
    matrix = sp.csr_array((np.ones(len(row)), (row, column)), shape=(n, len(distinct)))
    idf = np.log((1 + n) / (1 + np.bincount(column)))
    matrix = matrix @ sp.diags_array(idf)
    lengths = np.sqrt(matrix.multiply(matrix).sum(axis=1))
    return sp.csr_array(sp.diags_array(1 / np.maximum(lengths, 1e-12)) @ matrix)


def recalls(scores: np.ndarray, among: np.ndarray, wanted: list[set[int]]) -> float:
    """Mean Recall@50 of users, what is not ``among`` left out."""
    masked = np.where(among, scores, -np.inf)
    best = np.argpartition(-masked, K, axis=1)[:, :K]
    found = [len(w & set(row.tolist())) / len(w) for w, row in zip(wanted, best, strict=True)]
    return float(np.mean(found))


def measured(model: LOGER, cold: Cold, most: int, seed: int, knn: bool) -> dict[str, Any]:
    """Recall@50 of the interactions with new items."""
    words, first = model.graph_.vocabulary, model.graph_.n_users
    users = sorted(cold.taken)
    users = [users[k] for k in np.random.default_rng([seed, 3]).permutation(len(users))[:most]]
    ids = np.array([words.id("user", u) for u in users])
    wanted = [{words.id("item", v) - first for v in cold.taken[u]} for u in users]
    is_new = np.zeros(model.graph_.n_items, dtype=bool)
    is_new[[words.id("item", v) - first for v in cold.items]] = True
    everything = np.ones(model.graph_.n_items, dtype=bool)
    scores = {"LOGER": np.concatenate([model.score(b) for b in np.array_split(ids, 20)])}
    r = model.ranker_
    encoder = [r.encoder_scores(b) for b in np.array_split(ids, 20)]
    scores["encoder alone"] = np.concatenate(encoder)
    logic = [r.logic.logits(r.logic_graph, b, observed=False) for b in np.array_split(ids, 20)]
    scores["rules alone"] = np.concatenate(logic)
    if knn:
        facts = content_knn(model)
        owner, item = history(model.graph_, ids)
        bags = sp.csr_array((np.ones(len(owner)), (owner, item)), shape=(len(ids), len(is_new)))
        scores["content kNN"] = ((bags @ facts) @ facts.T).toarray()
    rows, items = history(model.graph_, ids)
    out: dict[str, Any] = {"users": len(users), "pairs": sum(map(len, wanted))}
    for name, matrix in scores.items():
        matrix[rows, items] = -np.inf
        out[name] = {
            "among new": recalls(matrix, is_new, wanted),
            "among all": recalls(matrix, everything, wanted),
        }
    out["chance"] = {"among new": K / is_new.sum(), "among all": K / len(is_new)}
    return out


def explained(model: LOGER, cold: Cold, n: int = 100) -> dict[str, float]:
    """Of new items at the top of the new ones: share with a reason, and with valid paths only."""
    words, first = model.graph_.vocabulary, model.graph_.n_users
    is_new = np.zeros(model.graph_.n_items, dtype=bool)
    is_new[[words.id("item", v) - first for v in cold.items]] = True
    users = sorted(cold.taken)[:n]
    ids = np.array([words.id("user", u) for u in users])
    best = np.where(is_new, model.score(ids), -np.inf).argmax(axis=1)
    told = [model.explain(u, model.items[v]) for u, v in zip(users, best.tolist(), strict=True)]
    valid = [all(p.path.exists(model.graph_) for p in e.paths) for e in told]
    return {
        "reason": float(np.mean([bool(e.reasons) for e in told])),
        "valid": float(np.mean(valid)),
    }


def run(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    cold = without_items(name, arguments.users, arguments.seed, texts=arguments.texts)
    config = LOGERConfig(seed=arguments.seed)
    if arguments.epochs:
        config = replace(config, encoder=TransEConfig(epochs=arguments.epochs))
    begun = time.process_time()
    model = LOGER(config).fit(
        split(cold.warm), tune={} if arguments.quick else None, progress=False
    )
    seconds = {"fit": time.process_time() - begun}
    begun = time.process_time()
    later = model.update(items=cold.items, facts=cold.facts)
    seconds["update"] = time.process_time() - begun
    out = {
        "data": repr(cold.warm),
        "new items": len(cold.items),
        "facts": len(cold.facts),
        "update": measured(later, cold, arguments.most, arguments.seed, knn=True),
        "explanations": explained(later, cold),
        "seconds of processor time": seconds,
    }
    print(name, json.dumps(out, indent=1), flush=True)
    if arguments.refit:
        begun = time.process_time()
        refit = LOGER(config).fit(
            split(cold.with_facts), tune={} if arguments.quick else None, progress=False
        )
        seconds["refit"] = time.process_time() - begun
        out["refit"] = measured(refit, cold, arguments.most, arguments.seed, knn=False)
        print(name, json.dumps(out["refit"], indent=1), flush=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=["amazon-toys", "ml1m"])
    parser.add_argument("--users", type=int, default=0, help="users of the data, drawn; 0: all")
    parser.add_argument("--most", type=int, default=1000, help="users who are ranked for")
    parser.add_argument("--epochs", type=int, default=0, help="of the encoder; 0: its default")
    parser.add_argument("--quick", action="store_true", help="no tuning of walks")
    parser.add_argument("--refit", action="store_true")
    parser.add_argument("--texts", action="store_true", help="with the words of items' names")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    results = {name: run(name, arguments) for name in arguments.sets}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak {peak:.2f} GiB")
    if arguments.out:
        about = {"commit": COMMIT, "seed": arguments.seed, "users": arguments.users}
        about |= {"epochs": arguments.epochs, "quick": arguments.quick}
        arguments.out.write_text(json.dumps(about | {"results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
