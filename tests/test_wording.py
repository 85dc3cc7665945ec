"""What people read, in every language: complete, rendered for every kind of path, customisable."""

from __future__ import annotations

import re
from dataclasses import replace
from string import Formatter

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given

from graphs import graphs
from loger.cli import app
from loger.data.demo import shop
from loger.data.splits import split
from loger.errors import LogerError
from loger.explain.reasons import Reason
from loger.graph import KnowledgeGraph, Path, Relation, Vocabulary
from loger.grounding import paths as listed
from loger.logic.config import DerivedConfig
from loger.model import LOGER
from loger.rules import Rule, candidates
from loger.rules.sentences import (
    BRIEF,
    about,
    action_sentence,
    evidence_sentence,
    path_sentence,
    tile,
)
from loger.rules.wording import CASES, FORMS, LANGUAGES, best_language, wording_of
from web_shop import SMALL

SLOT = re.compile(r"[{}]")


def slots(pattern):
    return {name for _, name, _, _ in Formatter().parse(pattern) if name is not None}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_every_word(language):
    english, own = wording_of("en").table, wording_of(language).table
    assert own.keys() == english.keys()
    assert own["texts"].keys() == english["texts"].keys()
    assert english["verb_forms"].keys() == {*FORMS, "done"}
    assert own["tile"].keys() == english["tile"].keys()
    assert own["debug"].keys() <= own["texts"].keys()
    assert own["verb_forms"].keys() >= set(FORMS)
    assert all(own["pronouns"][c].keys() == english["pronouns"][c].keys() for c in CASES)
    said = own["verbs"].keys() | own["relations"].keys()
    assert english["verbs"].keys() <= said
    if language != "en":
        assert own["types"].keys() == wording_of("de").table["types"].keys()
        for name, forms in own["relations"].items():
            assert "one" in forms and ("that" in forms or language == "es"), name
        if language == "de":  # where clauses have another order than sentences
            for name in ("follows", "has", "other"):
                assert set(FORMS) - {"so"} <= own["relations"][name].keys()
    for key, text in own["texts"].items():  # numbers and names are not lost in translation
        must = slots(english["texts"][key]) & {"n", "item", "user", "rank", "share", "k", "gap"}
        assert must <= slots(text), key


@pytest.mark.parametrize("language", LANGUAGES)
@given(graph=graphs())
def test_every_kind_of_path_is_said_in_every_language(language, graph):
    words, seen = wording_of(language), set()
    for rule in candidates(graph):
        said = rule.sentence(words)
        assert said and not SLOT.search(said) and said not in seen, (rule, said)
        seen.add(said)
        for user in range(min(2, graph.n_users)):
            for item in range(graph.n_items):
                every = listed(graph, rule, user, item)
                if not len(every):
                    continue
                path = Path(tuple(int(e) for e in every[0]), rule.relations)
                others = [int(e) for e in every[1:4, -2]]
                texts = [
                    path_sentence(graph, path, words),
                    action_sentence(graph, path.relations[0], path.entities[1], words),
                ]
                texts += [evidence_sentence(graph, path, n, others, words) for n in (1, 2, 1234)]
                for text in texts:
                    assert text and not SLOT.search(text) and "  " not in text, text
                assert f"item{item}" in texts[0]
                break


def said(language, *hops):
    names, types = zip(*(hop.split() for hop in hops), strict=True)
    rule = Rule(tuple(range(len(names))), names, ("user", *types))
    return rule.sentence(wording_of(language))


