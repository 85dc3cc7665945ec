"""A first mapping of a shop's tables, guessed from names and values, for a person to correct."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

import polars as pl

from loger.data.readers.plain import PART_WORDS
from loger.errors import DataError, UnknownNameError
from loger.rules.wording import UNCHANGED
from loger.tables.joining import check_column, columns_of, matched, named, words_of
from loger.tables.mapping import Column, EntityTable, InteractionTable, Kind, TableMapping
from loger.tables.reviews.aspects import singular
from loger.tables.values import (
    FEW,
    MOSTLY_FILLED,
    MOSTLY_NUMBERS,
    NEARLY_ALL,
    NUMBERED,
    SEPARATORS,
    all_are,
    are_dates,
    as_moments,
    as_numbers,
    as_ratings,
    cells,
    mean,
    nearly_all_are,
    separator_of,
    unit_of,
    without_address,
    without_brackets,
    without_number,
)

_RATING = ["rating", "stars", "score", "overall", "grade", "points", "bewertung", "sterne",
           "punkte", "valoración", "puntuación", "calificación", "estrellas"]  # fmt: skip
_STRENGTH = ["strength", "count", "plays", "listens", "quantity", "qty", "dwell", "menge", "anzahl",
             "cantidad"]  # fmt: skip
_TIME = ["time", "date", "timestamp", "datetime", "created", "ordered", "purchased", "when", "day",
         "datum", "zeit", "fecha"]  # fmt: skip
_PART = ["part", "split", "fold"]
_REVIEW = ["review", "comment", "feedback", "text", "opinion", "body", "summary", "kommentar",
           "rezension", "bemerkung", "comentario", "reseña"]  # fmt: skip
_LABEL = ["title", "name", "label", "headline", "titel", "bezeichnung", "título", "titulo",
          "nombre"]  # fmt: skip
_CODE = ["postcode", "zip", "zipcode", "postal", "plz", "postleitzahl", "code", "código", "codigo"]
_SERIES = ["series", "serie", "saga", "cycle", "reihe", "zyklus"]
_POINTS = ["similar", "related", "also", "variant", "parent", "replac", "accessor", "bundl"]
_IMAGE = ["image", "images", "picture", "photo", "thumbnail", "cover", "poster", "img", "bild"]
_IMAGE_FILE = re.compile(r"(?i)\.(jpe?g|png|gif|webp)(\?.*)?$")
_LINK = re.compile(r"^(https?://|www\.)|@.+\.|\.(jpe?g|png|gif|webp|pdf)$")
_ACTIONS = {
    "order": "purchase", "purchas": "purchase", "buy": "purchase", "bought": "purchase",
    "sale": "purchase", "invoice": "purchase", "basket": "purchase", "cart": "purchase",
    "upload": "uploaded", "download": "downloaded", "install": "installed",
    "play": "played", "listen": "listened_to", "stream": "played", "watch": "watched",
    "loan": "borrowed", "borrow": "borrowed", "ausleih": "borrowed", "rent": "rented",
    "read": "read", "cook": "cooked", "visit": "visited", "click": "click", "view": "view",
    "rating": "rate", "rated": "rate", "review": "reviewed", "like": "like",
    "bestell": "purchase", "kauf": "purchase", "verkauf": "purchase", "rechnung": "purchase",
    "bewertung": "rate", "rezension": "reviewed", "gehört": "listened_to", "gelesen": "read",
    "pedido": "purchase", "compra": "purchase", "venta": "purchase", "préstamo": "borrowed",
    "prestamo": "borrowed", "valoracion": "rate", "valoración": "rate", "reseña": "reviewed",
}  # fmt: skip
"""What users did, by how a word in the name of the file, or of a column, begins."""
_PEOPLE = {"reader", "viewer", "listener", "reviewer", "player", "buyer"}
"""Words that begin like actions and aren't."""
_NEGATIVE = ("dislik", "hid", "refund", "skip")
"""How the words begin for what users do with items that they don't like."""
_BOUGHT = ("bought", "buy", "purchas", "order", "paid")
"""How the words begin for buying: what was bought and returned is disliked, a loan isn't."""
_BEHAVIOURS = (
    (*_NEGATIVE, "return"),
    ("impression", "seen", "view", "click", "open", "brows"),
    ("like", "wish", "favo", "save", "bookmark"),
    ("add", "cart", "basket"),
    ("book", "reserv", "start"),
    (
        *_BOUGHT, "attend", "visit", "complet", "finish", "borrow", "rent", "watch", "play",
        "stream", "listen", "read", "cook", "download", "install", "subscri",
    ),
)  # fmt: skip
"""How the words for what users do begin, from the weakest behaviour to the strongest."""
_ENDING_IN_S = UNCHANGED | {
    "lens", "gas", "atlas", "canvas", "bias", "alias", "physics", "politics"
}  # fmt: skip
"""Columns that are called so are not plurals."""
_ENDING_IN_IE = {"movies", "cookies", "calories", "selfies", "zombies", "genies", "ties"}
"""Plurals whose singular is not one in y."""
_CLOCK = r"^\d{1,2}:\d\d(:\d\d)?$"
_LINKS = "links or addresses"
_TEXT = 6  # words of a cell, on average, from which it is a text
_SHARED = 0.5  # of the values of a column that must be ids of items, or values of theirs


