"""Explanations for programs: one definition for ``as_dict``, the JSON schema and the HTTP API.

To add a field, add a line here with its type and meaning. ``record`` then takes its value from the
attribute of the same name, ``SCHEMA`` lists it, and so do the HTTP models and their documentation,
which are built from these classes (``loger.web.schemas``). ``loger.explain.render`` turns a record
into what people read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from loger.graph import INVERSE_MARK, Graph, KnowledgeGraph, Path, Vocabulary
from loger.graph.catalogue import NOTHING, Catalogue
from loger.rules import Rule, Wording
from loger.rules.sentences import hidden, path_sentence

if TYPE_CHECKING:
    from loger.explain.attribution import Explanation
    from loger.explain.reasoned import Reasoned
    from loger.explain.reasons import PathPart, Reason


@dataclass(frozen=True, slots=True)
class Between:
    """Bounds of a number, for the JSON schema; pydantic reads them through the method below."""

    low: float | None = None
    high: float | None = None

    def keywords(self) -> dict[str, float]:
        """The bounds as JSON schema writes them."""
        both = {"minimum": self.low, "maximum": self.high}
        return {name: value for name, value in both.items() if value is not None}

    def __get_pydantic_json_schema__(
        self, core: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        return {**handler(core), **self.keywords()}


def _describe_inherited(schema: dict[str, Any], kind: type) -> None:
    """Copy descriptions of inherited fields from the base class; pydantic ignores those."""
    from pydantic import TypeAdapter  # pydantic calls this, so it is installed

    if kind.__mro__[1] is not _Record:
        for name, field in TypeAdapter(kind.__mro__[1]).json_schema()["properties"].items():
            schema["properties"][name] |= {k: v for k, v in field.items() if k == "description"}


class _Record:
    """Tells pydantic, which only the server needs, that the strings below fields describe them."""

    __pydantic_config__ = {  # noqa: RUF012
        "use_attribute_docstrings": True,
        "json_schema_extra": _describe_inherited,
    }


@dataclass(frozen=True)
class EntityRecord(_Record):
    """A user, an item or any other entity."""

    name: str
    """Its ID, unique among entities of its type."""
    label: str
    """The name that people read."""
    type: str


@dataclass(frozen=True)
class RuleRecord(_Record):
    """What a rule adds to a score."""

    rule: str
    """The rule as a chain of relations."""
    sentence: str
    """The rule in plain English."""
    relations: list[str]
    weight: float
    paths: Annotated[int, Between(1)]
    """Number of the rule's paths from the user to the item."""
    contribution: float
    """What it adds to the logit."""


@dataclass(frozen=True)
class PathRecord(_Record):
    """What a path adds to a score."""

    rule: str
    """The rule that it follows."""
    contribution: float
    """What it adds to the logit."""
    share: Annotated[float, Between(0, 1.000001)]
    """Its share of what its rule adds."""
    sentence: str
    """The path in plain English."""
    entities: list[EntityRecord]
    """From the user to the item."""
    relations: list[str]
    """The relations between the entities; a path follows those ending in ⁻¹ backwards."""


@dataclass(frozen=True)
class EvidenceRecord(_Record):
    """How an action leads to the item by one rule."""

    rule: str
    contribution: float
    """What the action contributes by this rule."""
    n: Annotated[int, Between(1)]
    """Number of the rule's paths that begin with the action."""
    people: Annotated[int, Between(0)]
    """For goes_with, how many people have both items; for followed_by, how many have the item soon
    after the action's; in a group, the least number over its members; 0 for other evidence."""
    window: Annotated[int, Between(0)]
    """For followed_by, how many places apart these people have the two items at most; 0 if the
    distance doesn't matter."""
    text: str
    """In plain English; "it" is the action's entity, "this" the item."""
    paths: list[PathRecord]
    """The strongest paths."""


