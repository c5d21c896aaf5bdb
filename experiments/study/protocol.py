"""The stages and lines of the studies' scripts (<Name>_Runs.sh), and what their searches chose.

    python -m experiments.study.protocol --choose Training_Results

reads the runs of the searches and writes what they chose into the scripts; without --choose the files are made anew
with the choices that stand in them. Everything is chosen on validation classes: no run before the last stage measures
the test classes.

A line of a script is a `Method` (a loss with its flags) on a `Data` (flags and epochs of a data set), with a group, a
seed and further flags: `line` writes it. `script` puts the lines of Study_Runs.sh together, stage after stage: a pilot,
searches of rates and of the miner rho_distance, then the study. `Comparison.text` does so for Baseline_Runs.sh and
Recent_Runs.sh, `split_script` and `union_script` for the other two. The results are pages of docs/ (docs/study*.md).
"""

import argparse
import itertools
import re
from pathlib import Path
from typing import NamedTuple

from experiments.study.openings import (
    BASELINE_OPENING,
    OPENING,
    RECENT_OPENING,
    SPLIT_OPENING,
    UNION_OPENING,
)
from experiments.study.settings import (
    CLASS_RATE,
    CLASSIFIER,
    CPS,
    DATA,
    DOMAINS,
    METHODS,
    MINED,
    PILOT,
    PILOT_SEEDS,
    RECENT,
    SEARCH_SEED,
    SEEDS,
    SPLIT_METHODS,
    SPLIT_SEEDS,
    SPLITS,
    UNION_EPOCHS,
    UNION_SEEDS,
    UNIVERSAL,
    Data,
    Method,
)
from utilities.errors import OneLineParser, UserError, one_line_errors

SCRIPT = Path(__file__).resolve().parents[1] / "Study_Runs.sh"
# beside it
SPLIT_SCRIPT = "Split_Runs.sh"
UNION_SCRIPT = "Union_Runs.sh"


class Comparison(NamedTuple):
    """Methods on the first data set under one protocol: three trials each on validation classes, then the seeds.

    `name` begins its groups and, in lower case, its variables; `opening` are the first lines of its script; `common`:
    the flags of all its runs; `variants`: suffix of a group -> its further flags.
    """

    name: str
    opening: str
    methods: tuple[Method, ...]
    common: str
    variants: dict[str, str]
    data: Data

    @property
    def script(self) -> str:
        """The file's name."""
        return f"{self.name}_Runs.sh"

    def rates(self, method: Method) -> tuple[str, str, str]:
        """The rates that the search tries."""
        return ("0.0001", "0.0003", "0.001") if method is CLASSIFIER else self.data.rates

    def variable(self, method: Method) -> str:
        """The name of the choice of a method's rate in the script."""
        return variable(self.name.lower(), self.data, method)

    def searched(self, method: Method) -> dict[str, str]:
        """Rate -> the group of its run."""
        return {rate: f"{self.name}Rate_{method.name}_{rate}" for rate in self.rates(method)}

    def groups(self) -> list[str]:
        """Of the last stage, variant after variant."""
        return [f"{self.name}_{method.name}{suffix}" for suffix in self.variants for method in self.methods]

    def text(self, chosen: dict[str, str]) -> str:
        """The text of its script; seed after seed, so that what has run so far is whole comparisons."""
        choice_lines = [_choice(self.variable(m), self.rates(m), chosen, m) for m in self.methods]
        runs = []
        for method in self.methods:
            for rate, group in self.searched(method).items():
                flags = f"{rate_flags(method, rate)} {self.common} --splits_to_eval val"
                runs.append(line(self.data, method, group, SEARCH_SEED, flags))
        for seed in SEEDS:
            for suffix, variant_flags in self.variants.items():
                for method in self.methods:
                    group = f"{self.name}_{method.name}{suffix}"
                    flags = f"${self.variable(method)} {self.common} --no_train_metrics{variant_flags}"
                    runs.append(line(self.data, method, group, seed, flags))
        return "\n".join([self.opening, *choice_lines, "", *runs, ""])


NOT_YET = "  # not chosen yet"


def _methods(*names: str) -> tuple[Method, ...]:
    return tuple(method for method in METHODS if method.name in names)


BASELINE = Comparison(
    "Baseline",
    BASELINE_OPENING,
    # the study's first three in R@1
    (CLASSIFIER, *_methods("Margin", "Triplet", "Quadruplet")),
    "--n_epochs 16 --save_interval 4 --evaluation_metrics c_recall@1 c_map_r --storage_metrics c_recall@1",
    {"": "", "_Erasing": " --random_erasing 0.5 --random_erasing_aspect log"},
    DATA[0],
)
RECENT_METHODS = Comparison(
    "Recent",
    RECENT_OPENING,
    # the study's best eight of nine
    (*RECENT, *(method for method in METHODS if method.name != "Softmax")),
    "--n_epochs 8 --save_interval 2 --evaluation_metrics c_recall@1 c_map_r --storage_metrics c_recall@1",
    {"": ""},
    DATA[0],
)
COMPARISONS = (BASELINE, RECENT_METHODS)