def propose(
    interactions: pl.DataFrame,
    items: pl.DataFrame | None = None,
    users: pl.DataFrame | None = None,
    *,
    name: str = "shop",
    files: Sequence[Path | str | None] = (None, None, None),
    item: str | None = None,
    user: str | None = None,
    time: str | None = None,
) -> TableMapping:
    """A mapping for frames with a ``line`` column; ``item``, ``user`` and ``time`` are columns of
    the interactions, where the guess is not wanted."""
    paths = [None if f is None else Path(f) for f in files]
    for given, what, path in zip(
        (interactions, items, users), ("interactions", "items", "users"), paths, strict=True
    ):
        if given is not None and not len(given):
            raise DataError(f"the table of {what} is empty", path=path, remedy="add rows to it")
    _check_distinct(paths)
    item, item_id = matched("item", interactions, items, item, (user,), paths[0], paths[1])
    user, user_id = matched("user", interactions, users, user, (item,), paths[0], paths[2])
    ids = pl.Series(dtype=pl.String) if items is None else cells(items[item_id])
    check_column(interactions, time, paths[0])
    table = _interactions(interactions, user, item, time)
    of_items = None if items is None else _entities(items, item_id, "items", ids, paths[1])
    of_users = None if users is None else _entities(users, user_id, "users", ids, paths[2])
    if of_items and of_users and items is not None and users is not None:
        of_users = _joined(of_users, users, of_items, items)
    middle = _middle(as_ratings(interactions[table.rating])) if table.rating else None
    did = _action(paths[0], [table.target, *columns_of(interactions)])
    return TableMapping(
        min_rating=middle,
        name=name,
        # Low ratings don't count, so "3 people visited both" would be false of the table.
        interaction=did if middle is None else "like",
        interactions=replace(table, file=str(paths[0] or "")),
        items=of_items,
        users=of_users,
    )


def _check_distinct(paths: Sequence[Path | None]) -> None:
    """Refuse one file in two places: what happened would be said of items."""
    given = [None if path is None else path.resolve() for path in paths]
    for k, what in ((1, "items"), (2, "users")):
        if given[k] is not None and given[k] in given[:k]:
            first = ("interactions", "items")[given.index(given[k])]
            raise DataError(
                f"the same file is given as the table of both {first} and {what}",
                path=paths[k],
                remedy=f"pass a table with one row for each of the {what}, or leave out the {what}",
            )