@dataclass(frozen=True)
class ActionRecord(_Record):
    """A user's action, or a fact about the user, with its contribution to the item."""

    action: str
    """Such as "you bought ink"."""
    entity: EntityRecord
    """What the action was about."""
    relation: str
    total: float
    """Its whole contribution: evidence + encoder + sequence − mean."""
    share: float
    """Its share of the item's lead."""
    confidence: Annotated[float, Between(0, 1)]
    """How likely it is the cause, if the user takes the item for a single reason."""
    encoder: float
    """The encoder's part of the total."""
    sequence: float
    """The part of the sequence encoder, which has learned what people go on to."""
    text: str
    """The reason in words, in the requested style."""
    mean: float
    """What the rules contribute to the mean item by it, which is subtracted."""
    evidence: list[EvidenceRecord]
    """By rule, the largest contribution first; evidence that contributes up to 10% less comes first
    if it is more like what the user did before."""


@dataclass(frozen=True)
class ReasonRecord(ActionRecord):
    """One action, or a group of actions that share their evidence. A group's numbers are sums over
    its members; its entity and relation are those of the first member."""

    members: list[ActionRecord]
    """The actions of a group, the largest total first; empty for a single action."""


@dataclass(frozen=True)
class ExplanationRecord(_Record):
    """Why an item has its score. By action: mean + appeal + opaque + all actions = score; the
    largest actions are the reasons. By rule: encoder + logic = score, and logit = prior +
    popularity + the contributions of the rules; with the default fusion, logic is logit."""

    user: str
    item: str
    label: str
    """The item as people read it."""
    score: float
    rank: Annotated[int, Between(1)]
    """Among all items that the user doesn't have."""
    rank_without_logic: Annotated[int, Between(1)]
    """The rank by the encoder alone."""
    encoder: float
    """What the encoder adds to the score; with the paper's fusion, q."""
    logic: float
    """What the logic adds to the score; with the paper's fusion, α·p."""
    logit: float
    """logit p = prior + popularity + the contributions of all rules."""
    prior: float
    popularity: float
    """What the item's popularity adds to the logit; for a new item, an estimate."""
    p: float
    """The logic's probability."""
    q: float
    """The encoder's probability, calibrated."""
    logic_share: float
    """The rules' share of all evidence (rules, encoder and popularity)."""
    because: str
    """The first reason as a sentence, or a note that there is none."""
    mean: float
    """The mean score of all items that the user doesn't have."""
    lead: float
    """The score minus that mean; shares are shares of the lead."""
    appeal: float
    """What the item has for every user, compared with the mean item."""
    expected: bool
    """Whether the appeal is estimated from similar items, because the item is newer than the
    fit."""
    opaque: float
    """The part of an encoder that can't be split by action, compared with the mean item; else 0."""
    carried: float
    """The share of the lead that the reasons carry."""
    carried_of_actions: float
    """The share of all actions' contributions that the reasons carry."""
    reasons: list[ReasonRecord]
    """The largest actions, enough to carry 80% of what all actions contribute, five at most. If
    five actions don't carry that much, some reasons are groups of actions."""
    rules: list[RuleRecord]
    """All rules that apply, the largest contribution first."""
    paths: list[PathRecord]
    """The strongest paths."""
    held_out: Annotated[int, Between(0)]
    """Number of interactions held out for testing, which the model doesn't know; 0 in a model for
    use."""


@dataclass(frozen=True)
class RowRecord(_Record):
    """One line of what an item's lead is made of, as people see it."""

    kind: str
    """reason, others (all other actions), appeal, or opaque (the encoder's part, if it can't be
    split by action)."""
    label: str
    """The line in words."""
    contribution: float
    share: float
    """Its share of the item's lead."""


@dataclass(frozen=True)
class ShownRecord(ExplanationRecord):
    """An explanation with the lines that people see. Their contributions add up to the lead."""

    rows: list[RowRecord]
    """The reasons, then all other actions, the item's appeal, and the opaque part."""
    summary: str
    """How much of the lead the shown reasons explain, in words."""


@dataclass(frozen=True)
class FollowedRecord(_Record):
    """One of the user's most important rules, which the reasoner follows."""

    rule: str
    sentence: str
    """The rule in plain English."""
    importance: float
    """y of the paper: weight times the rule's share of the user's own paths."""


