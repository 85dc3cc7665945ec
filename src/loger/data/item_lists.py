"""Files that list items: what is in stock, what may not be shown."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from loger.data.tables import read_parquet
from loger.errors import DataError


def read_item_list(path: Path | str) -> list[str]:
    """The names of items in a file: one in a line, or the column ``item`` of a CSV or Parquet."""
    path = Path(path)
    try:
        if path.suffix == ".parquet":
            return _column(read_parquet(path), path)
        if path.suffix in (".csv", ".tsv"):
            sign = "\t" if path.suffix == ".tsv" else ","
            return _column(pl.read_csv(path, separator=sign, infer_schema=False), path)
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError("there is no such file", path=path) from None
    except (OSError, UnicodeDecodeError, pl.exceptions.PolarsError) as error:
        raise DataError(f"cannot be read ({error})", path=path) from None
    return [name for line in text.splitlines() if (name := line.strip())]


def _column(table: pl.DataFrame, path: Path) -> list[str]:
    if "item" not in table.columns:
        raise DataError(
            "a table of items needs a column 'item'", path=path, value=", ".join(table.columns)
        )
    return table["item"].cast(pl.String).drop_nulls().to_list()
