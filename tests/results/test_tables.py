"""Every number of every table against metrics.csv, read again by a script that shares no line with the program."""

import functools
import itertools
import re
import statistics
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from results import columns, formats, page
from tests.kit.run_folders import METRICS, curve, evaluated, lines, make_run, make_runs, rows, values_of
from tests.results.test_latex import tabulars

DATASETS = {
    "cub200": ("test", {"CUB_A": 0.60, "CUB_B": 0.61, "CUB_C": 0.50, "CUB_D": 0.55, "CUB_E": 0.40}),
    "cars196": ("val", {"CARS_A": 0.8, "CARS_B": 0.7}),
}
RATING = {"R@1 [%]": "e_recall@1", "R@2 [%]": "e_recall@2", "NMI [%]": "nmi", "F1 [%]": "f1", "mAP_c [%]": "mAP_c"}
STRUCTURE = {
    "intra (train)": "dists@intra",
    "intra/inter (train)": "dists@intra_over_inter",
    "rho (train)": "rho_spectrum@2",
}
RULES = ("selected", "last", "best_on_test")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    out = tmp_path_factory.mktemp("out") / "tables"
    for dataset, (selects, qualities) in DATASETS.items():
        splits = ("train", "val", "test") if selects == "val" else ("train", "test")
        groups = {group: {"quality": quality} for group, quality in qualities.items()}
        make_runs(root, groups, 4, epochs=9, splits=splits, dataset=dataset)
    return root, evaluated(Path(), "--relation", "train/loss", "nmi", runs=root, out=out, figures=True)


@functools.cache
def curves_of(folder):
    """(split, metric) -> epoch -> value of a run."""
    curves = {}
    for line in lines(folder / "CSV_Logs" / "metrics.csv"):
        curves.setdefault((line["split"], line["metric"]), {})[int(line["epoch"])] = float(line["value"])
    return curves


def printed_values(values, scale, digits):
    """Mean and deviation (ddof 1) as they are printed."""
    return tuple(f"{scale * number(values):.{digits}f}" for number in (statistics.mean, statistics.stdev))


def recomputed(root, dataset, group, split, metric, how):
    """The recorded values of the seeds, and their epochs."""
    numbers = []
    epochs = []
    for folder in (root / dataset).glob(f"{group}_s*"):
        curves = curves_of(folder)
        chosen = curves[DATASETS[dataset][0], "e_recall@1"]
        of_test = curves["test", metric if split == "test" else "e_recall@1"]
        epoch = {"selected": max(chosen, key=chosen.get), "last": 9, "best_on_test": max(of_test, key=of_test.get)}[how]
        numbers.append(curves[split, metric][epoch])
        epochs.append(epoch)
    assert len(numbers) == 4
    return numbers, epochs


def rows_with(name, text):
    """The rows of a written table that name a group."""
    return [row for row in text.splitlines() if name in row.replace("\\", "")]


@pytest.mark.parametrize(("dataset", "how"), list(itertools.product(DATASETS, RULES)))
def test_single_tables(results, dataset, how):
    root, out = results
    texts = [(out / f"{dataset}_{how}.{ending}").read_text() for ending in ("md", "tex")]
    table_rows = lines(out / f"{dataset}_{how}.csv")
    assert [line["group"] for line in table_rows] == list(DATASETS[dataset][1])
    for line in table_rows:
        assert line["seeds"] == "4"
        of_md, of_tex = (rows_with(line["group"], text) for text in texts)
        for title, metric in RATING.items():
            numbers, epochs = recomputed(root, dataset, line["group"], "test", metric, how)
            mean, deviation = printed_values(numbers, 100, 2)
            assert (line[title], line[f"{title} deviation"]) == (mean, deviation)
            assert mean in of_md[0] and f"± {deviation}" in of_md[0]
            # in one of its blocks of columns
            assert any(re.search(rf"{re.escape(mean)}\}}?\\pm{re.escape(deviation)}", row) for row in of_tex)
            if metric == "e_recall@1":
                assert line["epoch"] == f"{statistics.mean(epochs):.1f}"


