"""What requests may say and answers do say; the OpenAPI document is made of these.

What an explanation says is defined in ``loger.explain.record``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from unicodedata import normalize

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from loger.explain.lists import Kind
from loger.explain.record import EntityRecord, ExplanationRecord

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
        description="`shown`: those that carry most of what actions give, at most five; "
        "`all`: every action that gives something."
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
        description="0: by score alone; towards 1, items that share facts with those above them "
        "are held back.",
    ),
]
Popularity = Annotated[
    float,
    Field(ge=-1, le=1, description="Below 0 rare items are preferred, above 0 popular ones."),
]
AtMost = Annotated[
    dict[Name, Annotated[int, Field(ge=1, le=2**31), WHOLE]],
    Field(
        max_length=MOST, description='At most so many items of a brand, say: `{"has_brand": 2}`.'
    ),
]
Items = Annotated[list[Name], Field(max_length=MOST_HISTORY)]
SimilarKind = Annotated[
    Kind,
    Field(
        description="`similar`: everything counts; `complements`: what people have together or "
        "one after another; `substitutes`: the facts that items share."
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
"""What a mask is uploaded as."""


def _given(value: object) -> object:
    if value is None:
        raise ValueError("must not be null; leave it out")
    return value


def _no_default(schema: dict[str, Any]) -> None:
    """Null stands for "not given" and is not a value that may be given."""
    schema.pop("default", None)


class Who(BaseModel):
    """A known user, or a new one by history; with changes to either."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"oneOf": [{"required": ["user"]}, {"required": ["history"]}]},
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
    """For lists of recommendations: how long, of what, how varied."""

    k: K = 10
    paths: Paths = 3
    explain: bool = Field(default=True, description="Whether each item comes with its explanation.")
    style: Style = "sentence"
    include: Filters = Field(
        default=[],
        description="Only items that match all of these filters, but of those that give values of "
        "one column, such as `brand=A` and `brand=B`, one.",
    )
    exclude: Filters = Field(default=[], description="No items that match one of these filters.")
    diversity: Diversity = 0.0
    popularity: Popularity = 0.0
    at_most: AtMost = {}


class AskList(Who, Wishes):
    """For a list of recommendations."""


class AskLists(Wishes):
    """For the lists of several known users."""

    model_config = ConfigDict(extra="forbid", strict=True)
    users: list[Name] = Field(min_length=1, max_length=MOST, description="Known users.")


class AskSimilar(Wishes):
    """For items like one or several."""

    model_config = ConfigDict(extra="forbid", strict=True)
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


class Found(BaseModel):
    """The results of a search."""

    results: list[EntityRecord]
    more: bool = Field(description="Whether there are more than were asked for.")


class HistoryItem(BaseModel):
    """An item that a user has."""

    item: str
    label: str
    time: int | None = Field(description="When, in seconds since 1970; null if not known.")


class Fact(BaseModel):
    """What one relation says of an item."""

    relation: str
    words: str
    entities: list[EntityRecord]
    count: int = Field(description="How many entities there are; the first are given.")


class ItemFacts(BaseModel):
    """What is known of an item."""

    item: str
    label: str
    facts: list[Fact]
    image: bool = Field(description="Whether `/v1/images` has its picture.")


class History(BaseModel):
    """The items of a user, the latest first."""

    user: str
    label: str
    items: list[HistoryItem]


class Variety(BaseModel):
    """What diversity and limits did to an item's place; its score and reasons stay."""

    rank_by_score: int = Field(ge=1, description="Its place by score alone.")
    cost: float = Field(description="How much higher the score is that would be at this place.")
    because: str = Field(description="Why it moved; empty if it did not.")


class Recommendation(BaseModel):
    """One item of a list."""

    rank: int = Field(ge=1)
    item: str
    label: str
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


class Joint(BaseModel):
    """One item of a list for several."""

    rank: int = Field(ge=1)
    item: str
    label: str
    score: float = Field(description="The sum of the members' leads.")
    because: str
    members: list[MemberPart]