@dataclass(frozen=True)
class WalkedRecord(PathRecord):
    """A path that the reasoner found."""

    score: float
    """The reasoner's score: the mean over the hops."""


@dataclass(frozen=True)
class ReasonedRecord(_Record):
    """What the paper's path reasoner finds for an item."""

    user: str
    item: str
    label: str
    """The item as people read it."""
    score: float
    rank: Annotated[int, Between(1)]
    """Among all items that the user doesn't have."""
    because: str
    """The first path as a sentence, or a note that there is none."""
    missed: bool
    """Whether rules lead to the item but the reasoner found none of their paths."""
    n: Annotated[int, Between(0)]
    """Number of paths of all rules that lead to the item."""
    followed: list[FollowedRecord]
    """The rules that the reasoner follows, the most important first."""
    paths: list[WalkedRecord]
    """The reasoner's favourite first."""
    held_out: Annotated[int, Between(0)]
    """Number of interactions held out for testing, which the model doesn't know; 0 in a model for
    use."""


# ── from explanations to records ────────────────────────────────────────────────────────


def record(kind: type, source: object, **values: Any) -> dict[str, Any]:
    """The fields of a record as plain values, from ``values`` or else from the source's attributes.

    >>> record(EntityRecord, RuleRecord, label="a mug", type="item", name="mug")
    {'name': 'mug', 'label': 'a mug', 'type': 'item'}
    """
    names = _names(kind)
    if not values.keys() <= names.keys():
        raise TypeError(f"{kind.__name__} has no {', '.join(values.keys() - names.keys())}")
    return {name: values[name] if name in values else getattr(source, name) for name in names}


def entity_record(vocabulary: Vocabulary, entity: int) -> dict[str, str]:
    """An entity as an ``EntityRecord``."""
    return {
        "name": vocabulary.names[entity],
        "label": vocabulary.labels[entity],
        "type": vocabulary.type_of(entity),
    }


def explanation_record(e: Explanation, reasons: tuple[Reason, ...]) -> dict[str, Any]:
    """An explanation as an ``ExplanationRecord`` that lists these reasons."""
    return record(
        ExplanationRecord,
        e,
        **_pair(e),
        opaque=e.opaque or 0.0,
        because=e.because(),
        reasons=[_reason_record(e, reason) for reason in reasons],
        rules=[
            record(
                RuleRecord, part, **_in_words(part.rule, e.words), relations=list(part.rule.names)
            )
            for part in e.rules
        ],
        paths=[_path_record(PathRecord, part, e.words) for part in e.paths],
    )


def reasoned_record(e: Reasoned) -> dict[str, Any]:
    """What the reasoner found for an item as a ``ReasonedRecord``."""
    return record(
        ReasonedRecord,
        e,
        **_pair(e),
        because=e.because(),
        followed=[
            record(FollowedRecord, one, **_in_words(one.rule, e.words)) for one in e.followed
        ],
        paths=[_path_record(WalkedRecord, p.part, e.words, score=p.score) for p in e.paths],
    )


def reasons_in_short(e: Explanation) -> dict[str, Any]:
    """The columns of an explanation in tables of recommendations: the values of its record, without
    looking up paths."""
    return {
        "because": e.because(),
        "reasons": [
            {
                "action": r.action,
                "total": r.total,
                "share": r.share,
                "text": r.text(),
                "members": [member.name for member in r.members],
            }
            for r in e.shown
        ],
        "carried": e.carried,
    }


def _pair(e: Explanation | Reasoned) -> dict[str, str]:
    """The user and the item of an explanation."""
    words, item = e.graph.vocabulary, e.item + e.graph.n_users
    return {"user": words.names[e.user], "item": words.names[item], "label": words.labels[item]}


def _reason_record(e: Explanation, reason: Reason) -> dict[str, Any]:
    members = [_action_record(ActionRecord, e, member) for member in reason.members]
    return _action_record(ReasonRecord, e, reason, members=members)