def _joined(
    of_users: EntityTable, users: pl.DataFrame, of_items: EntityTable, items: pl.DataFrame
) -> EntityTable:
    """The users' table, in which a column with the values of a column of items is of its type:
    who is interested in film is then linked to what has the theme film."""
    named_by = [c for c in of_items.columns if c.take in ("entity", "list")]
    values = {c.column: _values(items, c) for c in named_by}
    columns = []
    for column in of_users.columns:
        own = _values(users, column) if column.take in ("entity", "list") else set[str]()
        shares = [len(own & values[c.column]) / max(1, len(own)) for c in named_by]
        best = max(range(len(shares)), key=shares.__getitem__, default=-1)
        if own and best >= 0 and shares[best] >= _SHARED:
            theirs = named_by[best]
            why = f"{column.why}; {shares[best]:.0%} are values of the items' {theirs.column}"
            column = replace(column, type=theirs.type, why=why)
        columns.append(column)
    return replace(of_users, columns=tuple(columns))


def _values(frame: pl.DataFrame, column: Column) -> set[str]:
    """The values that cells of a column name, unless they are numbers, which mean other things."""
    text = cells(frame[column.column]).drop_nulls()
    if all_are(as_numbers(frame[column.column]), frame[column.column]):
        return set()
    return set(text.str.split(column.separator).explode().str.strip_chars()) if (
        column.take == "list") else set(text)  # fmt: skip


def _middle(ratings: pl.Series) -> float | None:
    """The middle of the scale of ratings, if any are below it but not most: a low rating is no
    reason to recommend more of the kind. A few that are off the scale do not move it."""
    low, high = (ratings.quantile(share, "nearest") for share in (0.01, 0.99))
    if low is None or high is None or low == high:
        return None
    middle = (low + high) / 2
    return middle if 0 < mean(ratings.drop_nulls() < middle) <= 0.5 else None


def _action(path: Path | None, columns: Sequence[str]) -> str:
    """What users did with items, by the name of the file, else of the target or a column."""
    for name in ([] if path is None else [path.stem]) + list(columns):
        for word in words_of(name):
            found = [a for begin, a in _ACTIONS.items() if word.startswith(begin)]
            if found and word not in _PEOPLE:
                return found[0]
    return "interacted"


def _interactions(frame: pl.DataFrame, user: str, item: str, time: str | None) -> InteractionTable:
    """The interactions: who, what, how much, when; further columns as they look."""
    free = [c for c in columns_of(frame) if c not in (user, item, time)]
    chosen = {"rating": "", "strength": "", "time": time or "", "part": ""}
    lost = dict[str, Column]()
    for column in free:
        role = _role(column, frame[column])
        if not role or chosen[role]:
            continue
        filled = mean(cells(frame[column]).is_not_null())
        if role != "part" and filled < MOSTLY_FILLED:
            why = f"{1 - filled:.0%} of the rows have none, and would be lost if it were the {role}"
            lost[column] = Column(column, "leave out", why=why)
        else:
            chosen[role] = column
    for column in free:
        target = "" if column in chosen.values() else _target(frame[column])
        if target:
            chosen |= {"behaviour": column, "target": target}
            break
    rest = [c for c in free if c not in chosen.values()]
    guesses = [lost.get(c) or _guess(frame, c, pl.Series(dtype=pl.String)) for c in rest]
    columns = tuple(
        _of_interaction(column, frame[column.column], frame[item]) for column in guesses
    )
    return InteractionTable(user, item, columns=columns, **chosen)  # type: ignore[arg-type]


def _role(column: str, values: pl.Series) -> str:
    """What a column of the interactions may be besides user and item, if anything."""
    if are_dates(values):
        return "time"
    if named(column, _TIME) and nearly_all_are(as_moments(values), values):
        return "time"
    if named(column, _RATING) and nearly_all_are(as_ratings(values), values):
        return "rating"
    if named(column, _STRENGTH) == 2 and nearly_all_are(as_numbers(values), values):
        return "strength"
    parts = set(cells(values).drop_nulls().str.to_lowercase()) <= PART_WORDS.keys()
    return "part" if named(column, _PART) == 2 and parts else ""