@pytest.mark.parametrize(
    ("hops", "german", "spanish"),
    [
        (("plays item", "has_artist artist", "has_artist⁻¹ item"),
         "gleicher Künstler wie etwas, das du gespielt hast",
         "mismo artista que algo que reprodujiste"),
        (("purchase item", "purchase⁻¹ user", "purchase item"),
         "Leute, die das Gleiche wie du gekauft haben, haben auch dies gekauft",
         "personas que compraron lo mismo que tú también compraron esto"),
        (("has_city city", "has_city⁻¹ user", "watch item"),
         "Leute, die wie du Stadt A haben, haben auch dies gesehen",
         "personas que, como tú, tienen «ciudad A» también vieron esto"),
        (("follows user", "watch item"),
         "jemand, dem du folgst, hat dies gesehen", "alguien a quien sigues vio esto"),
        (("follows⁻¹ user", "watch item"),
         "jemand, der dir folgt, hat dies gesehen", "alguien que te sigue vio esto"),
        (("purchase item", "also_bought item"),
         "etwas, das du gekauft hast, wird oft zusammen mit diesem gekauft",
         "algo que compraste suele comprarse junto con esto"),
        (("watch item", "directed_by person", "directed_by⁻¹ item"),
         "gleiche Regie wie etwas, das du gesehen hast",
         "misma dirección que algo que viste"),
        (("watch item", "made_in place", "made_in⁻¹ item"),
         "gemeinsam: place (made in) wie etwas, das du gesehen hast",
         "en común: place («made in») que algo que viste"),
        (("forked item", "forked⁻¹ user", "forked item"),
         "Leute, die das Gleiche wie du „forked“ haben, haben auch dies „forked“",
         "personas que tienen relación («forked») con lo mismo que tú también tienen relación "
         "(«forked») con esto"),
        (("uploaded item", "depends item", "depends⁻¹ item"),
         "gleiche Abhängigkeit wie etwas, das du hochgeladen hast",
         "misma dependencia que algo que subiste"),
        (("uploaded item", "depends⁻¹ item"),
         "dies hängt von etwas, das du hochgeladen hast, ab",
         "esto depende de algo que subiste"),
        (("uploaded item", "notes_says word", "notes_says⁻¹ item"),
         "gleiches Wort in „notes“ wie etwas, das du hochgeladen hast",
         "misma palabra en «notes» que algo que subiste"),
    ],
)  # fmt: skip
def test_rules_read_like_a_person_in_german_and_spanish(hops, german, spanish):
    assert said("de", *hops) == german
    assert said("es", *hops) == spanish


@pytest.mark.parametrize(
    ("language", "one", "many"),
    [("en", "1 person who has it also borrowed this", "45 people who have it also borrowed this"),
     ("de", "1 Person, die es hat, hat auch dies ausgeliehen",
      "45 Leute, die es haben, haben auch dies ausgeliehen"),
     ("es", "1 persona que tiene eso también tomó en préstamo esto",
      "45 personas que tienen eso también tomaron en préstamo esto")],
)  # fmt: skip
def test_people_who_share_a_fact_with_the_user_are_counted_not_named(language, one, many):
    words = Vocabulary({"user": ["0012", "0345"], "item": ["ink"], "group": ["Junior"]})
    relations = [Relation("borrowed", "user", "item"), Relation("has_group", "user", "group")]
    graph = KnowledgeGraph.from_triples(words, relations, [1, 0, 1], [0, 1, 1], [2, 3, 3])
    path, said = Path((0, 3, 1, 2), (1, 3, 0)), wording_of(language, style="debug")
    assert evidence_sentence(graph, path, 1, [], said) == one
    assert evidence_sentence(graph, path, 45, [], said) == many
    assert path_sentence(graph, path) == (
        "you have group Junior; someone has group Junior, and also borrowed ink"
    )


@pytest.mark.parametrize(
    ("language", "there", "several", "back", "backs"),
    [("en", "both depend on libc", "both depend on 5 items (libc, gtk, …)", "libc depends on both",
      "5 items (libc, gtk, …) depend on both"),
     ("de", "beide hängen von libc ab", "beide hängen von libc, gtk, … (insgesamt 5) ab",
      "libc hängt von beiden ab", "libc, gtk, … (insgesamt 5) hängen von beiden ab"),
     ("es", "ambos dependen de libc", "ambos dependen de 5 artículos (libc, gtk, …)",
      "libc depende de ambos", "5 artículos (libc, gtk, …) dependen de ambos")],
)  # fmt: skip
def test_what_two_items_point_to_is_said_by_the_relation(language, there, several, back, backs):
    words = Vocabulary({"user": ["ann"], "item": ["gimp", "mtp", "libc", "gtk"]})
    relations = [Relation("uploaded", "user", "item"), Relation("depends", "item", "item")]
    graph = KnowledgeGraph.from_triples(
        words, relations, [0, 1, 2, 3, 3], [0, 1, 1, 1, 1], [1, 3, 3, 1, 2]
    )
    said = wording_of(language)
    for path, one, many in (
        (Path((0, 1, 3, 2), (0, 1, 3)), there, several),
        (Path((0, 1, 3, 2), (0, 3, 1)), back, backs),
    ):
        assert evidence_sentence(graph, path, 1, [], said) == one
        assert evidence_sentence(graph, path, 5, [4], said) == many


