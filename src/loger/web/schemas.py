"""Requests and answers of the HTTP API, from which the OpenAPI document is made.

Explanations are defined in ``loger.explain.record``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from unicodedata import normalize

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from loger.explain.lists import Kind
from loger.explain.record import EntityRecord, ExplanationRecord
from loger.updates.events import Event

MOST = 100
"""Items of a list, results of a search, filters."""
MOST_PATHS = 10
MOST_HISTORY = 1_000
MOST_FILTER = 4_000
"""Characters of a filter."""
REMOVALS = 300
"""Sets of interactions that a request for a counterfactual tries at most."""
NAME = 512
"""Characters of a name."""


def _composed(text: str) -> str:
    """A name or a filter as readers compose names: é may come as one character or as two."""
    return normalize("NFC", text)


Name = Annotated[str, Field(min_length=1, max_length=NAME), AfterValidator(_composed)]


def _whole(value: object) -> object:
    """5.0 as 5: to JSON they are the same number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
K = Annotated[int, Field(ge=1, le=MOST, description="How many items."), WHOLE]
Paths = Annotated[
    int, Field(ge=0, le=MOST_PATHS, description="How many paths for each item."), WHOLE
]
Reasons = Annotated[
    Literal["shown", "all"],
    Field(
        description="`shown`: at most five reasons, which cover most of the total; `all`: every "
        "action that contributes something."
    ),
]
Filter = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MOST_FILTER,
        description="Such as `category=lamps AND price<10`, `item=NAME` for one item, or "
        "`mask=NAME` for an uploaded set of items.",
    ),
]
Filters = Annotated[list[Filter], Field(max_length=MOST)]
Style = Annotated[
    Literal["tile", "sentence", "debug"],
    Field(
        description="How reasons are worded. `tile`: at most 60 characters; `sentence`: plain "
        "sentences; `debug`: with every number."
    ),
]
Diversity = Annotated[
    float,
    Field(
        ge=0,
        le=1,
        description="0: by score alone; the closer to 1, the more items are avoided that share "
        "facts with those above them.",
    ),
]
Popularity = Annotated[
    float,
    Field(ge=-1, le=1, description="Below 0 prefers rare items, above 0 popular ones."),
]
AtMost = Annotated[
    dict[Name, Annotated[int, Field(ge=1, le=2**31), WHOLE]],
    Field(max_length=MOST, description='At most 2 items of each brand: `{"has_brand": 2}`.'),
]
Items = Annotated[list[Name], Field(max_length=MOST_HISTORY)]
SimilarKind = Annotated[
    Kind,
    Field(
        description="`similar` counts everything, `complements` only what people have together or "
        "one after another, `substitutes` only facts that the items share."
    ),
]


Limit = Annotated[
    str,
    Field(max_length=NAME, description="`NAME=N`, such as `has_brand=2`: at most N of a brand."),
]
UPLOAD: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "text/plain": {"schema": {"type": "string", "description": "An item in a line."}},
            "application/json": {
                "schema": {"type": "array", "items": {"type": ["string", "integer"]}}
            },
        },
    }
}
"""The body of an upload, for OpenAPI."""


def _given(value: object) -> object:
    if value is None:
        raise ValueError("must not be null; leave it out")
    return value


def _no_default(schema: dict[str, Any]) -> None:
    """Hide the default null, which means "not given" and can't be sent."""
    schema.pop("default", None)


class Closed(BaseModel):
    """An object that refuses unknown fields and values of other types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Who(Closed):
    """A known user, or a new one by history; with changes to either."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["user"]}, {"required": ["history"]}]}
    )
    user: Annotated[Name | SkipJsonSchema[None], BeforeValidator(_given)] = Field(
        default=None, description="A known user.", json_schema_extra=_no_default
    )
    history: Annotated[Items | SkipJsonSchema[None], BeforeValidator(_given)] = Field(
        default=None,
        description="Instead of a user: the items of a new one, oldest first.",
        json_schema_extra=_no_default,
    )
    remove: Items = Field(default=[], description="Items of the user to leave out.")
    add: Items = Field(default=[], description="Items to treat as if the user had them.")
    without_rules: list[Annotated[int, Field(ge=0, le=2**31), WHOLE]] = Field(
        default=[], max_length=MOST_HISTORY, description="Rules to switch off, by id."
    )


class Wishes(BaseModel):
    """How long a list is, which items it may have, and how varied it is."""

    k: K = 10
    paths: Paths = 3
    explain: bool = Field(default=True, description="Whether each item comes with its explanation.")
    style: Style = "sentence"
    include: Filters = Field(
        default=[],
        description="Only items that match all of these filters. Of filters on one column, such "
        "as `brand=A` and `brand=B`, one must match.",
    )
    exclude: Filters = Field(default=[], description="No items that match any of these filters.")
    diversity: Diversity = 0.0
    popularity: Popularity = 0.0
    at_most: AtMost = {}