def _target(values: pl.Series) -> str:
    """The strongest behaviour that a column names, if all of its values are behaviours of which
    some are stronger than others."""
    found = cells(values).drop_nulls().value_counts(sort=True)
    names = found.to_series().to_list()
    if not 2 <= len(names) <= FEW:
        return ""
    levels = [_level(name) for name in names]
    if min(levels) < 0 or min(levels) == max(levels):
        return ""
    return str(names[levels.index(max(levels))])


def relation_of(behaviour: str) -> str:
    """What the relation of a behaviour is called: "Added to cart" becomes added_to_cart."""
    return "_".join(words_of(behaviour)) or "did"


def is_dislike(behaviour: str, target: str) -> bool:
    """Whether a behaviour says that a user doesn't like an item, where the target is another.

    >>> is_dislike("Returned", "bought"), is_dislike("returned", "borrowed")
    (True, False)
    """
    negative = (*_NEGATIVE, "return") if relation_of(target).startswith(_BOUGHT) else _NEGATIVE
    return relation_of(behaviour).startswith(negative)


COMMON_BEHAVIOURS = (
    "viewed", "seen", "clicked", "opened", "browsed", "liked", "favourited", "saved", "bookmarked",
    "wishlisted", "carted", "added_to_cart", "booked", "reserved", "started", "bought", "purchased",
    "ordered", "attended", "visited", "completed", "finished", "borrowed", "rented", "watched",
    "played", "streamed", "listened", "read", "cooked", "downloaded", "installed", "subscribed",
    "disliked", "hidden", "refunded", "skipped", "returned",
)  # fmt: skip
TYPO = 0.8
"""How much alike, from 0 to 1, a new word must be to a known behaviour to be taken for a typo."""


def check_behaviour(behaviour: str, known: Iterable[str]) -> None:
    """Refuse what is neither a ``known`` behaviour nor a word for one, and what looks like a typo.

    >>> check_behaviour("Viewed", ["bought"])
    >>> check_behaviour("viewwed", ["bought"])
    Traceback (most recent call last):
    loger.errors.UnknownNameError: unknown behaviour 'viewwed'; did you mean 'viewed'?
    """
    name, words = relation_of(behaviour), [*known, *COMMON_BEHAVIOURS]
    if name not in words and (_level(behaviour) < 0 or get_close_matches(name, words, 1, TYPO)):
        raise UnknownNameError("behaviour", behaviour, words)


def _level(behaviour: str) -> int:
    """How strong a behaviour is; -1 if the word isn't one."""
    words = words_of(behaviour)
    fits = [
        level
        for level, begins in enumerate(_BEHAVIOURS)
        if any(word.startswith(begins) for word in words)
    ]
    return max(fits, default=-1)


def _of_interaction(column: Column, values: pl.Series, items: pl.Series) -> Column:
    """What a column of the interactions becomes: texts are reviews; numbers are left out, because
    a quantity or a total says little about the item, and so is the context of an interaction."""
    if column.take == "leave out":
        return column
    if named(column.column, _RATING) == 2:  # a liking for stars is none for items
        return Column(column.column, "leave out", why="ratings that are not numbers")
    words = mean(cells(values).drop_nulls().str.count_matches(r"\S+"))
    if column.take == "keywords" or (named(column.column, _REVIEW) and words >= 2):
        return Column(column.column, "aspects", why="texts, so reviews")
    if column.take in ("bins", "items") or all_are(as_numbers(values), values):
        return Column(column.column, "leave out", why="numbers of single interactions")
    if _is_context(values, items):
        n = cells(values).drop_nulls().n_unique()
        why = f"{n} values that differ between interactions with the same item: context, no fact"
        return Column(column.column, "leave out", why=why)
    return column


