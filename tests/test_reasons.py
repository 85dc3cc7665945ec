"""Reasons: exactly what each action contributes, and the whole score itemised."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from io import StringIO
from types import SimpleNamespace
from typing import Any
from xml.etree.ElementTree import fromstring

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from rich.console import Console

from graphs import built, graphs
from loger.cli import trees
from loger.encoder import TransEConfig
from loger.encoder.folding import attribute_user, score_users
from loger.evaluation.report import _examples
from loger.explain.attribution import explain
from loger.explain.reasons import Reason
from loger.explain.record import SCHEMA
from loger.explain.render import rows, shown_rows
from loger.graph import history
from loger.grounding import Walk, ground, paths, strongest_paths
from loger.grounding.actions import by_first_hop
from loger.logic.config import DerivedConfig
from loger.model import LOGER, LOGERConfig
from loger.rules import Rule, candidates
from loger.rules.wording import ENGLISH, plural

APPEAL = ENGLISH.text("appeal")
MEAN_ITEM = ENGLISH.text("mean_item")
OPAQUE = ENGLISH.text("opaque")

SMALL = LOGERConfig(
    encoder=TransEConfig(dimension=16, epochs=3), derived=DerivedConfig.none()
)  # people who bought it also bought this
WALK = Walk(first=0.3, item=0.25, user=0.5, fact=0.5, arrive=0.5, popular=0.2)


@pytest.fixture(scope="module")
def parts(few):
    return few


@pytest.fixture(scope="module")
def model(once, parts):
    return LOGER.load(once("reasons", lambda folder: LOGER(SMALL).fit(parts).save(folder)))


@pytest.fixture(scope="module")
def paper(paper_model):
    return paper_model


@pytest.fixture(scope="module")
def opaque(gnn_model):
    return gnn_model


def explained(model, n_users=40, k=5):
    users = np.arange(n_users)
    items, scores = model.top(users, k)
    return explain(model.ranker_, np.repeat(users, k), items.ravel()), scores.ravel()


# ── first hops ───────────────────────────────────────────────────────────────────────────


@given(graphs())
def test_first_hops_add_up_to_the_groundings_and_count_their_own_paths(graph):
    rules = candidates(graph)
    if not len(rules) or not graph.n_users:
        return
    users = np.repeat(np.arange(graph.n_users), graph.n_items)
    items = np.tile(np.arange(graph.n_items), graph.n_users)
    found = ground(graph, rules, users, items, walk=WALK)
    pair = np.repeat(np.arange(len(found)), np.diff(found.indptr))
    hops = by_first_hop(graph, rules, found.rules, users[pair], items[pair], WALK)
    begin = graph.rows.segment_starts[graph.rows.row_segments[: graph.n_users]]
    for cell, (lo, hi) in enumerate(zip(hops.starts[:-1], hops.starts[1:], strict=True)):
        assert hops.strengths[lo:hi].sum() == pytest.approx(found.strengths[cell])
        u, v, rule = users[pair[cell]], items[pair[cell]], rules[int(found.rules[cell])]
        firsts = paths(graph, rule, int(u), int(v))[:, 1].tolist()
        entities = graph.rows.tails[begin[u] + hops.edges[lo:hi]].tolist()
        slow = {e: firsts.count(e) for e in firsts}
        assert dict(zip(entities, hops.counts[lo:hi].tolist(), strict=True)) == slow


def test_the_strongest_paths_through_an_action_begin_with_it_and_are_the_strongest(model):
    graph, rules = model.graph_, model.rules_
    u, tried = 3, 0
    items = model.top([u], 5)[0][0]
    found = ground(graph, rules, np.full(5, u), items, walk=model.logic_.walk)
    pair = np.repeat(np.arange(5), np.diff(found.indptr))
    for cell, place in enumerate(found.rules.tolist()):
        every = paths(graph, rules[place], u, int(items[pair[cell]]))
        for first in np.unique(every[:, 1]):
            cells = (np.array([place]), np.array([u]), items[pair[cell] : pair[cell] + 1])
            nodes, strengths = strongest_paths(
                graph, rules, *cells, 500, model.logic_.walk, np.array([first])
            )
            mine = every[every[:, 1] == first][:, 1:-1]
            n = int((strengths[0] > 0).sum())
            assert {tuple(x[: mine.shape[1]]) for x in nodes[0, :n]} == set(map(tuple, mine))
            assert (np.diff(strengths[0, :n]) <= 0).all()
            tried += 1
    assert tried > 5


# ── the encoder ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("distance", ["sphere", "squared"])
@pytest.mark.parametrize("recency", [0.0, 0.7])
def test_the_encoders_parts_add_up_to_its_scores(parts, distance, recency):
    from loger.encoder import TransE

    graph = parts.graph
    encoder = TransE(TransEConfig(dimension=8, epochs=2, distance=distance)).fit(graph)
    items = np.arange(graph.n_items)
    for user in (0, 5, 17):
        found = attribute_user(encoder, graph, user, items, Walk(recency=recency))
        s = score_users(encoder, graph, [user], Walk(recency=recency))[0]
        assert found.appeal + found.actions.sum(axis=0) == pytest.approx(s, abs=2e-4)
        free = np.setdiff1d(items, history(graph, np.array([user]))[1])
        assert found.mean_actions == pytest.approx(found.actions[:, free].mean(axis=1))
        assert found.mean_appeal == pytest.approx(found.appeal[free].mean())


@pytest.mark.parametrize("distance", ["sphere", "squared"])
def test_the_encoders_sums_are_products_added_up_and_so_are_their_parts(parts, distance):
    from loger.encoder import TransE

    graph, own = parts.graph, (0.3, 1.7)
    encoder = TransE(TransEConfig(dimension=8, epochs=2, distance=distance)).fit(graph)
    table = encoder.entities_[graph.n_users : graph.n_users + graph.n_items].astype(float)
    lengths = np.linalg.norm(table, axis=1)
    sphere = distance == "sphere"
    y, factor = (table / lengths[:, None], encoder.config.gamma) if sphere else (table, 2.0)
    bias = encoder.biases_[graph.n_users : graph.n_users + graph.n_items, 0]
    bias = bias if sphere else bias - lengths**2
    appeal = 0.3 * factor * (y @ encoder.relations_[0]) + 1.7 * bias
    items = np.arange(graph.n_items)
    for user in (0, 5, 17):
        owned = history(graph, np.array([user]))[1]
        s = score_users(encoder, graph, [user], None, own)[0]
        given = factor * (table[owned] @ y.T) / np.sqrt(len(owned))
        assert s == pytest.approx(given.sum(axis=0) + appeal, abs=2e-4)
        found = attribute_user(encoder, graph, user, items, None, own)
        assert found.actions == pytest.approx(given, abs=1e-5)
        # What is gone gives nothing, and the rest gives what it gave.
        view = graph.user_view(user, owned[:2].tolist())
        left = attribute_user(encoder, view, user, items, None, own)
        assert left.actions == pytest.approx(given[2:], abs=1e-5)
        s = score_users(encoder, view, [user], None, own)[0]
        assert s == pytest.approx(given[2:].sum(axis=0) + appeal, abs=2e-4)
        assert found.appeal == pytest.approx(appeal, abs=1e-5)
        free = np.setdiff1d(items, owned)
        assert found.mean_actions == pytest.approx(found.actions[:, free].mean(axis=1))
        assert found.mean_appeal == pytest.approx(found.appeal[free].mean())


def test_encoders_that_are_no_sum_say_so(parts):
    from loger.encoder import TransE

    free = TransE(TransEConfig(dimension=8, epochs=1, users="free")).fit(parts.graph)
    city = TransE(TransEConfig(dimension=8, epochs=1, distance="l1")).fit(parts.graph)
    for encoder in (free, city):
        assert not encoder.attributable
        assert attribute_user(encoder, parts.graph, 0, np.arange(3)) is None


# ── the whole score ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("which", ["model", "paper", "opaque"])
def test_the_parts_add_up_to_the_score_whatever_the_encoder_and_fusion(which, request):
    records, scores = explained(request.getfixturevalue(which))
    for e, score in zip(records, scores, strict=True):
        assert sum(e.parts.values()) == pytest.approx(e.score, rel=1e-12, abs=1e-12)
        assert e.score == pytest.approx(score, abs=1e-4)
        assert e.lead == pytest.approx(e.score - e.mean, abs=1e-9)
        assert (OPAQUE in e.parts) == (which != "model")
        assert list(e.parts)[:2] == [MEAN_ITEM, APPEAL]


def without_history(model, user=3):
    _, items = history(model.graph_, [user])
    return model.with_ranker(model.ranker_.user_view(user, remove=items.tolist()))


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("which", ["model", "paper", "opaque"])
def test_the_rows_of_every_rendering_add_up(which, bare, request):
    model = request.getfixturevalue(which)
    if which == "opaque":  # which this little training does not make worth listening to
        ranker = model.ranker_
        fusion = replace(ranker.fusion, encoder_weight=0.5)
        model = model.with_ranker(replace(ranker, fusion=fusion))
    model = without_history(model) if bare else model
    user = model.users[3]
    listed = model.recommend(user, 4, explain=True).to_dicts()
    items = [row["item"] for row in listed]
    kinds = set[str]()
    for item in [*items, *model.items[:8]]:  # also such as nothing speaks for
        e = model.explain(user, item)
        for record in (e.as_dict(), e.as_dict(every=True)):  # all actions are what HTTP gives
            found = rows(record)
            whole = record["mean"] + sum(row.contribution for row in found)
            assert whole == pytest.approx(record["score"], rel=1e-9, abs=1e-9)
            assert sum(row.share for row in found) == pytest.approx(1)
            assert [row.kind for row in found].count("reason") == len(record["reasons"])
            kinds |= {row.kind for row in found}
        assert "others" not in [row.kind for row in found]
        texts = [str(e), drawn(e), printed(e), report(e)]
        for shown in texts:
            numbers = [float(x) for x in re.findall(r"^[ │├└─]*([+-]\d+\.\d{3}) ", shown, re.M)]
            assert len(numbers) == len(shown_rows(e.as_dict())) > 0
            assert sum(numbers) == pytest.approx(e.lead, abs=0.0006 * (len(numbers) + 1))
    assert kinds >= ({"appeal"} if which == "model" else {"appeal", "opaque"})
    assert bare or {"reason", "others"} <= kinds
    for row in listed:  # tables have the rows that are reasons, and what these add up to
        told = [r for r in rows(model.explain(user, row["item"]).as_dict()) if r.kind == "reason"]
        given_ = [(r["text"], r["total"], r["share"]) for r in row["reasons"]]
        assert given_ == [
            (r.label, pytest.approx(r.contribution), pytest.approx(r.share)) for r in told
        ]
        assert row["carried"] == pytest.approx(sum(r.share for r in told))


def drawn(e) -> str:
    """The notebook's table, a line per row."""
    lines = fromstring(e._repr_html_()).findall(".//tr")
    return "\n".join(" ".join(cell.text or "" for cell in line).strip() for line in lines)


