"""Tables: one printer for all benchmarks, and the tables in pages, made from stored figures.

    python benchmarks/tables.py            # bring the tables of README.md and docs/*.md up to date
    python benchmarks/tables.py --check    # only say which pages are out of date; exits with 1

``docs/tables/NAME.json`` stores figures: where they come from (``command``, ``seeds``, ``commit``,
``machine``), ``columns``, a number format for each (``formats``), and ``rows``. A page shows the
table between the marks ``<!-- table: NAME -->`` and ``<!-- end -->``. A cell may be:

    null                                    nothing
    12.3                                    a number, in its column's format
    [0, 175, 100]                           numbers that are added: 0 + 175 + 100
    {"mean": 9.2, "sd": 0.05}               9.20 ± 0.05; with "bold": true the mean is bold
    {"mean": 0.6, "interval": [0.5, 0.7]}   0.600 [0.500, 0.700]
    "text"                                  as it stands; {NAME: ROW: COLUMN: FORMAT} in it is
                                            looked up in another table, so figures have one home
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TABLES = ROOT / "docs" / "tables"
METRICS = ("ndcg", "recall", "hit_rate", "precision")
COMMIT = subprocess.run(
    ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
    capture_output=True, text=True, check=False,
).stdout.strip()  # fmt: skip
"""The commit that a benchmark began at, whatever is committed while it runs."""
REGION = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
REFERENCE = re.compile(r"\{([\w-]+): ([^:{}]*): ([^:{}]*): ([^:{}]*)\}")


def markdown(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown; cells are written as they are."""
    head, *body = [[f" {cell} " if cell != "" else " " for cell in r] for r in (columns, *rows)]
    return "\n".join(f"|{'|'.join(line)}|" for line in (head, ["---"] * len(head), *body))


def aligned(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The same for a terminal: the first column to the left, the others to the right."""
    lines = [[str(cell) for cell in line] for line in (columns, *rows)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(columns))]
    out = []
    for first, *others in lines:
        cells = [text.rjust(width) for text, width in zip(others, widths[1:], strict=True)]
        out.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return "\n".join(out)


def in_percent(means: Iterable[float], spreads: Iterable[float]) -> str:
    """The four ranking metrics of one run on one line: means ± something, in per cent."""
    cells = zip(METRICS, means, spreads, strict=True)
    return "  ".join(f"{m} {100 * mean:5.2f} ± {100 * spread:.2f}" for m, mean, spread in cells)


@cache
def stored(name: str) -> dict[str, Any]:
    """The figures of one table, as docs/tables has them."""
    found: dict[str, Any] = json.loads((TABLES / f"{name}.json").read_text(encoding="utf-8"))
    return found


def cell(value: Any, form: str) -> str:
    """One cell as text; see the top of this file."""
    if value is None:
        return ""
    if isinstance(value, str):
        return REFERENCE.sub(lambda found: looked_up(*found.groups()), value)
    if isinstance(value, list):
        return " + ".join(format(number, form) for number in value)
    if not isinstance(value, dict):
        return format(value, form)
    mean = format(value["mean"], form)
    mean = f"**{mean}**" if value.get("bold") else mean
    if "sd" in value:
        return f"{mean} ± {format(value['sd'], form)}"
    if "interval" in value:
        low, high = (format(end, form) for end in value["interval"])
        return f"{mean} [{low}, {high}]"
    return mean


def looked_up(name: str, row: str, column: str, form: str) -> str:
    """A figure of another table, in a format of its own."""
    table = stored(name)
    place = table["columns"].index(column)
    found = [line[place] for line in table["rows"] if line[0].strip("*") == row]
    if len(found) != 1:
        raise SystemExit(f"docs/tables/{name}.json: {len(found)} rows called {row!r}, expected one")
    value = found[0]
    return format(value["mean"] if isinstance(value, dict) else value, form)


def rendered(name: str) -> str:
    """A stored table as Markdown."""
    table = stored(name)
    columns = table["columns"]
    forms = table.get("formats", [""] * len(columns))
    rows = [[cell(x, f) for x, f in zip(row, forms, strict=True)] for row in table["rows"]]
    return markdown(columns, rows)


def up_to_date(text: str) -> str:
    """A page with all its marked tables as they are stored."""
    return REGION.sub(lambda found: f"{found[1]}{rendered(found[2])}\n{found[3]}", text)


def store(
    name: str, columns: list[str], formats: list[str], rows: list[list[Any]], **about: Any
) -> None:
    """Keep figures as docs/tables has them; ``about`` says their command, seeds and commit."""
    told = {**about, "machine": "2 cores, busy", "columns": columns, "formats": formats,
            "rows": rows}  # fmt: skip
    text = json.dumps(told, indent=1, ensure_ascii=False) + "\n"
    (TABLES / f"{name}.json").write_text(text, encoding="utf-8")


def pages() -> list[Path]:
    """The pages that may show tables."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    options = parser.parse_args()
    old = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if up_to_date(text) != text:
            old.append(page)
            if not options.check:
                page.write_text(up_to_date(text), encoding="utf-8")
    names = ", ".join(str(page.relative_to(ROOT)) for page in old)
    if old and options.check:
        raise SystemExit(f"out of date: {names}; run python benchmarks/tables.py")
    print(f"brought up to date: {names}" if old else "all tables are up to date")


if __name__ == "__main__":
    main()
