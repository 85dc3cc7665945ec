"""Every example runs and prints what it promises."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from click.testing import CliRunner

from loger.cli import app

EXAMPLES = Path(__file__).parents[1] / "examples"
SAYS = {
    "own_tables.py": "ann: cup, Similar overall to ",
    "tour.py": "True",
    "batch_export.py": "200 users, 1000 rows",
    "serving.py": "a new user: ",
    "tuning.py": "best of 3: ",
    "mlflow_run.py": "run first: FINISHED, seed 3",
}


def test_every_example_is_run_here():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
@pytest.mark.filterwarnings("ignore")  # MLflow and what it stands on warn about each other
def test_an_example_runs_and_says_what_it_should(name, capsys):
    if name == "mlflow_run.py":
        pytest.importorskip("mlflow")
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert SAYS[name] in capsys.readouterr().out


def test_the_cluster_file_is_one_that_ray_takes_and_its_head_starts_workers():
    util = pytest.importorskip("ray.autoscaler._private.util")
    config = _yaml("ray-cluster.yaml")
    util.validate_config(util.prepare_config(config))
    assert any("--autoscaling-config=" in line for line in config["head_start_ray_commands"])


def test_the_job_on_kubernetes_runs_a_command_of_loger_with_one_image_and_its_data():
    spec = _yaml("kuberay-job.yaml")["spec"]
    asked = spec["entrypoint"].split()
    assert asked[:3] == ["loger", "--engine", "ray"]
    known = CliRunner().invoke(app, [asked[3], "--help"]).output
    assert all(word in known for word in asked[4:] if word.startswith("--"))
    head, (workers,) = (
        spec["rayClusterSpec"]["headGroupSpec"],
        spec["rayClusterSpec"]["workerGroupSpecs"],
    )
    pods = [group["template"]["spec"] for group in (head, workers)]
    assert len({pod["containers"][0]["image"] for pod in pods}) == 1
    mounts = pods[0]["containers"][0]["volumeMounts"]
    assert {m["name"] for m in mounts} == {volume["name"] for volume in pods[0]["volumes"]}


def _yaml(name):
    text = (EXAMPLES / "cluster" / name).read_text(encoding="utf-8")
    return pytest.importorskip("yaml").safe_load(text)
