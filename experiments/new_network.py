"""The table of docs/tutorials/new_network_old_index.md: `python -m experiments.new_network --runs FOLDER`.

Each compatible run of experiments/New_Network_Runs.sh is compared with the old and the free run of its seed by
`python -m evaluation upgrade`; the table has means and deviations over the seeds.
"""

from pathlib import Path

import numpy as np

from experiments.study.page import markdown, put
from results.formats import Table
from results.tables.notes import text
from tools import upgrade
from utilities.errors import OneLineParser, one_line_errors

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/tutorials/new_network_old_index.md"
PICTURE = ROOT / "docs/pictures/new_network_old_index.png"
MARKS = (
    "<!-- results of {}: written by experiments/new_network.py -->",
    "<!-- end of the results of {} -->",
)
SEEDS = (0, 1, 2)
# what a row shows -> its place in what `tools.upgrade.compared` gives, below a metric's interval
ROWS = {
    "R@1, old network, its own gallery": ("self_old", "e_recall@1"),
    "R@1, free network, its own gallery": ("self_free", "e_recall@1"),
    "R@1, compatible network, its own gallery": ("self_new", "e_recall@1"),
    "R@1, free queries, old gallery": ("cross_free", "e_recall@1"),
    "R@1, compatible queries, old gallery (cross)": ("cross", "e_recall@1"),
    "gain": ("gain", "e_recall@1"),
    "negative flips, cross": ("negative_flips", "cross"),
    "negative flips, gallery embedded anew": ("negative_flips", "self_new"),
}


def compared(runs: Path, seed: int, picture: Path | None) -> dict:
    """What `python -m evaluation upgrade` finds for the compatible run of a seed, and `cross_free`, the free queries in
    the old gallery. `picture`: of the curve.
    """
    old, new, free = (str(runs / f"{group}_s{seed}" / "embeddings_test.npz") for group in ("Old", "Points", "Free"))
    words = [old, new, "--free", free]
    if picture is not None:
        words += ["--plot", str(picture)]
    values = upgrade.main(words)
    arrays = upgrade.read(old)
    width = arrays["features"].shape[1]
    queries = upgrade.unit(upgrade.features_as(old, arrays, free)[:, :width])
    outcome = upgrade.outcome(upgrade.images_of(old, arrays), queries, upgrade.unit(arrays["features"]))
    values["cross_free"] = {name: outcome.interval(name) for name in upgrade.METRICS}
    return values


def table(outcomes: list[dict]) -> Table:
    """Percent, mean and deviation over the seeds."""
    result = Table("new_network", "On the 1,136 test classes, three seeds", ["", "percent"])
    for title, (name, part) in ROWS.items():
        result.add([text(title), _cell([outcome[name][part] for outcome in outcomes])])
    for place, share in enumerate(upgrade.SHARES):
        intervals = [outcome["curve"][place]["e_recall@1"] for outcome in outcomes]
        result.add([text(f"R@1, compatible queries, {share:.0%} of the gallery anew"), _cell(intervals)])
    return result


def _cell(intervals: list[dict]):
    values = 100 * np.array([interval["value"] for interval in intervals])
    return text(f"{values.mean():.1f} ± {values.std(ddof=1):.1f}")


def main(argv=None) -> None:
    """Compare the runs, write the table and draw the curve of the first seed."""
    about_page = __doc__.partition("\n\n")[0]
    parser = OneLineParser(prog="experiments.new_network", allow_abbrev=False, description=about_page)
    parser.add_argument("--runs", type=Path, required=True, metavar="FOLDER", help="the folder of the runs")
    options = parser.parse_args(argv)
    outcomes = [compared(options.runs, SEEDS[0], PICTURE)]
    outcomes += [compared(options.runs, seed, None) for seed in SEEDS[1:]]
    put(PAGE, "the new network", markdown(table(outcomes)), MARKS)
    print(f"{PAGE.relative_to(ROOT)}: table and picture written")


if __name__ == "__main__":
    with one_line_errors("experiments.new_network"):
        main()