def test_a_word_of_a_text_is_said_in_it():
    words = Vocabulary({"user": ["ann"], "item": ["gimp", "mtp"], "word": ["paint"]})
    relations = [Relation("uploaded", "user", "item"), Relation("summary_says", "item", "word")]
    graph = KnowledgeGraph.from_triples(words, relations, [0, 1, 2], [0, 1, 1], [1, 3, 3])
    path = Path((0, 1, 3, 2), (0, 1, 3))
    assert path_sentence(graph, path) == (
        "you uploaded gimp, which says paint in its summary, and so does mtp"
    )
    assert path_sentence(graph, path, wording_of("de")) == (
        "du hast gimp hochgeladen; gimp erwähnt paint in „summary“, ebenso mtp"
    )


@pytest.fixture(scope="module")
def model():
    plain = replace(SMALL, derived=DerivedConfig.none())  # people who bought it also bought this
    return LOGER(plain).fit(split(shop(seed=2, users=120, items=100).dataset))


@pytest.mark.parametrize(
    ("language", "begins", "people"),
    [("en", "Same ", "people bought both"),
     ("de", "Gleiche ", "Leute haben beides gekauft"),
     ("es", "Misma ", "personas compraron ambas cosas")],
)  # fmt: skip
def test_a_model_speaks_each_language_and_means_the_same(model, language, begins, people):
    texts, starts = "", []
    for user in model.users[:20]:
        item = model.recommend(user, 1)["item"][0]
        english, e = model.explain(user, item), model.explain(user, item, language=language)
        assert [r.total for r in e.reasons] == [r.total for r in english.reasons]
        told = model.why_not(user, model.items[-1], 3, language=language)
        other = model.counterfactual(user, item, language=language)
        shown = [str(e), str(told), str(other), e._repr_html_(), str(e.as_dict())]
        assert "{" not in "".join(shown[:4])
        texts += "\n".join(shown)
        starts.append(e.because().startswith(begins))
    assert any(starts)
    assert people in texts
    frame = model.recommend(model.users[0], 2, explain=True, language=language)
    assert frame["because"][0] == model.explain(
        model.users[0], frame["item"][0], language=language).because()  # fmt: skip
    table = model.rule_table(language=language)
    assert table["rule"].to_list() == model.rule_table()["rule"].to_list()


def test_words_of_ones_own_come_from_a_file_for_each_language(model, tmp_path):
    file = tmp_path / "words.toml"
    file.write_text(
        '[en.verbs]\npurchase = "picked"\n[de.verbs]\npurchase = "ausgesucht"\n'
        '[de.debug]\nbecause = "denn {reason}"\n[es.types]\n'
        'brand = ["casa", "casas", "misma casa"]\n'
    )
    user = model.users[0]
    debug = {"wording": file, "style": "debug"}
    told = model.recommend(user, 1, explain=True, **debug)["because"][0]
    assert "you picked " in told
    german = model.recommend(user, 1, explain=True, language="de", **debug)["because"][0]
    assert german.startswith("denn ") and "ausgesucht" in german
    assert wording_of("es", file).same("brand") == "misma casa"
    assert wording_of("de", {"en": {"verbs": {}}}) is wording_of("de")


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"en": {"texts": {"becuase": "x"}}}, "did you mean 'because'"),
        (
            {"en": {"texts": {"because": "since {raeson}"}}},
            "unknown slot 'raeson'; did you mean 'reason'",
        ),
        ({"en": {"texts": {"because": "since {reason"}}}, "texts.because"),
        ({"en": {"relations": {"a": {"one": "goes"}}}}, "relations.a.one must contain {x}"),
        ({"en": {"relations": {"a": {"won": "{x}"}}}}, "unknown form 'won'"),
        ({"en": {"relations": {"a": {"one": "{x}", "case": "gen"}}}}, "nom, acc, dat"),
        ({"en": {"types": {"brand": "brand"}}}, "types.brand must be a list of three forms"),
        ({"en": {"vrebs": {}}}, "unknown section 'vrebs'"),
        ({"verbs": {"purchase": "x"}}, "'verbs' is not a language"),
        ({"fr": {"verbs": {}}}, "'thousands' is missing"),
    ],
)
def test_mistakes_in_ones_own_words_are_told(own, said):
    with pytest.raises(LogerError, match=re.escape(said)):
        wording_of(None, own)


