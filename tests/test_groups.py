"""Actions that share their evidence as one reason: which, how much they carry, what is said."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loger.encoder import Calibration
from loger.explain import groups
from loger.explain.attribution import explain
from loger.explain.by_action import Attribution
from loger.explain.groups import candidates, reason_groups
from loger.explain.record import reasons_in_short
from loger.explain.render import rows
from loger.graph import KnowledgeGraph, Relation, Vocabulary
from loger.logic.config import WALK
from loger.logic.mln import Logic
from loger.ranking.ranker import Fusion, Ranker
from loger.rules import named_rules
from loger.rules.wording import wording_of
from small import Table

WATCHED = 20
"""Films that Ann watched: half by the new film's director, half of its genre."""


def cinema() -> Ranker:
    """Ann, five others who watched all that she did and the new film, and two people who give the
    rules other items to score."""
    films = [f"film {k}" for k in range(WATCHED)] + ["new film", "other film"]
    people = ["ann", "ben", "cem", "dan", "eve", "fay", "gus"]
    words = Vocabulary(
        {"user": people, "item": films, "director": ["Varda", "Kluge"], "genre": ["Essay", "Noir"]}
    )
    relations = [
        Relation("watched", "user", "item"),
        Relation("directed_by", "item", "director"),
        Relation("has_genre", "item", "genre"),
    ]
    number = {
        name: k for k, name in enumerate([*people, *films, "Varda", "Kluge", "Essay", "Noir"])
    }
    facts = [("ann", 0, f"film {k}") for k in range(WATCHED)]
    facts += [(who, 0, film) for who in people[1:6] for film in films[: WATCHED + 1]]
    facts += [("gus", 0, "other film")]
    facts += [(f"film {k}", 1, "Varda" if k < WATCHED // 2 else "Kluge") for k in range(WATCHED)]
    facts += [(f"film {k}", 2, "Noir" if k < WATCHED // 2 else "Essay") for k in range(WATCHED)]
    facts += [("new film", 1, "Varda"), ("new film", 2, "Essay")]
    heads, kinds, tails = zip(*[(number[a], r, number[b]) for a, r, b in facts], strict=True)
    graph = KnowledgeGraph.from_triples(words, relations, list(heads), list(kinds), list(tails))
    rules = named_rules(
        graph,
        [("watched", "directed_by", "directed_by⁻¹"), ("watched", "has_genre", "has_genre⁻¹"),
         ("watched", "watched⁻¹", "watched")],
    )  # fmt: skip
    logic = Logic(rules, np.array([3.0, 2.0, 0.5]), "logwalk", WALK, np.full(3, 0.1), prior=-1.0)
    encoder = Table(np.zeros((len(people), len(films))))
    return Ranker.of(graph, encoder, logic, Fusion("logic", 0.0, Calibration(1.0, 0.0)))


@pytest.fixture(scope="module")
def why():
    return explain(cinema(), np.array([0]), np.array([WATCHED]))[0]


def test_films_by_one_director_are_one_reason_that_adds_up(why):
    assert len(why.reasons) == WATCHED  # each action remains a reason of its own
    best = sum(reason.total for reason in why.reasons[:5]) / sum(r.total for r in why.reasons)
    assert best < 0.8 <= why.carried_of_actions
    assert len(why.shown) <= 5
    named = [m.entity for r in why.shown for m in r.members or (r,)]
    assert len(named) == len(set(named))
    some = [r for r in why.shown if r.members]
    assert some
    for reason in some:
        alone = {r.entity: r for r in why.reasons}
        for name in ("total", "share", "confidence", "encoder", "sequence", "mean"):
            whole = sum(getattr(alone[m.entity], name) for m in reason.members)
            assert getattr(reason, name) == pytest.approx(whole)
        given_ = sum(e.contribution for e in reason.evidence) + reason.encoder + reason.sequence
        assert given_ - reason.mean == pytest.approx(reason.total)
        for evidence in reason.evidence:
            parts = [e for m in reason.members for e in m.evidence if e.rule == evidence.rule]
            assert evidence.contribution == pytest.approx(sum(e.contribution for e in parts))
            assert evidence.n == sum(e.n for e in parts)
    record = why.as_dict()
    whole = record["mean"] + sum(row.contribution for row in rows(record))
    assert whole == pytest.approx(record["score"], abs=1e-9)


def test_a_group_says_what_its_actions_share_and_how_many_they_are(why):
    """Each fact is looked up in the graph for every member."""
    graph = why.graph
    told = {r.evidence_text: r for r in why.shown if r.members}
    assert told
    for text, reason in told.items():
        n, first = len(reason.members), reason.text()
        assert first.startswith("You watched film ") and first.endswith(f": {text}")
        if n > 3:
            assert f" and {n - 2} more: " in first
        relation, entity = (1, "Varda") if "director" in text else (2, "Essay")
        assert f"same {('director', 'genre')[relation - 1]} ({entity})" in text
        for film in [m.entity for m in reason.members] + [why.item + graph.n_users]:
            (tail,) = graph.neighbours(film, relation)
            assert graph.vocabulary.labels[tail] == entity
        assert "in each case, at least 5 people watched both" in text


@pytest.mark.parametrize(
    ("language", "sentence", "tile"),
    [
        ("en", "You watched {}, {} and {} more: same genre (Essay); in each case, at least 5 people"
               " watched both", "Same genre: Essay, like {} from your history"),
        ("de", "Du hast {}, {} und {} weitere gesehen: gleiches Genre (Essay); jeweils mindestens 5"
               " Leute haben beides gesehen", "Gleiches Genre: Essay, wie {} aus deinem Verlauf"),
        ("es", "Viste {}, {} y {} más: mismo género (Essay); en cada caso, al menos 5 personas"
               " vieron ambas cosas", "Mismo género: Essay, como {} de tu historial"),
    ],
)  # fmt: skip
def test_a_group_in_three_languages(why, language, sentence, tile):
    e = why.said(wording_of(language))
    reason = next(r for r in e.shown if len(r.members) > 3 and "Essay" in r.text())
    n, labels = len(reason.members), why.graph.vocabulary.labels
    first, second = (labels[m.entity] for m in reason.members[:2])
    assert reason.text() == sentence.format(first, second, n - 2)
    assert reason.text("tile") == tile.format(n)
    assert all(len(r.text("tile")) <= 60 for r in e.shown)


def test_a_record_has_the_actions_of_a_group(why):
    names = why.graph.vocabulary.names
    for told, short, reason in zip(
        why.as_dict()["reasons"], reasons_in_short(why)["reasons"], why.shown, strict=True
    ):
        assert [m["entity"]["name"] for m in told["members"]] == short["members"]
        assert short["members"] == [names[m.entity] for m in reason.members]
        assert told["total"] == pytest.approx(sum(m["total"] for m in told["members"] or [told]))


@given(
    st.lists(st.floats(-1, 1, allow_nan=False).map(lambda x: round(x, 3)), max_size=60),
    st.lists(st.integers(0, 6), min_size=60, max_size=60),
)
def test_groups_carry_more_than_actions_alone_and_no_more_than_needed(totals, kinds):
    given_ = np.array(totals)
    parts = SimpleNamespace(actions=given_, mean_rules=np.zeros_like(given_))
    edges = candidates(parts)
    with pytest.MonkeyPatch.context() as patch:
        claims = {edge: ("close", kinds[edge]) for edge in edges if kinds[edge]}
        patch.setattr(groups, "_main_claims", lambda *_: claims)
        found = reason_groups(SimpleNamespace(), 0, parts, edges, [])
    every = [edge for group in found for edge in group]
    assert len(set(every)) == len(every) and len(found) <= 5
    assert all(given_[edge] > 0 for edge in every)
    worth = [sum(given_[edge] for edge in group) for group in found]
    assert worth == sorted(worth, reverse=True)
    for group in found:  # only what shares its evidence is one reason
        assert len(group) == 1 or len({claims.get(edge, edge) for edge in group}) == 1
    whole = given_.sum()
    alone = np.sort(np.maximum(given_, 0))[::-1][:5].sum()
    assert sum(worth) >= min(alone, 0.8 * whole) - 1e-9
    if whole > 0 and every:
        assert sum(worth) - min(given_[edge] for edge in every) < 0.8 * whole + 1e-9
    if alone >= 0.8 * whole:
        assert all(len(group) == 1 for group in found)


def test_what_only_counts_against_items_is_never_shown_as_a_reason_for_one():
    """The second edge has a total above 0 only because it counts even more against the mean item,
    as a dislike does."""
    none, no_cells = np.zeros(3), np.empty((0, 3), dtype=np.int64)
    rules, mean = np.array([0.5, 0.2, 0.1]), np.array([0.1, -0.3, 0.0])
    parts = Attribution(0.0, 0.0, None, rules, mean, none, none, no_cells, none[:0], none[:0])
    assert candidates(parts) == [0, 2]
