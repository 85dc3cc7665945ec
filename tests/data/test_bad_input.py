"""Mistakes in people's files: refused with place and remedy, or reported as a note."""

import gzip
import io
import re
from typing import get_args

import polars as pl
import pytest

from loger.data import Format, frames, load
from loger.errors import DataError, UnknownNameError

GOOD = "user,item,rating,time\nann,i1,5,10\nbob,i2,3,20\n"
FACTS = "i1,has_brand,Acme\ni2,has_brand,Best\n"
INTER = "user_id:token\titem_id:token\nu1\t1\n"
LINK = "item_id:token\tentity_id:token\n1\tm.1\n"
PGPR = {
    "users.txt": "A\nB\n",
    "product.txt": "P0\nP1\n",
    "brand.txt": "Acme\n",
    "train_labels.txt": "0\t0\n1\t1\n",
    "test_labels.txt": "0\t1\n",
    "brand_p_b.txt": "0\n\n",
}
KGAT = {"train.txt": "0 0 1\n1 1\n", "test.txt": "1 0\n", "kg_final.txt": "0 0 2\n1 0 2\n"}
DBPEDIA = {
    "user.txt": "new_id\tuid\n0\t1\n",
    "product.txt": "new_id\tpid\n0\t7\n",
    "e_map.txt": "eid\tname\tentity\n0\tJaws\td/Jaws\n1\tAl\td/Al\n",
    "r_map.txt": "id\tkb_relation\tname\n0\td/star\tstarred_by_actor\n",
    "kg_final.txt": "entity_head\trelation\tentity_tail\n0\t0\t1\n",
    "train.txt": "0\t0\t1\t5\n",
}
TOYS = {"rating.txt": "A,P0,5,1\n", "sentiment.txt": "A,P0,game:fun:1\n"}
NT = "<a:i1> <a:by> <a:x> .\n"


def parquet(**columns) -> bytes:
    out = io.BytesIO()
    pl.DataFrame(columns).write_parquet(out)
    return out.getvalue()


def table(text: str | bytes, name: str = "interactions.csv") -> dict:
    return {"interactions.csv": GOOD} | {name: text}