def variable(kind: str, data: Data, method: Method) -> str:
    """The name of a choice in the file: `rate_emoji_triplet`, `cp_emoji_triplet`."""
    return f"{kind}_{data.name}_{method.name}".lower()


def rate_flags(method: Method, rate: str) -> str:
    """A learning rate as flags, with the class vectors' rate that belongs to it."""
    if method.class_rate is None:
        return f"--lr {rate}"
    return f"--lr {rate} {method.class_rate} {CLASS_RATE * float(rate):g}"


def line(data: Data, method: Method, group: str, seed: int, flags: str, cp: str | None = None) -> str:
    """One run. `cp`: with rho_distance of this probability; None: the method's own miner, where it has one."""
    mining = ""
    if cp:
        mining = f" --batch_mining rho_distance --miner_rho_distance_cp {cp}"
    elif method.mined:
        mining = " --batch_mining distance"
    return f"python main.py {data.flags} --project Study --group {group} --seed {seed} {method.flags}{mining} {flags}"


def stages(data: Data) -> dict[str, list[str]]:
    """Title -> lines of one data set."""
    pilot_methods = [method for method in METHODS if method.name in PILOT]
    on_validation = "--splits_to_eval val"
    pilot = []
    for seed in PILOT_SEEDS:
        for m in pilot_methods:
            flags = f"{rate_flags(m, data.rates[1])} --n_epochs {data.pilot_epochs} --splits_to_eval train val"
            pilot.append(line(data, m, f"Pilot_{data.name}_{m.name}", seed, flags))
    rates = []
    for m in METHODS:
        for rate in data.rates:
            flags = f"{rate_flags(m, rate)} {on_validation}"
            rates.append(line(data, m, f"Rate_{data.name}_{m.name}_{rate}", SEARCH_SEED, flags))
    cps = []
    for m in MINED:
        flags = f"${variable('rate', data, m)} {on_validation}"
        cps += [line(data, m, f"Cp_{data.name}_{m.name}_{cp}", SEARCH_SEED, flags, cp) for cp in CPS]
    study = []
    for seed in SEEDS:
        for m in METHODS:
            rate = f"${variable('rate', data, m)}"
            study.append(line(data, m, f"{data.name}_{m.name}", seed, rate))
            if m.mined:
                cp = f"${variable('cp', data, m)}"
                study.append(line(data, m, f"{data.name}reg_{m.name}", seed, rate, cp))
    return {
        "pilot: how many epochs, and how far seeds differ (training and validation classes)": pilot,
        "search, 1: three rates for each loss (validation classes)": rates,
        "search, 2: three probabilities for each loss with rho_distance, at its rate (validation classes)": cps,
        "the study": study,
    }


def script(chosen: dict[str, str]) -> str:
    """The text of Study_Runs.sh. `chosen`: variable -> value; a missing one gets the middle value and a mark."""
    lines = [OPENING]
    for data in DATA:
        lines.append(f"# ============================== {data.name}")
        lines += [_choice(variable("rate", data, m), data.searched("rate"), chosen, m) for m in METHODS]
        lines += [_choice(variable("cp", data, m), data.searched("cp"), chosen) for m in MINED]
        for title, runs in stages(data).items():
            lines += ["", f"# {data.name}, {title}", *runs]
        lines.append("")
    return "\n".join(lines)


def _choice(name: str, values: tuple[str, ...], chosen: dict[str, str], method: Method | None = None) -> str:
    """The line of a choice: its value among `values`, marked if it has not been made.

    `method`: the value is a rate, written as flags of this method.
    """
    value = chosen.get(name, values[1])
    if method is not None:
        value = f'"{rate_flags(method, value)}"'
    return f"{name}={value}" if name in chosen else f"{name}={value}{NOT_YET}"


def split_script(chosen: dict[str, str]) -> str:
    """The text of Split_Runs.sh, with the rates `chosen`; split after split, so that finished runs are whole splits."""
    methods = [method for method in METHODS if method.name in SPLIT_METHODS]
    lines = []
    for split, seed, data, method in itertools.product(SPLITS, SPLIT_SEEDS, DATA, methods):
        epochs, interval = data.split_epochs
        rate = rate_flags(method, chosen.get(variable("rate", data, method), data.rates[1]))
        flags = (
            f"{rate} --split_shuffle {split} --n_epochs {epochs} --save_interval {interval} "
            "--evaluation_metrics e_recall@1 map_r --dump_query_results"
        )
        lines.append(line(data, method, f"Split{split}_{data.name}_{method.name}", seed, flags))
    return "\n".join([SPLIT_OPENING, *lines, ""])