def test_unknown_languages_and_files_that_are_not_toml_are_refused(tmp_path):
    with pytest.raises(
        LogerError, match="unknown language 'fr'; did you mean 'en' or 'de' or 'es'"
    ):
        wording_of("fr")
    file = tmp_path / "a.toml"
    file.write_text("[en")
    with pytest.raises(LogerError, match="is not valid TOML"):
        wording_of("en", file)


def test_the_best_accepted_language_is_taken():
    assert best_language("de-CH, en;q=0.9") == "de"
    assert best_language("en;q=0.5, es") == "es"
    assert best_language("") == best_language("*") == best_language("x;q=y") == "en"


def test_commands_and_http_speak_the_language_asked_for(model, tmp_path):
    from fastapi.testclient import TestClient

    from loger.web.app import create_app
    from loger.web.config import ServeConfig

    bundle, user = tmp_path / "b", model.users[0]
    model.save(bundle)
    item = model.recommend(user, 1)["item"][0]
    german = model.explain(user, item, language="de")
    for command in (["recommend", bundle, user, "--explain"],
                    ["explain", bundle, user, item], ["rules", bundle],
                    ["why-not", bundle, user, model.items[-1], "-k", "2"]):  # fmt: skip
        out = CliRunner().invoke(app, [*map(str, command), "--language", "de"])
        assert out.exit_code == 0, out.output
        assert re.search(r"durchschnittlichen|hast", " ".join(out.stdout.split())), out.stdout
    client = TestClient(create_app(ServeConfig(str(bundle))), base_url="http://localhost")
    speak = {"Accept-Language": "de-DE,de;q=0.9"}
    told = client.get("/v1/explain", params={"user": user, "item": item}, headers=speak).json()
    assert told["because"] == german.because()
    rows = client.get("/v1/recommendations", params={"user": user}, headers=speak).json()["items"]
    assert rows[0]["explanation"]["because"] == german.because()
    rules = client.get("/v1/rules", headers=speak).json()["rules"]
    assert rules[0]["sentence"] in model.rule_table(language="de")["sentence"].to_list()
    assert "du" in client.get("/v1/rules/0", headers=speak).json()["examples"][0]["sentence"]
    plain = client.get("/v1/explain", params={"user": user, "item": item}).json()
    assert plain["because"] == model.explain(user, item).because()
    assert np.isclose(plain["score"], told["score"])


LONG = "The Extraordinarily Long Title of a Picnic Basket, with Plates and a Lid"


def shelf(*relations, item=LONG):
    """A shop of one user, two items, and a fact of each relation between two things."""
    words = Vocabulary({"user": ["ann"], "item": ["a", "b"], "interest": ["film"]})
    words.labels[1] = item
    made = [Relation("purchase", "user", "item"), *relations]
    return KnowledgeGraph.from_triples(words, made, [0], [0], [1])


@pytest.mark.parametrize(
    ("name", "tiles"),
    [
        ("also_bought", ["Often bought with your The Extraordinarily…",
                         "Oft zusammen mit The Extraordinarily… gekauft",
                         "Suele comprarse con tu The Extraordinarily…"]),
        ("also_view", ["Often viewed with your The Extraordinarily…",
                       "Oft zusammen mit The Extraordinarily… angesehen",
                       "Suele verse con tu The Extraordinarily…"]),
        ("fits", [None] * 3),
    ],
)  # fmt: skip
def test_a_tile_about_two_items_names_the_one_that_the_user_has(name, tiles):
    graph = shelf(Relation(name, "item", "item"))
    for language, expected in zip(LANGUAGES, tiles, strict=True):
        words = wording_of(language, style="tile")
        for path in (Path((0, 1, 2), (0, 1)), Path((0, 1, 2), (0, 3))):
            assert tile(graph, path, 1, about(graph, 0, 1, words, BRIEF), words) == expected


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("en", "Because you bought The Extraordinarily…"),
        ("de", "Du hast The Extraordinarily… gekauft"),
        ("es", "Porque compraste The Extraordinarily…"),
    ],
)
def test_a_tile_that_tells_the_action_cuts_the_name_and_not_the_sentence(language, expected):
    graph, words = shelf(), wording_of(language, style="tile")
    action = action_sentence(graph, 0, 1, words, BRIEF)
    assert words.line(words.tile("action", action=action)) == expected
    reason = Reason("", 0, 1, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, (), words, brief_action=action)
    assert reason.text() == expected