def _is_context(values: pl.Series, items: pl.Series) -> bool:
    """Whether a column has few values and the item doesn't settle which: desk, gate or app. Nearly
    all items have all of them, so sharing one means nothing."""
    rows = pl.DataFrame({"item": cells(items), "value": cells(values)}).drop_nulls()
    if rows["value"].n_unique() > FEW:
        return False
    counts = rows.group_by("item", "value").len()
    most = counts.group_by("item").agg(pl.col("len").max(), pl.col("len").sum().alias("all"))
    several = most.filter(pl.col("all") > 1)
    return int(several["len"].sum()) < MOSTLY_NUMBERS * int(several["all"].sum())


_SAID_OF_USERS = {"interest": "interested_in", "hobby": "interested_in", "favourite": "prefers",
                  "favorite": "prefers", "preferred": "prefers"}  # fmt: skip
"""What the first word of a fact says of a user, where that is more than that the user has it."""


def _entities(
    frame: pl.DataFrame, id_column: str, table: str, ids: pl.Series, path: Path | None
) -> EntityTable:
    among = ids if table == "items" else pl.Series(dtype=pl.String)
    free = [c for c in columns_of(frame) if c != id_column]
    guesses = [_guess(frame, column, among) for column in free]
    if table == "users":  # pictures of people are nobody's business here
        guesses = [replace(g, take="leave out") if g.take == "image" else g for g in guesses]
        guesses = [
            replace(g, relation=_SAID_OF_USERS.get(g.type.split("_")[0], g.relation))
            for g in guesses
        ]
    label = _label(
        frame, guesses, words_of(id_column) + ([] if path is None else words_of(path.stem))
    )
    columns = tuple(guess for guess in guesses if guess.column != label)
    return EntityTable(id_column, str(path or ""), label, columns)


def _label(frame: pl.DataFrame, guesses: Sequence[Column], own: Sequence[str]) -> str:
    """The column with names for people: one that is called so, also if many share a name, else a
    column of short texts that differ; ``own`` are the words that the table's things go by."""
    plain_words = {*_LABEL, *own, *map(singular, own)}
    best, most = "", 0
    for guess in guesses:
        words, text = words_of(guess.column), cells(frame[guess.column]).drop_nulls()
        # A brand_name is not a name of the item unless hardly two items share it.
        plain = plain_words.issuperset(words)
        listed = guess.take == "list" and not plain  # a title may have commas
        if text.n_unique() < 2 or listed or guess.take in ("items", "bins"):
            continue
        unshared = guess.take in ("leave out", "keywords") and guess.why != _LINKS
        score = 0
        if named(guess.column, _LABEL) == 2:
            score = 3 if plain else 2 if unshared else 0
        elif guess.take == "leave out" and unshared and _reads_like_names(text):
            score = 1
        best, most = (guess.column, score) if score > most else (best, most)
    return best


def _reads_like_names(text: pl.Series) -> bool:
    """Short texts of letters that differ from one another, such as Rosa 'Éclair'."""
    letters = mean(text.str.contains(r"\p{L}{3}"))
    blanks = mean(text.str.contains(r"\p{L}\p{P}* \p{P}*\p{L}"))
    return text.n_unique() >= 0.9 * len(text) and letters > 0.9 and blanks > 0.5


def _guess(frame: pl.DataFrame, column: str, ids: pl.Series) -> Column:
    """What one column may become, and why."""
    slug = "_".join(words_of(column)) or column
    kind = _noun(slug)
    take, why, separator = _looks(frame[column], column, ids)
    if take == "leave out":
        text = cells(frame[column]).drop_nulls()
        if named(column, _IMAGE) and mean(text.str.contains(_IMAGE_FILE.pattern)) > 0.5:
            return Column(column, "image", why="files of pictures")
        return Column(column, take, why=why)
    if take == "items":
        return Column(column, take, relation=slug, separator=separator, why=why)
    if take == "keywords":
        return Column(column, take, relation=f"{kind}_says", type="word", why=why)
    if take == "bins":  # what is shared is the range, not the number
        kind = "_".join([*words_of(unit_of(column)[0]), "range"])
    return Column(column, take, f"has_{kind}", kind, separator, why=why)


