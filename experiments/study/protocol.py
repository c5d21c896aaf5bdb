"""The methods, stages and lines of the studies' scripts (<Name>_Runs.sh), and what their searches chose.

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

from utilities.errors import OneLineParser, UserError, one_line_errors

SCRIPT = Path(__file__).resolve().parents[1] / "Study_Runs.sh"
# beside it
SPLIT_SCRIPT = "Split_Runs.sh"
UNION_SCRIPT = "Union_Runs.sh"


class Method(NamedTuple):
    """A loss with its published hyperparameters.

    `mined`: it takes a miner of triplets. `class_rate`: flag of its class vectors' learning rate.
    """

    name: str
    flags: str
    mined: bool = False
    class_rate: str | None = None


METHODS = (
    Method("Contrastive", "--loss contrastive", mined=True),
    Method("Triplet", "--loss triplet", mined=True),
    Method("Margin", "--loss margin --loss_margin_beta 0.6", mined=True),
    Method("Quadruplet", "--loss quadruplet", mined=True),
    # 0 with both miners: by itself the loss does so with distance alone
    Method("SNR", "--loss snr --loss_snr_reg_lambda 0", mined=True),
    Method("MS", "--loss multisimilarity"),
    Method("Softmax", "--loss softmax", class_rate="--loss_softmax_lr"),
    Method("ArcFace", "--loss arcface", class_rate="--loss_arcface_lr"),
    Method("ProxyAnchor", "--loss proxyanchor"),  # its proxies' rate is a multiple of --lr already
)
MINED = tuple(method for method in METHODS if method.mined)
CLASS_RATE = 50  # class vectors' rate, in multiples of --lr: the published ratio of ArcFace, 0.0005 to 0.00001
CPS = ("0.1", "0.2", "0.4")  # probabilities of rho_distance that the search tries
PILOT = ("Margin", "MS")
PILOT_SEEDS = (10, 11, 12)
SEARCH_SEED = 9
SEEDS = (0, 1, 2, 3, 4)
SPLIT_METHODS = ("Contrastive", "Triplet", "Margin", "MS", "ArcFace", "ProxyAnchor")
SPLITS = range(6)
SPLIT_SEEDS = range(3)
# as FastRetri trains (configs/fastretri_cub200.yaml), in the study's batches, width and rates
CLASSIFIER = Method(
    "Classifier",
    "--arch timm:tf_efficientnet_lite0_frozen --pool gem --neck bn --trainer classifier --classifier_no_bias "
    "--classifier_start normal --classifier_smoothing 0.1 --classifier_smoothing_over others --loss contrastive "
    "--batch_mining distance --loss_weights metric_loss=0",
    class_rate="--classifier_lr",
)
# domain -> its name in groups
DOMAINS = {"emoji_1008": "Emoji", "glyphs": "Glyphs", "food": "Food", "stamps": "Stamps"}
UNION_SEEDS = range(3)
UNIVERSAL = {"Joint": "", "Separate": " --separate_classifiers"}  # a classifier for all classes, or one a domain
UNION_EPOCHS = 4  # of 60 batches: each domain gets the 60 batches of its specialist
UNLIKE = "--arch timm:tf_efficientnet_lite0_frozen"  # embeddings without a norm, as these methods' authors have them
# methods of 2021 to 2024, with their authors' constants (configs/*_r50_cub200.yaml), in the study's batches, width and
# rates
RECENT = (
    Method(
        "IBC",
        (
            f"{UNLIKE} --trainer intrabatch --intrabatch_layers 1 --intrabatch_heads 2 --intrabatch_temperature 0.2 "
            "--intrabatch_smoothing 0.1 --loss contrastive --batch_mining distance"
        ),
        class_rate="--classifier_lr",
    ),
    Method(
        "HIST",
        (
            f"{UNLIKE} --neck layernorm --loss hist --loss_hist_tau 32 --loss_hist_alpha 1.1 --loss_hist_hidden 512 "
            "--loss_hist_lr 0.1 --loss_hist_network_lrmulti 5"
        ),
    ),
    Method(
        "Contextual",
        "--loss contextual --loss_contextual_context_weight 0.95 --loss_contextual_contrastive_weight 0.05 "
        "--loss_contextual_mean_weight 0.1 --loss_contextual_mean 0.3 --loss_contextual_k 4 --loss_contextual_eps 0.04 "
        "--loss_contextual_projection 2048 --loss_contextual_projection_lrmulti 2",
    ),
    Method(
        "MeanField",
        (
            "--loss meanfield --loss_meanfield_alpha 0.01 --loss_meanfield_beta 80 --loss_meanfield_margin 0.8 "
            "--loss_meanfield_lrmulti 2000"
        ),
    ),
    Method(
        "AntiCo",
        (
            "--loss proxyanchor --loss_proxyanchor_alpha 64 --loss_proxyanchor_lrmulti 2000 --weight_regularizer "
            "anticollapse --loss_weights metric_loss=0.0035"
        ),
    ),
    Method(
        "Metrix",
        (
            "--loss multisimilarity --loss_multisimilarity_pos_weight 2 --loss_multisimilarity_neg_weight 40 "
            "--loss_multisimilarity_thresh 0.5 --metrix 0.4"
        ),
    ),
    Method(
        "Language",
        (
            "--loss multisimilarity --language_vectors $datapath/${emoji}_rows.npz --language_direction backward "
            "--language_shift 1 --language_T 1 --loss_weights language_loss=10"
        ),
    ),
)


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
    data: "Data"

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


class Data(NamedTuple):
    """A data set of the study: its name in groups and in tables, and its flags.

    `rates`: those that the search tries. `pilot_epochs`: epochs of its pilot. `split_epochs`: epochs of a run of
    Split_Runs.sh, and between two of its evaluations.
    """

    name: str
    flags: str
    rates: tuple[str, str, str]
    pilot_epochs: int
    split_epochs: tuple[int, int]

    def searched(self, kind: str) -> tuple[str, str, str]:
        """The values that the search tries for a rate or a probability of rho_distance.

        The file has the middle one until one is chosen.
        """
        return self.rates if kind == "rate" else CPS


DATA = (
    Data(
        "Emoji",
        (
            "--config study_emoji --dataset_folder_path $datapath/$emoji --weights "
            "$datapath/efficientnet_lite0.safetensors"
        ),
        ("0.00003", "0.0001", "0.0003"),
        80,
        (16, 2),
    ),
    Data("Glyphs", "--config study_glyphs", ("0.0003", "0.001", "0.003"), 30, (6, 1)),
)
OPENING = """\
#!/bin/sh
# 9 losses, those with a miner with and without rho_distance, x 5 seeds, on emoji (pretrained network) \
and glyphs (random weights)
#
# Questions, protocol and results: docs/study.md. `make study-data` fetches the data. This file is written by \
experiments/study/protocol.py. In order:
#   python -m launch experiments/Study_Runs.sh --jobs 2 --filter "group Pilot"
#   python -m launch experiments/Study_Runs.sh --jobs 2 --filter "group Rate"
#   python -m experiments.study.protocol --choose Training_Results
#   python -m launch experiments/Study_Runs.sh --jobs 2 --filter "group Cp"
#   python -m experiments.study.protocol --choose Training_Results
#   python -m launch experiments/Study_Runs.sh --jobs 2 --filter "group (Emoji|Glyphs)"
#   python -m experiments.study.tables --runs Training_Results --write docs/study.md
# with OMP_NUM_THREADS=1. With all classes, on a GPU: emoji=emoji before each, and -- --gpu 0 --save_path … behind.
datapath=${datapath:-./Datasets}  # what `make study-data` filled, without spaces
emoji=${emoji:-emoji_1008}  # emoji: all classes
"""
SPLIT_OPENING = """\
#!/bin/sh
# 6 losses x 6 splits of the classes x 3 seeds on emoji and glyphs: does a ranking of losses survive another half of \
the classes?
#
# Protocol and results: docs/study_splits.md. Data, losses and rates are those of Study_Runs.sh. This file is written by
# experiments/study/protocol.py. With OMP_NUM_THREADS=1:
#   python -m launch experiments/Split_Runs.sh --jobs 2
datapath=${datapath:-./Datasets}  # what `make study-data` filled, without spaces
emoji=${emoji:-emoji_1008}
"""
BASELINE_OPENING = """\
#!/bin/sh
# A classifier with smoothed labels, a neck and generalised mean beside the three best losses of Study_Runs.sh, \
with and without erasing, x 5 seeds
#
# Protocol and results: docs/study.md. `make study-data` fetches the data. This file is written by \
experiments/study/protocol.py. In order,
# with OMP_NUM_THREADS=1:
#   python -m launch experiments/Baseline_Runs.sh --jobs 2 --filter "group BaselineRate"
#   python -m experiments.study.protocol --choose Training_Results
#   python -m launch experiments/Baseline_Runs.sh --jobs 2 --filter "group Baseline_"
datapath=${datapath:-./Datasets}  # what `make study-data` filled, without spaces
emoji=${emoji:-emoji_1008}
"""
RECENT_OPENING = """\
#!/bin/sh
# 7 methods of 2021 to 2024 beside the 8 best losses of Study_Runs.sh, x 5 seeds, on emoji with the pretrained network
#
# Protocol and results: docs/study_recent.md. `make study-data` fetches the data. This file is written by \
experiments/study/protocol.py. In order,
# with OMP_NUM_THREADS=1:
#   python -m evaluation.pseudo_labels --dataset folder --dataset_name emoji \
--dataset_folder_path Datasets/emoji_1008 --use_tv_split --tv_split_perc 0.6667 --split_shuffle 0 \
--classifier timm:tf_efficientnet_lite0 --weights Datasets/efficientnet_lite0.pth --out Datasets/emoji_1008_rows.npz
#   python -m launch experiments/Recent_Runs.sh --jobs 2 --filter "group RecentRate"
#   python -m experiments.study.protocol --choose Training_Results
#   python -m launch experiments/Recent_Runs.sh --jobs 2 --filter "group Recent_"
datapath=${datapath:-./Datasets}  # what `make study-data` filled, without spaces
emoji=${emoji:-emoji_1008}
"""


def _methods(*names: str) -> tuple[Method, ...]:
    return tuple(method for method in METHODS if method.name in names)


BASELINE = Comparison(
    "Baseline",
    BASELINE_OPENING,
    (CLASSIFIER, *_methods("Margin", "Triplet", "Quadruplet")),  # the study's first three in R@1
    "--n_epochs 16 --save_interval 4 --evaluation_metrics c_recall@1 c_map_r --storage_metrics c_recall@1",
    {"": "", "_Erasing": " --random_erasing 0.5 --random_erasing_aspect log"},
    DATA[0],
)
RECENT_METHODS = Comparison(
    "Recent",
    RECENT_OPENING,
    (*RECENT, *(method for method in METHODS if method.name != "Softmax")),  # the study's best eight of nine
    "--n_epochs 8 --save_interval 2 --evaluation_metrics c_recall@1 c_map_r --storage_metrics c_recall@1",
    {"": ""},
    DATA[0],
)
COMPARISONS = (BASELINE, RECENT_METHODS)


UNION_OPENING = """\
#!/bin/sh
# One embedding for emoji, glyphs, food photographs and stamps: a joint classifier, one a domain, \
a specialist a domain, the pretrained features; x 3 seeds
#
# Protocol and results: docs/study_union.md. `make study-data` and `python -m experiments.study.data --union` \
fetch the data. This file is
# written by experiments/study/protocol.py. With OMP_NUM_THREADS=1:
#   python -m launch experiments/Union_Runs.sh --jobs 2
datapath=${datapath:-./Datasets}  # what these commands filled, without spaces
"""


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
    parser.add_argument("--script", type=Path, default=SCRIPT, help=argparse.SUPPRESS)  # tests write to another
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