class JointList(BaseModel):
    """A list for several, the best first."""

    items: list[Joint]


class LeftOut(BaseModel):
    """One of the best by score that diversity or a limit keeps out of the list."""

    item: str
    label: str
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
        description="What would be in the list by score alone, but for diversity and limits."
    )
    held_out: int = Field(
        description="How many interactions were held out to test on, of which the model knows "
        "nothing; 0 in a model for use."
    )


class MaskInfo(BaseModel):
    """A set of items that filters may name."""

    name: str
    items: int = Field(description="How many items of the model it has.")
    unknown: int = Field(description="How many of its names are of no item of the model.")


class MaskList(BaseModel):
    """All masks."""

    masks: list[str]


class Lists(BaseModel):
    """The lists of several users."""

    lists: list[Recommendations]


class SilentRule(BaseModel):
    """A rule that does not fire for an item, with what it gives the listed ones on average."""

    rule: str
    sentence: str
    weight: float
    gives_on_average: float


class WhyNot(BaseModel):
    """What keeps an item out of a list."""

    explanation: ExplanationRecord
    k: int
    gap: float = Field(description="How far its score is below the last of the list.")
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
    without: list[str] = Field(description="Items to be without; empty if no few suffice.")
    instead: str | None = Field(description="The best item that would enter the list.")
    exact: bool = Field(description="Whether every smaller set, or every set, was tried.")
    text: str


class Moved(Recommendation):
    """One item of the list after a change."""

    before: int | None = Field(description="Its rank before; null if it was not in the list.")


class Gone(BaseModel):
    """An item that left the list."""

    item: str
    label: str
    before: int


class WhatIf(BaseModel):
    """A list after a change, beside the list before."""

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
    support: int | None = Field(description="Interactions that it leads to.")
    precision: float | None = Field(description="Share of the pairs it leads to that are taken.")
    lift: float | None = Field(description="Precision over that of chance.")
    coverage: float | None = Field(description="Share of all interactions that it leads to.")


class Rules(BaseModel):
    """All rules, the largest weight first."""

    rules: list[Rule]


class Example(BaseModel):
    """A path of a rule to something that a user really has."""

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
    """That the server works, and with what."""

    status: Literal["ok", "degraded"]
    problem: str | None = None
    """Why an older bundle is served than the one in the folder."""
    version: str
    fingerprint: str
    loaded: float


class Alive(BaseModel):
    """That the process works, or that it takes requests."""

    status: Literal["live", "ready"]


class Staleness(BaseModel):
    """How far the server is behind what happened."""

    bundle_age: float = Field(description="Seconds since the bundle was written.")
    events: int = Field(description="The number of the last event that was acknowledged.")
    applied: int = Field(description="The number of the last that this worker knows.")
    not_folded: int = Field(description="Events that act, but that the bundle does not hold yet.")
    oldest_not_folded: float = Field(description="Seconds that the first of them has waited.")


class Measured(BaseModel):
    """How good a fit was on interactions that it did not know."""

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
        description="Types of values that are not in the graph, and may be filtered by."
    )
    kinds: dict[str, str] = Field(description="What each type is called in the language asked for.")
    verbs: dict[str, str] = Field(
        description="What each relation says in that language; empty if only that the head has it."
    )
    filters: list[str]
    interaction: str
    fusion: str
    explain_by: str
    takes_new_users: bool
    takes_events: bool = Field(description="Whether this request's key may send events.")
    labels_repeat: bool = Field(description="Whether items share a label: ids tell them apart.")
    most: int
    most_paths: int
    most_history: int
    staleness: Staleness
    fitted_for: Literal["use", "testing"] = Field(
        description="`testing`: interactions were held out, and the model does not know them."
    )
    held_out: int = Field(description="How many interactions were held out.")
    measured: Measured | None = Field(
        description="How good the fit was on held-out interactions, if it was measured."
    )


class Reloaded(BaseModel):
    """What a request to reload did."""

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
