"""The paths of the HTTP API: parse, call, answer."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request
from fastapi import Path as InPath

from loger.explain.attribution import explain
from loger.explain.questions import WhyNot
from loger.explain.records import changes
from loger.explain.records import recommendations as recommendations_of
from loger.explain.schema import ExplanationRecord
from loger.version import __version__
from loger.web import schemas as s
from loger.web.problems import ProblemError
from loger.web.served import Served
from loger.web.service import Service

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": s.Error} for status in (400, 401, 403, 404, 409, 413, 422, 500)
}
router = APIRouter(prefix="/v1", responses=ERRORS)

User = Annotated[s.Name, Query(description="A known user.")]
Text = Annotated[str, Query(max_length=s.NAME, description="The start or a part of a name.")]
Most = Annotated[int, Query(ge=1, le=s.MOST, description="How many at most.")]


def _served(request: Request) -> Served:
    service: Service = request.app.state.service
    return service.served


# ── recommending ────────────────────────────────────────────────────────────────────────


def _recommend(served: Served, ask: s.AskList) -> dict[str, Any]:
    model, user = served.person(ask)
    among = served.among(ask.include, ask.exclude)
    items = recommendations_of(model.ranker_, user, ask.k, ask.paths, among, explained=ask.explain)
    return {"user": model.graph_.vocabulary.names[user], "items": items}


@router.get("/recommendations", tags=["recommending"])
def recommendations(
    request: Request,
    user: User,
    k: Annotated[s.K, Query()] = 10,
    paths: Annotated[s.Paths, Query()] = 3,
    explain: Annotated[bool, Query(description="Whether to explain each item.")] = True,
    include: Annotated[s.Filters, Query()] = [],  # noqa: B006
    exclude: Annotated[s.Filters, Query()] = [],  # noqa: B006
) -> s.Recommendations:
    """The k best new items of a known user, each with its reasons."""
    ask = s.AskList(user=user, k=k, paths=paths, explain=explain, include=include, exclude=exclude)
    return _recommend(_served(request), ask)  # type: ignore[return-value]


@router.post("/recommendations", tags=["recommending"])
def recommendations_for(request: Request, ask: s.AskList) -> s.Recommendations:
    """The k best new items of a user, a new user's by history, or of either with changes."""
    return _recommend(_served(request), ask)  # type: ignore[return-value]


@router.post("/what-if", tags=["recommending"])
def what_if(request: Request, ask: s.AskList) -> s.WhatIf:
    """The list with other items in the history or fewer rules, beside the list as it is."""
    served = _served(request)
    after = _recommend(served, ask)
    unchanged = {"remove": [], "add": [], "without_rules": [], "explain": False}
    before = _recommend(served, ask.model_copy(update=unchanged))
    return {  # type: ignore[return-value]
        "user": after["user"], **changes(before["items"], after["items"])
    }  # fmt: skip


# ── explaining ──────────────────────────────────────────────────────────────────────────


def _explain(served: Served, ask: s.AskItem) -> dict[str, Any]:
    item = served.item(ask.item)
    model, user = served.person(ask)
    users, items = np.array([user]), np.array([item])
    told = explain(model.ranker_, users, items, ask.paths)[0]
    return told.as_dict(every=ask.reasons == "all")


@router.get("/explain", tags=["explaining"])
def explain_known(
    request: Request,
    user: User,
    item: Annotated[s.Name, Query()],
    paths: Annotated[s.Paths, Query()] = 3,
    reasons: Annotated[s.Reasons, Query()] = "shown",
) -> ExplanationRecord:
    """Why an item has its score for a known user: reasons, the rest, rules and paths."""
    ask = s.AskItem(user=user, item=item, paths=paths, reasons=reasons)
    return _explain(_served(request), ask)  # type: ignore[return-value]


@router.post("/explain", tags=["explaining"])
def explain_for(request: Request, ask: s.AskItem) -> ExplanationRecord:
    """Why an item has its score for a user, a new user, or either with changes."""
    return _explain(_served(request), ask)  # type: ignore[return-value]


