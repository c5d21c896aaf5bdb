"""Our groups beside published ones: every published number joins its configuration, differences are told."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

import parameters
from results import columns, formats, ledger, published, tables
from tests.kit.run_folders import built, curve, evaluated, lines, make_run, rows, rows_of

ROOT = Path(__file__).resolve().parents[2]
resolved = parameters.read


def matched(root, source):
    """Name -> match of the groups below a folder with published ones."""
    configurations = published.load(source) if isinstance(source, str) else source
    return {m.group.name: m for m in published.match(list(built(root).values()), configurations, resolved)}


def printed_rows(matches, source):
    return {row["group"]: row for row in rows_of(tables.comparison(list(matches.values()), source))}


def run_of(root, configuration, seed=0, value=0.6, **changes):
    """A run with exactly the flags of a published configuration, but for `changes`."""
    flags = {**configuration.flags(resolved), "seed": seed, "n_epochs": 2, **changes}
    flags.pop("savename")
    metrics = rows(value, 2, seed, ("train", "val", "test"), ("e_recall@1", "map_r", "rho_spectrum@2"), ())
    return make_run(root, records=metrics, epochs=2, **{k: v for k, v in flags.items() if k != "n_epochs"})


@pytest.mark.parametrize(("source", "count", "figures"), [("published", 67, 67), ("mlrc", 56, 98)])
def test_every_published_figure_of_a_run_joins_its_configuration(source, count, figures):
    configurations = published.load(source)
    rows_there = [row for row in lines(ledger.FILE) if row["group"]]
    rows_there = [row for row in rows_there if row["group"].startswith("MLRC") == (source == "mlrc")]
    assert len(configurations) == len({(p.dataset, p.group) for p in configurations}) == count
    listed = set()
    for row in rows_there:
        split = "val" if row["metric"].startswith("val/") else "test"
        listed.add((row["group"], split, float(row["value"])))
    assert len(rows_there) == figures
    assert {(p.group, f.column.split, f.value) for p in configurations for f in p.figures} == listed
    assert all(math.isfinite(p.rho) == (source == "published") for p in configurations)


def configuration_of(group, source="published"):
    return next(p for p in published.load(source) if p.group == group)


def test_alike_by_name_or_by_flags_and_what_differs_is_told(tmp_path):
    by_name = {p.group: p for p in published.load("published")}
    for seed in range(3):
        run_of(tmp_path, by_name["CUB_Margin_b06_Distance"], seed)
        run_of(tmp_path, by_name["CUB_Margin_b12_Distance"], seed, group="Anything")
        run_of(tmp_path, by_name["CUB_ArcFace"], seed, group="Faces", bs=56)
        run_of(tmp_path, by_name["CUB_Triplet_Random"], seed, group="Other", loss_triplet_margin=0.9)
    matches = matched(tmp_path, "published")
    # a loss with other flags of its own has no counterpart
    assert {name: m.published.group for name, m in matches.items()} == {
        "CUB_Margin_b06_Distance": "CUB_Margin_b06_Distance",
        "Anything": "CUB_Margin_b12_Distance",
        "Faces": "CUB_ArcFace",
    }
    epochs = ["n_epochs 2 (published: 150)"]
    assert matches["Anything"].differences == matches["CUB_Margin_b06_Distance"].differences == epochs
    assert matches["Faces"].differences == ["bs 56 (published: 112)", *epochs]
    text = formats.to_markdown(tables.comparison(list(matches.values()), "published"))
    assert "unlike the published run: bs 56 (published: 112)" in text and "ddof 0" in text
    assert "added the angular margin to every class" in text


def test_difference_and_t(tmp_path):
    configuration = configuration_of("CUB_MS")
    values = [0.62, 0.63, 0.65]
    flags = {**configuration.flags(resolved), "n_epochs": 2}
    flags.pop("savename")
    for seed, value in enumerate(values):
        records = curve(value - 0.1, value) + curve(0.2, split="train", metric="rho_spectrum@2", first=2)
        make_run(tmp_path, records=records, **{**flags, "seed": seed})
    matches = matched(tmp_path, [configuration])
    (match,) = matches.values()
    ours, against = published.compare(match.group, match.published.figures[0])
    mean = 100 * sum(values) / 3
    spread = sum((100 * v - mean) ** 2 for v in values)
    assert (ours.mean, ours.deviation) == pytest.approx((mean, math.sqrt(spread / 3))), "ddof 0, as published"
    assert against.difference == pytest.approx(mean - 62.80)
    assert against.t == pytest.approx((mean - 62.80) / math.sqrt(spread / 2 / 3 + 0.70**2 * 5 / 4 / 5))
    (line,) = printed_rows(matches, "published").values()
    expected = {"R@1 ours [%]": f"{mean:.2f}", "R@1 published [%]": "62.80", "R@1 published [%] deviation": "0.70"}
    expected |= {"R@1 difference": f"{mean - 62.80:+.2f}", "R@1 t": f"{against.t:+.2f}"}
    expected |= {"rho ours": "0.200", "rho published": "0.155"}
    assert line.items() >= expected.items()
    text = formats.to_markdown(tables.comparison([match], "published"))
    assert "rho published: over D - 1 singular values" in text
    assert "divided by the number of anchors that kept pairs" in text
    assert "the test compares two different losses" in text


def test_every_method_whose_published_code_differed_has_a_note():
    """CHANGELOG lists the losses."""
    differed = {"angular", "arcface", "lifted", "margin", "multisimilarity", "quadruplet", "softtriplet"}
    assert {p.flag("--loss") for p in published.load("published") if p.note} == differed
    assert not [p.method for p in published.load("published") if p.flag("--loss") in differed and not p.note]


def test_reality_check(tmp_path):
    by_name = {p.group: p for p in published.load("mlrc")}
    for group in ("MLRC_CUB_Margin", "MLRC_CUB256_MSMiner", "MLRC_CUB_MS"):
        run_of(tmp_path, by_name[group], value=0.4)
    run_of(tmp_path, by_name["MLRC_CUB_MarginClass"], value=0.4, group="Foreign")
    matches = matched(tmp_path, "mlrc")
    assert matches["Foreign"].published.group == "MLRC_CUB_MarginClass"
    assert matches["MLRC_CUB256_MSMiner"].published.method == "Multi Similarity + Miner"
    assert all(m.differences == ["n_epochs 2 (published: 1000)"] for m in matches.values())
    table = printed_rows(matches, "mlrc")
    margin = table["MLRC_CUB_Margin"]
    miner = table["MLRC_CUB256_MSMiner"]
    assert (margin["MAP@R (val) published [%]"], margin["MAP@R published [%]"]) == ("41.84", "23.09")
    assert (miner["MAP@R (val) published [%]"], miner["MAP@R published [%]"]) == ("44.29", "")
    ours = columns.value(matches["MLRC_CUB_Margin"].group.counted[0], columns.column("val", "map_r"), columns.SELECTED)
    assert margin["MAP@R (val) ours [%]"] == f"{100 * ours:.2f}" and margin["MAP@R (val) t"] == ""


def test_a_source_without_a_counterpart_is_told_and_the_other_one_shown(tmp_path, capsys):
    for seed in range(3):
        folder = run_of(tmp_path / "runs", configuration_of("CUB_MS"), seed)
    path = folder / "CSV_Logs" / "metrics.csv"
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if "rho_spectrum" not in line))
    out = evaluated(tmp_path, "--compare_to", "published", "mlrc")
    note = "--compare_to mlrc: nothing in common: no group (cub200/multisimilarity) has a counterpart there"
    assert note in capsys.readouterr().out and note in (out / "index.html").read_text()
    (line,) = lines(out / "cub200_published.csv")
    assert line["rho ours"] and "rho: mean of 2 of 3 seeds" in line["remarks"]
    assert not (out / "cub200_mlrc.csv").exists()


@pytest.mark.long
def test_published_configurations_are_read_without_the_packages_of_their_networks():
    """Some presets have networks of timm, whose import takes a quarter of a gigabyte."""
    program = """
import sys
import parameters
from results import published
presets = published.load_presets({"cub200"})
names = [str(preset.flags(parameters.unchecked)["arch"]) for preset in presets]
assert any(name.startswith("timm:") for name in names), names
assert "timm" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
