"""Rules: all that the types allow and no others; errors that name the hop; plain English."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs import build, graphs, vocabulary
from loger.errors import LogerError, UnknownNameError
from loger.graph import INTERACTION, INVERSE_MARK
from loger.rules import MAX_HOPS, Rule, RuleSet, candidates, make_rule, named_rules
from loger.rules.wording import to_you, wording_of


@pytest.fixture
def graph():
    """One fact of each relation."""
    facts = [(0, 0, 2), (0, 1, 2), (2, 2, 3), (2, 3, 4), (0, 4, 5), (2, 5, 5), (0, 6, 1)]
    return build(vocabulary(2, 2, 1, 1), facts)


def allowed(graph, relations):
    """Whether a sequence of relations leads from user to item, hop by hop."""
    here = "user"
    for r in relations:
        head, tail = graph.signature(r)
        if head != here:
            return False
        here = tail
    return here == "item" and relations != (INTERACTION,)


@given(graphs(), st.integers(1, MAX_HOPS), st.integers(1, MAX_HOPS))
def test_candidates_are_all_sequences_that_the_types_allow(graph, longest, shortest):
    _, relations, _ = graph.triples()
    used = {int(r) for r in relations} | {graph.inverse(int(r)) for r in relations}
    every = {
        sequence
        for length in range(shortest, longest + 1)
        for sequence in product(sorted(used), repeat=length)
        if allowed(graph, sequence)
    }
    found = [rule.relations for rule in candidates(graph, longest, shortest)]
    assert set(found) == every
    assert found == sorted(found, key=lambda r: (len(r), r))


def test_relations_without_facts_make_no_candidates():
    assert len(candidates(build(vocabulary(2, 2, 1, 1), []))) == 0
    only = candidates(build(vocabulary(2, 2, 1, 1), [(0, 0, 2)]))
    assert [r.names for r in only] == [("purchase", f"purchase{INVERSE_MARK}", "purchase")]


@pytest.mark.parametrize(
    ("relations", "message"),
    [
        ([], "a rule must have 1 to 3 relations, got 0"),
        ([0, 7, 0, 2], "a rule must have 1 to 3 relations, got 4"),
        ([0], "the rule purchase ⇒ purchase is circular"),
        ([0, 4], "mentions leads from user, not item"),
        ([3], "has_brand leads from item, not user"),
        ([4], "ends at word, not at item"),
    ],
)
def test_what_is_no_rule_is_refused(graph, relations, message):
    with pytest.raises(LogerError, match=message):
        make_rule(graph, relations)


def test_a_rule_has_the_names_and_types_of_its_relations(graph):
    rule = make_rule(graph, [0, 3, 10])
    assert rule.names == ("purchase", "has_brand", "has_brand⁻¹")
    assert rule.types == ("user", "item", "brand", "item")
    assert str(rule) == "user –purchase→ item –has_brand→ brand –has_brand⁻¹→ item"
    assert len(rule) == 3


def test_rules_by_name(graph):
    rules = named_rules(graph, [("viewed",), ("mentions", "described_as^-1")])
    assert [r.relations for r in rules] == [(1,), (4, 12)]
    assert rules[1] == named_rules(graph, [("mentions", "described_as⁻¹")])[0]
    assert rules.index(("mentions", "described_as⁻¹")) == 1
    assert rules.chosen([1]).rules == (rules[1],)
    assert str(rules).splitlines()[0] == "  0  user –viewed→ item"
    with pytest.raises(
        UnknownNameError, match="unknown relation 'mention'; did you mean 'mentions'"
    ):
        named_rules(graph, [("mention", "described_as^-1")])
    with pytest.raises(LogerError, match="no rule purchase among the 2 rules"):
        rules.index(("purchase",))
    with pytest.raises(LogerError, match="no rule"):
        RuleSet(()).index(("viewed",))


def said(*hops, start="user"):
    """The sentence of a rule given as hops 'relation type', ⁻¹ for inverses."""
    names, types = zip(*(hop.split() for hop in hops), strict=True)
    return Rule(tuple(range(len(names))), names, (start, *types)).sentence()


@pytest.mark.parametrize(
    ("hops", "sentence"),
    [
        (["viewed item"], "you viewed this"),
        (["interacted item", "has_brand brand", "has_brand⁻¹ item"],
         "same brand as something you interacted with"),
        (["plays item", "has_artist artist", "has_artist⁻¹ item"],
         "same artist as something you played"),
        (["purchase item", "also_bought[item] item"],
         "something you bought is bought along with this"),
        (["purchase item", "also_viewed item", "also_viewed item"],
         "you bought item A, which is viewed along with item B, "
         "which is viewed along with this"),
        (["purchase item", "also_bought⁻¹ item"],
         "this is bought along with something you bought"),
        (["purchase item", "purchase⁻¹ user", "purchase item"],
         "people who bought the same as you also bought this"),
        (["follows user", "purchase item"], "someone you follow bought this"),
        (["follows⁻¹ user", "purchase item"], "someone who follows you bought this"),
        (["follows⁻¹ user", "follows⁻¹ user", "likes item"],
         "person A follows you; person B follows person A, and also liked this"),
        (["has_gender gender", "has_gender⁻¹ user", "watch item"],
         "people who have the same gender as you also watched this"),
        (["carries item"], "you carry this"),
        (["subscribed_to brand", "has_brand⁻¹ item"],
         "you subscribed to brand A; this has brand A"),
        (["mentions feature", "described_as⁻¹ item"],
         "you mentioned feature A; this is described as feature A"),
        (["watch item", "directed_by_director director", "directed_by_director⁻¹ item"],
         "is directed by the same director as something you watched"),
        (["watch item", "belong_to_category category", "belong_to_category⁻¹ item"],
         "belongs to the same category as something you watched"),
        (["bought_by⁻¹ item"], "this is bought by you"),
        (["uploads item", "depends item", "depends⁻¹ item"],
         "depends on the same item as something you uploaded"),
        (["uploads item", "depends_on⁻¹ item", "depends_on item"],
         "you uploaded item A; item B depends on item A, and also depends on this"),
        (["uploads item", "summary_says word", "summary_says⁻¹ item"],
         "same word in the summary as something you uploaded"),
        (["chose_suite suite", "chose_suite⁻¹ user", "uploads item"],
         "people who chose something with the same suite as you also uploaded this"),
    ],
)  # fmt: skip
def test_rules_are_said_in_plain_english(hops, sentence):
    assert said(*hops) == sentence


@given(graphs())
def test_every_candidate_has_a_sentence_of_its_own(graph):
    rules = candidates(graph)
    assert len({rule.sentence() for rule in rules}) == len(rules)


@pytest.mark.parametrize(
    ("verb", "to_a_person"),
    [
        ("has", "have"),
        ("is part of", "are part of"),
        ("does", "do"),
        ("carries a", "carry a"),
        ("watches", "watch"),
        ("pushes", "push"),
        ("passes by", "pass by"),
        ("mixes", "mix"),
        ("waltzes", "waltz"),
        ("follows", "follow"),
        ("uses", "use"),
        ("bought", "bought"),
        ("miss", "miss"),
        ("rates highs", "rate highs"),
    ],
)
def test_verbs_are_said_to_you_in_the_second_person(verb, to_a_person):
    assert to_you(verb) == to_a_person


@pytest.mark.parametrize(
    ("relation", "head", "tail", "verb"),
    [
        ("purchase", "user", "item", "bought"),
        ("purchase[2014]", "user", "item", "bought"),
        ("has_brand", "item", "brand", "has"),
        ("brand", "item", "brand", "has"),
        ("has_colour", "item", "brand", "has colour"),
        ("also_bought_item", "item", "item", "is bought along with"),
        ("directed_by", "movie", "person", "is directed by"),
        ("subscribed_to", "user", "channel", "subscribed to"),
        ("subscribed_to", "item", "channel", "is subscribed to"),
        ("led_astray", "item", "person", "led astray"),
        ("grows_in", "item", "place", "grows in"),
        ("written_by_person", "item", "person", "is written by"),
    ],
)
def test_a_relation_says_what_its_head_does(relation, head, tail, verb):
    assert wording_of("en").forms(relation, head, tail).patterns["one"] == f"{verb} {{x}}"


def test_entities_of_one_type_are_told_apart():
    rule = said("purchase item", "similar item", "similar item")
    assert rule == "you bought item A, which is similar to item B, which is similar to this"
