"""The paths of the HTTP API: parse, call, answer."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from anyio import to_thread
from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi import Path as InPath
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse

from loger import __version__
from loger.errors import UnknownNameError, ViewError
from loger.explain.attribution import explain
from loger.explain.lists import ListRequest, Member, changes, recommend_together
from loger.explain.lists import recommendations as recommendations_of
from loger.explain.questions import Counterfactual, WhyNot
from loger.explain.record import ReasonedRecord, ShownRecord
from loger.explain.render import carried_text, rows
from loger.graph.catalogue import fact_names
from loger.ranking.selection import Selection, limits_of
from loger.rules import Wording
from loger.updates.feedback import new_id, shown
from loger.web import schemas as s
from loger.web.config import ACCESS
from loger.web.guard import Access
from loger.web.live import Events
from loger.web.problems import ProblemError, known_parameters
from loger.web.served import IMAGE_TYPES, Served, Subject, find_image
from loger.web.service import Variant, Variants

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": s.Error} for status in (400, 401, 403, 404, 409, 413, 422, 429, 500, 503)
}
router = APIRouter(prefix="/v1", responses=ERRORS, dependencies=[Depends(known_parameters)])

User = Annotated[s.Name, Query(description="A known user.")]
Item = Annotated[s.Name, Query()]
Text = Annotated[str, Query(max_length=s.NAME, description="The start or a part of a name.")]
Most = Annotated[int, Query(ge=1, le=s.MOST, description="How many at most.")]


class Context:
    """The server as one request sees it: its bundles, its events, and what the key allows."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.variants: Variants = request.app.state.variants
        self.events: Events = request.app.state.events
        self.access: Access = request.scope.get(ACCESS, Access())
        self.served: Served = self.variants.services[0].served
        """The first bundle, for questions about nobody. It stays the same if another is loaded."""
        self._selections = dict[Served, Selection]()

    def variant(self, who: s.Who) -> Variant:
        """The bundle that somebody gets; refused if the key is another user's."""
        self.access.check_user(who.user)
        variant = self.variants.of(who)
        own = self.access.scope == "own" and who.user is not None
        if own and not variant.served.has_user(str(who.user)):
            raise UnknownNameError("user", str(who.user), (), near=())  # may be another's label
        return variant

    def words(self, style: str = "sentence") -> Wording:
        """The words for sentences, in the best language of the request."""
        accepted = self.request.headers.get("accept-language", "")
        return self.variants.words(accepted).styled(style)

    def selection(self, served: Served, ask: s.Wishes) -> Selection:
        """Which items may be recommended, worked out once for each bundle."""
        if served not in self._selections:
            self._selections[served] = served.selection(ask, self.variants.masks)
        return self._selections[served]

    def list_request(self, served: Served, ask: s.Wishes, words: Wording) -> ListRequest:
        """A list as the request wishes it."""
        return ListRequest(ask.k, self.selection(served, ask), ask.explain, ask.paths, words)


async def _context(request: Request) -> Context:
    """The context of a request, made without a thread: health needs none and waits for none."""
    return Context(request)


Asked = Annotated[Context, Depends(_context)]


# ── recommending ────────────────────────────────────────────────────────────────────────


def _listed(asked: Context, ask: s.AskList) -> dict[str, Any]:
    """A list by the bundle that somebody gets, noted so that clicks can refer to it."""
    variant = asked.variant(ask)
    served = variant.served
    answer = _recommend(asked, served, ask)
    name, id_ = variant.name, new_id(variant.number)
    who = None if ask.user is None else answer["user"]
    kept = shown(answer["items"], served.fingerprint, variant.propensity)
    asked.events.note((id_, time.time(), who, name, kept))
    asked.events.metrics.lists.labels(name).inc()
    return {"recommendation_id": id_, "variant": name, **answer}


def _recommend(asked: Context, served: Served, ask: s.AskList) -> dict[str, Any]:
    model, user, name = person = served.person(ask)
    request = asked.list_request(served, ask, asked.words(ask.style))
    selection = served.for_person(request.selection, person, ask.remove)
    ranker = model.ranker_.with_popularity(ask.popularity)
    items, left_out = recommendations_of(ranker, user, request._replace(selection=selection))
    for row in items:
        _called(row["explanation"], name)
    held_out = len(model.ranker_.held_out)
    return {"user": name, "items": items, "left_out": left_out, "held_out": held_out}


def _called(record: dict[str, Any] | None, name: str) -> dict[str, Any] | None:
    """A record in which the user is called by name, also one whom only events know."""
    if record is not None:
        record["user"] = name
    return record