def _why_not(served: Served, ask: s.AskWhyNot) -> dict[str, Any]:
    item = served.item(ask.item)
    model, user = served.person(ask)
    answer = WhyNot.of(model.ranker_, user, item, min(ask.k, served.graph.n_items))
    return {**answer.as_dict(), "text": str(answer)}


@router.get("/why-not", tags=["explaining"])
def why_not(
    request: Request,
    user: User,
    item: Annotated[s.Name, Query()],
    k: Annotated[s.K, Query()] = 10,
) -> s.WhyNot:
    """What keeps an item out of a known user's k best."""
    ask = s.AskWhyNot(user=user, item=item, k=k)
    return _why_not(_served(request), ask)  # type: ignore[return-value]


@router.post("/why-not", tags=["explaining"])
def why_not_for(request: Request, ask: s.AskWhyNot) -> s.WhyNot:
    """What keeps an item out of the k best of a user, a new user, or either with changes."""
    return _why_not(_served(request), ask)  # type: ignore[return-value]


# ── rules ───────────────────────────────────────────────────────────────────────────────


@router.get("/rules", tags=["rules"])
def rules(request: Request) -> s.Rules:
    """All rules with their weights, the largest first."""
    served = _served(request)
    every = [served.rule(k) for k in range(len(served.model.rules_))]
    return {"rules": sorted(every, key=lambda r: -r["weight"])}  # type: ignore[return-value]


@router.get("/rules/{id}", tags=["rules"])
def rule_with_examples(
    request: Request, id: Annotated[int, InPath(ge=0, le=2**31)]
) -> s.RuleExamples:
    """A rule with example paths to items that users really have."""
    served = _served(request)
    served.check_rule(id)
    return {**served.rule(id), "examples": served.examples(id)}  # type: ignore[return-value]


@router.get("/profile", tags=["rules"])
def profile(request: Request, user: User) -> s.Profile:
    """How important each rule is to a known user."""
    return _served(request).profile(s.Who(user=user))  # type: ignore[return-value]


@router.post("/profile", tags=["rules"])
def profile_for(request: Request, who: s.Who) -> s.Profile:
    """How important each rule is to a user, a new user, or either with changes."""
    return _served(request).profile(who)  # type: ignore[return-value]


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
    served = _served(request)
    label = served.graph.vocabulary.labels[served.user(user)]
    items = served.history(user)
    return {"user": user, "label": label, "items": items}  # type: ignore[return-value]


# ── running ─────────────────────────────────────────────────────────────────────────────


@router.get("/health", tags=["running"])
def health(request: Request) -> s.Health:
    """Whether the server works, and which bundle it serves."""
    served = _served(request)
    return s.Health(
        status="ok",
        version=__version__,
        fingerprint=served.fingerprint,
        loaded=served.loaded,
    )


@router.get("/about", tags=["running"])
def about(request: Request) -> s.About:
    """The model, the data behind it, and the limits of requests."""
    served = _served(request)
    graph = served.graph
    return s.About(
        version=__version__,
        fingerprint=served.fingerprint,
        users=graph.n_users,
        items=graph.n_items,
        facts=graph.n_triples,
        rules=len(served.model.rules_),
        types=list(graph.vocabulary.types),
        interaction=graph.relations[0].name,
        fusion=served.model.config_.em.fusion,
        takes_new_users=served.takes_new_users,
        most=s.MOST,
        most_paths=s.MOST_PATHS,
        most_history=s.MOST_HISTORY,
    )


@router.post("/reload", tags=["running"])
def reload(request: Request) -> s.Reloaded:
    """Reload the bundle if it has changed; needs an API key. Other workers follow in seconds."""
    service: Service = request.app.state.service
    if service.config.api_key is None:
        raise ProblemError(403, "to reload by request, start the server with an API key")
    changed = service.refresh()
    return s.Reloaded(changed=changed, fingerprint=service.served.fingerprint)