def test_structure_and_shared_tables(results):
    root, out = results
    for dataset in DATASETS:
        for line in lines(out / f"{dataset}_structure.csv"):
            for title, metric in STRUCTURE.items():
                numbers, _ = recomputed(root, dataset, line["group"], "train", metric, "selected")
                assert (line[title], line[f"{title} deviation"]) == printed_values(numbers, 1, 3)
    for how in RULES:
        line_of = {line["method"]: line for line in lines(out / f"shared_{how}.csv")}
        assert set(line_of) == set("ABCDE"), "groups of the same method share a row"
        assert line_of["C"]["cars196 R@1 [%]"] == ""
        for dataset, (_, groups) in DATASETS.items():
            for group, title in itertools.product(groups, ("R@1 [%]", "NMI [%]")):
                numbers, _ = recomputed(root, dataset, group, "test", RATING[title], how)
                line = line_of[group[-1]]
                values = line[f"{dataset} {title}"], line[f"{dataset} {title} deviation"]
                assert values == printed_values(numbers, 100, 2)


def test_runs_csv_and_correlations(results):
    root, out = results
    for line in lines(out / "runs.csv"):
        recorded = curves_of(root / line["dataset"] / line["run"])[line["split"], line["metric"]]
        assert float(line["value"]) in recorded.values(), "full precision, to the last bit"
    first = lines(out / "cub200_correlations.csv")[0]
    recalls, distances = (
        [statistics.mean(recomputed(root, "cub200", group, *column, "selected")[0]) for group in DATASETS["cub200"][1]]
        for column in (("test", "e_recall@1"), ("train", "dists@intra"))
    )
    assert first["quantity"] == "intra (train)" and first["groups"] == "5"
    assert first["Pearson"] == f"{statistics.correlation(recalls, distances):+.2f}"


def test_the_best_is_marked_and_every_table_states_its_rules(results):
    _, out = results
    marks = values_of(lines(out / "cub200_selected.csv"), "R@1 [%] mark")
    assert marks["CUB_B"] == "best" and marks["CUB_C"] == ""
    assert re.search(r"\| CUB_B \| 4 \| \*\*[\d.]+\*\* ±", (out / "cub200_selected.md").read_text())
    assert re.search(r"CUB\\_B & 4 & \$\\mathbf\{[\d.]+\}\\pm", (out / "cub200_selected.tex").read_text())
    on_test = "on test (no validation data, so the epoch is selected on the test set)"
    rules = ["ddof 1", "over 4 seeds", "Dunnett's T3", "arch resnet50_frozen_normalize", "GPU NVIDIA H200"]
    rules += ["torch 2.15.0", "n_epochs 9", "5864"]
    for dataset, rule in (("cub200", f"e_recall@1 {on_test}"), ("cars196", "e_recall@1 on val")):
        for ending in ("md", "csv"):
            text = (out / f"{dataset}_selected.{ending}").read_text()
            assert not [sentence for sentence in (rule, *rules) if sentence not in text]
    (line,) = [line for line in (out / "shared_selected.md").read_text().splitlines() if line.startswith("- Epochs")]
    assert f"{on_test} (cub200); epoch with the highest e_recall@1 on val (cars196)" in line
    for name in ("cub200_best_on_test", "shared_best_on_test"):
        assert "chosen on the test set itself" in (out / f"{name}.md").read_text()
    assert "best epoch on test" not in (out / "cub200_selected.md").read_text()


def test_latex_is_well_formed(results):
    _, out = results
    files = list(out.glob("*.tex"))
    assert len(files) >= 13
    for path in files:
        text = path.read_text()
        blocks = list(tabulars(text))
        assert blocks, path
        for forms, block_rows in blocks:
            for row in block_rows:
                is_title = row[0].startswith(rf"\multicolumn{{{len(forms)}}}")
                assert len(row) == (1 if is_title else len(forms)), (path, row)
        assert text.count("{") - text.count("\\{") == text.count("}") - text.count("\\}")
        assert not re.search(r"(?<!\\)[%#]", text)
        assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0
        assert not re.search(r"(?<!\\)_", re.sub(r"\\label\{[^}]*\}", "", text))


