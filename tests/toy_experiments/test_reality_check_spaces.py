"""The toy comparison shows what it says."""

from tests.kit.refusals import refused
from toy_experiments import reality_check_spaces


def test_equal_to_recall_and_nmi_not_to_map_r_and_the_figure_is_drawn(tmp_path, capsys):
    results = list(reality_check_spaces.measure().values())
    for name in ("e_recall@1", "nmi", "f1"):
        assert all(values[name] > 0.98 for values in results), name
    touching, narrow, distant = (values["map_r"] for values in results)
    assert touching < 0.75 < narrow < 0.9 < distant == 1.0
    reality_check_spaces.main(["--out", str(tmp_path / "new" / "spaces.png"), "--per_class", "40"])
    assert (tmp_path / "new" / "spaces.png").stat().st_size > 10_000
    assert "MAP@R" in capsys.readouterr().out
    with refused("ends in .png"):
        reality_check_spaces.main(["--out", str(tmp_path / "spaces")])