def _noun(name: str) -> str:
    """What one value of a column is called: a genre, a movie, a series.

    >>> [_noun(name) for name in ("genres", "fan_movies", "book_series", "categories")]
    ['genre', 'fan_movie', 'book_series', 'category']
    """
    last = name.rpartition("_")[2]
    if last in _ENDING_IN_S:
        return name
    return name[:-1] if last in _ENDING_IN_IE else singular(name)


def _pointing(text: pl.Series, ids: pl.Series) -> tuple[float, str]:
    """The largest share of values that are ids, and the sign that divides them for it."""
    known, best = ids.implode(), (mean(text.is_in(ids.implode())), "")
    for sign in SEPARATORS:
        if text.str.contains(sign, literal=True).any():
            parts = text.str.split(sign).explode().str.strip_chars()
            are_ids = parts.is_in(known) | without_brackets(parts).is_in(known)
            best = max(best, (mean(are_ids), sign))
    return best


def _codes(text: pl.Series, name: str) -> bool:
    """Whether digits are a code, of which ranges mean nothing: postcode 04109, Dewey 005.133."""
    return named(name, _CODE) == 2 or bool(text.str.contains(r"^0\d").any())


def _looks(values: pl.Series, name: str, ids: pl.Series) -> tuple[Kind, str, str]:
    """The way to take a column, the reason, and the separator of its cells."""
    text = without_address(cells(values).drop_nulls())
    n, distinct = len(text), text.n_unique()
    if distinct <= 1:
        return "leave out", "empty" if not n else "one value only", ""
    if mean(text.str.contains(_LINK.pattern)) > 0.5:
        return "leave out", _LINKS, ""
    amounts = as_numbers(values).drop_nulls()
    plain_numbers = not _codes(text, name) and nearly_all_are(
        as_numbers(values), values, MOSTLY_NUMBERS
    )
    if len(ids) and (named(name, _POINTS) or not plain_numbers):
        share, sign = _pointing(text, ids)
        if share >= _SHARED:
            return "items", f"{share:.0%} of the values are ids of items", sign
    if named(name, _SERIES) == 2 and mean(text.str.contains(NUMBERED)) > 0.5:
        names = without_number(text).n_unique()
        return "series", f"{names:,} names in {n:,} rows, with a number behind them", ""
    separator = separator_of(values)
    if separator:
        split = text.str.split(separator).explode().str.strip_chars()
        return "list", f"{split.n_unique():,} values, several in a cell", separator
    if plain_numbers:
        numbers = text.filter(as_numbers(text).is_not_null())
        whole = values.dtype.is_integer() | numbers.str.contains(r"^-?\d+(\s*\p{L}+\.?)?$").all()
        if whole and min(amounts) in (0, 1) and (amounts.diff().drop_nulls() == 1).all():
            return "leave out", "a running number", ""
        if whole and words_of(name)[-1:] == ["id"]:
            if distinct > n // 2:
                return "leave out", f"{distinct:,} ids in {n:,} rows: too few are shared", ""
            return "entity", f"{distinct:,} ids in {n:,} rows", ""
        if whole and distinct <= min(FEW, n // 2):
            return "entity", f"{distinct} numbers in {n:,} rows", ""
        rest = n - len(amounts)
        others = f", and {rest:,} that {'is' if rest == 1 else 'are'} not" if rest else ""
        return "bins", f"numbers from {min(amounts):g} to {max(amounts):g}{others}", ""
    if are_dates(values):
        return "leave out", "dates", ""
    if mean(text.str.contains(_CLOCK)) >= NEARLY_ALL:
        return "leave out", "times of day", ""
    words = mean(text.str.count_matches(r"\S+"))
    if words >= _TEXT:
        return "keywords", f"texts of {words:.0f} words on average", ""
    if distinct <= max(min(FEW, n - 1), n // 2):
        return "entity", f"{distinct:,} values in {n:,} rows", ""
    return "leave out", f"{distinct:,} values in {n:,} rows: too few are shared", ""