class AskList(Who, Wishes):
    """For a list of recommendations."""


class AskLists(Closed, Wishes):
    """For the lists of several known users."""

    users: list[Name] = Field(min_length=1, max_length=MOST, description="Known users.")


class AskSimilar(Closed, Wishes):
    """For items like one or several."""

    items: Items = Field(min_length=1, description="The items to find others like.")
    less: Items = Field(default=[], description="Items to stay away from.")
    kind: SimilarKind = "similar"


class AskItem(Who):
    """About one item."""

    item: Name
    paths: Paths = 3
    reasons: Reasons = "shown"
    style: Style = "sentence"


class AskWhyNot(Who):
    """Why an item is not in a list of k."""

    item: Name
    k: K = 10


# ── events ──────────────────────────────────────────────────────────────────────────────


MOST_EVENTS = 1_000
"""Events in a batch."""
LATEST = 253_402_300_799
"""The end of the year 9999, in seconds since 1970."""


def _seconds(value: object) -> object:
    """A time as seconds since 1970."""
    if not isinstance(value, str):
        return value
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("must be seconds since 1970 or a time such as 2026-11-17T08:00Z") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


Time = Annotated[
    int | None,
    Field(
        ge=-LATEST,
        le=LATEST,
        description="When it happened: seconds since 1970, or ISO 8601 (UTC unless it has another "
        "zone). The default is when it was received.",
        json_schema_extra={"examples": [1763366400, "2026-11-17T08:00:00Z"]},
    ),
    BeforeValidator(_seconds),
    WHOLE,
]
Label = Annotated[Name | None, Field(description="The name that people read.")]
Facts = Annotated[
    dict[Name, Annotated[list[Name], Field(max_length=MOST)]],
    Field(max_length=MOST, description='Relation → names, such as `{"has_brand": ["Acme"]}`.'),
]
RecommendationId = Annotated[
    str, Field(pattern="^[0-9a-f]{16}$", description="From the answer with the list.")
]


class _Event(Closed):
    key: Name | None = Field(
        default=None, description="Events that repeat a key are ignored, so you can send it again."
    )
    time: Time = None

    def event(self, at: float, key: str | None) -> Event:
        """The event as it is stored."""
        body = self.model_dump(exclude={"kind", "key"}, exclude_defaults=True)
        return Event(self.kind, body, self.key or key, at)  # type: ignore[attr-defined]


class InteractionEvent(_Event):
    """A user took an item. Unknown users and items are new."""

    kind: Literal["interaction"]
    user: Name
    item: Name
    rating: float | None = Field(
        default=None,
        description="A rating below the model's minimum is a dislike.",
        allow_inf_nan=False,
    )
    strength: float | None = Field(
        default=None,
        description="The amount, in the unit of the model's data (plays, pieces, seconds); "
        "amounts add up. The default is 1.",
        gt=0,
        allow_inf_nan=False,
    )

    behaviour: Name | None = Field(
        default=None,
        description="What the user did, if it wasn't the interaction itself: viewed, carted. "
        "The item can still be recommended.",
    )


class DislikeEvent(_Event):
    """A user doesn't want to see an item: it is hidden from them at once."""

    kind: Literal["dislike"]
    user: Name
    item: Name


class _Described(_Event):
    label: Label = None
    facts: Facts = {}


class ItemEvent(_Described):
    """An item is new, or has another label or more facts."""

    kind: Literal["item"]
    item: Name


class UserEvent(_Described):
    """A user is new, or has another label or more facts."""

    kind: Literal["user"]
    user: Name


class FactEvent(_Event):
    """A new fact."""

    kind: Literal["fact"]
    head: Name
    relation: Name
    tail: Name
    head_type: Name | None = None
    tail_type: Name | None = None


_FACT = ("head", "relation", "tail")
_ONE_OF: dict[str, Any] = {
    "anyOf": [{"required": names} for names in (["user"], ["item"], [*_FACT])]
}
_DELETED = "give a user, an item, both (for their interaction), or head, relation and tail"


class DeleteEvent(_Event):
    """A user to forget, or an item, an interaction or a fact to delete."""

    model_config = ConfigDict(json_schema_extra=_ONE_OF)
    kind: Literal["delete"]
    user: Name | None = None
    item: Name | None = None
    head: Name | None = None
    relation: Name | None = None
    tail: Name | None = None
    head_type: Name | None = None
    tail_type: Name | None = None

    @model_validator(mode="after")
    def _one_thing(self) -> DeleteEvent:
        fact = [getattr(self, name) is not None for name in _FACT]
        named = self.user is not None or self.item is not None
        if any(fact) == named or any(fact) != all(fact):
            raise ValueError(_DELETED)
        return self