def _action_record(kind: type, e: Explanation, reason: Reason, **more: Any) -> dict[str, Any]:
    return record(
        kind,
        reason,
        text=reason.text(),
        entity=_entities(e.graph, Path((e.user, reason.entity), (reason.relation,)), e.words)[1],
        relation=e.graph.relation_name(reason.relation),
        evidence=[
            record(
                EvidenceRecord,
                part,
                rule=_in_words(part.rule, e.words)["rule"],
                paths=[_path_record(PathRecord, path, e.words) for path in part.paths],
            )
            for part in reason.evidence
        ],
        **more,
    )


def _path_record(kind: type, part: PathPart, words: Wording, **more: Any) -> dict[str, Any]:
    graph = part.graph
    return record(
        kind,
        part,
        rule=_in_words(part.rule, words)["rule"],
        sentence=path_sentence(graph, part.path, words),
        entities=_entities(graph, part.path, words),
        relations=[graph.relation_name(r) for r in part.path.relations],
        **more,
    )


def _entities(graph: Graph, path: Path, words: Wording) -> list[dict[str, str]]:
    """The entities of a path from a user, with other people unnamed."""
    someone = {"name": "", "label": words.pronoun("someone"), "type": "user"}
    return [
        someone if hidden(graph, path, k, words) else entity_record(graph.vocabulary, entity)
        for k, entity in enumerate(path.entities)
    ]


@lru_cache(maxsize=1024)
def _in_words(rule: Rule, words: Wording) -> dict[str, str]:
    """A rule for programs and for people; cached, because every item of every list needs it."""
    return {"rule": str(rule), "sentence": rule.sentence(words)}


@lru_cache(maxsize=16)
def _names(kind: type) -> dict[str, None]:
    return dict.fromkeys(field.name for field in fields(kind))


def json_schema(kind: type) -> dict[str, Any]:
    """The JSON schema of a record: all fields required, no others allowed."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(_names(kind)),
        "properties": {name: _typed(hints[name]) for name in _names(kind)},
    }


def _typed(hint: Any) -> dict[str, Any]:
    if get_origin(hint) is Annotated:
        plain, bounds = get_args(hint)
        return {**_typed(plain), **bounds.keywords()}
    if get_origin(hint) is list:
        return {"type": "array", "items": _typed(get_args(hint)[0])}
    if is_dataclass(hint):
        return json_schema(hint)  # type: ignore[arg-type]
    return {"type": {str: "string", int: "integer", float: "number", bool: "boolean"}[hint]}


SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Explanation of a recommended item",
    **json_schema(ExplanationRecord),
}
"""JSON schema of ``Explanation.as_dict``."""


# ── facts ───────────────────────────────────────────────────────────────────────────────


def facts_about(
    graph: KnowledgeGraph, item: int, catalogue: Catalogue = NOTHING, most: int = 20
) -> list[dict[str, Any]]:
    """What the graph and the catalogue know about an item, given by number.

    Returns one record per relation: its name, the name in words, its first ``most`` entities, and
    their number. Interactions and relations derived from them are left out.
    """
    words, entity = graph.vocabulary, item + graph.n_users
    facts = []
    for relation in range(2 * len(graph.relations)):
        head_type, tail_type = graph.signature(relation)
        tails = graph.neighbours(entity, relation) if head_type == "item" else ()
        derived = graph.relations[relation % len(graph.relations)].derived
        if tail_type == "user" or derived or not len(tails):
            continue
        entities = [entity_record(words, int(e)) for e in tails[:most]]
        facts.append(_fact(graph.relation_name(relation), entities, len(tails)))
    for column, values in catalogue.known_of(item):
        entities = [{"type": column.type, "name": v, "label": v} for v in values]
        same = next((f for f in facts if f["relation"] == column.relation), None)
        if same is None:
            facts.append(_fact(column.relation, entities, len(values)))
        else:
            same["entities"] = (same["entities"] + entities)[:most]
            same["count"] += len(values)
    return facts


def _fact(relation: str, entities: list[dict[str, Any]], count: int) -> dict[str, Any]:
    words = relation.removesuffix(INVERSE_MARK).removeprefix("has_").replace("_", " ")
    words = f"← {words}" if relation.endswith(INVERSE_MARK) else words
    return {"relation": relation, "words": words, "entities": entities, "count": count}
