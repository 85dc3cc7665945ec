"""The app as a Ray Serve deployment: it answers as the server does, and picks up a newer bundle."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from loger.cli import app
from loger.errors import LogerError

SCRIPT = Path(__file__).with_name("ray_serve_script.py")


@pytest.mark.parametrize("engine", ["threads", "processes=3", "rays"])
def test_other_engines_are_refused(tmp_path, engine):
    told = CliRunner().invoke(app, ["--engine", engine, "serve", str(tmp_path)])
    assert told.exit_code == 2
    assert f"must be processes, ray or ray=ADDRESS, got '{engine}'" in told.stderr


def test_replicas_take_no_events(tmp_path):
    asked = ["--engine", "ray", "serve", str(tmp_path), "--set", "events_file=events"]
    told = CliRunner().invoke(app, asked)
    assert told.exit_code == 2
    assert "replicas on Ray don't record events" in told.stderr


def test_without_what_it_needs_the_error_names_the_extra(monkeypatch):
    from loger.web.launch import ray_serve

    pytest.importorskip("ray")
    monkeypatch.setitem(sys.modules, "ray.serve", None)
    monkeypatch.delattr("ray.serve", raising=False)
    with pytest.raises(LogerError, match=r"pip install '\.\[ray-serve\]'"):
        ray_serve()


@pytest.mark.long
def test_replicas_answer_as_the_server_does_and_take_a_newer_bundle(tmp_path):
    pytest.importorskip("ray")
    pytest.importorskip("grpc", reason="loger-rec[ray-serve] is not installed")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path)], capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["same"]
    assert seen["exchanged"]
    assert seen["answered"] == seen["asked"] > 0  # no request was lost
    assert seen["copies"] == [1]  # both replicas of the node map one copy
