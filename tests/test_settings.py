"""Settings by name: known ones are applied, unknown ones are reported with their path."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from loger.encoder import TransEConfig
from loger.engine.settings import from_names, merged, overridden, parsed, read_toml
from loger.errors import DataError, LogerError, UnknownNameError
from loger.logic.config import EMConfig
from loger.model import LOGERConfig


def test_nested_tables_reach_nested_configs() -> None:
    config = overridden(
        LOGERConfig(), {"seed": 3, "em": {"rounds": 1, "walk": {"recency": 1}}, "sample_nodes": 9}
    )
    assert (config.seed, config.em.rounds, config.sample_nodes) == (3, 1, 9)
    assert config.em.walk.recency == 1.0
    assert isinstance(config.em.walk.recency, float)
    assert config.em.walk.item == LOGERConfig().em.walk.item
    assert config.encoder == LOGERConfig().encoder


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"em": {"walk": {"recensy": 1.0}}}, "'em.walk.recensy'; did you mean 'em.walk.recency'"),
        ({"encodr": {}}, "did you mean 'encoder'"),
        ({"em": {"fusion": "summ"}}, "value of em.fusion 'summ'; did you mean 'sum'"),
        ({"mining": 3}, "mining must be a table"),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest(values: dict[str, object], why: str) -> None:
    with pytest.raises(LogerError) as error:
        overridden(LOGERConfig(), values)
    assert why in str(error.value)


@pytest.mark.parametrize("value", ["3", 3.0, True, None, [3]])
def test_a_value_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(LogerError, match=r"em\.rounds must be int"):
        overridden(LOGERConfig(), {"em": {"rounds": value}})


def test_none_is_written_as_a_word_where_a_setting_may_be_none() -> None:
    assert overridden(LOGERConfig.paper(), {"sample_nodes": "none"}).sample_nodes is None
    assert overridden(LOGERConfig.paper(), parsed(["sample_nodes=none"])).sample_nodes is None


def test_texts_are_read_as_toml_values() -> None:
    assert parsed(["a.b=1e-3", "a.c=true", "d='x y'", "e=x"]) == {
        "a": {"b": 1e-3, "c": True}, "d": "x y", "e": "x",
    }  # fmt: skip
    for text in ("a", "=1", "a..b=1", ".a=1"):
        with pytest.raises(LogerError, match="PATH=VALUE"):
            parsed([text])
    with pytest.raises(LogerError, match="already has a value"):
        parsed(["a=1", "a.b=2"])


def test_texts_may_be_written_as_python_writes_them() -> None:
    assert parsed(["a=False", "b=True", "c=None", "d=.5", "e=[1, 2]"]) == {
        "a": False, "b": True, "c": None, "d": 0.5, "e": [1, 2],
    }  # fmt: skip


def test_the_second_wins_and_the_rest_stays() -> None:
    assert merged({"a": {"x": 1, "y": 2}, "b": 1}, {"a": {"y": 3}}) == {
        "a": {"x": 1, "y": 3},
        "b": 1,
    }


def test_a_broken_file_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("seed = 1\nem = [\n")
    with pytest.raises(DataError, match="line"):
        read_toml(file)
    with pytest.raises(DataError, match="no such file"):
        read_toml(tmp_path / "no.toml")


def test_unknown_names_are_of_the_one_family() -> None:
    with pytest.raises(UnknownNameError):
        overridden(LOGERConfig(), {"sed": 1})


def test_a_sample_of_no_nodes_is_refused():
    with pytest.raises(LogerError, match="sample_nodes must be at least 1, got -1"):
        LOGERConfig(sample_nodes=-1)


def test_settings_that_are_nested_without_end_are_refused(tmp_path):
    deep = "[" * 5000 + "]" * 5000
    (tmp_path / "deep.toml").write_text(f"x = {deep}\n")
    with pytest.raises(LogerError, match=r"deep.toml: brackets are nested too deeply"):
        read_toml(tmp_path / "deep.toml")
    assert parsed([f"em.rounds={deep}"]) == {"em": {"rounds": deep}}


def test_a_setting_of_a_former_version_may_only_have_the_value_that_it_always_has_now() -> None:
    now = TransEConfig(dimension=8)
    saved = asdict(now) | dict(TransEConfig.FORMER)
    assert from_names(TransEConfig, saved) == now
    with pytest.raises(LogerError, match=r"a.max_history is no longer a setting.*fit again"):
        from_names(TransEConfig, saved | {"max_history": 3}, "a")
    assert from_names(TransEConfig, saved | {"max_interactions": 3}) == now  # only the fit used it
    with pytest.raises(LogerError, match=r"^max_interactions is no longer a setting; remove it$"):
        overridden(now, {"max_interactions": 3})


def test_a_setting_that_was_renamed_is_read_from_bundles_and_named_in_errors() -> None:
    saved = asdict(LOGERConfig(em=EMConfig(max_encoder_share=0.3)))
    saved["em"]["opacity"] = saved["em"].pop("max_encoder_share")
    assert from_names(LOGERConfig, saved).em.max_encoder_share == 0.3
    with pytest.raises(LogerError, match=r"^em.opacity is now called em.max_encoder_share$"):
        overridden(LOGERConfig(), parsed(["em.opacity=0.3"]))
