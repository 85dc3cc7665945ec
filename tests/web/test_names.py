"""Search by names against one that looks at every entity by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loger.web.names import Names

TEXT = st.text("abAB \n", max_size=5)


def slowly(names: list[str], labels: list[str], query: str, most: int) -> tuple[list[int], bool]:
    def plain(text: str) -> str:
        return " ".join(text.lower().split())

    both = [(plain(label), plain(name)) for name, label in zip(names, labels, strict=True)]
    begin = [k for k, texts in enumerate(both) if any(t.startswith(plain(query)) for t in texts)]
    inside = [k for k, texts in enumerate(both) if any(plain(query) in t for t in texts)]
    found = list(dict.fromkeys([*begin, *inside]))
    return found[:most], len(found) > most


@given(st.lists(st.tuples(TEXT, TEXT), max_size=8), TEXT, st.integers(1, 5))
def test_search_is_that_of_looking_at_every_name(rows, query, most):
    names, labels = [a for a, _ in rows], [b for _, b in rows]
    assert Names(names, labels).find(query, most) == slowly(names, labels, query, most)