@router.get("/recommendations", tags=["recommending"])
def recommendations(
    asked: Asked,
    user: User,
    k: Annotated[s.K, Query()] = 10,
    paths: Annotated[s.Paths, Query()] = 3,
    explain: Annotated[bool, Query(description="Whether to explain each item.")] = True,
    include: Annotated[s.Filters, Query()] = [],  # noqa: B006
    exclude: Annotated[s.Filters, Query()] = [],  # noqa: B006
    diversity: Annotated[s.Diversity, Query()] = 0.0,
    popularity: Annotated[s.Popularity, Query()] = 0.0,
    at_most: Annotated[list[s.Limit], Query()] = [],  # noqa: B006
    style: Annotated[s.Style, Query()] = "sentence",
) -> s.Recommendations:
    """The k best new items of a known user, each with its reasons."""
    ask = s.AskList(
        user=user, k=k, paths=paths, explain=explain, include=include, exclude=exclude,
        diversity=diversity, popularity=popularity, at_most=limits_of(at_most), style=style,
    )  # fmt: skip
    return recommendations_for(asked, ask)


@router.post("/recommendations", tags=["recommending"])
def recommendations_for(asked: Asked, ask: s.AskList) -> s.Recommendations:
    """The k best new items of a user, a new user's by history, or of either with changes."""
    return _listed(asked, ask)  # type: ignore[return-value]


@router.post("/recommendations:batch", tags=["recommending"])
def recommendations_batch(asked: Asked, ask: s.AskLists) -> s.Lists:
    """The k best new items of several known users, in the order in which they were asked for."""
    wishes = ask.model_dump(exclude={"users"})
    lists = [_listed(asked, s.AskList(user=user, **wishes)) for user in ask.users]
    return {"lists": lists}  # type: ignore[return-value]


@router.post("/recommendations:group", tags=["recommending"])
def recommendations_for_group(asked: Asked, ask: s.AskLists) -> s.JointList:
    """The k best items for several known users together: each item's score is the sum of how far
    it is above the average item for each of them."""
    people = [asked.served.person(s.Who(user=user)) for user in ask.users]
    rankers = [person.model.ranker_.with_popularity(ask.popularity) for person in people]
    members = [Member(r, person.user) for r, person in zip(rankers, people, strict=True)]
    request = asked.list_request(asked.served, ask, asked.words(ask.style))
    rows = recommend_together(members, request)
    for row in rows:
        for part, person in zip(row["members"], people, strict=True):
            part["user"] = person.name
            _called(part["explanation"], person.name)
    return {"items": rows}  # type: ignore[return-value]


@router.get("/items/{item:path}/similar", tags=["recommending"])
def similar(
    asked: Asked,
    item: Annotated[s.Name, InPath()],
    k: Annotated[s.K, Query()] = 10,
    kind: Annotated[s.SimilarKind, Query()] = "similar",
    style: Annotated[s.Style, Query()] = "sentence",
) -> s.JointList:
    """The k items most like an item, each with its reasons."""
    return similar_to(asked, s.AskSimilar(items=[item], k=k, kind=kind, style=style))


@router.post("/similar", tags=["recommending"])
def similar_to(asked: Asked, ask: s.AskSimilar) -> s.JointList:
    """The k items most like one or several items, or unlike others, each with its reasons."""
    served = asked.served
    names = served.graph.vocabulary.names[served.graph.n_users :]
    items, less = ([names[served.item(v)] for v in given] for given in (ask.items, ask.less))
    members = served.model.alike(items, less, ask.kind, ask.popularity)
    request = asked.list_request(served, ask, asked.words(ask.style).about_items())
    return {"items": recommend_together(members, request)}  # type: ignore[return-value]


@router.post("/what-if", tags=["recommending"])
def what_if(asked: Asked, ask: s.AskList) -> s.WhatIf:
    """The list with other items in the history or fewer rules, next to the list as it is."""
    served = asked.variant(ask).served
    after = _recommend(asked, served, ask)
    unchanged = {"remove": [], "add": [], "without_rules": [], "explain": False}
    before = _recommend(asked, served, ask.model_copy(update=unchanged))
    moved = changes(before["items"], after["items"])
    return {"user": after["user"], **moved}  # type: ignore[return-value]


# ── explaining ──────────────────────────────────────────────────────────────────────────


def _about(asked: Context, ask: s.AskItem | s.AskWhyNot) -> tuple[Served, Subject, int]:
    """The bundle that answers a question, whom it is about, and which item."""
    served = asked.variant(ask).served
    item = served.item(ask.item)
    return served, served.person(ask), item


