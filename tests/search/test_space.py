"""Ranges on the command line and in files: what is understood, and what is refused in one line."""

import csv
import math
import shlex

import numpy as np
import pytest
import yaml

import criteria
import parameters
from search import space
from tests.conftest import ROOT
from tests.kit.refusals import refused
from utilities.errors import UserError

PARSER = parameters.get_parser()


def parse(*words):
    """The command of these words, split as by a shell."""
    return space.parse(shlex.split(" ".join(map(str, words))), PARSER)


def flags_of(command):
    return space.Flags(command, parameters.resolve)


def test_flags_of_a_classifier_may_stand_beside_searched_trainers():
    words = "--trainer~CHOICE~ [metric_only,classifier] --classifier_lr .1"
    opt, _ = flags_of(parse(words)).check()
    assert opt.trainer == "metric_only" and opt.classifier_lr == 0.1
    with refused("--classifier_lr 0.1 has no effect: --trainer metric_only has no classifier here"):
        flags_of(parse("--lr~BAYESIAN~ [0,1] --classifier_lr .1")).check()


@pytest.mark.parametrize(
    ("words", "kind", "values"),
    [
        ("--lr~LOG_BAYESIAN~ [1e-6,1]", "LOG_BAYESIAN", (1e-6, 1.0)),
        ("--lr~LOG_BAYESIAN~ 1e-6,1", "LOG_BAYESIAN", (1e-6, 1.0)),
        ("--lr~BAYESIAN~ [1e-6, 1]", "BAYESIAN", (1e-6, 1.0)),
        ("--lr~BAYESIAN~ 1e-6 1", "BAYESIAN", (1e-6, 1.0)),
        ("'--lr~BAYESIAN~=[0, 1]'", "BAYESIAN", (0.0, 1.0)),
        ("--loss_margin_margin~BAYESIAN~ [-0.2,2]", "BAYESIAN", (-0.2, 2.0)),
        ("--loss_margin_margin~BAYESIAN~ -0.2,2", "BAYESIAN", (-0.2, 2.0)),
        ("--bs~INT_BAYESIAN~ [8,32]", "INT_BAYESIAN", (8, 32)),
        ("--optim~CHOICE~ [adam,rmsprop]", "CHOICE", ("adam", "rmsprop")),
        ("--embed_dim~CHOICE~ 64,128", "CHOICE", (64, 128)),
        ("--loss_margin_beta_shared~CHOICE~ [true,false]", "CHOICE", (True, False)),
    ],
)
def test_a_range_is_taken_out_and_the_rest_is_left(words, kind, values):
    command = parse("--loss margin", words, "--seed 3")
    (searched,) = command.ranges.values()
    assert (searched.kind, searched.values) == (kind, values)
    assert [type(value) for value in searched.values] == [type(value) for value in values]
    assert command.arguments == "--loss margin --seed 3".split() and command.named == {"loss", "seed"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--lr~BAYESIAN~ [1,0]", "swapped"),
        ("--lr~BAYESIAN~ [1,1]", "equal"),
        ("--decay~BAYESIAN~ [-1,1]", "-1 must be at least 0"),
        ("--miner_rho_distance_cp~BAYESIAN~ [0,2]", "2 must be at most 1"),
        ("--lr~BAYESIAN~ [0,inf]", "finite"),
        ("--lr~BAYESIAN~ [nan,1]", "finite"),
        ("--lr~BAYESIAN~ [0,1,2]", "two bounds"),
        ("--lr~BAYESIAN~", "two bounds"),
        ("--lr~BAYESIAN~ [low,high]", "invalid float value: 'low'"),
        ("--bs~INT_BAYESIAN~ [8,9.5]", "invalid int value: '9.5'"),
        ("--lr~INT_BAYESIAN~ [1,2.5]", "two whole numbers"),
        ("--optim~CHOICE~ [adam,adamm]", "invalid choice: 'adamm'"),
        ("--bs~BAYESIAN~ [8,32]", "bs~INT_BAYESIAN~"),
        ("--lr~LOG_BAYESIAN~ [0,1]", "above 0"),
        ("--lr~LOG_BAYESIAN~ [-1,1]", "at least 0"),
        ("--loss~BAYESIAN~ [0,1]", "not a number"),
        ("--mine_pairs~BAYESIAN~ [0,1]", "not a number"),
        ("--tau~INT_BAYESIAN~ [1,5]", "several values"),
        ("--seed~INT_BAYESIAN~ [1,5]", "cannot be searched"),
        ("--loss_triplet_margn~BAYESIAN~ [0,1]", "'loss_triplet_margin'"),
        ("--lr~LOG_BAYES~ [1,2]", "lr~LOG_BAYESIAN~"),
        ("--lr~ [1,2]", "~BAYESIAN~"),
        ("--lr~BAYESIAN~ [0,1] --lr~BAYESIAN~ [0,2]", "two ranges"),
        ("--lr~BAYESIAN~ [0,1] --lr 2", "range and a value"),
        ("--optim~CHOICE~ [adam]", "two or more"),
        ("--embed_dim~CHOICE~ [64,big]", "int"),
        ("--mine_pairs~CHOICE~ [true,maybe]", "true or false"),
        ("--lr 1", "nothing to search"),
    ],
)
def test_a_mistake_is_one_line(words, message):
    with refused(".", message):
        parse(words)