def test_figures_and_page(results):
    _, out = results
    relation = "relation_test_nmi_against_train_loss"
    for name in ("relations", "metric_correlations", "recall_against_rho", "ranked", relation):
        assert (out / f"cub200_{name}.pdf").read_bytes().startswith(b"%PDF")
        assert (out / f"cub200_{name}.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "cars196_optimism.png").read_bytes().startswith(b"\x89PNG")
    page = (out / "index.html").read_text()
    assert not re.search(r"(src|href)=\"https?:|@import|url\((?!data)", page), "nothing is fetched"
    assert page.count("<svg") == 7 and page.count("data:image/png") >= 8
    links = [link for link in re.findall(r'href="([^"#]+)"', page) if not link.startswith("data:")]
    assert len(links) > 20 and all((out / link).exists() for link in links)
    assert sum("CUB_A_s" in link for link in links) == 4
    assert all(line["R@1 [%]"] in page for line in lines(out / "cub200_selected.csv"))


def test_awkward_names_survive(tmp_path):
    flags = {"dataset": "folder", "dataset_name": "my birds/2: è"}
    for number, group in enumerate(("a|b & <c>", "100%_{x}^~\\", "*a* `b` [x](http://y) R50_b256 &amp;")):
        make_run(tmp_path / "runs", group, 0, name=f"run{number}", records=curve(*[0.5] * 6), **flags)
    out = evaluated(tmp_path)
    names = ("my-birds-2-è_selected.md", "my-birds-2-è_selected.tex", "index.html")
    markdown, tex, html = ((out / name).read_text() for name in names)
    assert "a\\|b & &lt;c>" in markdown and r"\*a\* \`b\` [x]\(http://y) R50_b256 &amp;amp;" in markdown
    assert r"a$|$b \& $<$c$>$" in tex and r"100\%\_\{x\}\^{}\~{}\textbackslash{}" in tex
    assert "a|b &amp; &lt;c&gt;" in html and "<c>" not in html and ">my birds/2: è</h2>" in html
    assert all((out / link).exists() for link in re.findall(r'href="([^"#:]+)"', html))


def test_long_remarks_fold_on_the_page_and_are_whole_in_the_files():
    table = formats.Table("t", "t", ["group", "seeds"])
    long = "unlike the others: " + "; ".join(f"flag_{i} {i} (others: 0)" for i in range(30))
    three = formats.Cell(text="3")
    table.add([formats.Cell(text="A_B"), three], ["short", long])
    table.add([formats.Cell(text="C"), three], [long])
    table.add([formats.Cell(text="D"), formats.Cell(np.float64(1.5))])
    html = page.template().make_module({"address": str}).section(table)
    assert 'data-value="1.5"' in html, "numpy's numbers sort as numbers"
    # once below, and as the title of each letter
    assert html.count(long) == 3 and html.count("<details><summary><sup>b</sup>") == 1
    assert "<li><sup>a</sup> short</li>" in html and "A_<wbr>B" in html
    text = formats.to_markdown(table)
    assert "| A_B <sup>a,b</sup> | 3 |" in text and "| C <sup>b</sup> | 3 |" in text and text.count(long) == 1


def test_latex_takes_no_name_for_its_own_and_prints_symbols_without_unicode():
    table = formats.Table("my data#1%_selected:é", "t", ["group", "seeds"], notes=["[R@1] first", "*"])
    for name in ("[abc]", " *star", "β → x × 3…", "Γ Α ς"):
        table.add([formats.Cell(text=name), formats.Cell(text="[3]")], ["why"])
    text = formats.to_tex(table)
    assert "\\label{tab:my-data-1--selected:-}" in text
    lines = text.splitlines()
    for before, line in zip(lines, lines[1:], strict=False):
        if before.endswith((r"\\", "rule")):
            assert not line.lstrip().startswith(("[", "*")), line
    assert "{}[abc]$^{a}$ & [3]" in text and "{} *star" in text and "{}[R@1] first" in text and "{}*" in text
    assert r"$\beta$ $\to$ x $\times$ 3$\dots$" in text and r"$\Gamma$ A $\varsigma$" in text and text.isascii()


def test_columns_of_a_clustering_are_marked_with_how_many_starts_they_are_of(results, tmp_path):
    make_runs(tmp_path / "runs", "AB", 1, quality=0.5, epochs=2, eval_kmeans_starts=3)
    single = "† computed from a single k-means start: the deviation over seeds includes clustering noise"
    requested = evaluated(tmp_path, "--metrics", "e_recall@1", "nmi", "train/rho_spectrum@2")
    for out, note in ((results[1], single), (requested, "† mean over 3 k-means starts")):
        text = (out / "cub200_selected.md").read_text()
        assert "| NMI [%] † |" in text and "R@1 [%] †" not in text and note in text
        assert r"NMI [\%]$^\dagger$" in (out / "cub200_selected.tex").read_text()
        assert "NMI [%]<sup>†</sup>" in (out / "index.html").read_text()
    quantities = [line["quantity"] for line in lines(requested / "cub200_correlations.csv")]
    assert quantities.count("rho (train)") == 1, "requested, and shown anyway"


def test_correlations_are_corrected_and_count_twins_once(tmp_path):
    plain = {f"CUB_{i}": {"quality": 0.5 + 0.02 * i**2, "lr": 1e-5 * (i + 1)} for i in range(5)}
    make_runs(tmp_path / "runs", plain | {"CUBreg_0": {"quality": 0.7, "batch_mining": "rho_distance"}}, epochs=3)
    out = evaluated(tmp_path)
    table_rows = lines(out / "cub200_correlations.csv")
    assert {line["groups"] for line in table_rows} == {"5"} and "Holm-corrected over the rows" in table_rows[0]["notes"]
    assert len(lines(out / "cub200_selected.csv")) == 6
    values = {}
    for line in lines(out / "runs.csv"):
        if line["selection"] == "selected":
            values.setdefault((line["split"], line["metric"], line["group"]), []).append(float(line["value"]))

    def counted_once(split, metric):
        """The means of the five groups, of the twins that of both."""
        of_group = {name: statistics.mean(values[split, metric, name]) for name in [*plain, "CUBreg_0"]}
        of_group["CUB_0"] = (of_group["CUB_0"] + of_group.pop("CUBreg_0")) / 2
        return list(of_group.values())

    quantities = [("train", m) for m in ("dists@intra", "dists@inter", "dists@intra_over_inter", "rho_spectrum@2")]
    quantities += [("test", m) for m in METRICS[1:]]
    recalls = counted_once("test", "e_recall@1")
    correlations = [scipy.stats.pearsonr(recalls, counted_once(*key)) for key in quantities]
    assert [line["Pearson"] for line in table_rows] == [f"{result.statistic:+.2f}" for result in correlations]
    p_values = sorted(result.pvalue for result in correlations)
    corrected = max((len(p_values) - i) * p for i, p in enumerate(p_values))
    largest = max(float(line["p"].lstrip("<")) for line in table_rows)
    assert largest == pytest.approx(min(1, corrected), abs=6e-5) or corrected < 1e-4
    (line,) = lines(out / "cub200_rho_distance.csv")
    assert "R@1 rises in 1 and falls in 0 (p 1)" in line["notes"] and float(line["R@1 [%] difference to best low"]) > 0


def test_re_identification_has_a_table_of_its_own(tmp_path):
    # --eval_skip_unmatched of A and B
    skips = {
        "market1501": ((1, 1), "are left out;"),
        "veri776": ((0, 0), "count as 0 in Rank-k"),
        "msmt17": ((1, 0), "are left out of some groups"),
    }
    metrics_of_task = ("e_recall@1", "e_recall@5", "e_recall@10", "ap", "inp")
    for dataset, (of_groups, _) in skips.items():
        for (group, quality), skip in zip({"A": 0.5, "B": 0.6}.items(), of_groups, strict=True):
            for seed in range(2):
                records = rows(quality, 6, seed, metrics=metrics_of_task)
                flags = {"dataset": dataset, "eval_skip_unmatched": skip}
                make_run(tmp_path / "runs", group, seed, records=records, **flags)
    make_run(tmp_path / "runs", "C", 0)
    out = evaluated(tmp_path)
    titles = {"Rank-1 [%]": "R@1 [%]", "Rank-5 [%]": "R@5 [%]", "mAP [%]": "ap [%]", "mINP [%]": "mINP [%]"}
    for dataset, (_, words) in skips.items():
        plain, of_task = (lines(out / f"{dataset}_{name}.csv") for name in ("selected", "reidentification"))
        assert values_of(of_task, *titles) == values_of(plain, *titles.values())
        text = (out / f"{dataset}_reidentification.md").read_text()
        assert words in text and f"| group | seeds | {' | '.join(titles)} | epoch |" in text
    assert not (out / "cub200_reidentification.md").exists()


def test_a_metric_beyond_0_to_1_is_no_percentage(monkeypatch):
    from metrics import _names, mrr

    class Rank(mrr.Metric):
        """A user's metric: the rank of the first hit."""

        NAMES = {"first_rank": "rank of the first hit"}
        RANGE = (1.0, float("inf"))
        HIGHER_IS_BETTER = False

    declared = _names.declared_classes()
    monkeypatch.setattr(_names, "declared_classes", lambda: {**declared, "first_rank": Rank})
    caches = (columns.direction, columns._is_share)
    names = ("first_rank", "ami", "nmi", "c_map_r", "fnmr@.1", "opis", "birds/e_recall@1@d8")
    for cache in caches:
        cache.cache_clear()
    try:
        line_of = {name: columns.column("test", name) for name in names}
    finally:
        for cache in caches:
            cache.cache_clear()
    assert [name for name, c in line_of.items() if not c.percent] == ["first_rank", "ami"]
    rank = line_of["first_rank"]
    assert (rank.scale, rank.unit, line_of["nmi"].unit) == (1.0, "first_rank", "NMI in %")


def test_a_metric_that_is_nan_in_all_runs_is_named_in_a_remark(tmp_path):
    for seed in range(2):
        records = rows(0.5, 3, seed, metrics=("e_recall@1",), training=())
        records += curve(np.nan, np.nan, np.nan, metric="map_r") + curve(0.5, 0.5, 0.5, metric="map_r", split="train")
        make_run(tmp_path / "runs", "A", seed, epochs=3, records=records)
    (line,) = lines(evaluated(tmp_path) / "cub200_selected.csv")
    assert line["MAP@R [%]"] == "" and line["remarks"] == "MAP@R: NaN in all runs, not defined (no query counts)"
    assert line["R@1 [%]"] != ""


def test_titles_of_metrics_of_a_prefix():
    titles = {
        "e_recall@1@d64": "R@1@d64",
        "map_r@d8": "MAP@R@d8",
        "shared/e_recall@2@d8": "R@2@d8 [shared]",
        "rho_spectrum@2@d4": "rho@d4",
    }
    assert {name: columns.title(name) for name in titles} == titles


def test_text_for_the_console_has_aligned_columns():
    table = formats.Table("t", "A | title", ["model", "R@1", "long heading"], spread="deviation")
    table.add([formats.Cell(text="a"), formats.Cell(1.5, deviation=0.25), formats.Cell(100)], ["a remark"], "first")
    table.add([formats.Cell(text="longer name"), formats.Cell(22, mark="best"), formats.Cell()], [], "second")
    table.notes.append("a note")
    assert formats.to_text(table).splitlines() == [
        "A | title",
        "",
        "model                R@1  long heading",
        "-----------  -----------  ------------",
        "first",
        "a [a]        1.50 ± 0.25        100.00",
        "second",
        "longer name       22.00*             -",
        "",
        "[a] a remark",
        "a note",
    ]
