"""Texts and vectors as knowledge: which items are similar, why, and what new items resemble."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
from click.testing import CliRunner

from loger.cli import app
from loger.config import LOGERConfig
from loger.data.dataset import Dataset
from loger.encoder import TransEConfig
from loger.errors import DataError
from loger.graph import KnowledgeGraph
from loger.graph import Path as Walk
from loger.model import LOGER
from loger.rules import make_rule
from loger.rules.sentences import TILE, evidence_sentence, opening, rule_sentence, tile
from loger.rules.wording import wording_of
from loger.tables import nearest as near
from loger.tables.mapping import TableMapping
from loger.tables.table import from_tables

ITEMS, GROUPS = 24, 4
WORDS = ["linen woven cushion", "oak carved stool", "brass lamp shade", "blue glazed bowl"]


def catalogue() -> pl.DataFrame:
    """Items of four groups; the texts of a group share three words, and every fourth has "old"."""
    texts = [
        f"The {WORDS[k % GROUPS]} with the number {'old ' * (k % 3 == 0)}and more of it"
        for k in range(ITEMS)
    ]
    return pl.DataFrame({"item": [f"i{k}" for k in range(ITEMS)], "description": texts})


def orders() -> pl.DataFrame:
    rows = [
        (f"u{u}", f"i{(u % GROUPS + GROUPS * (u // GROUPS + j)) % ITEMS}", f"2024-01-{1 + j:02d}")
        for u in range(32)
        for j in range(4)
    ]
    return pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")


def pictures(names: list[str]) -> pl.DataFrame:
    """Vectors in which an item is nearest to those of its group."""
    rng = np.random.default_rng(0)
    group = np.array([int(name[1:]) % GROUPS for name in names])
    table = np.eye(GROUPS)[group] + 0.1 * rng.random((len(names), GROUPS))
    return pl.DataFrame({"item": names}).with_columns(
        pl.Series(f"v{k}", table[:, k]) for k in range(GROUPS)
    )


def by_text() -> TableMapping:
    mapping = from_tables(orders(), catalogue()).mapping
    assert isinstance(mapping, TableMapping)
    return mapping.with_column("description", take="similar")


@pytest.fixture(scope="module")
def shop() -> Dataset:
    vectors = {"looks_like": pictures(catalogue()["item"].to_list())}
    return from_tables(orders(), catalogue(), mapping=by_text(), vectors=vectors)


@pytest.fixture(scope="module")
def model(shop: Dataset) -> LOGER:
    small = LOGERConfig(encoder=TransEConfig(dimension=8, epochs=2))
    return LOGER(small).fit(shop, progress=False)


def whole(data: Dataset) -> KnowledgeGraph:
    return data.graph(np.arange(len(data.interactions)))


def pairs_of(graph: KnowledgeGraph, relation: str) -> set[tuple[str, str]]:
    heads, relations, tails = graph.triples()
    here = relations == [r.name for r in graph.relations].index(relation)
    names = graph.vocabulary.names
    return {(names[h], names[t]) for h, t in zip(heads[here], tails[here], strict=True)}


# ── which are nearest ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("block", [10, 300, 10**7])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_nearest_are_those_of_a_full_sort_in_blocks_of_any_size(
    block: int, sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near, "_BLOCK", block)
    rng = np.random.default_rng(3)
    vectors = rng.integers(-1 if not sparse else 0, 3, (40, 5)).astype(np.float32)  # many ties
    vectors[7] = 0
    rows, others = near.nearest(sp.csr_array(vectors) if sparse else vectors, range(40), 4)
    found = {k: others[rows == k].tolist() for k in range(40)}
    lengths = np.linalg.norm(vectors, axis=1)
    for k in range(40):
        cosine = vectors @ vectors[k] / np.maximum(lengths * lengths[k], 1e-9)
        slow = sorted((-round(float(c), 5), v) for v, c in enumerate(cosine) if v != k)
        assert found[k] == [v for c, v in slow if c < 0][:4]
    assert found[7] == []


def test_rare_words_count_more_than_common_ones() -> None:
    texts = {"a": "linen red", "b": "linen blue", "c": "red", "d": "red", "e": "red", "f": "blue"}
    rows = [(item, word) for item, text in texts.items() for word in text.split()]
    pairs = pl.DataFrame(rows, schema=["head", "tail"], orient="row")
    found = near.by_words(pairs)
    assert found.filter(head="a")["tail"].to_list() == ["b", "c", "d", "e"]


# ── facts ───────────────────────────────────────────────────────────────────────────────


def test_items_with_similar_texts_and_near_vectors_are_related(shop: Dataset) -> None:
    assert {r.name for r in shop.relations} >= {"similar_description", "looks_like"}
    graph = whole(shop)
    for relation, most in (("similar_description", 10), ("looks_like", 10)):
        pairs = pairs_of(graph, relation)
        for k in range(ITEMS):
            mine = [int(b[1:]) for a, b in pairs if a == f"i{k}"]
            same = [v for v in range(ITEMS) if v != k and v % GROUPS == k % GROUPS]
            assert len(mine) <= most and set(same) <= set(mine), (relation, k)


def test_a_mapping_names_vectors_and_texts_in_its_file(tmp_path: Path) -> None:
    orders().write_csv(tmp_path / "orders.csv")
    catalogue().write_csv(tmp_path / "items.csv")
    pictures(catalogue()["item"].to_list()).write_parquet(tmp_path / "pictures.parquet")
    given = ["data", "build", "table", "--interactions", f"{tmp_path}/orders.csv", "--items"]
    given += [f"{tmp_path}/items.csv", "--vectors", f"looks_like={tmp_path}/pictures.parquet"]
    done = CliRunner().invoke(app, [*given, "-o", f"{tmp_path}/shop.loger"])
    assert done.exit_code == 0, done.output
    mapping = tmp_path / "shop.loger.toml"
    assert '"looks_like" = "pictures.parquet"' in mapping.read_text()
    text = mapping.read_text().replace('take = "keywords"', 'take = "similar"')
    mapping.write_text(text)
    built = from_tables(tmp_path / "orders.csv", tmp_path / "items.csv", mapping=mapping)
    assert {r.name for r in built.relations} >= {"similar_description", "looks_like"}


def test_lists_of_numbers_and_a_csv_give_the_same_facts(tmp_path: Path, shop: Dataset) -> None:
    table = pictures(catalogue()["item"].to_list())
    lists = table.select("item", vector=pl.concat_list(pl.exclude("item")))
    table.write_csv(tmp_path / "pictures.csv")
    for vectors in (lists, tmp_path / "pictures.csv"):
        other = from_tables(orders(), catalogue(), vectors={"looks_like": vectors})
        assert pairs_of(whole(other), "looks_like") == pairs_of(whole(shop), "looks_like")


@pytest.mark.parametrize("vector", [["1", "x"], ["1", ""], ["1", "nan"]])
def test_what_is_no_vector_is_named_by_file_and_line(vector: list[str], tmp_path: Path) -> None:
    file = tmp_path / "vectors.csv"
    file.write_text("item,a,b\ni0,1,2\ni1," + ",".join(vector) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"vectors\.csv.*3"):
        from_tables(orders(), catalogue(), vectors={"looks_like": file})


def test_nothing_but_the_new_relation_depends_on_vectors_and_texts(shop: Dataset) -> None:
    """A mapping without them keeps nothing of them, and interactions cannot move a neighbour."""
    plain = from_tables(orders(), catalogue())
    assert isinstance(plain.mapping, TableMapping) and "vectors" not in plain.mapping.plain()
    assert "vectors" not in str(plain.catalogue.mapping)
    assert not any(r.name.startswith(("similar_", "looks_")) for r in plain.relations)
    shuffled = orders().with_columns(pl.col("item").reverse())
    vectors = {"looks_like": pictures(catalogue()["item"].to_list())}
    other = from_tables(shuffled, catalogue(), mapping=by_text(), vectors=vectors)
    for relation in ("similar_description", "looks_like"):
        assert pairs_of(whole(other), relation) == pairs_of(whole(shop), relation)


# ── reasons ─────────────────────────────────────────────────────────────────────────────


def walk(graph: KnowledgeGraph, relation: str) -> Walk:
    """u0 bought i0, which is like i4 by a relation."""
    ids = graph.vocabulary.id
    place = [r.name for r in graph.relations].index(relation)
    return Walk((ids("user", "u0"), ids("item", "i0"), ids("item", "i4")), (0, place))


@pytest.mark.parametrize(
    ("language", "relation", "said", "told", "short"),
    [
        ("en", "similar_description", "both mention cushion, linen, woven",
         "mentions cushion, linen, woven, like your i0", "Both mention cushion, linen, woven"),
        ("de", "similar_description", "beide erwähnen cushion, linen, woven",
         "erwähnt cushion, linen, woven wie i0", "Beide erwähnen cushion, linen, woven"),
        ("es", "similar_description", "ambos mencionan cushion, linen, woven",
         "menciona cushion, linen, woven, como tu i0", "Ambos mencionan cushion, linen, woven"),
        ("en", "looks_like", "similar picture", "similar picture to your i0",
         "Similar picture to i0"),
        ("de", "looks_like", "ähnlich (Bild)", "ähnlich wie i0 (Bild)", "Ähnlich wie i0 (Bild)"),
        ("es", "looks_like", "parecido (imagen)", "parecido a tu i0 (imagen)",
         "Parecido a i0 (imagen)"),
    ],
)  # fmt: skip
def test_reasons_name_shared_words_or_what_is_similar(
    shop: Dataset, language: str, relation: str, said: str, told: str, short: str
) -> None:
    graph, words = whole(shop), wording_of(language)
    path, name = walk(graph, relation), {"en": "your i0", "de": "i0", "es": "tu i0"}[language]
    assert evidence_sentence(graph, path, 1, [], words) == said
    assert opening(graph, path, 1, [], name, words) == told
    brief = tile(graph, path, 1, "i0", words.styled("tile"))
    assert brief == short and len(brief) <= TILE


def test_rules_say_what_is_similar(shop: Dataset) -> None:
    graph = whole(shop)
    names = [r.name for r in graph.relations]
    rule = make_rule(graph, (0, names.index("similar_description")))
    assert rule_sentence(rule) == "something you interacted with has a description similar to this"


# ── new items ───────────────────────────────────────────────────────────────────────────


def test_a_new_item_is_like_others_at_once_by_its_text_and_vector(model: LOGER) -> None:
    names = [*catalogue()["item"], "i25"]
    new = pl.DataFrame({"item": ["i25"], "description": ["An oak stool, carved by hand"]})
    later = model.update(items=new, vectors={"looks_like": pictures(names)})
    same = {f"i{k}" for k in range(1, ITEMS, GROUPS)}
    for relation in ("similar_description", "looks_like"):
        pairs = pairs_of(later.graph_.given, relation)
        assert {b for a, b in pairs if a == "i25"} >= same, relation
        assert {a for a, b in pairs if b == "i25"} >= same, relation
        assert {p for p in pairs if "i25" not in p} == pairs_of(model.graph_.given, relation)


def test_a_new_item_without_text_or_vector_is_like_nothing(model: LOGER) -> None:
    later = model.update(items=pl.DataFrame({"item": ["i25"]}))
    for relation in ("similar_description", "looks_like"):
        assert pairs_of(later.graph_.given, relation) == pairs_of(model.graph_.given, relation)


def test_words_told_as_facts_do_the_same(model: LOGER) -> None:
    """As events bring them."""
    facts = [("i25", "description_says", word) for word in ("oak", "stool", "carved")]
    later = model.update(items=["i25"], facts=facts)
    pairs = pairs_of(later.graph_.given, "similar_description")
    assert {b for a, b in pairs if a == "i25"} == {f"i{k}" for k in range(1, ITEMS, GROUPS)}
