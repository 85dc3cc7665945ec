"""The paths of the HTTP API: parse, call, answer."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Query, Request
from fastapi import Path as InPath
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse

from loger.errors import UnknownNameError, ViewError
from loger.explain.attribution import explain
from loger.explain.lists import ListRequest, Member, changes, recommend_together
from loger.explain.lists import recommendations as recommendations_of
from loger.explain.questions import Counterfactual, WhyNot
from loger.explain.record import ReasonedRecord, ShownRecord
from loger.explain.render import carried_text, rows
from loger.ranking.selection import Selection, limits_of
from loger.rules import Wording
from loger.updates.feedback import new_id, shown
from loger.web import schemas as s
from loger.web.keys import ACCESS, Access
from loger.web.live import Events
from loger.web.masks import Masks
from loger.web.problems import ProblemError, known_parameters
from loger.web.served import IMAGE_TYPES, Served, Subject, find_image
from loger.web.service import Service, Variant, Variants

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": s.Error} for status in (400, 401, 403, 404, 409, 413, 422, 429, 500, 503)
}
router = APIRouter(prefix="/v1", responses=ERRORS, dependencies=[Depends(known_parameters)])

User = Annotated[s.Name, Query(description="A known user.")]
Item = Annotated[s.Name, Query()]
Text = Annotated[str, Query(max_length=s.NAME, description="The start or a part of a name.")]
Most = Annotated[int, Query(ge=1, le=s.MOST, description="How many at most.")]


def _served(request: Request) -> Served:
    """The first bundle, for questions about nobody."""
    service: Service = request.app.state.service
    return service.served


def _variant(request: Request, who: s.Who) -> Variant:
    """The bundle that somebody gets, if the request's key is theirs or anybody's."""
    variants: Variants = request.app.state.variants
    access: Access = request.scope.get(ACCESS, Access())
    access.check_user(who.user)
    variant = variants.of(who)
    if access.scope == "own" and who.user is not None and not variant.served.has_user(who.user):
        raise UnknownNameError("user", who.user, (), near=())  # it may be the label of another
    return variant


def _served_to(request: Request, who: s.Who) -> Served:
    """As ``_variant``, where only the model matters."""
    return _variant(request, who).served


# ── recommending ────────────────────────────────────────────────────────────────────────


def _words(request: Request, style: str = "sentence") -> Wording:
    """What sentences are said in, by the request's Accept-Language."""
    service: Service = request.app.state.service
    return service.words(request.headers.get("accept-language", "")).styled(style)


def _listed(request: Request, ask: s.AskList, chosen: _Chosen) -> dict[str, Any]:
    """A list by the bundle that somebody gets, noted for what people will make of it."""
    events: Events = request.app.state.events
    variant = _variant(request, ask)
    served = variant.served
    told = _recommend(served, ask, chosen(served, ask), _words(request, ask.style))
    name, id_ = variant.name, new_id(variant.number)
    who = None if ask.user is None else told["user"]
    kept = shown(told["items"], served.fingerprint, variant.propensity)
    events.note((id_, time.time(), who, name, kept))
    request.app.state.events.metrics.lists.labels(name).inc()
    return {"recommendation_id": id_, "variant": name, **told}


def _recommend(
    served: Served, ask: s.AskList, selection: Selection, words: Wording
) -> dict[str, Any]:
    model, user, name = asked = served.person(ask)
    selection = served.for_person(selection, asked, ask.remove)
    request = ListRequest(ask.k, selection, ask.explain, ask.paths, words)
    ranker = model.ranker_.with_popularity(ask.popularity)
    items, left_out = recommendations_of(ranker, user, request)
    for row in items:
        _called(row["explanation"], name)
    held_out = len(model.ranker_.held_out)
    return {"user": name, "items": items, "left_out": left_out, "held_out": held_out}


def _called(record: dict[str, Any] | None, name: str) -> dict[str, Any] | None:
    """A record in which the user is called by name, also one whom only events know."""
    if record is not None:
        record["user"] = name
    return record


class _Chosen:
    """Which items may be recommended, worked out once for each bundle that a request asks."""

    def __init__(self, masks: Masks) -> None:
        self.masks, self.known = masks, dict[Served, Selection]()

    def __call__(self, served: Served, ask: s.Wishes) -> Selection:
        if served not in self.known:
            self.known[served] = served.selection(ask, self.masks)
        return self.known[served]


