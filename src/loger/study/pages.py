"""The study as web pages for raters: plain HTML forms, no script, no names of methods."""

from __future__ import annotations

from html import escape

from loger.study.store import LONGEST_NAME, Study, Task


def welcome(study: Study, why: str = "") -> str:
    """The first page: what is asked, and who answers."""
    n = len(study.tasks)
    return html_page(
        study.title or "Which reasons fit?",
        f"<p>Imagine you are a customer. You will see some of what you did before, and the reasons "
        f"that several shops give for their recommendations. Rank the shops: first the one whose "
        f"reasons fit best what you did.</p>"
        f"<p>There are {n} questions. You can stop and come back later: keep the address of the "
        "page that follows, it is yours alone.</p>"
        + _alert(why)
        + '<form action="/begin" method="post"><label>Your name, or any word '
        f'<input name="rater" required maxlength="{LONGEST_NAME}"></label> '
        "<button>Start</button></form>",
    )


def task_page(task: Task, at: int, n: int, rater: str, token: str, why: str = "") -> str:
    """One question; methods are letters, in the order of the task."""
    cards = []
    for k, (_, paths) in enumerate(task.shown):
        places = "".join(
            f'<label><input type="radio" name="rank{k}" value="{place}" required> {place}</label>'
            for place in range(1, len(task.shown) + 1)
        )
        reasons = "".join(f"<li>{escape(path)}</li>" for path in paths)
        cards.append(
            f"<fieldset><legend>Shop {chr(ord('A') + k)}</legend><ul>{reasons}</ul>"
            f'<p class="places">Rank: {places}</p></fieldset>'
        )
    past = "".join(f"<li>{escape(path)}</li>" for path in task.history)
    return html_page(
        f"Question {at + 1} of {n}",
        _alert(why)
        + '<section class="past"><h2>What you did before</h2>'
        + f"<ul>{past}</ul></section>"
        + '<form action="/answer" method="post"><h2>Reasons of the shops (rank 1 fits best)</h2>'
        + f'<div class="cards">{"".join(cards)}</div>'
        + f'<input type="hidden" name="rater" value="{escape(rater)}">'
        + f'<input type="hidden" name="token" value="{escape(token)}">'
        + f'<input type="hidden" name="task" value="{at}"><button>Next</button></form>',
    )


def next_page(study: Study, rater: str, token: str, why: str = "") -> str:
    """A rater's next question, or thanks."""
    at = study.next_for(rater)
    if at is None:
        return html_page(
            "Thank you", "<p>You have answered all questions. You can close this page.</p>"
        )
    tasks = study.tasks
    return task_page(tasks[at], at, len(tasks), rater, token, why)


def _alert(why: str) -> str:
    return f'<p role="alert" class="alert">{escape(why)}</p>' if why else ""


def html_page(title: str, body: str) -> str:
    """A page of the study."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width">{STYLE}<title>{escape(title)}</title>'
        f"</head><body><main><h1>{escape(title)}</h1>{body}</main></body></html>"
    )


STYLE = """<style>
:root{--ink:#1c2430;--soft:#5b6675;--line:#d9dee6;--paper:#fff;--tint:#f3f6f8;--strong:#0b6e6e}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#9aa6b5;--line:#333d4a;
--paper:#141a21;--tint:#1c242d;--strong:#4cc3b8}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:72rem;padding:1.5rem 1rem 3rem;background:var(--paper);
color:var(--ink);font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem}h2{font-size:1.1rem}
.past{background:var(--tint);padding:.5rem 1rem;border-radius:6px}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(18rem,1fr));gap:1rem}
fieldset{border:1px solid var(--line);border-radius:6px;margin:0;min-width:0}
legend{font-weight:600;padding:0 .4rem}
ul{padding-left:1.1rem;margin:.3rem 0}li{margin:.2rem 0}
.places label{margin-right:.9rem;white-space:nowrap}
.alert{color:#b3261e;font-weight:600}
button,input{font:inherit;padding:.4rem .7rem}
button{background:var(--strong);color:var(--paper);border:0;border-radius:4px;margin-top:1rem;
padding:.5rem 1.4rem;cursor:pointer}
</style>"""
