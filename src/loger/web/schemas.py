"""What requests may say and answers do say; the OpenAPI document is made of these.

What an explanation says is defined in ``loger.explain.schema``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from loger.explain.schema import EntityRecord, ExplanationRecord

MOST = 100
"""Items of a list, results of a search, filters."""
MOST_PATHS = 10
MOST_HISTORY = 1_000
NAME = 512
"""Characters of a name."""

Name = Annotated[str, Field(min_length=1, max_length=NAME)]


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
        min_length=3,
        max_length=NAME,
        pattern="^[^:]+:",
        description="`type:name`, such as `category:lamps`, or `item:name` for one item.",
    ),
]
Filters = Annotated[list[Filter], Field(max_length=MOST)]
Items = Annotated[list[Name], Field(max_length=MOST_HISTORY)]


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


class AskList(Who):
    """For a list of recommendations."""

    k: K = 10
    paths: Paths = 3
    explain: bool = Field(default=True, description="Whether each item comes with its explanation.")
    include: Filters = Field(default=[], description="Only items that match one of these filters.")
    exclude: Filters = Field(default=[], description="No items that match one of these filters.")


class AskItem(Who):
    """About one item."""

    item: Name
    paths: Paths = 3
    reasons: Reasons = "shown"


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


class History(BaseModel):
    """The items of a user, the latest first."""

    user: str
    label: str
    items: list[HistoryItem]


class Recommendation(BaseModel):
    """One item of a list."""

    rank: int = Field(ge=1)
    item: str
    label: str
    score: float
    explanation: ExplanationRecord | None


class Recommendations(BaseModel):
    """A list, the best first."""

    user: str
    items: list[Recommendation]


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

    status: str
    version: str
    fingerprint: str
    loaded: float


class About(BaseModel):
    """The model and the data behind it."""

    version: str
    fingerprint: str
    users: int
    items: int
    facts: int
    rules: int
    types: list[str]
    interaction: str
    fusion: str
    takes_new_users: bool
    most: int
    most_paths: int
    most_history: int


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