def _chosen(request: Request) -> _Chosen:
    service: Service = request.app.state.service
    return _Chosen(service.masks)


@router.get("/recommendations", tags=["recommending"])
def recommendations(
    request: Request,
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
    return recommendations_for(request, ask)


@router.post("/recommendations", tags=["recommending"])
def recommendations_for(request: Request, ask: s.AskList) -> s.Recommendations:
    """The k best new items of a user, a new user's by history, or of either with changes."""
    return _listed(request, ask, _chosen(request))  # type: ignore[return-value]


@router.post("/recommendations:batch", tags=["recommending"])
def recommendations_batch(request: Request, ask: s.AskLists) -> s.Lists:
    """The k best new items of several known users, in the order in which they were asked for."""
    chosen = _chosen(request)
    asked = [s.AskList(user=user, **ask.model_dump(exclude={"users"})) for user in ask.users]
    return {  # type: ignore[return-value]
        "lists": [_listed(request, one, chosen) for one in asked]
    }


@router.post("/recommendations:group", tags=["recommending"])
def recommendations_for_group(request: Request, ask: s.AskLists) -> s.JointList:
    """The k best items for several known users together: each item's score is the sum of how far
    it is above the average item for each of them."""
    served = _served(request)
    people = [served.person(s.Who(user=user)) for user in ask.users]
    members = [
        Member(person.model.ranker_.with_popularity(ask.popularity), person.user)
        for person in people
    ]
    rows = _together(request, served, members, ask, _words(request, ask.style))
    for row in rows:
        for part, person in zip(row["members"], people, strict=True):
            part["user"] = person.name
            _called(part["explanation"], person.name)
    return {"items": rows}  # type: ignore[return-value]


@router.get("/items/{item:path}/similar", tags=["recommending"])
def similar(
    request: Request,
    item: Annotated[s.Name, InPath()],
    k: Annotated[s.K, Query()] = 10,
    kind: Annotated[s.SimilarKind, Query()] = "similar",
    style: Annotated[s.Style, Query()] = "sentence",
) -> s.JointList:
    """The k items most like an item, each with its reasons."""
    return similar_to(request, s.AskSimilar(items=[item], k=k, kind=kind, style=style))


@router.post("/similar", tags=["recommending"])
def similar_to(request: Request, ask: s.AskSimilar) -> s.JointList:
    """The k items most like one or several items, or unlike others, each with its reasons."""
    served = _served(request)
    names = served.graph.vocabulary.names[served.graph.n_users :]
    items, less = ([names[served.item(v)] for v in given] for given in (ask.items, ask.less))
    members = served.model.alike(items, less, ask.kind, ask.popularity)
    words = _words(request, ask.style).about_items()
    return {"items": _together(request, served, members, ask, words)}  # type: ignore[return-value]


def _together(
    request: Request, served: Served, members: list[Member], ask: s.Wishes, words: Wording
) -> list[dict[str, Any]]:
    """A list for several members, as a request wishes it."""
    selection = _chosen(request)(served, ask)
    wanted = ListRequest(ask.k, selection, ask.explain, ask.paths, words)
    return recommend_together(members, wanted)


@router.post("/what-if", tags=["recommending"])
def what_if(request: Request, ask: s.AskList) -> s.WhatIf:
    """The list with other items in the history or fewer rules, beside the list as it is."""
    served, words = _served_to(request, ask), _words(request, ask.style)
    selection = _chosen(request)(served, ask)
    after = _recommend(served, ask, selection, words)
    unchanged = {"remove": [], "add": [], "without_rules": [], "explain": False}
    before = _recommend(served, ask.model_copy(update=unchanged), selection, words)
    return {  # type: ignore[return-value]
        "user": after["user"], **changes(before["items"], after["items"])
    }  # fmt: skip


# ── explaining ──────────────────────────────────────────────────────────────────────────


def _about(request: Request, ask: s.AskItem | s.AskWhyNot) -> tuple[Served, Subject, int]:
    """The bundle that answers a question, whom it is about, and which item."""
    served = _served_to(request, ask)
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
def explain_known(request: Request, ask: Annotated[s.AskItem, Depends(_item_query)]) -> ShownRecord:
    """Why an item has its score for a known user: reasons, the rest, rules and paths."""
    return explain_for(request, ask)


@router.post("/explain", tags=["explaining"])
def explain_for(request: Request, ask: s.AskItem) -> ShownRecord:
    """Why an item has its score for a user, a new user, or either with changes."""
    _, (model, user, name), item = _about(request, ask)
    users, items = np.array([user]), np.array([item])
    words = _words(request, ask.style)
    found = explain(model.ranker_, users, items, ask.paths, words=words)[0]
    record = found.as_dict(every=ask.reasons == "all") | {"user": name}
    listed = record | {"reasons": record["reasons"][: len(found.shown)]}
    return record | {  # type: ignore[return-value]
        "rows": [row._asdict() for row in rows(record, words)],
        "summary": carried_text(listed, words),
    }


@router.get("/explain/reasoner", tags=["explaining"])
def explain_by_reasoner(
    request: Request,
    user: User,
    item: Item,
    paths: Annotated[s.Paths, Query()] = 3,
) -> ReasonedRecord:
    """The paths that the paper's reasoner finds from a known user to an item, or that it missed."""
    served = _served_to(request, s.Who(user=user))
    model = served.model
    if model.reasoner_ is None:
        raise ProblemError(409, "this model has no path reasoner; ask /v1/explain", "no_reasoner")
    items = np.array([served.item(item)])
    told = model.reasoner_.reasoned(model.ranker_, served.user(user), items, paths)[0]
    return told.said(_words(request)).as_dict()  # type: ignore[return-value]


@router.get("/why-not", tags=["explaining"])
def why_not(request: Request, ask: Annotated[s.AskWhyNot, Depends(_rank_query)]) -> s.WhyNot:
    """What keeps an item out of a known user's k best."""
    return why_not_for(request, ask)


@router.post("/why-not", tags=["explaining"])
def why_not_for(request: Request, ask: s.AskWhyNot) -> s.WhyNot:
    """What keeps an item out of the k best of a user, a new user, or either with changes."""
    served, (model, user, name), item = _about(request, ask)
    k = min(ask.k, served.graph.n_items)
    answer = WhyNot.of(model.ranker_, user, item, k, _words(request))
    record = answer.as_dict()
    _called(record["explanation"], name)
    _called(record["last"], name)
    return {**record, "text": str(answer)}  # type: ignore[return-value]


@router.get("/counterfactual", tags=["explaining"])
def counterfactual(
    request: Request, ask: Annotated[s.AskWhyNot, Depends(_rank_query)]
) -> s.Counterfactual:
    """The fewest interactions without which an item leaves a known user's k best."""
    return counterfactual_for(request, ask)


@router.post("/counterfactual", tags=["explaining"])
def counterfactual_for(request: Request, ask: s.AskWhyNot) -> s.Counterfactual:
    """The fewest interactions without which an item leaves the k best of a user, a new user, or
    either with changes."""
    served, (model, user, name), item = _about(request, ask)
    k = min(ask.k, served.graph.n_items)
    try:
        found = Counterfactual.of(model.ranker_, user, item, k, budget=s.REMOVALS)
    except ViewError:
        what = "a counterfactual needs a known user without changes; newer events are merged soon"
        raise ProblemError(409, what, "changed_user") from None
    found = replace(found, words=_words(request))
    return {  # type: ignore[return-value]
        **found.as_dict(), "user": name, "text": str(found)
    }  # fmt: skip


# ── rules ───────────────────────────────────────────────────────────────────────────────


@router.get("/rules", tags=["rules"])
def rules(request: Request) -> s.Rules:
    """All rules with their weights, the largest first."""
    served = _served(request)
    every = [served.rule(k, _words(request)) for k in range(len(served.model.rules_))]
    return {"rules": sorted(every, key=lambda r: -r["weight"])}  # type: ignore[return-value]


@router.get("/rules/{id}", tags=["rules"])
def rule_with_examples(
    request: Request, id: Annotated[int, InPath(ge=0, le=2**31)]
) -> s.RuleExamples:
    """A rule with example paths to items that users really have."""
    served = _served(request)
    served.check_rule(id)
    words = _words(request)
    return {  # type: ignore[return-value]
        **served.rule(id, words), "examples": served.examples(id, words)
    }  # fmt: skip


@router.get("/profile", tags=["rules"])
def profile(request: Request, user: User) -> s.Profile:
    """How important each rule is to a known user."""
    return profile_for(request, s.Who(user=user))


@router.post("/profile", tags=["rules"])
def profile_for(request: Request, who: s.Who) -> s.Profile:
    """How important each rule is to a user, a new user, or either with changes."""
    told = _served_to(request, who).profile(who, _words(request))
    return told  # type: ignore[return-value]


# ── finding ─────────────────────────────────────────────────────────────────────────────


def _search(served: Served, entity_type: str, q: str, limit: int) -> dict[str, Any]:
    results, more = served.search(entity_type, q, limit)
    return {"results": results, "more": more}


@router.get("/users", tags=["finding"])
def users(request: Request, q: Text = "", limit: Most = 20) -> s.Found:
    """Users by name or label: first those that begin with the text, then those that contain it."""
    return _search(_served(request), "user", q, limit)  # type: ignore[return-value]


@router.get("/items", tags=["finding"])
def items(request: Request, q: Text = "", limit: Most = 20) -> s.Found:
    """Items by name or label: first those that begin with the text, then those that contain it."""
    return _search(_served(request), "item", q, limit)  # type: ignore[return-value]


@router.get("/entities", tags=["finding"])
def entities(
    request: Request,
    type: Annotated[s.Name, Query(description="As in /v1/about.")],
    q: Text = "",
    limit: Most = 20,
) -> s.Found:
    """Entities of any type by name or label, for filters."""
    return _search(_served(request), type, q, limit)  # type: ignore[return-value]


@router.get("/history", tags=["finding"])
def history(request: Request, user: User) -> s.History:
    """The items that a user has, the latest first."""
    who = s.Who(user=user)
    served = _served_to(request, who)
    asked = served.person(who)
    label = served.label(asked)
    items = served.history(asked)
    return {"user": user, "label": label, "items": items}  # type: ignore[return-value]


@router.get("/facts", tags=["finding"])
def facts(request: Request, item: Item) -> s.ItemFacts:
    """What is known of an item, relation by relation."""
    known = _served(request).facts(item)
    return {**known, "image": _picture(request, item) is not None}  # type: ignore[return-value]


@router.get("/images", tags=["finding"], response_class=FileResponse)
def image(request: Request, item: Item) -> FileResponse:
    """The picture of an item, if the server has one."""
    path = _picture(request, item)
    if path is None:
        raise ProblemError(404, f"there is no picture of {item!r}", "no_picture")
    return FileResponse(path, media_type=IMAGE_TYPES[path.suffix.lower()])


def _picture(request: Request, item: str) -> Path | None:
    """The file of an item's picture."""
    service: Service = request.app.state.service
    given = _served(request).image(item)
    folder = service.config.images
    return None if given is None or folder is None else find_image(Path(folder), given)


# ── masks ───────────────────────────────────────────────────────────────────────────────


@router.get("/masks", tags=["masks"])
def masks(request: Request) -> s.MaskList:
    """The sets of items that filters may name."""
    service: Service = request.app.state.service
    return s.MaskList(masks=service.masks.names())


@router.put("/masks/{name}", tags=["masks"], openapi_extra=s.UPLOAD)
async def put_mask(request: Request, name: Annotated[s.Name, InPath()]) -> s.MaskInfo:
    """Upload a set of items under a name, for `mask=NAME`; it replaces one of the same name."""
    service: Service = request.app.state.service
    is_json = request.headers.get("content-type", "").startswith("application/json")
    body = await request.body()
    return await run_in_threadpool(_put_mask, service, name, body, is_json)


def _put_mask(service: Service, name: str, body: bytes, is_json: bool) -> s.MaskInfo:
    service.masks.put(name, body, is_json, service.served.graph)
    return _mask_info(service, name)


def _mask_info(service: Service, name: str) -> s.MaskInfo:
    items, unknown = service.masks.counts(name, service.served.graph)
    return s.MaskInfo(name=name, items=items, unknown=unknown)


@router.get("/masks/{name}", tags=["masks"])
def mask(request: Request, name: Annotated[s.Name, InPath()]) -> s.MaskInfo:
    """How many items a mask has."""
    return _mask_info(request.app.state.service, name)


@router.delete("/masks/{name}", tags=["masks"])
def delete_mask(request: Request, name: Annotated[s.Name, InPath()]) -> s.MaskList:
    """Forget a mask; the others are told."""
    service: Service = request.app.state.service
    service.masks.delete(name)
    return s.MaskList(masks=service.masks.names())
