"""The paths of the HTTP API: parse, call, answer."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi import Path as InPath

from loger.explain.attribution import explain as explain_pairs
from loger.explain.questions import WhyNot
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
    items = served.listed(model, user, ask.k, ask.paths, among, ask.explain)
    return {"user": model.graph_.vocabulary.names[user], "items": items}


@router.get("/recommendations", tags=["recommending"])
def recommendations(
    request: Request,
    user: User,
    k: Annotated[s.K, Query()] = 10,
    paths: Annotated[s.Paths, Query()] = 3,
    explain: Annotated[bool, Query(description="Whether with explanations.")] = True,
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
    """The list with other purchases or fewer rules, beside the list as it is."""
    served = _served(request)
    among = served.among(ask.include, ask.exclude)
    model, user = served.person(ask)
    as_is = ask.model_copy(update={"remove": [], "add": [], "without_rules": []})
    plain, same = served.person(as_is)
    before = served.listed(plain, same, ask.k, 0, among, explained=False)
    after = served.listed(model, user, ask.k, ask.paths, among, ask.explain)
    place = {row["item"]: row["rank"] for row in before}
    kept = {row["item"] for row in after}
    return {  # type: ignore[return-value]
        "user": model.graph_.vocabulary.names[user],
        "before": list(place),
        "after": [{**row, "before": place.get(row["item"])} for row in after],
        "gone": [
            {"item": row["item"], "label": row["label"], "before": row["rank"]}
            for row in before
            if row["item"] not in kept
        ],
    }


# ── explaining ──────────────────────────────────────────────────────────────────────────


def _explain(served: Served, ask: s.AskItem) -> dict[str, Any]:
    import numpy as np

    item = served.item(ask.item)
    model, user = served.person(ask)
    return explain_pairs(model.ranker_, np.array([user]), np.array([item]), ask.paths)[0].as_dict()


@router.get("/explain", tags=["explaining"])
def explain_known(
    request: Request,
    user: User,
    item: Annotated[s.Name, Query()],
    paths: Annotated[s.Paths, Query()] = 3,
) -> ExplanationRecord:
    """Why an item has its score for a known user: parts that add up, rules, paths."""
    ask = s.AskItem(user=user, item=item, paths=paths)
    return _explain(_served(request), ask)  # type: ignore[return-value]


@router.post("/explain", tags=["explaining"])
def explain_for(request: Request, ask: s.AskItem) -> ExplanationRecord:
    """Why an item has its score for a user, a new user, or either with changes."""
    return _explain(_served(request), ask)  # type: ignore[return-value]


def _why_not(served: Served, ask: s.AskWhyNot) -> dict[str, Any]:
    item = served.item(ask.item)
    model, user = served.person(ask)
    told = WhyNot.of(model.ranker_, user, item, min(ask.k, served.graph.n_items))
    return {**told.as_dict(), "text": str(told)}


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
    told = [served.rule(k) for k in range(len(served.model.rules_))]
    return {"rules": sorted(told, key=lambda r: -r["weight"])}  # type: ignore[return-value]


@router.get("/rules/{id}", tags=["rules"])
def rule_with_examples(
    request: Request, id: Annotated[int, InPath(ge=0, le=2**31)]
) -> s.RuleExamples:
    """A rule with example paths to what users really have."""
    served = _served(request)
    if id >= len(served.model.rules_):
        raise ProblemError(
            404, f"there is no rule {id}; they are 0 … {len(served.model.rules_) - 1}"
        )
    return {**served.rule(id), "examples": served.examples(id)}  # type: ignore[return-value]


def _profile(served: Served, who: s.Who) -> dict[str, Any]:
    model, user = served.person(who)
    name = model.graph_.vocabulary.names[user]
    places = {str(rule): k for k, rule in enumerate(model.rules_)}
    rows = [
        {
            "id": places[row["rule"]],
            "rule": row["rule"],
            "sentence": model.rules_[places[row["rule"]]].sentence(),
            "weight": row["weight"],
            "paths": row["n"],
            "importance": row["importance"],
        }
        for row in model.importance(name).to_dicts()
    ]
    return {"user": name, "rules": rows}


@router.get("/profile", tags=["rules"])
def profile(request: Request, user: User) -> s.Profile:
    """How important each rule is to a known user."""
    return _profile(_served(request), s.Who(user=user))  # type: ignore[return-value]


@router.post("/profile", tags=["rules"])
def profile_for(request: Request, who: s.Who) -> s.Profile:
    """How important each rule is to a user, a new user, or either with changes."""
    return _profile(_served(request), who)  # type: ignore[return-value]


# ── finding ─────────────────────────────────────────────────────────────────────────────


def _search(served: Served, entity_type: str, q: str, limit: int) -> dict[str, Any]:
    results, more = served.search(entity_type, q, limit)
    return {"results": results, "more": more}


@router.get("/users", tags=["finding"])
def users(request: Request, q: Text = "", limit: Most = 20) -> s.Found:
    """Users by name or label: first those that begin with a text, then those with it inside."""
    return _search(_served(request), "user", q, limit)  # type: ignore[return-value]


@router.get("/items", tags=["finding"])
def items(request: Request, q: Text = "", limit: Most = 20) -> s.Found:
    """Items by name or label: first those that begin with a text, then those with it inside."""
    return _search(_served(request), "item", q, limit)  # type: ignore[return-value]


@router.get("/entities", tags=["finding"])
def entities(
    request: Request,
    type: Annotated[s.Name, Query(description="As in /v1/about.")],
    q: Text = "",
    limit: Most = 20,
) -> s.Found:
    """Entities of any type by name or label; what filters are made of."""
    served = _served(request)
    types = served.graph.vocabulary.types
    if type not in types:
        raise ProblemError(404, f"there is no type {type!r}; there are {', '.join(types)}")
    return _search(served, type, q, limit)  # type: ignore[return-value]


@router.get("/history", tags=["finding"])
def history(request: Request, user: User) -> s.History:
    """The items that a user has, the latest first."""
    served = _served(request)
    u = served.user(user)
    label = served.graph.vocabulary.labels[u]
    return {  # type: ignore[return-value]
        "user": user, "label": label, "items": served.history(u)
    }  # fmt: skip


# ── running ─────────────────────────────────────────────────────────────────────────────


@router.get("/health", tags=["running"])
def health(request: Request) -> s.Health:
    """That the server works, and with which bundle."""
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
    """Load the bundle anew if it has changed; needs an API key. Other workers follow by
    themselves within seconds."""
    service: Service = request.app.state.service
    if service.config.api_key is None:
        raise ProblemError(403, "reloading by request needs a server with an API key")
    changed = service.refresh()
    return s.Reloaded(changed=changed, fingerprint=service.served.fingerprint)