class ImpressionEvent(_Event):
    """Somebody saw a list, or some of its items."""

    kind: Literal["impression"]
    recommendation_id: RecommendationId
    items: Annotated[list[Name], Field(max_length=MOST)] | None = Field(
        default=None, description="The items that were seen, if not the whole list was."
    )


class ClickEvent(_Event):
    """Somebody clicked on an item of a list. That isn't an interaction: send that too."""

    kind: Literal["click"]
    recommendation_id: RecommendationId
    item: Name


AnyEvent = Annotated[
    InteractionEvent
    | DislikeEvent
    | ItemEvent
    | UserEvent
    | FactEvent
    | DeleteEvent
    | ImpressionEvent
    | ClickEvent,
    Field(discriminator="kind"),
]
EXAMPLE: dict[str, Any] = {
    "events": [
        {"kind": "interaction", "user": "ann", "item": "a new mug", "key": "order 17, line 1"},
        {"kind": "item", "item": "a new mug", "label": "Mug", "facts": {"has_brand": ["Acme"]}},
    ]
}


class EventBatch(Closed):
    """Some events, in the order in which they happened; either all are stored or none."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})
    events: Annotated[list[AnyEvent], Field(min_length=1, max_length=MOST_EVENTS)]


# ── answers ─────────────────────────────────────────────────────────────────────────────


class Acknowledged(BaseModel):
    """That events are on disk."""

    stored: int
    duplicates: int = Field(description="Number of events that were ignored: their key repeats.")
    last: int = Field(description="The number of the last event that the server has.")


class Found(BaseModel):
    """The results of a search."""

    results: list[EntityRecord]
    more: bool = Field(description="Whether there are more than were asked for.")


class Labelled(BaseModel):
    """An item."""

    item: str
    label: str


class HistoryItem(Labelled):
    """An item that a user has."""

    time: int | None = Field(description="When, in seconds since 1970; null if not known.")


class Fact(BaseModel):
    """What one relation says about an item."""

    relation: str
    words: str
    entities: list[EntityRecord]
    count: int = Field(description="How many entities there are; the first are given.")


class ItemFacts(Labelled):
    """What is known about an item."""

    facts: list[Fact]
    image: bool = Field(description="Whether `/v1/images` has its picture.")


class History(BaseModel):
    """The items of a user, the latest first."""

    user: str
    label: str
    items: list[HistoryItem]


class Variety(BaseModel):
    """How diversity and limits moved an item; its score and reasons stay the same."""

    rank_by_score: int = Field(ge=1, description="Its rank by score alone.")
    cost: float = Field(description="How much higher the score at this place would be otherwise.")
    because: str = Field(description="Why it moved; empty if it didn't.")


class Recommendation(Labelled):
    """One item of a list."""

    rank: int = Field(ge=1)
    score: float
    variety: Variety | None = Field(description="Null unless diversity or limits were asked for.")
    explanation: ExplanationRecord | None


class JointReason(BaseModel):
    """What one action adds to an item's score."""

    action: str
    total: float = Field(description="Negative where it counts against the item.")
    text: str


class MemberPart(BaseModel):
    """What one member adds to an item's score."""

    user: str
    lead: float = Field(description="How far the item is above the average item for them.")
    because: str
    reasons: list[JointReason]
    explanation: ExplanationRecord | None


class Joint(Labelled):
    """One item of a list for several."""

    rank: int = Field(ge=1)
    score: float = Field(description="The sum of the members' leads.")
    because: str
    members: list[MemberPart]


class JointList(BaseModel):
    """A list for several, the best first."""

    items: list[Joint]


class LeftOut(Labelled):
    """One of the best items by score that diversity or a limit keeps out of the list."""

    score: float
    rank_by_score: int = Field(ge=1)
    because: str


class Recommendations(BaseModel):
    """A list, the best first."""

    recommendation_id: str = Field(description="For impressions and clicks of this list.")
    variant: str = Field(description="Which bundle made it: A, B, … as the server was given them.")
    user: str
    items: list[Recommendation]
    left_out: list[LeftOut] = Field(
        description="Items that diversity and limits keep out of the list."
    )
    held_out: int = Field(
        description="Number of interactions that were held out for testing and that the model "
        "doesn't know; 0 in a model for use."
    )


class MaskInfo(BaseModel):
    """A set of items that filters may name."""

    name: str
    items: int = Field(description="Number of its items that the model knows.")
    unknown: int = Field(description="Number of its names that the model doesn't know.")


class MaskList(BaseModel):
    """All masks."""

    masks: list[str]


class Lists(BaseModel):
    """The lists of several users."""

    lists: list[Recommendations]