def union_script() -> str:
    """The text of Union_Runs.sh; seed after seed, so that finished runs are whole comparisons."""
    folders = [name if name == "glyphs" else f"folder:$datapath/{name}" for name in DOMAINS]
    start = (
        f"python main.py --config study_union --union {' '.join(folders)} --source_path $datapath --weights "
        "$datapath/efficientnet_lite0.safetensors --project Study --group"
    )
    features = "--arch timm:tf_efficientnet_lite0_normalize --embed_dim 0 --freeze_backbone"
    lines = [f"{start} Union_Features --seed 0 {features} --n_epochs 1 --iterations_per_epoch 1"]
    epochs = f"--n_epochs {UNION_EPOCHS} --save_interval {UNION_EPOCHS}"
    for seed in UNION_SEEDS:
        for name, flags in UNIVERSAL.items():
            lines.append(f"{start} Union_{name} --seed {seed} {epochs}{flags}")
        for domain, name in DOMAINS.items():
            flags = f"--n_epochs 1 --separate_classifiers --data_domains {domain}"
            lines.append(f"{start} Union_Specialist_{name} --seed {seed} {flags}")
    return "\n".join([UNION_OPENING, *lines, ""])


def choices(text: str) -> dict[str, str]:
    """Variable -> value of the choices that the text of a file marks as made."""
    values = re.findall(r'^((?:rate|cp|baseline|recent)_\w+)="?(?:--lr )?([\d.]+).*$', text, re.MULTILINE)
    unchosen = set(re.findall(rf"^(\w+)=.*{NOT_YET}$", text, re.MULTILINE))
    return {name: value for name, value in values if name not in unchosen}


def searches() -> dict[str, dict[str, str]]:
    """Variable -> value that a search tries -> the group of its run."""
    groups = {}
    for data in DATA:
        for kind, methods in (("rate", METHODS), ("cp", MINED)):
            for method in methods:
                start = f"{kind.capitalize()}_{data.name}_{method.name}"
                values = data.searched(kind)
                groups[variable(kind, data, method)] = {value: f"{start}_{value}" for value in values}
    for comparison in COMPARISONS:
        groups |= {comparison.variable(method): comparison.searched(method) for method in comparison.methods}
    return groups


def choose(runs: list) -> tuple[dict[str, str], list[str]]:
    """Variable -> the value whose run has the best R@1 on validation classes, the first of equals.

    Args:
        runs: `RecordedRun`s, those of the search among them.

    Returns:
        The values that are chosen, and the groups of missing runs.
    """
    from results import columns

    by_cosine = tuple(comparison.name for comparison in COMPARISONS)
    value_of = {}
    for run in runs:
        if run.problem is None and run.seed == SEARCH_SEED:
            metric = "c_recall@1" if run.group.startswith(by_cosine) else "e_recall@1"
            value_of[run.group] = columns.value(run, columns.column("val", metric), columns.SELECTED)
    chosen = {}
    missing = []
    for name, group_of in searches().items():
        absent = [group for group in group_of.values() if group not in value_of]
        missing += absent
        if not absent:
            chosen[name] = max(group_of, key=lambda value: value_of[group_of[value]])
    return chosen, missing


def main(argv=None) -> None:
    """Write the scripts."""
    parser = OneLineParser(
        prog="experiments.study.protocol", allow_abbrev=False, description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument(
        "--choose", nargs="+", default=[], metavar="FOLDER", help="folders of runs: write what the search runs chose"
    )
    # not in the help, as only tests write to another script
    parser.add_argument("--script", type=Path, default=SCRIPT, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    paths = [options.script, *(options.script.with_name(comparison.script) for comparison in COMPARISONS)]
    chosen = choices("".join(path.read_text(encoding="utf-8") for path in paths if path.exists()))
    if options.choose:
        import parameters
        from results import collect
        from results.roles import FlagRoles

        runs, _ = collect.collect(options.choose, [], FlagRoles(parameters.declared_roles()))
        new, missing = choose(runs)
        changed = sorted(name for name in new.keys() & chosen.keys() if new[name] != chosen[name])
        if changed:
            raise UserError(
                f"{', '.join(changed)}: {options.script.name} holds another choice already, with which runs may "
                "have been made"
            )
        chosen |= new
        for name, value in new.items():
            print(f"{name}: {value}")
        print(f"{len(missing)} runs of the search are not finished")
    options.script.write_text(script(chosen), encoding="utf-8")
    options.script.with_name(SPLIT_SCRIPT).write_text(split_script(chosen), encoding="utf-8")
    for comparison in COMPARISONS:
        options.script.with_name(comparison.script).write_text(comparison.text(chosen), encoding="utf-8")
    options.script.with_name(UNION_SCRIPT).write_text(union_script(), encoding="utf-8")
    print(f"{options.script} is written, {len(chosen)} of {len(searches())} values are chosen")


if __name__ == "__main__":
    with one_line_errors("experiments.study.protocol"):
        main()
