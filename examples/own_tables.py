"""Your own tables: from two CSV files to recommendations with reasons.

python examples/own_tables.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from loger.data import load, split
from loger.logic.mining import MiningConfig
from loger.model import LOGER, LOGERConfig

INTERACTIONS = """user,item,time
ann,mug,1
ann,bowl,2
ann,tray,3
bob,lamp,1
bob,torch,2
bob,bulb,3
cyd,bowl,1
cyd,tray,2
cyd,mug,3
dan,cup,1
dan,mug,2
dan,bowl,3
"""

TRIPLES = """head,relation,tail,tail_type
mug,has_brand,Acme,brand
bowl,has_brand,Acme,brand
tray,has_brand,Acme,brand
cup,has_brand,Acme,brand
lamp,has_brand,Lumo,brand
torch,has_brand,Lumo,brand
bulb,has_brand,Lumo,brand
"""


def main() -> None:
    """Write the tables, fit, recommend, explain."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "interactions.csv").write_text(INTERACTIONS)
        (Path(folder) / "triples.csv").write_text(TRIPLES)
        parts = split(load(folder), test=0.0, validation=0.3)
        # Twelve purchases support no rule fifty times: ask less of rules than on real data.
        config = LOGERConfig(mining=MiningConfig(min_support=1, min_lift=1))
        model = LOGER(config).fit(parts)
        for row in model.recommend("ann", k=1, explain=True).iter_rows(named=True):
            print(f"{row['user']}: {row['item']}, {row['because']}")


if __name__ == "__main__":
    main()
