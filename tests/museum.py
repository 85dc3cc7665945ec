"""An invented museum pass with messy tables and planted causes, and a checker of statements.

Members visit a venue because they like its district or theme, because it follows another venue, or,
in families, because it is accessible with a pram. ``invent`` writes visits.csv, venues.csv and
members.csv as people would export them, and truth.csv with the cause of every visit. ``Tables``
reads these files again in plain Python and checks each clause of a reason. A clause that it doesn't
know counts as false.
"""

from __future__ import annotations

import csv
import random
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

DISTRICTS = ("Hafen", "Altstadt", "St. Peter & Paul", "Östliche Höfe", "Nordend")
THEMES = ("Film", "Music", "Science, natural", "Ships", "Textiles", "Toys")
PRICES = ("€{:.2f}", "{:.2f} EUR", "EUR {:.2f}", "{:.2f}")
UNKNOWN = ("unknown", "N/A", "n/a", "-", "null", "")


def invent(folder: Path, seed: int = 3, members: int = 150, venues: int = 70) -> None:
    """Write the four tables."""
    rng = random.Random(seed)
    places = [_venue(rng, k) for k in range(venues)]
    table = [("venue_id", "name", "district", "themes", "accessibility", "price"), *places]
    _write(folder / "venues.csv", table)
    households = {f"M{k:04d}": rng.choice(("family", "single", "couple")) for k in range(members)}
    _write(folder / "members.csv", [("member", "household"), *households.items()])
    visits, truth = [], []
    for member, household in households.items():
        for cause, place, when in _history(rng, places, household):
            visits.append((member, places[place][0], when))
            truth.append((member, places[place][0], cause))
    rng.shuffle(visits)
    _write(folder / "visits.csv", [("member", "venue", "visited_at", "gate"), *_messy(rng, visits)])
    _write(folder / "truth.csv", [("member", "venue", "cause"), *truth])


def _venue(rng: random.Random, k: int) -> tuple[str, ...]:
    price = rng.choice(PRICES).format(rng.randrange(6, 40) / 2) if k % 6 else "free"
    district = rng.choice(DISTRICTS) if k % 9 else rng.choice(UNKNOWN)
    themes = "|".join(rng.sample(THEMES, rng.choice((1, 1, 2))))
    pram = rng.choice(("pram", "stairs only"))
    return f"V{k:03d}", f"{themes.split('|')[0]} house no. {k}", district, themes, pram, price


def _history(rng, places, household):
    """Cause, venue and time of each visit of a member."""
    district, theme, has = rng.choice(DISTRICTS), rng.choice(THEMES), []
    time = 1_600_000_000 + rng.randrange(10**6)
    liked = [k for k, p in enumerate(places) if p[2] == district or theme in p[3].split("|")]
    prams = [k for k, p in enumerate(places) if p[4] == "pram"]
    for _ in range(rng.randrange(7, 14)):
        follows = (has[-1] * 7 + 3) % len(places) if has else -1
        chance = rng.random()
        if follows >= 0 and chance < 0.35:
            cause, place = "sequence", follows
        elif household == "family" and chance < 0.6:
            cause, place = "family", rng.choice(prams)
        else:
            cause, place = "district and theme", rng.choice(liked)
        if place in has:
            continue
        has.append(place)
        time += rng.choice((0, 7200, rng.randrange(86_400, 10**6)))  # two at the same minute
        yield cause, place, time


def _messy(rng, visits):
    """Rows as an export has them: two ways to write dates, repeats, holes, blanks."""
    for k, (member, venue, time) in enumerate(visits):
        way = "%Y-%m-%d %H:%M:%S" if k % 3 else "%d.%m.%Y %H:%M:%S"
        when, gate = datetime.fromtimestamp(time, UTC).strftime(way), rng.choice(("desk", "app"))
        row = (f" {member}" if k % 40 == 0 else member, venue, when, gate)
        yield row
        yield from [row] * (k % 37 == 0)  # the export repeats a line
        if k % 29 == 0:  # visited again
            again = datetime.fromtimestamp(time + 90, UTC).strftime(way)
            yield member, venue, again, gate
        if k % 83 == 0:
            yield "", venue, when, gate
        if k % 71 == 0:
            yield member, venue, rng.choice(("", "some day", "unknown")), gate


