"""Messy tables: duplicate rows, IDs that don't match, invalid times."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from loger.data import frames
from loger.errors import DataError
from loger.rules.wording import plural
from loger.tables.mapping import Column, EntityTable, InteractionTable, TableMapping
from loger.tables.propose import propose
from loger.tables.table import from_tables
from loger.tables.values import as_moments, as_numbers

N_TRACKS, N_PLAYS = 40, 300


def tracks(**more: list[str]) -> pl.DataFrame:
    columns = {
        "track_id": [f"t{k:04d}" for k in range(N_TRACKS)],
        "title": [f"Song {k}" for k in range(N_TRACKS)],
        "artist": [f"Artist {k % 5}" for k in range(N_TRACKS)],
    }
    return pl.DataFrame(columns | more)


def plays(**more: list[str]) -> pl.DataFrame:
    columns = {
        "user_id": [f"u{k % 25}" for k in range(N_PLAYS)],
        "track_id": [f"t{(k * k) % N_TRACKS:04d}" for k in range(N_PLAYS)],
        "played_at": [f"2024-0{k % 9 + 1}-1{k % 7} 10:00:00" for k in range(N_PLAYS)],
    }
    return pl.DataFrame(columns | more)


def mapped(*tables: pl.DataFrame, **more: str) -> Any:
    """The mapping that was proposed."""
    return from_tables(*tables, **more).mapping


def test_a_duplicated_row_of_the_items_is_noted_and_the_first_taken() -> None:
    twice = pl.concat([tracks(), tracks()[:1].with_columns(pl.lit("Other").alias("title"))])
    for more in ({}, {"item": "track_id"}):
        dataset = from_tables(plays(), twice, **more)
        assert dataset.n_items == N_TRACKS
        assert dataset.vocabulary.labels[dataset.n_users] == "Song 0"
        note = "repeated rows for the same item left out, keeping the first"
        assert [(n.count, n.example) for n in dataset.notes if n.what == note] == [
            (1, "t0000, line 41")
        ]


def test_a_row_that_an_export_repeats_counts_once_and_is_noted() -> None:
    lent = plays(branch=[f"B{k % 3}" for k in range(N_PLAYS)])
    note = "rows left out: identical to an earlier row"
    once, twice = (from_tables(rows, tracks()) for rows in (lent, pl.concat([lent, lent[:2]])))
    assert [n.count for n in once.notes if n.what == note] == []
    assert [(n.count, n.example) for n in twice.notes if n.what == note] == [(2, "line 301")]
    assert strengths(once) == strengths(twice)


def test_who_played_what_on_one_day_may_be_true_twice() -> None:
    days = plays(played_at=[f"2024-0{k % 9 + 1}-1{k % 7}" for k in range(N_PLAYS)])
    once, twice = (from_tables(rows, tracks()) for rows in (days, pl.concat([days, days[:2]])))
    assert sum(strengths(twice)) == sum(strengths(once)) + 2


def test_rows_that_nothing_dates_may_be_true_twice() -> None:
    rows = plays(branch=[f"B{k % 3}" for k in range(N_PLAYS)]).drop("played_at")
    once, twice = (from_tables(some, tracks()) for some in (rows, pl.concat([rows, rows[:2]])))
    assert sum(strengths(twice)) == sum(strengths(once)) + 2


def strengths(dataset: Any) -> list[float]:
    return [] if dataset.interactions.strengths is None else dataset.interactions.strengths.tolist()


def test_values_that_differ_in_capitals_only_are_noted() -> None:
    labels = [("Central" if k % 9 else "CENTRAL", "Harbour")[k % 2] for k in range(N_TRACKS)]
    notes = from_tables(plays(), tracks(studio=labels)).notes
    what = "studio: values that differ only in upper and lower case, kept separate"
    assert [(n.count, n.example) for n in notes if n.what == what] == [(2, "CENTRAL")]


def test_times_of_day_are_no_facts() -> None:
    clock = [f"{k % 24}:{k % 60:02d}:07" for k in range(N_PLAYS)]
    found = {c.column: (c.take, c.why) for _, c in mapped(plays(clock=clock), tracks()).columns()}
    assert found["clock"] == ("leave out", "times of day")


def test_few_values_that_differ_within_items_are_context_and_no_facts() -> None:
    gates = [("desk", "gate", "app")[k // 7 % 3] for k in range(N_PLAYS)]
    halls = [f"hall {(k * k) % N_TRACKS % 3}" for k in range(N_PLAYS)]  # settled by the item
    dataset: Any = from_tables(plays(gate=gates, hall=halls), tracks())
    found = {c.column: c for _, c in dataset.mapping.columns()}
    assert found["gate"].take == "leave out"
    assert found["gate"].why.startswith("3 values that differ between interactions")
    assert found["hall"].take == "entity"
    assert not any("gate" in r.name for r in dataset.relations)


def test_of_several_behaviours_the_strongest_counts_and_the_notes_say_so() -> None:
    did = [("viewed", "attended", "booked")[k // 7 % 3] for k in range(N_PLAYS)]
    dataset: Any = from_tables(plays(action=did), tracks())
    table = dataset.mapping.interactions
    assert (table.behaviour, table.target) == ("action", "attended")
    assert "only 'attended' counts" in str(dataset.mapping)
    (note,) = [n for n in dataset.notes if "column action isn't 'attended'" in n.what]
    assert note.count == N_PLAYS - did.count("attended")
    attended = plays().filter(pl.Series(did) == "attended").select("user_id", "track_id")
    assert len(dataset.interactions) == attended.n_unique()
    changed = replace(dataset.mapping, interactions=replace(table, target="bought"))
    with pytest.raises(DataError, match="attended, booked, viewed"):
        from_tables(plays(action=did), tracks(), mapping=changed)


def test_ids_that_do_not_match_are_shown_side_by_side(tmp_path: Path) -> None:
    bare = plays(track_id=[str((k * k) % N_TRACKS) for k in range(N_PLAYS)])
    said = r"0% of the IDs in {}\.track_id are also in {}\.track_id; compare '1' with 't0001'"
    for more in ({}, {"item": "track_id"}):
        with pytest.raises(DataError, match=said.format("interactions", "items")):
            from_tables(bare, tracks(), **more)
    paths = tmp_path / "plays.csv", tmp_path / "tracks.csv"
    bare.write_csv(paths[0])
    tracks().write_csv(paths[1])
    with pytest.raises(DataError, match=said.format("plays", "tracks")):
        from_tables(*paths)


def test_a_column_that_is_given_is_taken_though_few_of_its_ids_are_known() -> None:
    few = tracks()[:10]
    with pytest.raises(DataError, match=r"are also in items\.track_id"):
        from_tables(plays(), few)
    assert mapped(plays(), few, item="track_id").items.id == "track_id"


def test_integers_match_text_and_numbers_that_became_floats() -> None:
    numbers = tracks(track_id=[f"{k}.0" for k in range(N_TRACKS)])
    bought = plays(track_id=[(k * k) % N_TRACKS for k in range(N_PLAYS)])
    assert from_tables(bought, numbers).n_items == N_TRACKS


def test_a_few_broken_times_cost_neither_their_rows_nor_the_column() -> None:
    times = plays()["played_at"].to_list()
    times[4], times[290] = "soon", "31.02."
    dataset = from_tables(plays(played_at=times), tracks())
    assert mapped(plays(played_at=times), tracks()).interactions.time == "played_at"
    events = dataset.interactions
    assert events.times is not None
    (note,) = [n for n in dataset.notes if "unreadable time" in n.what]
    assert (note.count, note.example) == (2, "line 5: soon; also 291")


def test_who_has_a_thing_without_a_time_has_it_before_all_else() -> None:
    rows = {"user": ["a", "a", "a", "b"], "item": ["x", "y", "z", "x"],
            "time": ["2024-01-05", "2024-01-03", "?", ""]}  # fmt: skip
    dataset = from_tables(pl.DataFrame(rows), user="user", item="item", time="time")
    days = pl.Series(["2024-01-05", *["2024-01-03"] * 3]).str.to_datetime().dt.epoch("s")
    assert dataset.interactions.times is not None
    assert dataset.interactions.times.tolist() == days.to_list()
    with pytest.raises(DataError, match="unreadable time"):
        from_tables(pl.DataFrame(rows), user="user", item="item", time="time", strict=True)


def test_dates_of_mails_are_times_and_zones_count() -> None:
    mail = "Sat, 14 Jan 2023 14:54:50 +0100"
    utc = 1673704490  # date -d "$mail" +%s
    same = [
        mail,
        "Sat, 14 Jan 2023 08:54:50 -0500",
        "14 January 2023 13:54:50 GMT",
        "Sat,  14 Jan 2023 19:24:50 +0530 (IST)",
        "2023-01-14T14:54:50+01:00",
        "2023-01-14 13:54:50Z",
        "2023-01-14 13:54:50",
        "14.01.2023 13:54:50",
        "Saturday, January 14, 2023 13:54:50",
    ]
    assert as_moments(pl.Series(same)).to_list() == [utc] * len(same)
    dated = plays(played_at=[mail] * N_PLAYS).rename({"played_at": "done"})
    assert mapped(dated, tracks()).interactions.time == "done"
    assert mapped(dated, tracks()).interactions.columns == ()


def test_where_no_row_is_left_the_reason_is_said() -> None:
    never = plays(played_at=["some day"] * N_PLAYS)
    with pytest.raises(DataError, match=r"no time can be read, got .*some day.*write dates"):
        from_tables(never, tracks(), time="played_at")


def test_times_in_several_formats_are_all_read_and_the_formats_noted() -> None:
    iso = plays()["played_at"].to_list()
    mixed = [f"{t[8:10]}.{t[5:7]}.{t[:4]} {t[11:16]}" if k % 2 else t for k, t in enumerate(iso)]
    dataset, plain = from_tables(plays(played_at=mixed), tracks()), from_tables(plays(), tracks())
    assert dataset.interactions.times is not None
    assert plain.interactions.times is not None
    assert dataset.interactions.times.tolist() == plain.interactions.times.tolist()
    (note,) = [n for n in dataset.notes if "date formats in the time column" in n.what]
    assert (note.count, note.example) == (2, f"{mixed[0]}, {mixed[1]}")


def test_day_and_month_have_one_order_in_a_column_and_in_later_updates() -> None:
    slashed = [f"0{k % 9 + 1}/1{k % 7}/2024" for k in range(N_PLAYS)]  # up to 16: months first
    slashed[7] = "25/03/2024"
    dataset = from_tables(plays(played_at=slashed), tracks())
    (note,) = [n for n in dataset.notes if "unreadable time" in n.what]
    assert (note.count, note.example) == (1, "line 8: 25/03/2024")
    assert dataset.catalogue.mapping is not None
    assert dataset.catalogue.mapping["interactions"]["date_order"] == "month first"
    unclear = plays(played_at=[f"0{k % 9 + 1}/05/2024" for k in range(N_PLAYS)])
    guessed = from_tables(unclear, tracks())
    (note,) = [n for n in guessed.notes if "03/04/2024" in n.what]
    assert note.count == N_PLAYS
    told = mapped(unclear, tracks())
    told = replace(told, interactions=replace(told.interactions, date_order="day first"))
    said = from_tables(unclear, tracks(), mapping=told)
    assert not [n for n in said.notes if "03/04/2024" in n.what]
    assert guessed.interactions.times is not None
    assert said.interactions.times is not None
    assert guessed.interactions.times.max() != said.interactions.times.max()


def test_a_column_with_both_orders_of_day_and_month_is_said_to_have_them() -> None:
    months = [f"{k % 9 + 1:02d}" for k in range(N_PLAYS)]
    day_first, both = (
        [f"{14 + k % 7}/{m}/2024" if k % turn else f"{m}/{14 + k % 7}/2024"
         for k, m in enumerate(months)]
        for turn in (1000, 3)
    )  # fmt: skip
    plain = from_tables(plays(played_at=day_first[1:] + day_first[1:2]), tracks())
    mixed = from_tables(plays(played_at=both), tracks())
    assert not any("mixes both orders" in n.what for n in plain.notes)
    found = [n for n in mixed.notes if "mixes both orders" in n.what]
    assert [(n.count, n.example) for n in found] == [(100, "01/14/2024")]


def test_a_year_of_two_digits_is_of_this_century() -> None:
    assert as_moments(pl.Series(["01.05.24"])).to_list() == [1714521600]
    assert as_moments(pl.Series(["01.05.24 25:00"])).to_list() == [None]


def test_the_column_of_times_can_be_told() -> None:
    ranks = [str(k % 50) for k in range(N_PLAYS)]
    assert mapped(plays(n=ranks), tracks(), time="n").interactions.time == "n"
    with pytest.raises(DataError, match="there is no column 'when', only user_id"):
        from_tables(plays(), tracks(), time="when")


def test_a_time_that_most_rows_lack_is_left_out_with_the_reason() -> None:
    times = [t if k % 2 else None for k, t in enumerate(plays()["played_at"])]
    dataset = from_tables(plays(played_at=times), tracks())
    assert dataset.interactions.times is None
    (column,) = mapped(plays(played_at=times), tracks()).interactions.columns
    assert (column.take, column.why[:24]) == ("leave out", "50% of the rows have non")
    assert len(dataset.interactions) == len(from_tables(plays(), tracks()).interactions)


@pytest.mark.parametrize(
    ("titles", "label"),
    [
        ({"title": [f"Song {k // 3}" for k in range(N_TRACKS)]}, "title"),
        ({"title": [f"Song {k % 4}" for k in range(N_TRACKS)]}, "title"),
        ({"title": ["x"] * N_TRACKS, "Track Name": [f"S{k}" for k in range(N_TRACKS)]},
         "Track Name"),
        ({"title": ["x"] * N_TRACKS, "what": [f"AB {k}" for k in range(N_TRACKS)]}, ""),
        ({"title": ["x"] * N_TRACKS,
          "what": [f"Lied der Dinge {chr(97 + k % 26)}{k}" for k in range(N_TRACKS)]}, "what"),
        ({"title": ["x"] * N_TRACKS, "what": [f"Rosa 'Éclair' {k}" for k in range(N_TRACKS)]},
         "what"),
        ({"title": ["x"] * N_TRACKS, "brand_name": [f"B{k % 9}" for k in range(N_TRACKS)]}, ""),
    ],
)  # fmt: skip
def test_titles_become_labels_also_where_they_repeat(
    titles: dict[str, list[str]], label: str
) -> None:
    assert mapped(plays(), tracks(**titles)).items.label == label


def test_the_verb_follows_the_names_of_file_and_columns(tmp_path: Path) -> None:
    assert from_tables(plays(), tracks()).relations[0].name == "played"
    plays().rename({"played_at": "when"}).write_csv(tmp_path / "loans.csv")
    assert from_tables(tmp_path / "loans.csv", tracks()).relations[0].name == "borrowed"
    bare = plays().rename({"played_at": "when"})
    assert from_tables(bare, tracks()).relations[0].name == "interacted"


def test_every_key_of_the_file_is_explained_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    column = Column("c", "list", "has_c", "c", "|", 4, "why")
    whole = TableMapping(
        InteractionTable("u", "i", columns=(column,)), EntityTable("id", columns=(column,))
    )
    whole.save(path)
    lines = path.read_text().splitlines()
    head = [line for line in lines if line.startswith("#   ")]
    for line in lines:
        key = line.removeprefix("# ").split(" = ")[0]
        if " = " in line and "#" not in line:
            assert any(part.split()[1] == key for part in head), line
    assert [c.column for _, c in TableMapping.load(path).columns()] == [
        c.column for _, c in whole.columns()
    ]
    for key in ("rating", "time", "part", "label", "file", "min_rating", "hub_share"):
        assert any(f"{key} = " in line and line.count("#") for line in lines), key


@pytest.mark.parametrize("turned", [False, True])
def test_ids_without_their_leading_zeros_are_filled_up_and_noted(turned: bool) -> None:
    short, long = [str(k) for k in range(8, 20)], [f"{k:05d}" for k in range(8, 20)]
    short, long = (long, short) if turned else (short, long)
    loans = pl.DataFrame({"user": [f"u{k % 4}" for k in range(12)], "item": short})
    things = pl.DataFrame({"item": long, "brand": [f"b{k % 3}" for k in range(12)]})
    made = from_tables(loans, items=things)
    items = [made.vocabulary.names[e] for e in made.vocabulary.span("item")]
    assert sorted(items) == [f"{k:05d}" for k in range(8, 20)]
    assert any("leading zeros" in note.what and note.count == 12 for note in made.notes)


def test_ids_that_have_zeros_of_their_own_are_left_alone() -> None:
    loans = pl.DataFrame({"user": ["a", "b", "c"], "item": ["007", "07", "7"]})
    things = pl.DataFrame({"item": ["007", "07", "7"], "brand": ["x", "y", "x"]})
    assert from_tables(loans, items=things).n_items == 3


def test_low_ratings_are_left_out_or_said_to_count_like_high_ones() -> None:
    stars = [str(1 + k % 5) for k in range(N_PLAYS)]
    made = from_tables(plays(stars=stars), items=tracks())
    assert made.interactions.ratings is not None and min(made.interactions.ratings) == 3
    every = replace(made.mapping, min_rating=None)
    told = from_tables(plays(stars=stars), items=tracks(), mapping=every).notes
    what = "low ratings that count the same as high ones (min_rating = 4 makes them dislikes)"
    assert [n.count for n in told if n.what == what] == [120]
    high = from_tables(plays(stars=[str(4 + k % 2) for k in range(N_PLAYS)]), items=tracks())
    assert not [n for n in high.notes if "ratings" in n.what]


def test_dates_that_are_written_in_several_ways_are_no_facts() -> None:
    ways = ("2019-03-01", "01.02.2020", "2021/05/06 10:00", "7/8/2020")
    made = mapped(plays(), tracks(published=[ways[k % 4] for k in range(N_TRACKS)]))
    (column,) = [c for c in made.items.columns if c.column == "published"]
    assert (column.take, column.why) == ("leave out", "dates")


def test_an_index_and_ids_are_no_amounts(tmp_path):
    """What pandas writes first, a running number, and the number of a maker."""
    plays = [",reader,book,when"]
    plays += [f"{k},r{k % 12},{10 + k % 20},2024-01-{1 + k % 28:02d}" for k in range(120)]
    (tmp_path / "loans.csv").write_text("\n".join(plays))
    books = [",book,title,publisher_id,nr"]
    books += [f"{k},{10 + k},Book of {k} things,{7 * (k % 5)},{k + 1}" for k in range(20)]
    (tmp_path / "books.csv").write_text("\n".join(books))
    paths = tmp_path / "loans.csv", tmp_path / "books.csv", None
    read = (None if path is None else frames.read(path) for path in paths)
    found = propose(*read, name="library", files=paths)
    assert found.items is not None
    taken = {c.column: (c.take, c.why) for c in found.items.columns}
    assert taken["row"] == taken["nr"] == ("leave out", "a running number")
    assert taken["publisher_id"] == ("entity", "5 ids in 20 rows")
    assert {c.column: c.take for c in found.interactions.columns}["row"] == "leave out"


def test_ids_that_differ_in_zeros_only_and_items_without_names_are_noted():
    plays = pl.DataFrame(
        {
            "reader": [f"{k % 9}" for k in range(40)] + ["007"],
            "book": [f"b{k % 7}" for k in range(41)],
        }
    )
    books = pl.DataFrame({"book": [f"b{k}" for k in range(7)], "kind": list("xxyyzzz")})
    notes = {note.what: note for note in from_tables(plays, items=books).notes}
    (zeros,) = (note for what, note in notes.items() if "leading zeros" in what)
    assert (zeros.count, zeros.example) == (2, "007")
    assert any(what.startswith("items shown by their IDs") for what in notes)


def test_ratings_in_words_and_stars_are_ratings() -> None:
    said = ["5 stars", "★★★☆☆", "4/5", "2", "1 Stern"]
    told = plays(Bewertung=[said[k % 5] for k in range(N_PLAYS)])
    assert mapped(told, tracks()).interactions.rating == "Bewertung"
    made = from_tables(told, tracks())
    assert made.interactions.ratings is not None
    assert set(made.interactions.ratings) == {3, 4, 5}  # 1 and 2 are below the middle


def test_ratings_that_are_not_numbers_are_no_facts() -> None:
    told = plays(rating=[("good", "bad", "so so")[k % 3] for k in range(N_PLAYS)])
    (column,) = mapped(told, tracks()).interactions.columns
    assert (column.take, column.why) == ("leave out", "ratings that are not numbers")


def test_titles_with_commas_are_titles() -> None:
    titles = [f"Song {k % 9}, {('live', 'remix', 'for two')[k % 3]}" for k in range(N_TRACKS)]
    titles[::2] = [title.split(",")[0] for title in titles[::2]]
    found = mapped(plays(), tracks(Titel=titles).drop("title"))
    assert found.items.label == "Titel"
    assert [c.column for c in found.items.columns] == ["artist"]
    listed = tracks(moods=["calm, slow" if k % 2 else "calm, fast, loud" for k in range(N_TRACKS)])
    assert {c.column: c.take for c in mapped(plays(), listed).items.columns}["moods"] == "list"


def test_numbers_stay_numbers_though_a_few_are_unknown_or_all_have_a_unit() -> None:
    length = [f"{100 + 7 * k} s" for k in range(N_TRACKS)]
    heat = [str(200 + 3 * k) for k in range(N_TRACKS)]
    heat[3], heat[4], length[5] = "hot", "unknown", ""
    size = ["S" if k % 8 == 0 else str(30 + k) for k in range(N_TRACKS)]
    sizes = mapped(plays(), tracks(size=size)).items.columns[-1]
    assert sizes.take == "leave out"  # an eighth is too much to be lost
    made = from_tables(plays(), tracks(length=length, heat=heat))
    columns = mapped(plays(), tracks(length=length, heat=heat)).items.columns
    found = {c.column: (c.take, c.why) for c in columns}
    assert found["heat"] == ("bins", "numbers from 200 to 317, and 1 that is not")
    assert found["length"] == ("bins", "numbers from 100 to 373")
    (note,) = [n for n in made.notes if "not numbers" in n.what]
    assert (note.what.split(":")[0], note.count, note.example) == ("heat", 1, "hot")
    labels = {made.vocabulary.labels[e] for e in made.vocabulary.span("length_range")}
    assert "length 100–160 s" in labels


def test_a_decimal_comma_is_one_also_beside_decimal_points() -> None:
    weight = [f"{k / 7:.2f}".replace(".", "," if k % 2 else ".") for k in range(N_TRACKS)]
    column = mapped(plays(), tracks(weight=weight)).items.columns[-1]
    assert column.why == f"numbers from 0 to {(N_TRACKS - 1) / 7:.2f}"
    assert as_numbers(pl.Series(["1,5", "2.25", "1,250", "3"])).to_list() == [1.5, 2.25, 1250, 3]


def test_ranges_of_whole_numbers_do_not_overlap() -> None:
    made = from_tables(plays(), tracks(year=[str(1980 + k) for k in range(N_TRACKS)]))
    labels = sorted(made.vocabulary.labels[e] for e in made.vocabulary.span("year_range"))
    ends = [tuple(map(int, label.removeprefix("year ").split("–"))) for label in labels]
    assert ends[0][0] == 1980 and ends[-1][1] == 1980 + N_TRACKS - 1
    assert all(before[1] + 1 == after[0] for before, after in pairwise(ends))


def test_users_of_the_interactions_that_their_table_lacks_are_noted() -> None:
    people = pl.DataFrame({"user_id": [f"u{k}" for k in range(20)], "city": ["Ulm", "Bonn"] * 10})
    notes = {n.what: n for n in from_tables(plays(), tracks(), people).notes}
    note = notes["users in the interactions that are not in the users, so they have no facts"]
    assert (note.count, note.example) == (5, "u20")


def test_words_of_other_languages_are_whole_words() -> None:
    text = "Die grünen Äpfel schmecken süß und kühl im Spätsommer Nummer"
    items = tracks(description=[f"{text} {'abc'[k % 3] * 3}" for k in range(N_TRACKS)])
    built = from_tables(plays(), items, mapping=replace(mapped(plays(), items), hub_share=1.0))
    words = {built.vocabulary.names[e] for e in built.vocabulary.span("word")}
    assert "spätsommer" in words and not words & {"sommer", "tsommer", "pfel"}


def test_comments_that_are_not_understood_are_noted() -> None:
    told = plays(Kommentar=["Hat uns leider nicht so gut gefallen"] * 150 + ["Das war schön"] * 150)
    made = from_tables(told, tracks())
    assert any("found no opinion" in n.what for n in made.notes)


def test_a_series_stays_a_series() -> None:
    names = [f"Saga {k % 5}" for k in range(N_TRACKS)]
    dataset = from_tables(plays(), tracks(series=names, movies=names))
    assert {"has_series", "has_movie"} <= {r.name for r in dataset.relations}
    assert plural("series") == "series"
    assert plural("book series") == "book series"


def test_the_number_of_a_volume_is_no_series() -> None:
    volumes = [f"Saga of {'ABCDE'[k % 5]} ; {k // 5 + 1}" if k % 4 else "" for k in range(N_TRACKS)]
    dataset: Any = from_tables(plays(), tracks(series=volumes))
    assert sorted(dataset.vocabulary.ids("series")) == [f"Saga of {x}" for x in "ABCDE"]
    assert next(c for _, c in dataset.mapping.columns() if c.column == "series").take == "series"


@pytest.mark.parametrize(
    ("column", "values"),
    [("area", ["04109", "04317", "04129"]), ("dewey", ["005.133", "641.5", "823.914"]),
     ("plz", ["10115", "80331", "50667"])],
)  # fmt: skip
def test_codes_of_digits_are_no_amounts_and_keep_their_zeros(
    column: str, values: list[str]
) -> None:
    many = [values[k % 3][:-1] + str(k % 5) for k in range(N_TRACKS)]
    dataset: Any = from_tables(plays(), tracks(**{column: many}))
    assert next(c for _, c in dataset.mapping.columns() if c.column == column).take == "entity"
    assert set(dataset.vocabulary.ids(column)) <= set(many)


def test_an_address_behind_a_name_is_left_out_of_the_name() -> None:
    teams = [f"Team {k % 5} <team-{k % 5}@lists.example.org>" for k in range(N_TRACKS)]
    dataset: Any = from_tables(plays(), tracks(maintainer=teams))
    column = next(c for _, c in dataset.mapping.columns() if c.column == "maintainer")
    assert (column.take, column.why) == ("entity", "5 values in 40 rows")
    assert sorted(dataset.vocabulary.ids("maintainer")) == [f"Team {k}" for k in range(5)]
    bare = tracks(contact=[f"team-{k % 5}@lists.example.org" for k in range(N_TRACKS)])
    assert mapped(plays(), bare).items.columns[-1].why == "links or addresses"


def test_ids_with_something_in_brackets_and_alternatives_point_to_items() -> None:
    needs = [f"t{(k + 1) % N_TRACKS:04d} (>= {k}), t0005, t0007 | t0009, gone (= 1)"
             for k in range(N_TRACKS)]  # fmt: skip
    dataset: Any = from_tables(plays(), tracks(depends=needs))
    column = next(c for _, c in dataset.mapping.columns() if c.column == "depends")
    assert (column.take, column.relation, column.separator) == ("items", "depends", ", ")
    names = dataset.vocabulary.names
    relation = next(k for k, r in enumerate(dataset.relations) if r.name == "depends")
    facts = dataset.facts
    mine = [
        names[t]
        for h, r, t in zip(facts.heads, facts.relations, facts.tails, strict=True)
        if r == relation and names[h] == "t0002"
    ]
    assert sorted(mine) == ["t0003", "t0005", "t0007", "t0009"]
    (note,) = [n for n in dataset.notes if "no item has them" in n.what]
    assert (note.count, note.example) == (N_TRACKS, "gone (= 1)")


def test_uploads_are_uploaded_and_what_came_with_them_is_not_liked(tmp_path: Path) -> None:
    uploads = plays().rename({"user_id": "uploader", "played_at": "uploaded"})
    suites = pl.Series("suite", [f"suite {k % 30}" for k in range(N_PLAYS)])
    uploads.with_columns(suites).write_csv(tmp_path / "uploads.csv")
    dataset: Any = from_tables(tmp_path / "uploads.csv", tracks())
    assert (dataset.mapping.interaction, dataset.mapping.interactions.user) == (
        "uploaded", "uploader",
    )  # fmt: skip
    told = {r.name: (r.head_type, r.tail_type) for r in dataset.relations}
    assert told["chose_suite"] == ("user", "suite")
    assert told["has_suite"] == ("item", "suite")


def test_a_mapping_shows_the_relation_that_a_column_makes_and_none_where_it_makes_none() -> None:
    chosen = mapped(plays(), tracks(shelf=["A", "B"] * 20)).with_column("shelf", take="leave out")
    bare = replace(chosen, items=replace(chosen.items, columns=(Column("artist", "entity"),
                   *chosen.items.columns[1:])))  # fmt: skip
    shown = {row[1]: row[2:4] for row in bare.rows()}
    assert shown["artist"] == ("entity", "has_artist")
    assert shown["shelf"] == ("leave out", "")


def test_without_a_table_of_items_their_column_is_guessed_by_its_values() -> None:
    rows = plays(device=[f"d{k % 3}" for k in range(N_PLAYS)]).with_columns(
        pl.Series("minutes", [str(k % 60) for k in range(N_PLAYS)]),
        pl.Series("event", [f"e{k}" for k in range(N_PLAYS)]),
    )
    order = ["event", "device", "minutes", "played_at", "user_id", "track_id"]
    for user, item in (("user_id", "podcast"), ("hash", "podcast"), ("hash", "track_id")):
        shown = rows.select(order).rename({"user_id": user, "track_id": item})
        shown = shown if user == "user_id" else shown.drop("device")
        found = propose(frames.read(shown)).interactions
        assert (found.user, found.item) == (user, item)
    with pytest.raises(DataError, match="found no column that names the item"):
        propose(frames.read(rows.select("user_id", "minutes", "played_at", "event")))


def test_words_for_a_missing_value_are_no_values_and_are_noted() -> None:
    artists = [("unknown", "N/A", "n/a", "-", "null")[k % 5] if k % 2 else f"A{k % 6}"
               for k in range(N_TRACKS)]  # fmt: skip
    moods = [f"calm|{'unknown' if k % 3 else 'loud'}" for k in range(N_TRACKS)]
    titles = ["Unknown", *(f"Song {k}" for k in range(1, N_TRACKS))]
    dataset = from_tables(plays(), tracks(artist=artists, mood=moods, title=titles))
    words = dataset.vocabulary
    assert {words.names[e] for e in words.span("artist")} == {"A0", "A2", "A4"}
    assert "unknown" not in words.names
    assert words.labels[dataset.n_users] == "Unknown"  # a song may be called so
    (note,) = [n for n in dataset.notes if "missing value" in n.what]
    assert (note.count, note.example) == (20, "N/A")
    nobody = plays(user_id=["N/A" if k == 3 else f"u{k % 25}" for k in range(N_PLAYS)])
    (note,) = [n for n in from_tables(nobody, tracks()).notes if "no user" in n.what]
    assert (note.count, note.example) == (1, "line 4: N/A")


def test_interests_of_users_are_the_themes_of_items_that_they_name() -> None:
    themes = [("film|music", "film", "ships", "music|ships")[k % 4] for k in range(N_TRACKS)]
    people = pl.DataFrame({
        "user_id": [f"u{k}" for k in range(25)],
        "interests": [("film|ships", "music", "film|music")[k % 3] for k in range(25)],
        "favourite themes": [("film", "music")[k % 2] for k in range(25)],
        "plan": [("basic", "gold")[k % 2] for k in range(25)],
    })  # fmt: skip
    dataset = from_tables(plays(), tracks(theme=themes), people)
    columns = {c.column: c for c in mapped(plays(), tracks(theme=themes), people).users.columns}
    assert columns["interests"].type == "theme" and "items' theme" in columns["interests"].why
    favourite = columns["favourite themes"]
    assert (favourite.relation, favourite.type) == ("prefers", "theme")
    assert columns["plan"].type == "plan"
    kinds = {r.name: (r.head_type, r.tail_type) for r in dataset.relations}
    assert ("user", "theme") in kinds.values()
    words = dataset.vocabulary
    assert {words.names[e] for e in words.span("theme")} == {"film", "music", "ships"}


def test_verbs_of_libraries_and_cinemas_are_behaviours_in_any_case() -> None:
    did = [("viewed", "Borrowed", "returned", "borrowed ")[k // 7 % 4] for k in range(N_PLAYS)]
    dataset: Any = from_tables(plays(action=did), tracks())
    table = dataset.mapping.interactions
    assert table.behaviour == "action" and table.target.strip().lower() == "borrowed"
    names = {r.name for r in dataset.relations}
    assert {"viewed", "returned"} <= names and "disliked" not in names  # a loan comes back
    assert not any("too" in name for name in names)
    bought = [{"borrowed": "bought"}.get(x.strip().lower(), x) for x in did]
    sold: Any = from_tables(plays(action=bought), tracks())
    assert "disliked" in {r.name for r in sold.relations}
    assert any("counted as dislikes" in note.what for note in sold.notes)


def test_rows_of_behaviours_that_cannot_be_used_are_noted() -> None:
    did: list[Any] = [("viewed", "bought")[k % 2] for k in range(N_PLAYS)]
    did[2] = None
    table = plays(action=did)
    user = table.columns[0]
    table = table.with_columns(
        pl.when(pl.int_range(pl.len()) == 4).then(None).otherwise(pl.col(user)).alias(user)
    )
    told = {note.what for note in from_tables(table, tracks()).notes}
    assert any("no behaviour" in what for what in told) and any("no user" in what for what in told)


def test_a_column_of_ratings_is_nobody() -> None:
    rows = plays(user_id=[k % 40 for k in range(N_PLAYS)]).rename({"user_id": "card"})
    stars = [f"{k % 5 + 1}/5" if k % 5 == 0 else None for k in range(N_PLAYS)]
    rows = rows.with_columns(pl.Series("stars", stars))
    with pytest.raises(DataError, match="names the user"):
        from_tables(rows, tracks())
    assert mapped(rows, tracks(), user="card").interactions.user == "card"


def test_a_column_that_names_parts_in_any_usual_word_is_the_split() -> None:
    names = ["training", "train", "dev", "testing"]
    squares = sorted({k * k % N_TRACKS for k in range(N_PLAYS)})  # the tracks, each in one part
    parts = [names[squares.index(k * k % N_TRACKS) % 4] for k in range(N_PLAYS)]
    dataset = from_tables(plays(split=parts), tracks())
    assert dataset.interactions.parts is not None
    assert set(dataset.interactions.parts.tolist()) == {0, 1, 2}
