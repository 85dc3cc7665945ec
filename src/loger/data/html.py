"""Data sets and splits as small HTML tables, for notebooks."""

from __future__ import annotations

from html import escape
from typing import get_args

import numpy as np

from loger.data.dataset import Dataset
from loger.data.splits import Part, Split
from loger.engine.html import table


def dataset_html(dataset: Dataset) -> str:
    """What a data set holds, its relations, and the notes of whoever read it."""
    counts = np.bincount(dataset.facts.relations, minlength=len(dataset.relations))
    counts[0] = len(dataset.interactions)  # relation 0, which no fact has
    relations = [
        (r.name, f"{r.head_type} → {r.tail_type}", f"{n:,}")
        for r, n in zip(dataset.relations, counts.tolist(), strict=True)
    ]
    words = dataset.vocabulary
    types = [(t, f"{len(words.span(t)):,}") for t in words.types]
    parts = [
        f"<b>{escape(dataset.name)}</b>",
        table(("entities", "count"), types),
        table(("relation", "from → to", "count"), relations),
    ]
    if dataset.notes:
        items = "".join(f"<li>{escape(str(note))}</li>" for note in dataset.notes)
        parts.append(f"notes<ul>{items}</ul>")
    return f"<div>{''.join(parts)}</div>"


def split_html(split: Split) -> str:
    """How large the parts of a split are."""
    total = max(1, len(split.dataset.interactions))
    rows = []
    for part in get_args(Part):
        n, users = len(getattr(split, part)), len(np.unique(split.pairs(part)[0]))
        rows.append((part, f"{n:,}", f"{n / total:.0%}", f"{users:,}"))
    title = f"<b>Split of {escape(split.dataset.name)}</b>"
    return f"<div>{title}{table(('part', 'interactions', 'share', 'users'), rows)}</div>"
