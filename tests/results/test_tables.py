"""Every number of every table against metrics.csv, read again by a script that shares no line with the program."""

import csv
import functools
import itertools
import re
import statistics
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

import metrics
from results import columns, formats, page
from tests.kit.run_folders import METRICS, evaluated, lines, make_run, make_runs, rows

DATASETS = {
    "cub200": ("test", {"CUB_A": 0.60, "CUB_B": 0.61, "CUB_C": 0.50, "CUB_D": 0.55, "CUB_E": 0.40}),
    "cars196": ("val", {"CARS_A": 0.8, "CARS_B": 0.7}),
}
TITLES = {
    "R@1 [%]": "e_recall@1",
    "R@2 [%]": "e_recall@2",
    "NMI [%]": "nmi",
    "F1 [%]": "f1",
    "mAP_c [%]": "mAP_c",
    "intra (train)": "dists@intra",
    "intra/inter (train)": "dists@intra_over_inter",
    "rho (train)": "rho_spectrum@2",
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    out = tmp_path_factory.mktemp("out") / "tables"
    for dataset, (selects, groups) in DATASETS.items():
        splits = ("train", "val", "test") if selects == "val" else ("train", "test")
        make_runs(
            root,
            {group: {"quality": quality} for group, quality in groups.items()},
            4,
            epochs=9,
            splits=splits,
            dataset=dataset,
        )
    return root, evaluated(Path(), "--relation", "train/loss", "nmi", runs=root, out=out, figures=True)


@functools.cache
def curves_of(folder):
    """(split, metric) -> epoch -> value of a run."""
    curves = {}
    with open(folder / "CSV_Logs" / "metrics.csv") as file:
        for line in csv.DictReader(file):
            curves.setdefault((line["split"], line["metric"]), {})[int(line["epoch"])] = float(line["value"])
    return curves


def recomputed(root, dataset, group, split, metric, how):
    """Mean and deviation (ddof 1) as they are recorded, and those of the epoch."""
    numbers = []
    epochs = []
    for folder in (root / dataset).glob(f"{group}_s*"):
        curves = curves_of(folder)
        chosen = curves[DATASETS[dataset][0], "e_recall@1"]
        curve = curves["test", metric if split == "test" else "e_recall@1"]
        epoch = {"selected": max(chosen, key=chosen.get), "last": 9, "best_on_test": max(curve, key=curve.get)}[how]
        numbers.append(curves[split, metric][epoch])
        epochs.append(epoch)
    assert len(numbers) == 4
    return statistics.mean(numbers), statistics.stdev(numbers), statistics.mean(epochs)


def rows_with(name, text):
    """The rows of a written table that name a group."""
    return [row for row in text.splitlines() if name in row.replace("\\", "")]


@pytest.mark.parametrize(("dataset", "how"), list(itertools.product(DATASETS, ["selected", "last", "best_on_test"])))
def test_single_tables(results, dataset, how):
    root, out = results
    texts = [(out / f"{dataset}_{how}.{ending}").read_text() for ending in ("md", "tex")]
    table_rows = lines(out / f"{dataset}_{how}.csv")
    assert [line["group"] for line in table_rows] == list(DATASETS[dataset][1])
    for line in table_rows:
        assert line["seeds"] == "4"
        for title in ("R@1 [%]", "R@2 [%]", "NMI [%]", "F1 [%]", "mAP_c [%]"):
            mean, deviation, _ = recomputed(root, dataset, line["group"], "test", TITLES[title], how)
            mean = f"{100 * mean:.2f}"
            deviation = f"{100 * deviation:.2f}"
            assert (line[title], line[f"{title} deviation"]) == (mean, deviation)
            of_md, of_tex = (rows_with(line["group"], text) for text in texts)
            assert mean in of_md[0] and f"± {deviation}" in of_md[0]
            assert any(re.search(rf"{re.escape(mean)}\}}?\\pm{re.escape(deviation)}", row) for row in of_tex), (
                "in one of its blocks of columns"
            )
        assert line["epoch"] == f"{recomputed(root, dataset, line['group'], 'test', 'e_recall@1', how)[2]:.1f}"


def test_structure_and_shared_tables(results):
    root, out = results
    for dataset in DATASETS:
        for line in lines(out / f"{dataset}_structure.csv"):
            for title in ("intra (train)", "intra/inter (train)", "rho (train)"):
                mean, deviation, _ = recomputed(root, dataset, line["group"], "train", TITLES[title], "selected")
                assert (line[title], line[f"{title} deviation"]) == (f"{mean:.3f}", f"{deviation:.3f}")
    for how in ("selected", "last", "best_on_test"):
        line_of = {line["method"]: line for line in lines(out / f"shared_{how}.csv")}
        assert set(line_of) == set("ABCDE"), "groups of the same method share a row"
        assert line_of["C"]["cars196 R@1 [%]"] == ""
        for method, line in line_of.items():
            for dataset, prefix in (("cub200", "CUB_"), ("cars196", "CARS_")):
                for title in ("R@1 [%]", "NMI [%]"):
                    if prefix + method in DATASETS[dataset][1]:
                        mean, deviation, _ = recomputed(root, dataset, prefix + method, "test", TITLES[title], how)
                        assert line[f"{dataset} {title}"] == f"{100 * mean:.2f}"
                        assert line[f"{dataset} {title} deviation"] == f"{100 * deviation:.2f}"


def test_runs_csv_and_correlations(results):
    root, out = results
    for line in lines(out / "runs.csv"):
        recorded = curves_of(root / line["dataset"] / line["run"])[line["split"], line["metric"]]
        assert float(line["value"]) in recorded.values(), "full precision, to the last bit"
    first = lines(out / "cub200_correlations.csv")[0]
    recalls, distances = (
        [recomputed(root, "cub200", group, split, metric, "selected")[0] for group in DATASETS["cub200"][1]]
        for split, metric in (("test", "e_recall@1"), ("train", "dists@intra"))
    )
    assert first["quantity"] == "intra (train)" and first["groups"] == "5"
    assert first["Pearson"] == f"{statistics.correlation(recalls, distances):+.2f}"


def test_the_best_is_marked_and_every_table_states_its_rules(results):
    _, out = results
    marks = {line["group"]: line["R@1 [%] mark"] for line in lines(out / "cub200_selected.csv")}
    assert marks["CUB_B"] == "best" and marks["CUB_C"] == ""
    assert re.search(r"\| CUB_B \| 4 \| \*\*[\d.]+\*\* ±", (out / "cub200_selected.md").read_text())
    assert re.search(r"CUB\\_B & 4 & \$\\mathbf\{[\d.]+\}\\pm", (out / "cub200_selected.tex").read_text())
    of_test = "e_recall@1 on test (no validation data, so the epoch is selected on the test set)"
    rules = (
        "ddof 1",
        "over 4 seeds",
        "Dunnett's T3",
        "arch resnet50_frozen_normalize",
        "GPU NVIDIA H200",
        "torch 2.15.0",
        "n_epochs 9",
        "5864",
    )
    for dataset, rule in (("cub200", of_test), ("cars196", "e_recall@1 on val")):
        for ending in ("md", "csv"):
            text = (out / f"{dataset}_selected.{ending}").read_text()
            assert not [sentence for sentence in (rule, *rules) if sentence not in text]
    (line,) = [line for line in (out / "shared_selected.md").read_text().splitlines() if line.startswith("- Epochs")]
    assert f"{of_test.removeprefix('e_recall@1 ')} (cub200); epoch with the highest e_recall@1 on val (cars196)" in line
    for name in ("cub200_best_on_test", "shared_best_on_test"):
        assert "chosen on the test set itself" in (out / f"{name}.md").read_text()
    assert "best epoch on test" not in (out / "cub200_selected.md").read_text()


def test_latex_is_well_formed(results):
    _, out = results
    files = list(out.glob("*.tex"))
    assert len(files) >= 13
    for path in files:
        text = path.read_text()
        blocks = re.findall(r"\\begin\{tabular\}\{((?:[lc]|p\{[^}]*\})+)\}(.*?)\\end\{tabular\}", text, re.DOTALL)
        assert blocks, path
        for form, body in blocks:
            columns = len(re.findall(r"[lc]|p\{[^}]*\}", form))
            body = re.sub(r"\\(?:top|mid|bottom)rule\n", "", body)
            for row in filter(str.strip, body.split("\\\\\n")):
                is_title = row.startswith(rf"\multicolumn{{{columns}}}")
                assert len(re.findall(r"(?<!\\)&", row)) == (0 if is_title else columns - 1), (path, row)
        assert text.count("{") - text.count("\\{") == text.count("}") - text.count("\\}")
        assert not re.search(r"(?<!\\)[%#]", text)
        assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0
        assert not re.search(r"(?<!\\)_", re.sub(r"\\label\{[^}]*\}", "", text))


def test_figures_and_page(results):
    root, out = results
    for name in (
        "relations",
        "metric_correlations",
        "recall_against_rho",
        "ranked",
        "relation_test_nmi_against_train_loss",
    ):
        assert (out / f"cub200_{name}.pdf").read_bytes().startswith(b"%PDF")
        assert (out / f"cub200_{name}.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "cars196_optimism.png").read_bytes().startswith(b"\x89PNG")
    page = (out / "index.html").read_text()
    assert not re.search(r"(src|href)=\"https?:|@import|url\((?!data)", page), "nothing is fetched"
    assert page.count("<svg") == 7 and page.count("data:image/png") >= 8
    links = [link for link in re.findall(r'href="([^"#]+)"', page) if not link.startswith("data:")]
    assert len(links) > 20 and all((out / link).exists() for link in links)
    assert sum("CUB_A_s" in link for link in links) == 4
    for line in lines(out / "cub200_selected.csv"):
        assert line["R@1 [%]"] in page


def test_awkward_names_survive(tmp_path):
    for number, group in enumerate(("a|b & <c>", "100%_{x}^~\\", "*a* `b` [x](http://y) R50_b256 &amp;")):
        records = rows(0.5, 6, 0, metrics=("e_recall@1",), training=())
        make_run(
            tmp_path / "runs",
            group,
            0,
            name=f"run{number}",
            records=records,
            dataset="folder",
            dataset_name="my birds/2: è",
        )
    out = evaluated(tmp_path)
    tex, html = ((out / name).read_text() for name in ("my-birds-2-è_selected.tex", "index.html"))
    text = (out / "my-birds-2-è_selected.md").read_text()
    assert "a\\|b & &lt;c>" in text and r"\*a\* \`b\` [x]\(http://y) R50_b256 &amp;amp;" in text
    assert r"a$|$b \& $<$c$>$" in tex and r"100\%\_\{x\}\^{}\~{}\textbackslash{}" in tex
    assert "a|b &amp; &lt;c&gt;" in html and "<c>" not in html and ">my birds/2: è</h2>" in html
    assert all((out / link).exists() for link in re.findall(r'href="([^"#:]+)"', html))


def test_long_remarks_fold_on_the_page_and_are_whole_in_the_files():
    table = formats.Table("t", "t", ["group", "seeds"])
    long = "unlike the others: " + "; ".join(f"flag_{i} {i} (others: 0)" for i in range(30))
    table.add([formats.Cell(text="A_B"), formats.Cell(text="3")], ["short", long])
    table.add([formats.Cell(text="C"), formats.Cell(text="3")], [long])
    table.add([formats.Cell(text="D"), formats.Cell(np.float64(1.5))])
    html = page.template().make_module({"address": str}).section(table)
    assert 'data-value="1.5"' in html, "numpy's numbers sort as numbers"
    assert html.count(long) == 3 and html.count("<details><summary><sup>b</sup>") == 1, (
        "once below, and as the title of each letter"
    )
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
    for out, note in (
        (results[1], "† computed from a single k-means start: the deviation over seeds includes clustering noise"),
        (
            evaluated(tmp_path, "--metrics", "e_recall@1", "nmi", "train/rho_spectrum@2"),
            "† mean over 3 k-means starts",
        ),
    ):
        text = (out / "cub200_selected.md").read_text()
        assert "| NMI [%] † |" in text and "R@1 [%] †" not in text and note in text
        assert (
            r"NMI [\%]$^\dagger$" in (out / "cub200_selected.tex").read_text()
            and "NMI [%]<sup>†</sup>" in (out / "index.html").read_text()
        )
    quantities = [line["quantity"] for line in lines(out / "cub200_correlations.csv")]
    assert quantities.count("rho (train)") == 1, "asked for, and shown anyway"


def test_correlations_are_corrected_and_count_twins_once(tmp_path):
    plain = {f"CUB_{i}": {"quality": 0.5 + 0.02 * i**2, "lr": 1e-5 * (i + 1)} for i in range(5)}
    make_runs(tmp_path / "runs", plain | {"CUBreg_0": {"quality": 0.7, "batch_mining": "rho_distance"}}, epochs=3)
    out = evaluated(tmp_path)
    table_rows = lines(out / "cub200_correlations.csv")
    assert {line["groups"] for line in table_rows} == {"5"} and "Holm-corrected over the rows" in table_rows[0]["notes"]
    groups = {(line["group"], line["seeds"]): line for line in lines(out / "cub200_selected.csv")}
    assert len(groups) == 6
    values = {}
    for line in lines(out / "runs.csv"):
        if line["selection"] == "selected":
            values.setdefault((line["split"], line["metric"]), {}).setdefault(line["group"], []).append(
                float(line["value"])
            )
    means = {
        key: {group: statistics.mean(seeds) for group, seeds in by_group.items()} for key, by_group in values.items()
    }
    counted_once = {
        key: [(m["CUB_0"] + m["CUBreg_0"]) / 2, *(m[f"CUB_{i}"] for i in range(1, 5))] for key, m in means.items()
    }
    quantities = [("train", m) for m in ("dists@intra", "dists@inter", "dists@intra_over_inter", "rho_spectrum@2")]
    quantities += [("test", m) for m in METRICS[1:]]
    correlations = [scipy.stats.pearsonr(counted_once["test", "e_recall@1"], counted_once[key]) for key in quantities]
    assert [line["Pearson"] for line in table_rows] == [f"{result.statistic:+.2f}" for result in correlations]
    p_values = sorted(result.pvalue for result in correlations)
    corrected = max((len(p_values) - i) * p for i, p in enumerate(p_values))
    largest = max(float(line["p"].lstrip("<")) for line in table_rows)
    assert largest == pytest.approx(min(1, corrected), abs=6e-5) or corrected < 1e-4
    (line,) = lines(out / "cub200_rho_distance.csv")
    assert "R@1 rises in 1 and falls in 0 (p 1)" in line["notes"] and float(line["R@1 [%] difference to best low"]) > 0


def test_re_identification_has_a_table_of_its_own(tmp_path):
    skips = {
        "market1501": ((1, 1), "are left out;"),
        "veri776": ((0, 0), "count as 0 in Rank-k"),
        "msmt17": ((1, 0), "are left out of some groups"),
    }
    for dataset, (of_groups, _) in skips.items():
        for (group, quality), skip in zip({"A": 0.5, "B": 0.6}.items(), of_groups, strict=True):
            for seed in range(2):
                re_identification = rows(
                    quality, 6, seed, metrics=("e_recall@1", "e_recall@5", "e_recall@10", "ap", "inp")
                )
                make_run(
                    tmp_path / "runs", group, seed, records=re_identification, dataset=dataset, eval_skip_unmatched=skip
                )
    make_run(tmp_path / "runs", "C", 0)
    out = evaluated(tmp_path)
    published = {"Rank-1 [%]": "R@1 [%]", "Rank-5 [%]": "R@5 [%]", "mAP [%]": "ap [%]", "mINP [%]": "mINP [%]"}
    for dataset, (_, words) in skips.items():
        plain, re_identification = (lines(out / f"{dataset}_{name}.csv") for name in ("selected", "reidentification"))
        assert [[line[name] for name in published] for line in re_identification] == [
            [line[name] for name in published.values()] for line in plain
        ]
        text = (out / f"{dataset}_reidentification.md").read_text()
        assert words in text and "| group | seeds | Rank-1 [%] | Rank-5 [%] | mAP [%] | mINP [%] | epoch |" in text
    assert not (out / "cub200_reidentification.md").exists()


def test_a_metric_beyond_0_to_1_is_no_percentage(monkeypatch):
    from metrics import mrr

    class Rank(mrr.Metric):
        """A user's metric: the rank of the first hit."""

        NAMES = {"first_rank": "rank of the first hit"}
        RANGE = (1.0, float("inf"))
        HIGHER_IS_BETTER = False

    declared = metrics._declared()
    monkeypatch.setattr(metrics, "_declared", lambda: {**declared, "first_rank": Rank})
    for cache in (columns.direction, columns._is_share):
        cache.cache_clear()
    try:
        line_of = {
            name: columns.column("test", name)
            for name in ("first_rank", "ami", "nmi", "c_map_r", "fnmr@.1", "opis", "birds/e_recall@1@d8")
        }
    finally:
        for cache in (columns.direction, columns._is_share):
            cache.cache_clear()
    assert [name for name, c in line_of.items() if not c.percent] == ["first_rank", "ami"]
    assert (line_of["first_rank"].scale, line_of["first_rank"].unit, line_of["nmi"].unit) == (
        1.0,
        "first_rank",
        "NMI in %",
    )


def test_a_metric_that_is_nan_in_all_runs_is_named_in_a_remark(tmp_path):
    for seed in range(2):
        records = rows(0.5, 3, seed, metrics=("e_recall@1", "map_r"), training=())
        records = [
            (epoch, split, metric, float("nan") if metric == "map_r" and split == "test" else value)
            for epoch, split, metric, value in records
        ]
        make_run(tmp_path / "runs", "A", seed, epochs=3, records=records)
    out = evaluated(tmp_path)
    (line,) = lines(out / "cub200_selected.csv")
    assert line["MAP@R [%]"] == "" and line["remarks"] == "MAP@R: NaN in all runs, not defined (no query counts)"
    assert line["R@1 [%]"] != ""


def test_titles_of_metrics_of_a_prefix():
    assert [
        columns.title(name) for name in ("e_recall@1@d64", "map_r@d8", "shared/e_recall@2@d8", "rho_spectrum@2@d4")
    ] == ["R@1@d64", "MAP@R@d8", "R@2@d8 [shared]", "rho@d4"]


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
