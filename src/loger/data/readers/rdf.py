"""A knowledge graph in RDF (N-Triples or Turtle) next to a table of interactions.

The folder holds ``interactions`` as in ``loger.data.readers.plain``, one or more ``.nt`` or
``.ttl`` files, also compressed, and optionally ``links`` (.csv, .tsv, .txt, .parquet) with the
columns item and iri. Without links an item or user is the resource whose IRI, or whose last part
of the IRI, is its name. Reading needs pyoxigraph: ``pip install '.[rdf]'`` in the clone.

``rdfs:label`` gives labels, ``rdf:type`` the type of an entity that is neither user nor
item (the first one stated; what else it is remains unsaid, and is noted). Other statements
about literals are left out and noted. Relations are called by the last part of their IRI
where that is unambiguous.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from loger.data import table_files
from loger.data.assemble import OTHER, assemble
from loger.data.columns import INTERACTIONS, Columns
from loger.data.dataset import Dataset, Note
from loger.data.readers.plain import Source, locate, needed, read_columns, read_interactions
from loger.errors import DataError, LogerError

ENDINGS = (".nt", ".ttl")
_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
_LINKS = Columns(
    {"item": (*INTERACTIONS.known["item"], "id"), "iri": ("iri", "uri", "entity", "resource")},
    ("item", "iri"),
)
_LAST_PART = r"([^/#:]+)[/#]*$"


def read(folder: Path, *, min_rating: float | None = None, name: str | None = None) -> Dataset:
    """The data set of a folder with RDF files and interactions."""
    notes = list[Note]()
    path = needed(locate(folder, "interactions"), folder)
    interactions = read_interactions(Source(path), notes)
    files = [
        p
        for e in ENDINGS
        for c in table_files.COMPRESSIONS
        for p in sorted(folder.glob(f"*{e}{c}"))
    ]
    if not files:
        raise DataError("there is no RDF file", path=folder, remedy="add a .nt or .ttl file")
    facts = pl.concat(_read_statements(file) for file in files)
    facts, labels = _without_literals(facts, notes)
    links = _links(folder, facts, interactions, notes)
    facts = _with_types(_named(facts, links), notes)
    labels_by_name = labels.join(links, on="iri", how="left").with_columns(
        pl.coalesce("name", "iri").alias("name")
    )
    by_name = dict(labels_by_name.select("name", "label").iter_rows())
    items = links.filter(pl.col("kind") == "item")["name"]
    return assemble(
        name or folder.resolve().name,
        interactions,
        facts,
        items=pl.concat([interactions["item"].rename("name"), items]),
        labels=dict.fromkeys(("user", "item"), by_name) | {OTHER: _short(facts) | by_name},
        min_rating=min_rating,
        notes=notes,
        path=path,
        facts_path=files[0] if len(files) == 1 else folder,
    )


def _read_statements(path: Path) -> pl.DataFrame:
    """All statements of a file: head, relation, tail, and whether the tail is a literal."""
    try:
        import pyoxigraph as ox
    except ImportError:
        raise LogerError(
            "reading RDF needs pyoxigraph; run pip install '.[rdf]' in the clone"
        ) from None
    turtle = ".ttl" in path.suffixes
    form = ox.RdfFormat.TURTLE if turtle else ox.RdfFormat.N_TRIPLES
    text = table_files.read_text(path)
    rows = []
    try:
        for s, p, o, _ in ox.parse(text.encode(), format=form):
            literal = isinstance(o, ox.Literal)
            rows.append((_text(s), p.value, o.value if literal else _text(o), literal))
    except SyntaxError as error:
        line = error.lineno
        raise DataError(
            f"not valid {'Turtle' if turtle else 'N-Triples'} ({error.msg})",
            path=path,
            line=line,
            value=text.split("\n")[line - 1][:80] if line else None,
            remedy="fix the statement",
        ) from None
    schema = {"head": pl.String, "relation": pl.String, "tail": pl.String, "literal": pl.Boolean}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _text(node: object) -> str:
    """The IRI of a node, or ``_:name`` of a blank one; a statement about statements as it is."""
    value = getattr(node, "value", None)
    blank = str(node).startswith("_:")
    return str(node) if value is None or blank else str(value)


def _without_literals(facts: pl.DataFrame, notes: list[Note]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Facts between resources, and the labels among the literals."""
    named = pl.col("literal") & (pl.col("relation") == _LABEL)
    labels = facts.filter(named).unique("head", keep="first", maintain_order=True)
    skipped, triple = facts.filter(pl.col("literal") & ~named), ("head", "relation", "tail")
    table_files.note(notes, "statements about literals left out", skipped, *triple)
    labels = labels.select(pl.col("head").alias("iri"), pl.col("tail").alias("label"))
    return facts.filter(~pl.col("literal")).drop("literal"), labels