def printed(e) -> str:
    """What the command line prints."""
    out = StringIO()
    Console(width=400, file=out).print(trees.explanation(e.as_dict() | {"paths": []}))
    return out.getvalue()


def report(e) -> str:
    """The report's table, a line per row."""
    styles = {style: e.text(style) for style in ("tile", "debug")}
    cells = re.findall(r'<td class="n">([^<]*)</td><td>([^<]*)', _examples([e.as_dict() | styles]))
    return "\n".join(f"{value} {text}" for value, text in cells).replace("−", "-")


def test_the_mean_item_is_the_mean_of_all_items_that_the_user_does_not_have(model):
    records, _ = explained(model, 10, 1)
    for e in records:
        scores = model.score([e.user])[0].astype(np.float64)
        assert e.mean == pytest.approx(scores[np.isfinite(scores)].mean(), abs=1e-6)


def test_reasons_come_by_total_and_each_is_its_evidence_and_its_part_of_the_encoder(model):
    records, _ = explained(model)
    several = groups = 0
    for e in records:
        totals = [reason.total for reason in e.reasons]
        assert totals == sorted(totals, reverse=True)
        assert 1 <= len(e.shown) <= 5
        groups += sum(bool(r.members) for r in e.shown)
        every = [action for r in e.shown for action in r.members or (r,)]
        assert all(action in e.reasons for action in every)
        if len(every) == len(e.shown):
            assert e.shown == e.reasons[: len(e.shown)]
        if sum(totals) > 0:
            assert e.carried_of_actions >= 0.8 - 1e-9 or len(e.shown) == 5
            least = min(action.total for action in every) / sum(totals)
            assert len(every) == 1 or e.carried_of_actions - least < 0.8
        for reason in e.reasons:
            given_ = reason.encoder + sum(part.contribution for part in reason.evidence)
            given_ -= reason.mean
            assert reason.total == pytest.approx(given_, abs=1e-9)
            assert reason.share == pytest.approx(reason.total / e.lead)
            assert reason.name == model.graph_.vocabulary.names[reason.entity]
            for part in reason.evidence:
                for path in part.paths:
                    assert path.path.entities[1] == reason.entity
                    assert path.path.exists(model.graph_) and path.path.is_simple()
                if part.n <= len(part.paths):
                    whole = sum(path.contribution for path in part.paths)
                    assert whole == pytest.approx(part.contribution)
        several += len(e.reasons) > 1
    assert several > 100 and groups