class SilentRule(BaseModel):
    """A rule that doesn't lead to an item, and what it contributes to listed ones on average."""

    rule: str
    sentence: str
    weight: float
    gives_on_average: float


class WhyNot(BaseModel):
    """What keeps an item out of a list."""

    explanation: ExplanationRecord
    k: int
    gap: float = Field(description="How far its score is below that of the last listed item.")
    owned: bool
    last: ExplanationRecord | None
    silent: list[SilentRule]
    text: str


class Counterfactual(BaseModel):
    """The fewest interactions without which an item leaves a list."""

    user: str
    item: str
    k: int
    listed: bool = Field(description="Whether the item is in the list at all.")
    without: list[str] = Field(description="The items; empty if no small set was found.")
    instead: str | None = Field(description="The best item that would enter the list.")
    exact: bool = Field(description="Whether all smaller sets were tried, or all sets.")
    text: str


class Moved(Recommendation):
    """One item of the list after a change."""

    before: int | None = Field(description="Its rank before; null if it was not in the list.")


class Gone(Labelled):
    """An item that left the list."""

    before: int


class WhatIf(BaseModel):
    """A list after a change, and the list before it."""

    user: str
    before: list[str]
    after: list[Moved]
    gone: list[Gone]


class Rule(BaseModel):
    """A rule; its id is valid until another bundle is loaded."""

    id: int
    rule: str
    sentence: str
    relations: list[str]
    types: list[str]
    weight: float
    support: int | None = Field(description="Number of interactions that it leads to.")
    precision: float | None = Field(description="Share of these among all pairs it leads to.")
    lift: float | None = Field(description="Precision divided by that of random pairs.")
    coverage: float | None = Field(description="Share of all interactions that it leads to.")


class Rules(BaseModel):
    """All rules, the largest weight first."""

    rules: list[Rule]


class Example(BaseModel):
    """A path of a rule to an item that a user really has."""

    sentence: str
    entities: list[EntityRecord]
    relations: list[str]


class RuleExamples(Rule):
    """A rule with example paths."""

    examples: list[Example]


class Importance(BaseModel):
    """How much a rule matters to a user: its weight × its share of the paths to the history."""

    id: int
    rule: str
    sentence: str
    weight: float
    paths: int
    importance: float


class Profile(BaseModel):
    """The rules of a user, the most important first."""

    user: str
    rules: list[Importance]


class Health(BaseModel):
    """Whether the server works, and with which bundle."""

    status: Literal["ok", "degraded"]
    problem: str | None = Field(default=None, description="Why the server is degraded.")
    version: str
    fingerprint: str
    loaded: float


class Alive(BaseModel):
    """Whether the process works, or accepts requests."""

    status: Literal["live", "ready"]


class Staleness(BaseModel):
    """How far the server is behind the events."""

    bundle_age: float = Field(description="Seconds since the bundle was written.")
    events: int = Field(description="The number of the last event that was acknowledged.")
    applied: int = Field(description="The number of the last event that this worker knows.")
    not_folded: int = Field(description="Number of events that aren't merged into the bundle yet.")
    oldest_not_folded: float = Field(description="Seconds that the first of them has waited.")


class Measured(BaseModel):
    """How well a fit predicted interactions that it didn't know."""

    ndcg: float = Field(description="NDCG@10, the mean over users.")
    recall: float = Field(description="Recall@10, the mean over users.")
    users: int
    interactions: int


class About(BaseModel):
    """The model and the data behind it."""

    version: str
    fingerprint: str
    users: int
    items: int
    facts: int
    rules: int
    types: list[str]
    beside: list[str] = Field(
        description="Types of values that aren't in the graph, but can be used in filters."
    )
    kinds: dict[str, str] = Field(description="The name of each type in the request's language.")
    verbs: dict[str, str] = Field(
        description="Each relation in words; empty if it only says that the head has the tail."
    )
    filters: list[str]
    interaction: str
    fusion: str
    explain_by: str
    takes_new_users: bool
    takes_events: bool = Field(description="Whether this request's key may send events.")
    labels_repeat: bool = Field(description="Whether several items have the same label.")
    most: int
    most_paths: int
    most_history: int
    staleness: Staleness
    fitted_for: Literal["use", "testing"] = Field(
        description="`testing` if interactions were held out, which the model doesn't know."
    )
    held_out: int = Field(description="Number of interactions that were held out.")
    measured: Measured | None = Field(
        description="How well the fit predicted held-out interactions, if that was measured."
    )


class Reloaded(BaseModel):
    """Whether a bundle was reloaded."""

    changed: bool
    fingerprint: str


class ErrorBody(BaseModel):
    """What went wrong."""

    status: int
    code: str
    message: str
    fields: list[dict[str, str]]


class Error(BaseModel):
    """The shape of every error."""

    error: ErrorBody
