"""Paths as one line of arrows, for people who want to see every fact."""

from __future__ import annotations

from collections.abc import Sequence

from loger.graph import INVERSE_MARK


def arrows(labels: Sequence[str], relations: Sequence[str]) -> str:
    """A path through labelled entities; arrows point the way each fact is stated.

    >>> arrows(["Ann", "mug", "Acme", "lamp"], ["purchase", "has_brand", "has_brand⁻¹"])
    'Ann –purchase→ mug –has_brand→ Acme ←has_brand– lamp'
    """
    text = labels[0]
    for relation, label in zip(relations, labels[1:], strict=True):
        plain = relation.removesuffix(INVERSE_MARK)
        text += f" –{plain}→ {label}" if plain == relation else f" ←{plain}– {label}"
    return text