def test_reasons_over_a_sample_of_the_graph_name_the_actions_that_give_them(parts):
    model = LOGER(replace(SMALL, sample_nodes=6)).fit(parts, progress=False)
    ranker = model.ranker_
    assert ranker.logic_graph is not ranker.graph
    by_rules = by_encoder = 0
    for e in explained(model)[0]:
        assert sum(e.parts.values()) == pytest.approx(e.score, rel=1e-12, abs=1e-12)
        of_encoder = attribute_user(
            ranker.encoder, ranker.graph, e.user, [e.item], ranker.walk, ranker.fusion.own
        )
        given_ = of_encoder.actions[:, 0] - of_encoder.mean_actions
        known = model.graph_.neighbours(e.user, 0).tolist()
        for reason in e.reasons:
            for part in reason.evidence:
                assert part.paths
                assert {path.path.entities[1] for path in part.paths} == {reason.entity}
                by_rules += 1
            if reason.relation == 0:
                own = given_[known.index(reason.entity)]
                weight = ranker.fusion.encoder_weight
                assert reason.encoder == pytest.approx(weight * own, abs=1e-9)
                by_encoder += bool(reason.encoder)
    assert by_rules > 100
    assert by_encoder > 100


def test_rules_of_a_reason_are_shares_of_what_they_give_beyond_the_mean_item(model):
    records, _ = explained(model)
    tried = 0
    for e in records:
        given_ = sum(part.contribution for part in e.rules)
        by_reason = sum(part.contribution for r in e.reasons for part in r.evidence)
        if given_ > 0 and by_reason > 0:
            factor = by_reason / given_
            assert 0 < factor <= 1 + 1e-9
            for rule in e.rules:
                mine = [
                    p.contribution for r in e.reasons for p in r.evidence if p.rule == rule.rule
                ]
                assert sum(mine) == pytest.approx(factor * rule.contribution, abs=1e-9)
                tried += 1
    assert tried > 100