def _item_query(
    user: User,
    item: Item,
    paths: Annotated[s.Paths, Query()] = 3,
    reasons: Annotated[s.Reasons, Query()] = "shown",
    style: Annotated[s.Style, Query()] = "sentence",
) -> s.AskItem:
    return s.AskItem(user=user, item=item, paths=paths, reasons=reasons, style=style)


def _rank_query(user: User, item: Item, k: Annotated[s.K, Query()] = 10) -> s.AskWhyNot:
    return s.AskWhyNot(user=user, item=item, k=k)


@router.get("/explain", tags=["explaining"])
def explain_known(asked: Asked, ask: Annotated[s.AskItem, Depends(_item_query)]) -> ShownRecord:
    """Why an item has its score for a known user: reasons, the rest, rules and paths."""
    return explain_for(asked, ask)


@router.post("/explain", tags=["explaining"])
def explain_for(asked: Asked, ask: s.AskItem) -> ShownRecord:
    """Why an item has its score for a user, a new user, or either with changes."""
    _, (model, user, name), item = _about(asked, ask)
    users, items = np.array([user]), np.array([item])
    words = asked.words(ask.style)
    found = explain(model.ranker_, users, items, ask.paths, words=words)[0]
    record = found.as_dict(every=ask.reasons == "all") | {"user": name}
    listed = record | {"reasons": record["reasons"][: len(found.shown)]}
    return record | {  # type: ignore[return-value]
        "rows": [row._asdict() for row in rows(record, words)],
        "summary": carried_text(listed, words),
    }


@router.get("/explain/reasoner", tags=["explaining"])
def explain_by_reasoner(
    asked: Asked,
    user: User,
    item: Item,
    paths: Annotated[s.Paths, Query()] = 3,
) -> ReasonedRecord:
    """The paths that the paper's reasoner finds from a known user to an item, or that it missed."""
    served = asked.variant(s.Who(user=user)).served
    model = served.model
    if model.reasoner_ is None:
        raise ProblemError(409, "this model has no path reasoner; ask /v1/explain", "no_reasoner")
    items = np.array([served.item(item)])
    found = model.reasoner_.reasoned(model.ranker_, served.user(user), items, paths)[0]
    return found.said(asked.words()).as_dict()  # type: ignore[return-value]


@router.get("/why-not", tags=["explaining"])
def why_not(asked: Asked, ask: Annotated[s.AskWhyNot, Depends(_rank_query)]) -> s.WhyNot:
    """What keeps an item out of a known user's k best."""
    return why_not_for(asked, ask)


@router.post("/why-not", tags=["explaining"])
def why_not_for(asked: Asked, ask: s.AskWhyNot) -> s.WhyNot:
    """What keeps an item out of the k best of a user, a new user, or either with changes."""
    served, (model, user, name), item = _about(asked, ask)
    k = min(ask.k, served.graph.n_items)
    answer = WhyNot.of(model.ranker_, user, item, k, asked.words())
    record = answer.as_dict()
    _called(record["explanation"], name)
    _called(record["last"], name)
    return {**record, "text": str(answer)}  # type: ignore[return-value]


@router.get("/counterfactual", tags=["explaining"])
def counterfactual(
    asked: Asked, ask: Annotated[s.AskWhyNot, Depends(_rank_query)]
) -> s.Counterfactual:
    """The fewest interactions without which an item leaves a known user's k best."""
    return counterfactual_for(asked, ask)


@router.post("/counterfactual", tags=["explaining"])
def counterfactual_for(asked: Asked, ask: s.AskWhyNot) -> s.Counterfactual:
    """The fewest interactions without which an item leaves the k best of a user, a new user, or
    either with changes."""
    served, (model, user, name), item = _about(asked, ask)
    k = min(ask.k, served.graph.n_items)
    try:
        found = Counterfactual.of(model.ranker_, user, item, k, budget=s.REMOVALS)
    except ViewError:
        what = (
            "a counterfactual needs a known user without changes; if the user has new events, "
            "try again once they are merged"
        )
        raise ProblemError(409, what, "changed_user") from None
    found = replace(found, words=asked.words())
    record = found.as_dict() | {"user": name, "text": str(found)}
    return record  # type: ignore[return-value]


# ── rules ───────────────────────────────────────────────────────────────────────────────


@router.get("/rules", tags=["rules"])
def rules(asked: Asked) -> s.Rules:
    """All rules with their weights, the largest first."""
    served, words = asked.served, asked.words()
    every = [served.rule(k, words) for k in range(len(served.model.rules_))]
    return {"rules": sorted(every, key=lambda r: -r["weight"])}  # type: ignore[return-value]


