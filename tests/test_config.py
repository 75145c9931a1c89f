"""The switches that take an idea away: what each is called, and how it is turned off."""

from __future__ import annotations

import pytest

from tf_stitch.config import ABLATIONS, Config, default_config
from tf_stitch.errors import UsageError


def test_all_switches_are_on_by_default() -> None:
    assert ABLATIONS == (
        "adaptive_mapping",
        "dominant_merging",
        "regional_scheme",
        "global_scheme",
        "remote_stitching",
        "variable_forwarding",
        "invariant_motion",
        "product_stitching",
    )
    assert Config().changed() == {}


@pytest.mark.parametrize("name", ABLATIONS)
def test_one_is_off_and_nothing_else_changes(name: str) -> None:
    config = Config(max_cluster_size=7).without([name])
    assert config.changed() == {"max_cluster_size": 7, name: False}
    assert config == Config(max_cluster_size=7, **{name: False})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["max_cluster_size", "dominant"])
def test_what_is_no_switch_is_refused_by_name(name: str) -> None:
    with pytest.raises(UsageError, match=f"'{name}' is not a switch.*adaptive_mapping"):
        Config().without([name])


@pytest.mark.parametrize(
    ("text", "off"),
    [
        ("", ()),
        ("global_scheme", ("global_scheme",)),
        (" remote_stitching, adaptive_mapping,", ("adaptive_mapping", "remote_stitching")),
    ],
)
def test_the_environment_turns_switches_off(text: str, off: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_STITCH_ABLATE", text)
    assert default_config().changed() == dict.fromkeys(off, False)


def test_a_mistake_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_STITCH_ABLATE", "remote")
    with pytest.raises(UsageError, match="'remote'"):
        default_config()