def _write(path: Path, rows) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def _read(path: Path):
    with path.open(encoding="utf-8") as file:
        yield from csv.DictReader(file)


def _time(text: str) -> int | None:
    for way in ("%Y-%m-%d %H:%M:%S", "%d.%m.%Y %H:%M:%S"):
        try:
            return int(datetime.strptime(text, way).replace(tzinfo=UTC).timestamp())
        except ValueError:
            continue
    return None


class Tables:
    """The CSV files, and what they say."""

    def __init__(self, folder: Path) -> None:
        rows, seen = defaultdict(list), set()
        for row in _read(folder / "visits.csv"):
            whole = tuple(value.strip() for value in row.values())
            if whole[0] and whole not in seen:
                rows[whole[0]].append((whole[1], _time(whole[2])))
            seen.add(whole)
        known = [time for own in rows.values() for _, time in own if time is not None]
        self.times = Counter((member, item) for member, own in rows.items() for item, _ in own)
        self.visited = {member: _ordered(own, min(known)) for member, own in rows.items()}
        self.venues = {row["venue_id"]: row for row in _read(folder / "venues.csv")}
        self.ids = {row["name"]: key for key, row in self.venues.items()}
        self.household = {row["member"]: row["household"] for row in _read(folder / "members.csv")}
        self.checked: Counter[str] = Counter()
        self.false: list[tuple[str, ...]] = []

    def both(self, one: str, other: str) -> int:
        return sum(one in has and other in has for has in self.visited.values())

    def after(self, one: str, other: str, window: int) -> int:
        """How many have the other at the same time or later, with fewer than so many visits at
        times in between."""
        n = 0
        for has in self.visited.values():
            if one in has and other in has and has[one] <= has[other]:
                n += sum(has[one] < time < has[other] for time in has.values()) < window
        return n

    def like(self, member: str, item: str) -> int:
        """How many others of the same household have an item."""
        mine = self.household[member]
        return sum(
            item in has
            for other, has in self.visited.items()
            if other != member and self.household[other] == mine
        )

    def check(
        self, member: str, item: str, action: str, text: str, group: Sequence[str] = ()
    ) -> None:
        """Check that the item is new to the member, and all that an action and its text say.
        ``group`` are the venues of a reason that stands for several actions."""
        self._claim("new", item not in self.visited[member], member, item)
        if group:
            return self._check_group(member, item, text, group)
        found = re.fullmatch(r"you visited (.+? no\. \d+)( last)?(?:, (\d+) times)?", action)
        if not found:
            household = re.fullmatch(r"you (?:are|have) household (\w+)", action)
            told = bool(household) and household[1] == self.household[member]
            self._claim("household", told, member, action)
            one = ""
        else:
            one, has = self.ids[found[1]], self.visited[member]
            self._claim("has", one in has, member, action)
            if found[2]:
                self._claim("last", has[one] == max(has.values()), member, action)
            if found[3]:
                self._claim("times", self.times[member, one] == int(found[3]), member, action)
        for clause in re.split(r"; (?![^(]*\))", text):
            self._clause(member, one, item, clause)

    def _check_group(self, member: str, item: str, text: str, group: Sequence[str]) -> None:
        """Check that the action names the group's venues, and each clause for all of them."""
        names = [self.venues[one]["name"] for one in group]
        listed = f"{', '.join(names[:2])} and {len(names) - 2} more"
        listed = listed if len(names) > 3 else " and ".join([", ".join(names[:-1]), names[-1]])
        action, _, told = text.partition(": ")
        self._claim("group", action == f"You visited {listed}" and bool(told), member, item, text)
        self._claim("has", set(group) <= set(self.visited[member]), member, item, text)
        self._claim("distinct", len(set(group)) == len(group) > 1, member, item, text)
        least = r"in each case, at least (\d+) people visited"
        for clause in re.split(r"; (?![^(]*\))", told):
            if found := re.fullmatch(rf"{least} both", clause):
                n = min(self.both(one, item) for one in group)
                self._count("group both", found[1], n, member, item, text)
            elif found := re.fullmatch(rf"{least} this with it or up to (\d+) items later", clause):
                n = min(self.after(one, item, int(found[2])) for one in group)
                self._count("group after", found[1], n, member, item, text)
            elif found := re.fullmatch(r"same (\w+(?: range)?) \((.+)\)", clause):
                for one in group:
                    self._same(member, one, item, found[1], f"{found[2]}…")
            else:
                known = ("similar overall (learned)",
                         "people who had them went on to things like this")  # fmt: skip
                self._claim("learned", clause in known, member, item, text)

    def _clause(self, member: str, one: str, item: str, clause: str) -> None:
        """Check one clause of the evidence; "it" is the venue ``one``."""
        said = clause[:1].lower() + clause[1:]
        if one:  # whatever is named is the venue of the action
            name = self.venues[one]["name"]
            said = re.sub(rf" (?:your )?{re.escape(name)}(?= |$)", " it", said)
        count = r"(\d+) people|someone"
        if found := re.fullmatch(rf"(?:{count}) visited both(?: this and it)?", said):
            return self._count("both", found[1], self.both(one, item), member, item, said)
        later = r"visited this with it or up to (\d+) items later"
        if found := re.fullmatch(rf"(?:{count}) {later}", said):
            n = self.after(one, item, int(found[2]))
            return self._count("after", found[1], n, member, item, said)
        if found := re.fullmatch(r"same (\w+(?: range)?)(?: as it)? \((.+)\)", said):
            return self._same(member, one, item, found[1], found[2])
        who = r"(?:who|with) .*household (\w+).* visited this"
        if found := re.fullmatch(rf"(?:{count}) {who}", said):
            n = self.like(member, item) if found[2] == self.household[member] else -1
            return self._count("household", found[1], n, member, item, said)
        known = re.fullmatch(
            r"similar overall(?: to it)? \(learned(; no single fact behind it)?\)", said
        )
        return self._claim("learned", bool(known), member, item, said)

    def _count(self, kind: str, told: str | None, n: int, *about: str) -> None:
        """A number of people, or, of one or two, "someone"."""
        self._claim(kind, int(told) == n if told else 0 < n < 3, *about)

    def _same(self, member: str, one: str, item: str, column: str, value: str) -> None:
        a, b = self.venues[one], self.venues[item]
        if column == "price range":
            low, _, high = re.sub(r"[^\d.–]", "", value).partition("–")
            fits = all(float(low) <= _price(v["price"]) <= float(high or low) for v in (a, b))
        elif column in ("theme", "themes"):
            # A theme may have a comma, so what is listed is compared as text.
            shared = set(a["themes"].split("|")) & set(b["themes"].split("|"))
            listed = {theme for theme in THEMES if theme in value}
            fits = listed <= shared and ("…" in value or len(listed) == len(shared))
        else:
            value = value.removesuffix("…")
            fits = a[column] == b[column] == value and value not in UNKNOWN
        self._claim(f"same {column}", fits, member, item, f"{value} of {one}")

    def _claim(self, kind: str, true: bool, *about: str) -> None:
        self.checked[kind] += 1
        if not true:
            self.false.append((kind, *about))


def _price(text: str) -> float:
    return 0.0 if text == "free" else float(re.sub(r"[^\d.]", "", text))


def _ordered(rows: list[tuple[str, int | None]], first: int) -> dict[str, int]:
    """What a member has, with its latest time, in order: by time, then by the row of the first
    visit. A row whose time can't be read comes first."""
    first = min((time for _, time in rows if time is not None), default=first)
    timed = sorted(((item, first if t is None else t, k) for k, (item, t) in enumerate(rows)),
                   key=lambda row: row[1:])  # fmt: skip
    row, latest = {}, {}
    for item, time, k in timed:
        row.setdefault(item, k)
        latest[item] = time
    order = sorted(latest, key=lambda item: (latest[item], row[item]))
    return {item: latest[item] for item in order}