REFUSED = {
    # name: (files, file and line, what the message says: value and remedy among it)
    "truncated gzip": (
        {"interactions.csv.gz": gzip.compress(GOOD.encode() * 50)[:-12]},
        "interactions.csv.gz",
        ["can't decompress", "again"],
    ),
    "text called gzip": (
        {"interactions.csv.gz": GOOD.encode()},
        "interactions.csv.gz",
        ["can't decompress", "again"],
    ),
    "damaged gzip": (
        {"interactions.csv.gz": gzip.compress(GOOD.encode())[:15] + b"\xff" * 30},
        "interactions.csv.gz",
        ["can't decompress", "again"],
    ),
    "a row that is too short": (
        table("user,item,rating\nann,i1,5\nbob,i2\n"),
        "interactions.csv:3",
        ["3 columns", "'bob,i2'", "every row"],
    ),
    "a row that is too long": (
        table("i1,has_brand,Acme\ni2,has_brand,Best,more\n", "triples.csv"),
        "triples.csv:2",
        ["3 columns", "'i2,has_brand,Best,more'", "every row"],
    ),
    "trailing separator in one row": (
        table("ann,i1\nbob,i2,\n"),
        "interactions.csv:2",
        ["2 columns", "'bob,i2,'"],
    ),
    "too many columns without a header": (
        table("ann,i1,5,10,x\n"),
        "interactions.csv:1",
        ["2 to 4 columns", "user, item, rating, time", "has 5", "header"],
    ),
    "wrong separator": (
        table("ann;i1;5\n"),
        "interactions.csv:1",
        ["separated by ','", "'ann;i1;5'", "has 1"],
    ),
    "header without the item column": (
        table("user,what\nann,i1\n"),
        "interactions.csv:1",
        ["no column item", "user, what", "name the columns user, item"],
    ),
    "header of unknown names above numbers": (
        table("who,what\n1,7\n2,8\n3,7\n"),
        "interactions.csv:1",
        ["looks like a header", "'who,what'", "name the columns user, item", "data build table"],
    ),
    "header of unknown names above a rating": (
        table("who,what,liked\nann,mug,5\nbob,cup,3\n"),
        "interactions.csv:1",
        ["looks like a header", "user, item, rating", "'who,what,liked'"],
    ),
    "header of unknown names above codes": (
        table("who,what\nC1,P7\nC2,P8\nC3,P7\n"),
        "interactions.csv:1",
        ["looks like a header", "'who,what'"],
    ),
    "header of unknown names above a date": (
        table("\nwho,what,how,day\nann,mug,x,2024-05-01\nbob,cup,y,2024-05-02\n"),
        "interactions.csv:2",
        ["looks like a header", "'who,what,how,day'"],
    ),
    "header of unknown names above numbers of triples": (
        table("a,b,c\n1,has_brand,Acme\n2,has_brand,Best\n3,has_brand,Acme\n", "triples.csv"),
        "triples.csv:1",
        ["looks like a header", "'a,b,c'", "head, relation, tail"],
    ),
    "one bad rating in the first of many rows": (
        table("ann,i1,five\nbob,i2,3\nbob,i3,3\n"),
        "interactions.csv:1",
        ["rating should be a finite number", "'five'"],
    ),
    "repeated header column": (
        table("user,item,item\nann,i1,i2\n"),
        "interactions.csv:1",
        ["repeated column", "'item'", "its own name"],
    ),
    "empty cell": (table("ann,i1\n,i2\n"), "interactions.csv:2", ["user is empty", "fill"]),
    "empty cell in a triple": (
        table("i1,has_brand,Acme\n\ni1,has_brand,\n", "triples.csv"),
        "triples.csv:3",
        ["tail is empty", "fill"],
    ),
    "empty file": (table(""), "interactions.csv", ["is empty", "rows"]),
    "only blank lines": (table(" \n\n"), "interactions.csv", ["is empty", "rows"]),
    "header only": (table("user,item\n"), "interactions.csv", ["no rows", "add rows"]),
    "rating that is no number": (
        table("ann,i1,five\n"),
        "interactions.csv:1",
        ["rating should be a finite number", "'five'", "write it as a number"],
    ),
    "NaN rating": (
        table("ann,i1,4\nbob,i2,NaN\n"),
        "interactions.csv:2",
        ["rating should be a finite number", "'NaN'"],
    ),
    "infinite rating": (
        table("user,item,rating\nann,i1,inf\n"),
        "interactions.csv:2",
        ["rating should be a finite number", "'inf'"],
    ),
    "missing rating": (
        table("ann,i1,\nbob,i1,3\n"),
        "interactions.csv:1",
        ["rating should be a finite number", "''"],
    ),
    "time that is no number": (
        table("ann,i1,5,01/05/2020\n"),
        "interactions.csv:1",
        ["time should be a number", "'01/05/2020'", "seconds since 1970", "2024-05-01T10:00:00"],
    ),
    "ISO date after a number": (
        table("ann,i1,5,10\nbob,i2,5,2020-01-01\n"),
        "interactions.csv:2",
        ["time should be a number", "'2020-01-01'"],
    ),
    "number after an ISO date": (
        table("ann,i1,5,2020-01-01\nbob,i2,5,10\n"),
        "interactions.csv:2",
        ["time should be a day, as in the first row", "'10'"],
    ),
    "moment after a day": (
        table("ann,i1,5,2020-01-01\nbob,i2,5,2020-01-01 10:00\n"),
        "interactions.csv:2",
        ["time should be a day", "'2020-01-01 10:00'"],
    ),
    "moment without a zone after one with": (
        table("ann,i1,5,2020-01-01T10:00Z\nbob,i2,5,2020-01-01T10:00\n"),
        "interactions.csv:2",
        ["a moment with a zone, as in the first row", "'2020-01-01T10:00'"],
    ),
    "day that does not exist": (
        table("ann,i1,5,2020-02-29\nbob,i2,5,2021-02-29\n"),
        "interactions.csv:2",
        ["time should be a day", "'2021-02-29'"],
    ),
    "time beyond all measure": (
        table("ann,i1,5,1e300\n"),
        "interactions.csv:1",
        ["time should be a number", "'1e300'"],
    ),
    "unknown part": (
        table("user,item,part\nann,i1,train\nann,i2,tset\n"),
        "interactions.csv:3",
        ["part should be train, validation or test", "'tset'"],
    ),
    "name that is not UTF-8": (
        table(b"ann,i1\nJos\xe9,i2\n"),
        "interactions.csv:2",
        ["not UTF-8", "Jos\\xe9", "save the file as UTF-8"],
    ),
    "NUL byte": (table(b"ann,i1\nbob,\0i2\n"), "interactions.csv:2", ["NUL byte", "text"]),
    "quote that is never closed": (
        table('ann,i1\nbob,"i2\ncid,i3\n'),
        "interactions.csv:2",
        ["quoted cell", "one line"],
    ),
    "text after a quoted cell": (
        table('ann,"i1"x\n'),
        "interactions.csv:1",
        ["text follows the closing quote", '""'],
    ),
    "fact with the interaction's own name": (
        table("i1,has_brand,Acme\nann,interacted,i2\n", "triples.csv"),
        "triples.csv:2",
        ["'interacted'", "'ann'", "leak", "rename the interaction"],
    ),
    "fact about an item that is nowhere": (
        table("head,relation,tail,head_type\ni9,has_brand,Acme,item\n", "triples.csv"),
        "triples.csv:2",
        ["names an item that doesn't exist", "'i9'", "add it to the items"],
    ),
    "two tables of interactions": (
        table(GOOD, "interactions.tsv"),
        "shop",
        ["both interactions.csv and interactions.tsv", "keep only one"],
    ),
    "Parquet without a column": (
        {"interactions.parquet": parquet(user=["a"], thing=["b"])},
        "interactions.parquet",
        ["no column item", "user, thing", "name the columns"],
    ),
    "Parquet with names of a wrong type": (
        {"interactions.parquet": parquet(user=["a"], item=[1.5])},
        "interactions.parquet:1",
        ["column item should hold text", "Float64", "write it as text"],
    ),
    "Parquet with an empty cell": (
        {"interactions.parquet": parquet(user=["a", None], item=["i", "j"])},
        "interactions.parquet:2",
        ["user is empty", "fill"],
    ),
    "Parquet with a NaN rating": (
        {"interactions.parquet": parquet(user=["a"], item=["i"], rating=[float("nan")])},
        "interactions.parquet:1",
        ["rating should be a finite number", "nan"],
    ),
    "broken Parquet": (
        {"interactions.parquet": parquet(user=["a"], item=["b"])[:60]},
        "interactions.parquet",
        ["can't read the file as Parquet", "again"],
    ),
    "Parquet without rows": (
        {"interactions.parquet": parquet(user=[], item=[])},
        "interactions.parquet",
        ["has no rows"],
    ),
    "RecBole header without types": (
        {"x.inter": "user_id\titem_id\nu\ti\n"},
        "x.inter:1",
        ["name:type", "'user_id'", "token"],
    ),
    "RecBole without an item column": (
        {"x.inter": "user_id:token\trating:float\nu\t1\n"},
        "x.inter:1",
        ["an item column", "user_id", "item_id:token"],
    ),
    "RecBole item linked twice": (
        {"x.inter": INTER, "x.link": LINK + "1\tm.2\n", "x.kg": "a:token\nb\n"},
        "x.link:3",
        ["item is linked twice", "'1'", "its own"],
    ),
    "RecBole graph without links": (
        {"x.inter": INTER, "x.kg": "head_id:token\trelation_id:token\ttail_id:token\na\tb\tc\n"},
        "shop",
        ["x.link is missing", "add x.link"],
    ),
    "RecBole graph of two columns": (
        {"x.inter": INTER, "x.link": LINK, "x.kg": "head_id:token\ttail_id:token\nm.1\tm.2\n"},
        "x.kg:1",
        ["head_id, relation_id, tail_id", "use exactly these three"],
    ),
    "two RecBole data sets": (
        {"x.inter": INTER, "y.inter": INTER},
        "shop",
        ["one data set", "'x', 'y'", "one data set per folder"],
    ),
    "RecBole split files that differ": (
        {
            "x.train.inter": INTER,
            "x.test.inter": INTER.replace("\n", "\tr:float\n", 1)
            .replace("1\n", "1\t2\n")
            .replace("r:float", "rating:float"),
        },
        "x.test.inter:1",
        ["the columns differ", "same header"],
    ),
    "PGPR user out of range": (
        PGPR | {"test_labels.txt": "0\t1\n2\t0\n"},
        "test_labels.txt:2",
        ["user should be a whole number from 0 to 1", "'2'", "users.txt"],
    ),
    "PGPR item that is no number": (
        PGPR | {"train_labels.txt": "0\t0\n1\tP1\n"},
        "train_labels.txt:2",
        ["item should be a whole number from 0 to 1", "'P1'", "product.txt"],
    ),
    "PGPR tail out of range": (
        PGPR | {"brand_p_b.txt": "\n0 1\n"},
        "brand_p_b.txt:2",
        ["from 0 to 0", "'1'", "brand.txt"],
    ),
    "PGPR relation with more lines than products": (
        PGPR | {"brand_p_b.txt": "0\n\n0\n"},
        "brand_p_b.txt:3",
        ["more lines than", "one line per product"],
    ),
    "PGPR product named twice": (
        PGPR | {"product.txt": "P0\nP0\n"},
        "product.txt:2",
        ["appears twice", "'P0'", "its own name"],
    ),
    "PGPR relation without its names": (
        {k: v for k, v in PGPR.items() if k != "brand.txt"},
        "shop",
        ["brand.txt is missing", "add brand.txt"],
    ),
    "KGAT item that is no number": (
        KGAT | {"train.txt": "0 0\n1 x\n"},
        "train.txt:2",
        ["item should be a whole number", "'x'", "numbers from 0"],
    ),
    "KGAT triple of two numbers": (
        KGAT | {"kg_final.txt": "0 0 2\n1 0\n"},
        "kg_final.txt:2",
        ["3 columns", "'1 0'", "every row"],
    ),
    "KGAT entity that is not listed": (
        KGAT | {"entity_list.txt": "org_id remap_id\na 0\nb 1\n"},
        "kg_final.txt:1",
        ["tail should be a whole number from 0 to 1", "'2'", "entity_list.txt"],
    ),
    "KGAT item of a split that is not listed": (
        KGAT | {"item_list.txt": "org_id remap_id\na 0\n"},
        "train.txt:1",
        ["item should be a whole number from 0 to 0", "'1'", "item_list.txt"],
    ),
    "KGAT without any item": (
        KGAT | {"train.txt": "0\n1\n", "test.txt": "0\n"},
        "shop",
        ["train.txt and test.txt contain no interactions", "followed by item IDs"],
    ),
    "PGPR without any item": (
        PGPR | {"train_labels.txt": "0\n", "test_labels.txt": "1\n"},
        "shop",
        ["no interactions are left", "check"],
    ),
    "KGAT item far beyond the others": (
        KGAT | {"test.txt": "1 2000000000\n"},
        "shop",
        ["one is far too large", "2000000000", "without gaps"],
    ),
    "KGAT list with a gap": (
        KGAT | {"user_list.txt": "org_id remap_id\nann 0\nbob 5\n"},
        "user_list.txt:3",
        ["remap_id should be a whole number from 0 to 1", "'5'", "without gaps"],
    ),
    "KGAT list without a header": (
        KGAT | {"user_list.txt": "ann 0\nbob 1\n"},
        "user_list.txt:1",
        ["org_id remap_id", "'ann 0'", "add the header"],
    ),
    "KGAT number named twice": (
        KGAT | {"user_list.txt": "org_id remap_id\nann 0\nbob 0\n"},
        "user_list.txt:3",
        ["appears twice", "'bob 0'", "its own"],
    ),
    "DBpedia user of a split that is not in the map": (
        DBPEDIA | {"test.txt": "1\t0\t1\t5\n"},
        "test.txt:1",
        ["user should be a whole number from 0 to 0", "'1'", "new_id of user.txt"],
    ),
    "DBpedia entity that is not in the map": (
        DBPEDIA | {"kg_final.txt": "entity_head\trelation\tentity_tail\n0\t0\t1\n0\t0\t7\n"},
        "kg_final.txt:3",
        ["tail should be a whole number from 0 to 1", "'7'", "e_map.txt"],
    ),
    "DBpedia relation that is not in the map": (
        DBPEDIA | {"kg_final.txt": "entity_head\trelation\tentity_tail\n0\t3\t1\n"},
        "kg_final.txt:2",
        ["relation should be a whole number from 0 to 0", "'3'", "r_map.txt"],
    ),
    "DBpedia map with other columns": (
        DBPEDIA | {"e_map.txt": "id\ttitle\n0\tx\n"},
        "e_map.txt:1",
        ["eid name entity", "'id title'", "this order"],
    ),
    "DBpedia users without ages": (
        DBPEDIA | {"users.txt": "uid\tgender\n1\tF\n"},
        "users.txt:1",
        ["no column age", "'uid gender'", "uid, gender, age"],
    ),
    "mention without polarity": (
        TOYS | {"sentiment.txt": "A,P0,game:fun:1\nA,P0,game:fun\n"},
        "sentiment.txt:2",
        ["aspect:opinion:polarity", "'game:fun'", "fix the mention"],
    ),
    "review without an item": (
        TOYS | {"sentiment.txt": "A\n"},
        "sentiment.txt:1",
        ["user,item", "'A'", "complete the line"],
    ),
    "empty cell in a list": (
        TOYS | {"also_viewed.txt": "P0,P1\nP0,,P2\n"},
        "also_viewed.txt:2",
        ["value is empty", "fill"],
    ),
    "malformed N-Triples": (
        {"interactions.csv": GOOD, "kg.nt": NT + "<a:i2> by <a:x> .\n"},
        "kg.nt:2",
        ["not valid N-Triples", "<a:i2> by <a:x> .", "fix the statement"],
    ),
    "malformed Turtle": (
        {"interactions.csv": GOOD, "kg.ttl": "@prefix a: <a:> .\na:i1 a:by b:x .\n"},
        "kg.ttl:2",
        ["not valid Turtle", "a:i1 a:by b:x .", "fix the statement"],
    ),
    "RDF about nothing in the interactions": (
        {"interactions.csv": GOOD, "kg.nt": "<a:z> <a:by> <a:x> .\n"},
        "shop",
        ["none of the items", "'i1'", "links.csv"],
    ),
    "RDF name that fits two resources": (
        {"interactions.csv": GOOD, "kg.nt": NT + "<b:i1> <a:by> <a:x> .\n"},
        "shop",
        ["'i1' is linked twice", "a:i1", "b:i1", "links.csv"],
    ),
    "RDF link without an address": (
        {"interactions.csv": GOOD, "kg.nt": NT, "links.csv": "item,iri\ni1,\n"},
        "links.csv:2",
        ["iri is empty", "fill"],
    ),
    "folder of two formats": (
        KGAT | {"interactions.csv": GOOD},
        "shop",
        ["several formats: kgat, plain", "train.txt", "format="],
    ),
    "folder of none": (
        {"notes.md": "x"},
        "shop",
        ["recbole: *.inter", "kgat: train.txt, test.txt, kg_final.txt", "interactions.csv or"],
    ),
    "empty folder": ({}, "shop", ["no known format", "found: no files"]),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_bad_input_is_refused_with_place_value_and_remedy(kind, write):
    files, place, words = REFUSED[kind]
    folder = write(files)
    where = folder if place == "shop" else folder / place
    with pytest.raises(DataError) as caught:
        load(folder)
    message = str(caught.value)
    assert message.startswith(f"{where}: ")
    assert [word for word in words if word not in message] == []
    assert caught.value.remedy


NOTED = {
    # name: (files, notes, facts left, interactions left)
    "duplicate triples": (
        table(FACTS + "i1,has_brand,Acme\n", "triples.csv"),
        {"repeated facts counted once": 1},
        2,
        2,
    ),
    "self-loops": (
        table(FACTS + "i1,like,i1\n", "triples.csv"),
        {"facts that link an entity to itself left out": 1},
        2,
        2,
    ),
    "item without facts": (
        table("i1,has_brand,Acme\n", "triples.csv"),
        {"items without any fact": 1},
        1,
        2,
    ),
    "user without history": (
        table("id\nann\nzoe\n", "users.csv"),
        {"users without any interaction": 1},
        0,
        2,
    ),
    "relation that mixes types": (
        table("i1,near,i2\ni1,near,Rome\ni2,near,Rome\n", "triples.csv"),
        {"relations that link different types, split by type": 1},
        3,
        2,
    ),
    "pair in train and test": (
        table("user,item,part\nann,i1,test\nann,i1,train\nann,i2,test\n"),
        {"held-out pairs that are also in an earlier part, kept only in the earlier one": 1},
        0,
        2,
    ),
    "pair given twice": (
        table("ann,i1\nann,i1\nann,i2\n"),
        {"repeated interactions of the same user and item merged": 1},
        0,
        2,
    ),
    "user with test rows only": (
        table("user,item,part\nann,i1,train\nbob,i1,test\n"),
        {"users with held-out interactions but no training interactions": 1},
        0,
        2,
    ),
    "name that is user and item": (
        table("ann,i1\ni1,i2\n") | {"triples.csv": "i1,has_brand,Acme\ni2,has_brand,Acme\n"},
        {
            "names in facts that match both a user and an item, read as items "
            "(add head_type and tail_type if that's wrong)": 1
        },
        2,
        2,
    ),
    "brands that have the numbers of items": (
        table("ann,1\nann,2\nbob,2\n") | {"triples.csv": "1,has_brand,2\n2,has_brand,1\n"},
        {
            "facts whose tail is a number, read as the item or user with that number "
            "(add tail_type if that's wrong)": 2
        },
        2,
        3,
    ),
    "brands with numbers and their type": (
        table("ann,1\nann,2\nbob,2\n")
        | {"triples.csv": "head,relation,tail,tail_type\n1,by,2,brand\n2,by,1,brand\n"},
        {},
        2,
        3,
    ),
    "first line that may be a header": (
        table("ann,mug\nbob,cup\n"),
        {
            "first line of interactions.csv read as data "
            "(if it's a header, name its columns user, item)": 1
        },
        0,
        2,
    ),
    "first line whose word comes again": (table("ann,mug\nann,cup\nbob,tray\n"), {}, 0, 3),
    "first line with a code like the others": (table("ann,i1\n12,i2\n13,i3\n14,i4\n"), {}, 0, 4),
    "table of names and facts whose first line is of known things": (
        table("user,item\nann,mug\nbob,cup\n")
        | {"items.csv": "mug,Mug\ncup,Cup\n", "users.csv": "ann\nbob\n"}
        | {"triples.csv": "cup,near,mug\nmug,part_of,set\n"},
        {},
        2,
        2,
    ),
    "table of names that may have a header": (
        table("user,item\nann,mug\n") | {"users.csv": "who\nann\n"},
        {
            "first line of users.csv read as data (if it's a header, name its columns id)": 1,
            "users without any interaction": 1,
        },
        0,
        1,
    ),
    "few numbers below a name": (
        table("ann,mug\n2,cup\n"),
        {
            "first line of interactions.csv read as data "
            "(if it's a header, name its columns user, item)": 1
        },
        0,
        2,
    ),
    "thing that is called as a column may be": (table("ann,book\nann,date\nbob,book\n"), {}, 0, 3),
    "review that mentions nothing": (
        {"rating.txt": "ann,P0,5,1\n", "sentiment.txt": "ann,P0\n"},
        {},
        0,
        1,
    ),
    "CRLF": (table(GOOD.replace("\n", "\r\n")), {}, 0, 2),
    "byte-order mark": (table("\ufeff" + GOOD), {}, 0, 2),
    "blank lines": (table("\n" + GOOD.replace("\n", "\n  \n")), {}, 0, 2),
    "no line end at the end": (table(GOOD.rstrip()), {}, 0, 2),
    "blanks around cells": (table(GOOD.replace(",", " , ")), {}, 0, 2),
    "trailing blanks between numbers": (
        {"interactions.txt": "ann  i1 5 \nbob i2   3\n"},
        {},
        0,
        2,
    ),
}


@pytest.mark.parametrize("kind", NOTED)
def test_odd_input_is_handled_and_noted(kind, write, notes_of):
    files, notes, facts, interactions = NOTED[kind]
    dataset = load(write(files))
    assert notes_of(dataset) == notes
    assert len(dataset.facts) == facts
    assert len(dataset.interactions) == interactions
    assert "ann" in dataset.vocabulary.names[:2]


def test_notes_say_where_the_first_case_stands(write):
    dataset = load(write(table(FACTS + "i2,has_brand,Best\n", "triples.csv")))
    assert dataset.notes[0].example == "i2 has_brand Best, line 3"


def test_the_earlier_part_keeps_a_pair_that_stands_in_two(write, pairs_of):
    text = "user,item,part\nann,i1,test\nann,i1,train\n"
    assert pairs_of(load(write(table(text)))) == [("ann", "i1", "train")]


def test_mixed_relations_are_split_by_the_types_they_mix(write, facts_of):
    text = "i1,near,i2\ni1,near,Rome\n"
    assert facts_of(load(write(table(text, "triples.csv")))) == {
        ("i1", "near[item]", "i2"),
        ("i1", "near[near]", "Rome"),
    }


def test_quoted_cells_may_hold_separators_and_quotes(write, pairs_of):
    text = 'user,item\n"Doe, Ann","12"" disc"\nbob,5" nail\n'
    assert pairs_of(load(write(table(text)))) == [("Doe, Ann", '12" disc'), ("bob", '5" nail')]


def test_quotes_in_tab_separated_tables_are_plain_signs(write, pairs_of):
    folder = write({"interactions.tsv": 'ann\t"Weird Al"\n'})
    assert pairs_of(load(folder)) == [("ann", '"Weird Al"')]


def test_min_rating_without_ratings_is_refused(write):
    with pytest.raises(DataError, match=r"interactions\.csv: min_rating needs ratings.*leave"):
        load(write(table("ann,i1\n")), min_rating=4)


def test_min_rating_that_drops_everything_is_refused(write):
    with pytest.raises(DataError, match=r"interactions\.csv: no interactions are left.*check"):
        load(write(table(GOOD)), min_rating=9)


def test_min_rating_on_saved_data_is_refused(write, tmp_path):
    load(write(table(GOOD))).save(tmp_path / "saved")
    with pytest.raises(DataError, match="can't be applied to a saved data set; apply it when"):
        load(tmp_path / "saved", min_rating=1)


def test_missing_folder_is_named(tmp_path):
    with pytest.raises(
        DataError, match=re.escape(f"{tmp_path / 'no'}: there is no such file or folder")
    ):
        load(tmp_path / "no")


def test_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"x\.csv: there is no such file.*; check the name"):
        frames.read(tmp_path / "x.csv")


@pytest.mark.parametrize("format", get_args(Format))
def test_format_that_is_said_and_not_there_is_refused(format, write):
    with pytest.raises(DataError, match="shop"):
        load(write({"notes.md": "x"}), format=format)


def test_single_file_of_another_format_is_refused(write):
    folder = write({"x.inter": INTER})
    with pytest.raises(DataError, match=r"x\.inter: .*pass its folder"):
        load(folder / "x.inter")
    with pytest.raises(DataError, match=r"a\.csv: .*pass its folder"):
        load(write({"a.csv": GOOD}) / "a.csv", format="kgat")


def test_misspelt_format_gets_the_nearest(write):
    with pytest.raises(UnknownNameError, match="did you mean 'recbole'"):
        load(write(table(GOOD)), format="recbol")


def test_format_settles_a_folder_that_fits_several(write):
    folder = write(KGAT | {"interactions.csv": GOOD})
    assert load(folder, format="plain").n_users == 2
    assert load(folder, format="kgat").interactions.parts is not None