def _links(
    folder: Path, facts: pl.DataFrame, interactions: pl.DataFrame, notes: list[Note]
) -> pl.DataFrame:
    """Which resource each item and user is, as name, kind and iri; at least one item is."""
    ends = pl.concat([facts["head"], facts["tail"]]).unique(maintain_order=True)
    nodes = pl.DataFrame({"iri": ends})
    short = nodes.with_columns(pl.col("iri").str.extract(_LAST_PART).alias("name")).drop_nulls()
    whole = nodes.with_columns(pl.col("iri").alias("name"))
    names = {
        k: interactions.select(pl.col(k).alias("name")).unique(maintain_order=True)
        for k in ("item", "user")
    }
    file = locate(folder, "links")
    out = []
    for kind, wanted in names.items():
        if kind == "item" and file is not None:
            table = read_columns(Source(file), _LINKS, notes, interactions["item"])
            links = table.select(pl.col("item").alias("name"), "iri").unique(maintain_order=True)
        else:
            exact = wanted.join(whole, on="name", maintain_order="left")
            rest = wanted.join(exact, on="name", how="anti", maintain_order="left")
            links = pl.concat([exact, rest.join(short, on="name", maintain_order="left")])
        _check_links(file or folder, kind, links)
        out.append(links.select("name", pl.lit(kind).alias("kind"), "iri"))
    if not out[0]["iri"].is_in(ends.implode()).any():
        raise DataError(
            "none of the items in the interactions is a resource in the graph",
            path=file or folder,
            value=names["item"]["name"][0],
            remedy="add links.csv with the columns item,iri",
        )
    return pl.concat(out).unique("iri", keep="first", maintain_order=True)


def _check_links(path: Path, kind: str, links: pl.DataFrame) -> None:
    for column, other in (("name", "iri"), ("iri", "name")):
        again = links.filter(pl.col(column).is_duplicated())
        if len(again):
            both = again.filter(pl.col(column) == again[column][0])[other].to_list()[:2]
            whose = kind if column == "name" else "resource"
            raise DataError(
                f"the {whose} {again[column][0]!r} is linked twice",
                path=path,
                value=both,
                remedy="in links.csv, link each item to its own resource",
            )


def _named(facts: pl.DataFrame, links: pl.DataFrame) -> pl.DataFrame:
    """Facts with users and items under their own names, and relations under short ones."""
    for side in ("head", "tail"):
        renamed = links.rename({"iri": side, "name": "own", "kind": f"{side}_type"})
        facts = facts.join(renamed, on=side, how="left", maintain_order="left").with_columns(
            pl.coalesce("own", side).alias(side), pl.col(f"{side}_type").fill_null(OTHER)
        )
        facts = facts.drop("own")
    names = facts.select("relation").unique(maintain_order=True)
    short = names.with_columns(pl.col("relation").str.extract(_LAST_PART).alias("short"))
    clear = short.filter(pl.col("short").is_not_null() & ~pl.col("short").is_duplicated())
    facts = facts.join(clear, on="relation", how="left", maintain_order="left")
    is_type = (pl.col("relation") == _TYPE).alias("is_type")
    return facts.with_columns(is_type, pl.coalesce("short", "relation").alias("relation")).drop(
        "short"
    )


def _with_types(facts: pl.DataFrame, notes: list[Note]) -> pl.DataFrame:
    """Facts whose entities have the type that rdf:type gives them; those of users and items
    stay facts, about classes."""
    spent = facts.filter(pl.col("is_type") & (pl.col("head_type") == OTHER))
    what = "rdf:type statements used as entity types"
    table_files.note(notes, what, spent, "head")
    facts = facts.filter(~(pl.col("is_type") & (pl.col("head_type") == OTHER)))
    facts = facts.with_columns(
        pl.when("is_type").then(pl.lit("class")).otherwise("tail_type").alias("tail_type")
    ).drop("is_type")
    title = pl.coalesce(pl.col("tail").str.extract(_LAST_PART), "tail").replace(
        {"user": "user_", "item": "item_", "class": "class_", OTHER: "class_"}
    )
    kinds = spent.unique("head", keep="first", maintain_order=True).select(
        "head", title.alias("kind")
    )
    for side in ("head", "tail"):
        facts = facts.join(kinds.rename({"head": side}), on=side, how="left", maintain_order="left")
        stated = pl.when(pl.col(f"{side}_type") == OTHER).then("kind")
        facts = facts.with_columns(pl.coalesce(stated, f"{side}_type").alias(f"{side}_type"))
        facts = facts.drop("kind")
    return facts


def _short(facts: pl.DataFrame) -> dict[str, str]:
    """The last part of each IRI, for entities without a label."""
    names = pl.concat([facts["head"], facts["tail"]]).unique()
    pairs = pl.DataFrame({"iri": names, "short": names.str.extract(_LAST_PART)}).drop_nulls()
    return dict(pairs.iter_rows())