def test_reasons_on_a_view_are_those_of_a_graph_built_with_its_interactions(model):
    u = 4
    own = history(model.graph_, np.array([u]))[1]
    view = model.ranker_.user_view(u, own[:1].tolist(), [2])
    twin = model.ranker_.on(built(model.graph_, u, own[:1].tolist(), [2], None))
    items = view.top([u], 4)[0][0].astype(np.int64)
    pairs = np.full(4, u), items
    for here, there in zip(explain(view, *pairs), explain(twin, *pairs), strict=True):
        # What actions give all items is read off the graph as it was.
        assert here.parts == pytest.approx(there.parts, abs=0.05)
        assert here.shown[0].action in {r.action for r in there.shown}


def test_the_record_of_reasons_keeps_to_its_schema_and_two_calls_give_equal_bytes(model, opaque):
    for of in (model, opaque):
        records, _ = explained(of, 5, 3)
        again, _ = explained(of, 5, 3)
        for e, other in zip(records, again, strict=True):
            jsonschema.validate(e.as_dict(), SCHEMA)
            assert json.dumps(e.as_dict()) == json.dumps(other.as_dict())


def test_evidence_reads_well(model):
    texts = {p.text for e in explained(model)[0] for r in e.shown for p in r.evidence}
    assert any(text.startswith("same brand (") for text in texts)
    assert any(text == "they bought this" for text in texts)
    assert any(text == "this has it" for text in texts)
    assert any(text.endswith(" people bought both") for text in texts)