@router.get("/rules/{id}", tags=["rules"])
def rule_with_examples(asked: Asked, id: Annotated[int, InPath(ge=0, le=2**31)]) -> s.RuleExamples:
    """A rule with example paths to items that users really have."""
    served, words = asked.served, asked.words()
    served.check_rule(id)
    examples = served.examples(id, words)
    return {**served.rule(id, words), "examples": examples}  # type: ignore[return-value]


@router.get("/profile", tags=["rules"])
def profile(asked: Asked, user: User) -> s.Profile:
    """How important each rule is to a known user."""
    return profile_for(asked, s.Who(user=user))


@router.post("/profile", tags=["rules"])
def profile_for(asked: Asked, who: s.Who) -> s.Profile:
    """How important each rule is to a user, a new user, or either with changes."""
    return asked.variant(who).served.profile(who, asked.words())  # type: ignore[return-value]


# ── finding ─────────────────────────────────────────────────────────────────────────────


def _search(asked: Context, entity_type: str, q: str, limit: int) -> dict[str, Any]:
    results, more = asked.served.search(entity_type, q, limit)
    return {"results": results, "more": more}


@router.get("/users", tags=["finding"])
def users(asked: Asked, q: Text = "", limit: Most = 20) -> s.Found:
    """Users by name or label: first those that begin with the text, then those that contain it."""
    return _search(asked, "user", q, limit)  # type: ignore[return-value]


@router.get("/items", tags=["finding"])
def items(asked: Asked, q: Text = "", limit: Most = 20) -> s.Found:
    """Items by name or label: first those that begin with the text, then those that contain it."""
    return _search(asked, "item", q, limit)  # type: ignore[return-value]


@router.get("/entities", tags=["finding"])
def entities(
    asked: Asked,
    type: Annotated[s.Name, Query(description="As in /v1/about.")],
    q: Text = "",
    limit: Most = 20,
) -> s.Found:
    """Entities of any type by name or label, for filters."""
    return _search(asked, type, q, limit)  # type: ignore[return-value]


@router.get("/history", tags=["finding"])
def history(asked: Asked, user: User) -> s.History:
    """The items that a user has, the latest first."""
    who = s.Who(user=user)
    served = asked.variant(who).served
    person = served.person(who)
    label, items = served.label(person), served.history(person)
    return {"user": user, "label": label, "items": items}  # type: ignore[return-value]


@router.get("/facts", tags=["finding"])
def facts(asked: Asked, item: Item) -> s.ItemFacts:
    """What is known of an item, relation by relation."""
    known = asked.served.facts(item)
    return {**known, "image": _picture(asked, item) is not None}  # type: ignore[return-value]


@router.get("/images", tags=["finding"], response_class=FileResponse)
def image(asked: Asked, item: Item) -> FileResponse:
    """The picture of an item, if the server has one."""
    path = _picture(asked, item)
    if path is None:
        raise ProblemError(404, f"there is no picture of {item!r}", "no_picture")
    return FileResponse(path, media_type=IMAGE_TYPES[path.suffix.lower()])


def _picture(asked: Context, item: str) -> Path | None:
    """The file of an item's picture."""
    given, folder = asked.served.image(item), asked.variants.config.images
    return None if given is None or folder is None else find_image(Path(folder), given)


# ── masks ───────────────────────────────────────────────────────────────────────────────


@router.get("/masks", tags=["masks"])
def masks(asked: Asked) -> s.MaskList:
    """The sets of items that filters may name."""
    return s.MaskList(masks=asked.variants.masks.names())


@router.put("/masks/{name}", tags=["masks"], openapi_extra=s.UPLOAD)
async def put_mask(asked: Asked, name: Annotated[s.Name, InPath()]) -> s.MaskInfo:
    """Upload a set of items under a name, for `mask=NAME`; it replaces one of the same name."""
    is_json = asked.request.headers.get("content-type", "").startswith("application/json")
    body, graph = await asked.request.body(), asked.served.graph
    await run_in_threadpool(asked.variants.masks.put, name, body, is_json, graph)
    return await run_in_threadpool(mask, asked, name)


@router.get("/masks/{name}", tags=["masks"])
def mask(asked: Asked, name: Annotated[s.Name, InPath()]) -> s.MaskInfo:
    """How many items a mask has."""
    found, unknown = asked.variants.masks.read(name, asked.served.graph)
    return s.MaskInfo(name=name, items=int(found.sum()), unknown=unknown)


@router.delete("/masks/{name}", tags=["masks"])
def delete_mask(asked: Asked, name: Annotated[s.Name, InPath()]) -> s.MaskList:
    """Forget a mask. The answer lists those that are left."""
    asked.variants.masks.delete(name)
    return s.MaskList(masks=asked.variants.masks.names())