def test_what_follows_a_searched_flag_of_a_runs_file_still_does(tmp_path):
    run = tmp_path / "run.yaml"
    run.write_text(yaml.safe_dump(parameters.read("--lr 1e-3 --decay 0.1".split()).saved()))
    command = parse("--config", run, "--lr~LOG_BAYESIAN~ [1e-3,1] --decay~BAYESIAN~ [0,1]")
    opt = flags_of(command).read({"lr": 0.5, "decay": 0.25})
    assert (opt.lr, opt.fc_lr, opt.decay, opt.fc_decay) == (0.5, 0.5, 0.25, 0.25)


def test_ranges_in_files(tmp_path):
    first = tmp_path / "a.yaml"
    second = tmp_path / "b.yaml"
    first.write_text(
        "lr~LOG_BAYESIAN~: [1e-6, 1]\nbs~INT_BAYESIAN~: 8,32\ndecay: 0.5\noptim~CHOICE~: [adam, sgd]\nembed_dim: 64\n"
    )
    second.write_text("optim: rmsprop\n")
    command = parse("--config", first, second, "--embed_dim~CHOICE~ [64,128] --loss triplet")
    assert set(command.ranges) == {"lr", "bs", "embed_dim"}, "the second file's value replaces the first one's choice"
    assert command.ranges["lr"].values == (1e-6, 1.0)
    assert {path: list(lines) for path, lines in command.files.items()} == {
        str(first): ["decay", "embed_dim"],
        str(second): ["optim"],
    }
    assert command.named == {"decay", "optim", "loss", "config"}
    opt = flags_of(command).read({"lr": 0.1, "bs": 16, "embed_dim": 128})
    assert (opt.lr, opt.bs, opt.embed_dim, opt.decay, opt.optim, opt.loss) == (0.1, 16, 128, 0.5, "rmsprop", "triplet")
    assert set(parse("--config", first, "--lr 1").ranges) == {"bs", "optim"}, "the command line's value wins"
    first.write_text("mine_pairs: true\nloss: supcon\n")
    second.write_text("mine_pairs~CHOICE~: [true, false]\n")
    flags = flags_of(parse("--config", first, second))
    # a later range replaces an earlier value
    for value in (True, False):
        assert flags.read({"mine_pairs": value}).mine_pairs is value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("lr~BAYESIAN~: [1, 0]", "swapped"),
        ("lr~BAYESIAN~: [0, 1]\nlr: 1", "range and a value"),
        ("lr~BAYESIAN~: [0, 1]\ndecoy: 1", "'decay'"),
        ("lr~BAYESIAN~: [0, 1]\nbs: many", "bs"),
        ("lr~BAYESIAN~: [0, 1", "not YAML"),
        ("- lr~BAYESIAN~", "expected lines of `flag: value`"),
    ],
)
def test_a_mistake_in_a_file_names_it(tmp_path, content, message):
    path = tmp_path / "mine.yaml"
    path.write_text(content)
    with pytest.raises(UserError, match=".") as error:
        flags_of(parse("--config", path)).check()
    assert str(path) in str(error.value) and message in str(error.value)


def test_the_ends_of_a_range_and_every_choice_are_read_before_a_search():
    def check(words):
        return flags_of(parse(words)).check()

    opt, fixed = check("--loss triplet --batch_mining semihard --lr~BAYESIAN~ [0.1,1]")
    assert opt.lr == 0.1 and fixed["loss"] == "triplet" and not {"lr", "fc_lr"} & set(fixed), "fc_lr follows --lr"
    with refused("samples_per_class"):
        check("--samples_per_class~INT_BAYESIAN~ [2,3] --bs 16")
    with refused("unrecognized"):
        check("--optm adam --lr~BAYESIAN~ [0,1]")
    # not every pair, but every value works
    check("--loss~CHOICE~ [triplet,npair] --batch_mining~CHOICE~ [semihard,npair]")


