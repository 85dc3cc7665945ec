"""The release: a wheel that is identical in every build, installs alone and runs, with a bill of
materials; a lock file that fits; a valid Dockerfile; one version and one name everywhere.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from loger import __version__

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def wheel(folder: Path) -> Path:
    """The wheel of a fresh copy of the source, built without the network."""
    pytest.importorskip("hatchling")
    source = folder / "source"
    source.mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    code = "import hatchling.build as b, sys; print(b.build_wheel(sys.argv[1]))"
    built = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=source, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    return folder / built.stdout.split()[-1]


def test_a_wheel_built_twice_has_equal_bytes_and_all_that_runs(tmp_path: Path) -> None:
    first, second = wheel(tmp_path / "one"), wheel(tmp_path / "two")
    assert first.name == second.name == f"loger_rec-{__version__}-py3-none-any.whl"
    assert first.read_bytes() == second.read_bytes()
    names = zipfile.ZipFile(first).namelist()
    for needed in ("loger/py.typed", "loger/web/static/app.js", "loger/tables/reviews/english.txt"):
        assert needed in names
    assert not [n for n in names if n.startswith(("tests", "docs")) or "__pycache__" in n]


@pytest.mark.long
def test_the_wheel_installs_into_an_empty_environment_and_runs_the_demo(tmp_path: Path) -> None:
    built = wheel(tmp_path / "built")
    place = tmp_path / "venv"
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    target = Path(sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)}))
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "-q"]
    subprocess.run([*pip, str(built)], check=True, capture_output=True)
    # Dependencies come from this environment: downloading PyTorch again would prove nothing.
    (target / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    own = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    own["NUMBA_CACHE_DIR"] = str(tmp_path / "kernels")  # compiled for this place alone

    def loger(*arguments: str) -> str:
        command = [str(place / "bin" / "loger"), *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=own)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert loger("--version") == f"loger {__version__}\n"
    story = loger("demo", "--out", "demo")
    assert "the true reason" in story and "collective EASE^R" in story
    assert (tmp_path / "demo" / "report.html").exists()
    (asked,) = json.loads(loger("recommend", "demo/bundle", "Vera Fargate", "--explain", "--json"))
    assert asked["items"][0]["reasons"]
    where = subprocess.run(
        [str(python), "-c", "import loger; print(loger.__file__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=own,
    )
    assert str(place) in where.stdout


def test_the_bill_of_materials_has_what_the_wheel_needs_and_no_tool_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "loger_rec-1-py3-none-any.whl"
    path.write_bytes(b"a wheel")
    script, texts = ROOT / "scripts" / "sbom.py", []
    for _ in range(2):
        subprocess.run([sys.executable, script, path], check=True, capture_output=True)
        texts.append(path.with_suffix(".cdx.json").read_text(encoding="utf-8"))
    assert texts[0] == texts[1]
    bill = json.loads(texts[0])
    (digest,) = bill["metadata"]["component"]["hashes"]
    assert digest["content"] == hashlib.sha256(b"a wheel").hexdigest()
    scopes = {part["name"]: part["scope"] for part in bill["components"]}
    direct = {canonicalize_name(Requirement(d).name) for d in PROJECT["dependencies"]}
    assert {name for name, scope in scopes.items() if scope == "required"} > direct
    assert scopes["fastapi"] == "optional"
    assert not {"pytest", "sphinx", "mypy", "loger-rec"} & set(scopes)
    edges = {row["ref"]: set(row["dependsOn"]) for row in bill["dependencies"]}
    assert edges["loger-rec"] == direct and "llvmlite" in edges["numba"]


def test_the_lock_file_has_a_fitting_version_of_every_requirement_with_hashes() -> None:
    text = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
    parts = re.split(r"^(?=[a-z])", text, flags=re.M)[1:]
    assert all("--hash=sha256:" in part for part in parts)
    locked = [Requirement(part.split("\\")[0].strip()) for part in parts]
    asked = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    for needed in (Requirement(text) for texts in asked for text in texts):
        name = canonicalize_name(needed.name)
        if name not in ("torch", PROJECT["name"]):  # see scripts/unlocked.txt
            pins = [s.version for r in locked if r.name == name for s in r.specifier]
            assert pins and all(map(needed.specifier.contains, pins)), needed


def test_the_dockerfile_has_no_faults() -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if hadolint is None:
        pytest.skip("hadolint is not installed")
    told = subprocess.run([hadolint, str(ROOT / "Dockerfile")], capture_output=True, text=True)
    assert (told.returncode, told.stdout) == (0, "")


def test_what_the_dockerfile_copies_is_enough_and_passes_its_ignore_file() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY ((?!--from).*) \S+$", text, re.M)
    names = {name for line in copied for name in line.split()}
    assert names == {"pyproject.toml", "README.md", "LICENSE", "src"}
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == names
    torch = next(d for d in PROJECT["dependencies"] if d.startswith("torch"))
    assert f'"{torch}"' in text, "the version of PyTorch is that of pyproject.toml"
    assert re.search(r"^USER \d+$", text, re.M) and "HEALTHCHECK" in text


def test_every_printed_command_installs_our_distribution_with_an_extra_that_exists() -> None:
    extras, found = PROJECT["optional-dependencies"], 0
    folders = (ROOT / "src", ROOT / "docs", ROOT / "benchmarks")
    texts = [
        p for f in folders for p in [*f.rglob("*.py"), *f.rglob("*.md")] if "_build" not in p.parts
    ]
    for path in [*texts, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        text = path.read_text(encoding="utf-8")
        for name, asked in re.findall(r"pip install '?([\w.-]+)\[([\w,]+)\]", text):
            assert name in (PROJECT["name"], "."), path
            assert set(asked.split(",")) <= set(extras), path
            found += 1
        assert not re.search(r"pip install '?loger\b(?!-rec)", text), path
    assert found > 4


def test_the_changelog_has_this_version_with_a_date() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[{re.escape(__version__)}\] - \d{{4}}-\d\d-\d\d$", text, re.M)


def test_every_file_of_the_release_names_this_version_and_one_home() -> None:
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    recipe = (ROOT / "recipe" / "meta.yaml").read_text(encoding="utf-8")
    assert f"\nversion: {__version__}\n" in cited
    assert f'{{% set version = "{__version__}" %}}' in recipe
    home = PROJECT["urls"]["Repository"]
    files = [ROOT / "CITATION.cff", *(ROOT / ".github").rglob("*.yml"), ROOT / "pyproject.toml"]
    for file in files:
        for address in re.findall(r"https://github\.com/[\w-]+/loger\b", file.read_text()):
            assert address == home, file


def test_the_conda_recipe_needs_what_the_package_needs() -> None:
    recipe = (ROOT / "recipe" / "meta.yaml").read_text(encoding="utf-8")
    run = recipe.split("  run:\n")[1].split("  run_constrained:")[0]
    listed = dict(line.split(" ", 1) for line in re.findall(r"- (\S+ \S+)", run))
    needed = {"python": PROJECT["requires-python"]}
    for requirement in map(Requirement, PROJECT["dependencies"]):
        name = {"torch": "pytorch"}.get(requirement.name, requirement.name)
        needed[name] = str(requirement.specifier)
    assert {n: set(v.split(",")) for n, v in listed.items()} == {
        n: set(v.split(",")) for n, v in needed.items()
    }
