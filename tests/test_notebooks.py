"""The notebooks of the documentation run from top to bottom and show what they promise."""

from __future__ import annotations

from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "docs" / "notebooks").glob("*.ipynb"))
SHOWN = {
    "faithfulness": ["lost without", "deletion"],
    "own_data": ["sung_by", "taken as", "<svg"],
    "tour": ["<svg", "rules tried", "NDCG"],
}


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_promises(path: Path, tmp_path: Path) -> None:
    nbformat, nbclient = (pytest.importorskip(name) for name in ("nbformat", "nbclient"))
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": tmp_path}}
    nbclient.NotebookClient(notebook, timeout=600, resources=where).execute()
    shown = nbformat.writes(notebook)
    for wanted in SHOWN[path.stem]:
        assert wanted in shown, wanted


def test_notebooks_are_kept_without_what_they_printed() -> None:
    assert [path.stem for path in NOTEBOOKS] == sorted(SHOWN)
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        assert '"output_type"' not in text and '"execution_count": null' in text
