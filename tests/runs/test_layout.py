"""A run directory of another version is refused with the name of that version."""

import pytest

from monotau.errors import ConfigError
from monotau.runs.files import write_json
from monotau.runs.layout import CONFIG, PROVENANCE, state_of


@pytest.mark.parametrize(
    ("starts", "named"),
    [
        ([{"packages": {"monotau": "0.1.0"}}, {"packages": {"monotau": "0.2.0"}}], r", started by monotau '0\.1\.0':"),
        ([], ":"),
        ([{"packages": []}], ":"),
        ("often", ":"),
        (None, ":"),
    ],
)
def test_another_run_is_refused_with_the_version_that_started_it(starts, named, tmp_path):
    write_json(tmp_path / CONFIG, {"seed": 1})
    write_json(tmp_path / PROVENANCE, {"starts": starts})
    with pytest.raises(ConfigError, match=rf"holds another run{named} it differs in seed \(1 there, 2 here\); use"):
        state_of(tmp_path, {"seed": 2})


def test_a_run_without_provenance_is_refused_without_a_version(tmp_path):
    write_json(tmp_path / CONFIG, {"seed": 1})
    with pytest.raises(ConfigError, match=r"holds another run: it differs in seed"):
        state_of(tmp_path, {"seed": 2})
