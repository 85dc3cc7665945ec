"""The messy tables of a small shop: orders and items."""

from __future__ import annotations

import csv
import random
from datetime import UTC, datetime

BRANDS, CATEGORIES = ("Acme", "Bolt & Co", "Crème", "Ewe"), ("lamp", "rack", "tray", "hook", "mug")


def invent(folder, seed=3, users=140, items=60):
    """Orders and items of a shop in which people like a brand and a category, and buy one thing
    after another."""
    rng = random.Random(seed)
    goods = [(f"P{k:03d}", rng.choice(BRANDS), rng.choice(CATEGORIES)) for k in range(items)]
    with (folder / "items.csv").open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["item_id", "title", "brand", "category"])
        for k, (item, brand, category) in enumerate(goods):
            out.writerow([item, f"{category} no. {k}", "" if k % 11 == 0 else brand, category])
    rows = []
    for u in range(users):
        time, brand, category, has = 1_600_000_000, rng.choice(BRANDS), rng.choice(CATEGORIES), []
        for _ in range(rng.randrange(6, 13)):
            free = [k for k in range(items) if k not in has]
            liked = [k for k in free if brand in goods[k] or category in goods[k]]
            follows = (has[-1] * 7 + 3) % items if has else -1
            pick = rng.choice(liked or free)
            if follows in free and rng.random() < 0.4:
                pick = follows
            has.append(pick)
            time += rng.randrange(3_600, 10**6)
            rows.append((f"u{u}", goods[pick][0], time))
            rows += [rows[-1]] * (rng.random() < 0.05)
            if rng.random() < 0.1:  # an old thing, once more
                rows.append((f"u{u}", goods[rng.choice(has)][0], time + 60))
    rng.shuffle(rows)
    with (folder / "orders.csv").open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["customer", "product", "when"])
        for k, (user, item, time) in enumerate(rows):
            when = datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S")
            out.writerow([f" {user}" if k % 50 == 0 else user, item, when])
            if k % 97 == 0:
                out.writerow(["", item, when])
            if k % 89 == 0:
                out.writerow([user, item, "some day"])