def test_people_who_took_both_are_counted_once():
    over = Rule((0, 3, 0), ("purchase", "purchase⁻¹", "purchase"), ("user", "item", "user", "item"))
    with_ = Rule((0, 2), ("purchase", "goes_with"), ("user", "item", "item"), derived=True)
    same = Rule(
        (0, 1, 4), ("purchase", "has_brand", "has_brand⁻¹"), ("user", "item", "brand", "item")
    )
    told = (
        (with_, 3.0, "24 people bought both it and this"),
        (over, 2.0, "24 people who bought it also bought this"),
        (same, 1.0, "same brand Acme"),
    )
    parts: Any = [
        SimpleNamespace(rule=r, contribution=x, said=lambda _, t=text: SimpleNamespace(text=t))
        for r, x, text in told
    ]
    reason = Reason("you bought ink", 0, 5, 6.0, 0.5, 0.5, 0.0, 0.0, 0.0, tuple(parts))
    assert reason.evidence_text == "24 people bought both it and this; same brand Acme"


def test_plurals():
    assert [plural(x) for x in ("brand", "category", "class", "toy")] == [
        "brands",
        "categories",
        "classes",
        "toys",
    ]


# ── for notebooks ────────────────────────────────────────────────────────────────────────


def test_explanations_and_questions_show_themselves_in_a_notebook(model, parts):
    user = model.users[3]
    e = model.explain(user, model.recommend(user, 1)["item"][0])
    page = e._repr_html_()
    tree = fromstring(page)
    assert len(tree.findall(".//tr")) == len(shown_rows(e.as_dict()))
    assert len(tree.findall(".//line")) >= 1
    assert e.shown[0].text() in "".join(tree.itertext())
    own = model.history(user)["item"][0]
    for thing in (
        model.why_not(user, model.items[-1], k=2),
        model.what_if(user, remove=own),
        model,
        LOGER(),
        parts,
        parts.dataset,
    ):
        fromstring(thing._repr_html_())  # well formed
        assert "\n" not in repr(thing)
        assert len(repr(thing)) < 250


def test_labels_are_escaped_in_notebooks(model):
    e = model.explain(model.users[0], model.items[5])
    words = e.graph.vocabulary
    kept = words.labels[e.item + e.graph.n_users]
    words.labels[e.item + e.graph.n_users] = "<script>"
    try:
        assert "<script>" not in e._repr_html_()
        assert "&lt;script&gt;" in e._repr_html_()
    finally:
        words.labels[e.item + e.graph.n_users] = kept