@pytest.mark.parametrize(
    ("relation", "said"),
    [
        ("interested_in", ["you are interested in film", "du interessierst dich für film",
                           "te interesas por film"]),
        ("lives_in", ["you live in film", "du wohnst in film", "vives en film"]),
        ("works_as", ["you work as film", "du arbeitest als film", "trabajas como film"]),
        ("speaks", ["you speak film", "du sprichst film", "hablas film"]),
        ("prefers", ["you prefer film", "du bevorzugst film", "prefieres film"]),
        ("owns", ["you own film", "du besitzt film", "tienes film"]),
        ("member_of", ["you are a member of film", "du bist Mitglied bei film",
                       "eres miembro de film"]),
    ],
)  # fmt: skip
def test_facts_about_users_are_said_with_a_verb(relation, said):
    graph = shelf(Relation(relation, "user", "interest"))
    assert [action_sentence(graph, 1, 3, wording_of(name)) for name in LANGUAGES] == said


def test_a_tile_is_short_and_nobody_else_is_named(model):
    graph = model.graph_
    people = {graph.vocabulary.labels[u] for u in range(graph.n_users)}
    followed = 0
    for user in model.users[:25]:
        others = people - {graph.vocabulary.labels[graph.vocabulary.id("user", user)]}
        for item in model.recommend(user, 5)["item"]:
            e = model.explain(user, item)
            for language in LANGUAGES:
                tile = e.said(wording_of(language)).text("tile")
                assert 0 < len(tile) <= 60 and "%" not in tile
                if e.shown and not e.shown[0].members:  # a group says how many actions it has
                    assert not re.search(r"\d", tile)
                assert all(len(r.text("tile")) <= 60 for r in e.shown)
            shown = [e.text("debug"), e.text(), e._repr_html_().partition("</p>")[2]]
            record = e.as_dict(every=True) | {"user": "", "paths": []}
            texts = "\n".join([*shown[:2]]).partition("\n")[2] + shown[2]
            assert not [name for name in others if name in texts]
            entities = [
                x
                for r in record["reasons"]
                for x in [
                    r["entity"],
                    *(
                        y
                        for part in r["evidence"]
                        for p in part["paths"]
                        for y in p["entities"][1:]
                    ),
                ]
            ]
            assert not any(x["name"] for x in entities if x["type"] == "user")
            assert not re.search(r"\b[12] (person|people)\b", e.text())
            named = model.explain(user, item, wording={"explain": {"names": "followed"}})
            for reason in named.reasons:
                name = graph.vocabulary.names[reason.entity]
                if graph.relation_name(reason.relation) == "follows":
                    followed += graph.vocabulary.shown[reason.entity] in reason.action
                    assert followed and name
    assert followed


def test_whom_reasons_may_name_is_nobody_or_followed():
    with pytest.raises(LogerError, match="set to 'nobody' or 'followed'"):
        wording_of("en", {"explain": {"names": "everybody"}})
    with pytest.raises(LogerError, match="unknown style 'brief'"):
        wording_of("en", style="brief")


def test_every_count_can_be_recomputed_from_the_interactions():
    parts = split(shop(seed=2, users=120, items=100).dataset)
    fitted = LOGER(SMALL).fit(parts)
    dataset, known = parts.dataset, parts.refit()
    rows = known.train
    events = dataset.interactions
    histories = {}
    for row in rows[np.lexsort((rows, events.times[rows]))]:
        histories.setdefault(int(events.users[row]), []).append(int(events.items[row]))
    tried = set()
    for user in fitted.users[:30]:
        for item in fitted.recommend(user, 4)["item"]:
            e = fitted.explain(user, item)
            for reason in (action for r in e.shown for action in r.members or (r,)):
                one = reason.entity - dataset.n_users
                for part in reason.evidence:
                    if not part.rule.derived:
                        continue
                    near = part.window or 10**9
                    after = "followed_by" in part.rule.names[1]
                    assert (part.window > 0) == after
                    n = sum(
                        any(x == one and e.item in (h[k + 1 : k + 1 + near] if after else h)
                            for k, x in enumerate(h))
                        for h in histories.values()
                    )  # fmt: skip
                    assert part.people == n
                    assert (f"{n} " in part.text) == (n >= 3)
                    tried.add(part.rule.names[1])
    assert tried
