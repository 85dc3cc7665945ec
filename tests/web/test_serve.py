"""``loger serve`` as people start it, and the API under a fuzzer that knows its schema."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from loger.cli import app as command
from loger.web.app import STATIC, create_app
from loger.web.config import ServeConfig


@contextmanager
def serving(*arguments: str, **environment: str) -> Iterator[str]:
    """A server in a process of its own, stopped as Ctrl-C stops it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "loger", "serve", *arguments, "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    assert process.stderr is not None
    try:
        said = ""
        for line in process.stderr:
            said += line
            if found := re.search(r"running on (http://\S+)", line):
                break
        else:
            raise AssertionError(said)
        yield found[1]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def got(url: str, **headers: str) -> bytes:
    request = urllib.request.Request(url, headers=headers)
    end = time.monotonic() + 60
    while True:  # workers may still be loading
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read()
        except (ConnectionError, urllib.error.URLError):
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def test_a_server_is_open_to_others_only_if_that_is_said_aloud(bundle, monkeypatch):
    def told(*arguments, **environment):
        monkeypatch.delenv("LOGER_API_KEY", raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        run = CliRunner().invoke(command, ["serve", str(bundle), *arguments])
        return run.exit_code, run.output

    monkeypatch.setattr("loger.web.launch.run", lambda config: print("serves"))
    beyond = ("--host", "0.0.0.0")
    for key in ("", "  "):
        for more in (beyond, ()):
            code, said = told(*more, LOGER_API_KEY=key)
            assert code == 2 and "the API key is empty" in said
            assert told(*more, "--api-key", key)[0] == 2
    code, said = told(*beyond)
    assert code == 2 and "or pass --no-auth" in " ".join(said.split())
    for arguments in ((), (*beyond, "--no-auth"), (*beyond, "--api-key", "k")):
        assert told(*arguments) == (0, "serves\n")
    assert told(*beyond, LOGER_API_KEY="k") == (0, "serves\n")


def test_workers_answer_together_and_their_numbers_add_up(bundle):
    with serving(str(bundle), "--workers", "2", LOGER_API_KEY="k") as place:
        for _ in range(30):
            told = json.loads(got(f"{place}/v1/users?limit=1", **{"X-API-Key": "k"}))
            assert told["results"]
        numbers = got(f"{place}/metrics", **{"X-API-Key": "k"}).decode()
    counted = re.search(r'loger_requests_total\{.*"/v1/users".*\} (\d+)', numbers)
    assert counted and int(counted[1]) == 30


def test_a_folder_without_a_bundle_is_one_line_with_a_remedy(tmp_path):
    result = CliRunner().invoke(command, ["serve", str(tmp_path)])
    assert result.exit_code == 2
    assert "pass the folder of a model bundle" in result.output
    assert result.output.count("\n") == 1


def test_a_missing_extra_is_one_line_with_a_remedy(bundle, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = CliRunner().invoke(command, ["serve", str(bundle)])
    assert result.exit_code == 2
    assert "pip install '.[serve]' in the clone" in result.output
    assert result.output.count("\n") == 1


def test_every_file_that_a_page_names_is_in_the_package():
    text = "".join(path.read_text(encoding="utf-8") for path in STATIC.iterdir())
    named = set(re.findall(r"/static/([\w.-]+)", text))
    assert named == {path.name for path in STATIC.iterdir()} - {"index.html", "docs.html"}
    assert Path(str(find_spec("loger.web").submodule_search_locations[0])) in STATIC.parents


@pytest.mark.long
def test_a_fuzzer_that_knows_the_schema_finds_no_5xx_and_no_violation(bundle, tmp_path):
    schemathesis = pytest.importorskip("schemathesis")
    # A copy of the bundle, because the events it sends are stored next to it.
    app = create_app(ServeConfig(str(shutil.copytree(bundle, tmp_path / "bundle"))))
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    schema = schemathesis.openapi.from_asgi("/v1/openapi.json", app, headers={"Host": "localhost"})
    checked = 0
    for operation in schema.get_all_operations():
        if operation.ok().path.endswith("/health/ready"):
            continue  # 503 is what it says of a server that is not

        @settings(
            max_examples=5,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.ok().as_strategy())
        def conforms(case):
            # Filters are a language of their own: a schema cannot say which texts are valid.
            case.call_and_validate(
                headers={"Host": "localhost"},
                timeout=60,
                excluded_checks=[positive_data_acceptance],
            )

        conforms()
        checked += 1
    assert checked >= 18