# ── events ──────────────────────────────────────────────────────────────────────────────


async def _as_json(request: Request) -> None:
    """Refuse events that a page elsewhere could send: browsers send JSON to other sites only if
    these allow it."""
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise ProblemError(422, "send events as JSON, with Content-Type: application/json")


@router.post("/events", tags=["events"], dependencies=[Depends(_as_json)])
async def events(
    asked: Asked,
    batch: s.EventBatch,
    idempotency_key: Annotated[
        str | None,
        Header(
            max_length=s.NAME,
            description="For all events of the batch without a key of their own: a batch that is "
            "sent again with the same key counts once.",
        ),
    ] = None,
) -> s.Acknowledged:
    """Store what happened: interactions, dislikes, items, users, facts, deletes, impressions and
    clicks.

    The events are on disk when this answers. What a user did affects the user's next request, in
    every worker within a second; items and facts take effect when they are merged."""
    now, client = time.time(), asked.request.client
    kept = [
        one.event(now, None if idempotency_key is None else f"{idempotency_key} {place}")
        for place, one in enumerate(batch.events)
    ]
    append, address = asked.events.append, client.host if client else ""
    # Events wait for the disk in a thread of their own, not in one of those that recommend.
    limiter = asked.request.app.state.event_limiter
    appended = await to_thread.run_sync(append, kept, address, limiter=limiter)
    return s.Acknowledged(**appended._asdict())


# ── how the server is doing ─────────────────────────────────────────────────────────────


@router.get("/health", tags=["running"])
async def health(asked: Asked) -> s.Health:
    """Whether the server works, and which bundle it serves. It is degraded if it can't load the
    newest bundle or can't merge events into it."""
    problem = asked.variants.problem or asked.events.not_folded
    return s.Health(
        status="ok" if problem is None else "degraded",
        problem=problem,
        version=__version__,
        fingerprint=asked.served.fingerprint,
        loaded=asked.served.loaded,
    )


@router.get("/health/live", tags=["running"])
async def live() -> s.Alive:
    """Whether the process works at all; if not, start it again."""
    return s.Alive(status="live")


@router.get("/health/ready", tags=["running"])
async def ready(asked: Asked) -> s.Alive:
    """Whether to send requests here: 503 if events can't be followed, or the server is stopping."""
    if asked.events.problem is not None or asked.events.stopping:
        raise ProblemError(503, asked.events.problem or "this server is stopping")
    return s.Alive(status="ready")


@router.get("/about", tags=["running"])
def about(asked: Asked) -> s.About:
    """The model, the data behind it, and the limits of requests."""
    model, graph, words = asked.served.model, asked.served.graph, asked.words()
    types = list(graph.vocabulary.types)
    beside = list(dict.fromkeys(column.type for column in model.catalogue_.filter_only))
    held_out = len(model.ranker_.held_out)
    return s.About(
        version=__version__,
        fingerprint=asked.served.fingerprint,
        users=graph.n_users,
        items=graph.n_items,
        facts=graph.n_triples,
        rules=len(model.rules_),
        types=types,
        beside=beside,
        kinds={name: words.kind(name) for name in (*types, *beside)},
        verbs={r.name: words.verb(r.name, r.head_type, r.tail_type) for r in graph.relations},
        filters=fact_names(graph, model.catalogue_),
        interaction=graph.relations[0].name,
        fusion=model.config_.em.fusion,
        explain_by=model.config_.explain_by,
        takes_new_users=asked.served.takes_new_users,
        takes_events=asked.variants.config.events and asked.access.scope == "admin",
        labels_repeat=graph.vocabulary.shown is not graph.vocabulary.labels,
        most=s.MOST,
        most_paths=s.MOST_PATHS,
        most_history=s.MOST_HISTORY,
        staleness=asked.events.staleness(asked.variants.services[0], time.time()),
        fitted_for="testing" if held_out else "use",
        held_out=held_out,
        measured=None if model.measured_ is None else s.Measured(**asdict(model.measured_)),
    )


@router.post("/reload", tags=["running"])
def reload(asked: Asked) -> s.Reloaded:
    """Reload the bundle if it has changed; needs an API key. Other workers follow in seconds."""
    if asked.variants.config.api_key is None:
        raise ProblemError(403, "to reload by request, start the server with an API key")
    changed = sum(one.refresh() for one in asked.variants.services) > 0
    return s.Reloaded(changed=changed, fingerprint=asked.variants.services[0].served.fingerprint)
