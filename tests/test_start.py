"""Scoring stays light: it loads no PyTorch, and compiles nothing silently."""

from __future__ import annotations

import subprocess
import sys

import pytest

from loger.data.demo import shop
from loger.data.splits import split
from loger.encoder import TransE, TransEConfig
from loger.logic.config import EMConfig
from loger.model import LOGER, LOGERConfig

SCORING = """
    import sys
    from pathlib import Path
    from loger.cli import app
    from loger.model import LOGER
    from loger.web.schemas import Who
    from loger.web.served import Served

    folder = sys.argv[1]
    model = LOGER.load(folder)
    user, item = model.users[0], model.items[0]
    model.recommend([user], 3, explain=True)
    model.explain(user, item)
    model.why_not(user, item)
    model.what_if(user, add=[item])
    model.with_interactions([("someone new", item)]).recommend("someone new", 3)
    served = Served(Path(folder))
    served.warm()
    app(["recommend", folder, user, "--explain"], standalone_mode=False)
    print(*sorted({"scipy.sparse", "torch"} & set(sys.modules)))
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("light") / "bundle"
    config = LOGERConfig(em=EMConfig(rounds=0), encoder=TransEConfig(dimension=8, epochs=1))
    LOGER(config).fit(split(shop(seed=1, users=40, items=60).dataset), tune={}).save(folder)
    return folder


def run(script, *arguments):
    lines = "\n".join(line[4:] for line in script.splitlines())
    command = [sys.executable, "-c", lines, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_recommending_explaining_and_serving_do_without_pytorch_and_sparse_matrices(bundle):
    assert run(SCORING, bundle).splitlines()[-1] == ""


LAUNCHING = """
    import sys
    from loger.web.config import check_installed

    check_installed()
    print(*sorted({"fastapi", "prometheus_client", "uvicorn"} & set(sys.modules)))
"""


def test_whether_what_serves_is_installed_is_seen_without_importing_it():
    assert run(LAUNCHING).splitlines()[-1] == ""


def test_a_text_that_is_name_and_label_is_held_once(bundle):
    words = LOGER.load(bundle).graph_.vocabulary
    same = [e for e in range(len(words)) if words.names[e] == words.labels[e]]
    assert same
    assert all(words.names[e] is words.labels[e] for e in same)


LISTING = """
    import sys
    from loger.cli import main

    sys.argv = ["loger", "recommend", *sys.argv[1:], "--explain"]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code
    heavy = {"polars", "scipy.linalg", "scipy.sparse", "torch"}
    heavy |= {"loger.learning.fit", "loger.learning.derived"}
    print(*sorted(heavy & set(sys.modules)))
"""


def test_a_list_with_reasons_needs_no_tables_and_nothing_that_fits(bundle):
    user = LOGER.load(bundle).users[0]
    assert run(LISTING, bundle, user).splitlines()[-1] == ""


LEAVING = """
    import sys
    from loger.cli import main

    class Kept:
        def __del__(self):
            print("taken apart")

    sys.kept = Kept()
    sys.argv = ["loger", *sys.argv[1:]]
    main()
"""


def test_a_command_that_answers_is_done_without_taking_its_objects_apart(bundle):
    user = LOGER.load(bundle).users[0]
    lines = "\n".join(line[4:] for line in LEAVING.splitlines())
    for name, code in ((user, 0), ("nobody", 2)):
        command = [sys.executable, "-c", lines, "recommend", bundle, name]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        assert "taken apart" not in done.stdout
        assert (len(done.stdout.splitlines()) > 10) == (code == 0)  # all of it, through a pipe
        assert done.stderr == ("" if code == 0 else "error: unknown user 'nobody'\n")


def test_a_loaded_encoder_lies_in_the_file_and_not_in_memory_of_its_own(bundle):
    encoder = LOGER.load(bundle).encoder_
    assert isinstance(encoder, TransE)
    table = encoder.entities_
    assert not table.flags.owndata
    assert not table.flags.writeable