def test_a_file_with_a_range_keeps_its_other_values_as_they_stand(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("lr~BAYESIAN~: [0, 1]\nbs: 010\ngroup: '0x1'\nfinal_test: true\nembed_dim: 64  # comment\n")
    opt = flags_of(parse("--config", path)).read({"lr": 0.5})
    assert (opt.bs, opt.group, opt.final_test, opt.embed_dim) == (10, "0x1", False, 64), "010 is no octal number"


SEARCH_LINES = (ROOT / "experiments/MLRC_Searches.sh").read_text().splitlines()
SEARCHES = [line for line in SEARCH_LINES if line.startswith("python")]
HEADINGS = [line.removeprefix("# ") for line in SEARCH_LINES if ": published best" in line]
METHODS = [line.partition(": published best")[0] for line in HEADINGS]
SETTINGS = {
    "mlrc_cub200": "cub200",
    "mlrc_cars196": "cars196",
    "mlrc_sop": "online_products",
    "mlrc_cub200_bs256": "cub200_bs256",
}
UNITS = {  # (method, parameter) -> this program's units per unit of the table; rates of proxies are multiples of 1e-6
    ("ProxyNCA", "lr"): 1e6,
    ("SoftTriple", "lr"): 1e6,
    ("ArcFace", "margin"): math.pi / 180,
}


def published_searches():
    """(method, setting) -> its bounds in this program's units, sorted, and the rows of the published table."""
    with open(ROOT / "docs/published/mlrc_search.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    bounds_of = {}
    for row in rows:
        unit = UNITS.get((row["method"], row["parameter"]), 1)
        bounds = float(row["low"]) * unit, float(row["high"]) * unit
        bounds_of.setdefault((row["method"], row["setting"]), []).append(bounds)
    return {key: sorted(bounds) for key, bounds in bounds_of.items()}, rows


@pytest.mark.long
def test_every_published_search_has_its_bounds():
    searched, rows = published_searches()
    lines = {(method, SETTINGS[shlex.split(line)[4]]): line for method, line in zip(METHODS, SEARCHES, strict=True)}
    from search import __main__ as searcher

    for key, bounds in searched.items():
        _, flags_of_main = searcher.get_parser().parse_known_args(shlex.split(lines[key])[3:])
        ranges = space.parse(flags_of_main, PARSER).ranges.values()
        assert np.allclose(sorted(a_range.values for a_range in ranges), bounds, rtol=1e-8), key
    swept = set(lines) - set(searched)
    assert swept == {("FastAP", setting) for setting in ("cub200", "cars196", "online_products")}
    assert len(SEARCHES) == len(searched) + len(swept) == 14 * 4
    assert sum(line.count("BAYESIAN~ ") for line in SEARCHES) == len(rows) + len(swept)
    published = {
        (row["method"], row["setting"], row["parameter"]): (float(row["low"]), float(row["high"])) for row in rows
    }
    ranges = {}
    for line in SEARCHES:
        _, *program, argv = [*shlex.split(line)[:3], shlex.split(line)[3:]]
        options, arguments = searcher.get_parser().parse_known_args(argv)
        assert (program, options.bayesian_optimization_n_iter, options.reproductions) == (["-m", "search"], 50, 10)
        command = space.parse(arguments, PARSER)
        flags = flags_of(command)
        opt, _ = flags.check()
        searcher.check(opt)
        ranges[argv[argv.index("--group") + 1]] = command.ranges
        # the criterion itself takes both ends
        for end in (0, 1):
            opt = flags.read({flag: a_range.values[end] for flag, a_range in command.ranges.items()})
            opt.n_classes = 5
            if not criteria.takes_miner(opt.loss, opt):
                criteria.select(opt.loss, opt, None, embed_dim=8)
    proxynca = ranges["MLRC_CUB_ProxyNCA"]
    arcface = ranges["MLRC_SOP_ArcFace"]
    ms = ranges["MLRC_CARS_MSMiner"]
    assert proxynca["loss_proxynca_pp_lrmulti"].values == pytest.approx((1, 1e6)), "rates in multiples of --lr 1e-6"
    uniform = space.Range("loss_proxynca_pp_softmax_scale", "BAYESIAN", (0.01, 100))
    assert proxynca["loss_proxynca_pp_softmax_scale"] == uniform, "in the published scale, not in its root"
    assert arcface["loss_arcface_angular_margin"].values == pytest.approx((0, 3.14159265 / 2)), "90 degrees"
    scale = arcface["loss_arcface_feature_scale"].values
    assert scale == published["ArcFace", "online_products", "scale"] == (0.01, 300)
    assert ms["loss_multisimilarity_margin"].values == published["Multi Similarity + Miner", "cars196", "epsilon"]
    # bounds of FastAP's number of bins, which the paper swept with batches of 32
    bins = {"CUB256": (2, 250), "CUB": (2, 32), "CARS": (2, 32), "SOP": (3, 32)}
    for setting, bounds in bins.items():
        expected = {"loss_fastap_num_bins": space.Range("loss_fastap_num_bins", "INT_BAYESIAN", bounds)}
        assert ranges[f"MLRC_{setting}_FastAP"] == expected
