"""The ICML 2020 pipeline's names of a run's values: all of a run, no two alike, read back as they were recorded."""

import itertools
from argparse import Namespace

import pytest
import torch

import main
from engine.gradients import GradientEntries
from engine.runtime import Runtime
from results import online
from runs import records
from runs.icml_names import icml_name, is_metric, value_name
from tests.datasets.test_domains import make_union
from tests.kit.runs import SHORT_RUN, read

# name in metrics.csv, on train -> key at the service; the metrics with other splits alike
OF_TRAINING = {
    "loss": "Train: loss",
    "metric_loss": "Train: loss: metric_loss",
    "gradient_norm": "Train: gradient_norm",
    "gradient_rms": "Model Grad: L2: Grad L2",
    "gradient_max": "Model Grad: Max: Grad Max",
    "epoch_seconds": "Train: epoch_seconds",
    "criterion/active_share": "Train: criterion: active_share",
    "miner/tuples": "Train: miner: tuples",
    "miner/parts/easy": "Train: miner: parts/easy",
    "criterion/part_loss": "Train: criterion: part_loss",
    "rate/backbone": "Train: rate: backbone",
    "reconstruction": "Train: reconstruction",
}
OF_ONE = {
    "e_recall@1": "discriminative_e_recall: e_recall@1",
    "dists@intra": "discriminative_dists: dists@intra",
    "dists@intra_over_inter": "discriminative_dists: dists@intra_over_inter",
    "rho_spectrum@-1": "discriminative_rho_spectrum: rho_spectrum@-1",
    "c_recall@1": "discriminative_c_recall: c_recall@1",
    "e_recall@1@d8": "discriminative_e_recall: e_recall@1@d8",
    "nmi": "discriminative_nmi: nmi",
    "emoji_1008/e_recall@1": "emoji_1008_e_recall: e_recall@1",
    "discriminative/nmi": "discriminative_nmi: discriminative/nmi",
    "emoji/1008/nmi": "discriminative_nmi: emoji/1008/nmi",
    "emoji_1008/nmi": "emoji_1008_nmi: nmi",
    "rate_a/nmi": "rate_a_nmi: nmi",
}
OF_SEVERAL = {
    "a/e_recall@1": "a_e_recall: e_recall@1",
    "a_b/e_recall@1": "a_b_e_recall: e_recall@1",
    "a/b/e_recall@1": "a_e_recall: b/e_recall@1",
    "a/b_c/e_recall@1": "a_e_recall: b_c/e_recall@1",
    "a_b/c/e_recall@1": "a_b_c_e_recall: e_recall@1",
    "a/d/dists@intra": "a_d_dists: dists@intra",
    "Combined_a_a_b-1-2/nmi": "Combined_a_a_b-1-2_nmi: nmi",
    "criterion/nmi": "criterion_nmi: nmi",
}


@pytest.mark.parametrize(
    "evaltypes, metrics", [(["discriminative"], OF_ONE), (["a", "a_b", "Combined_a_a_b-1-2", "criterion"], OF_SEVERAL)]
)
def test_each_value_has_one_name_which_no_other_has(evaltypes, metrics):
    table = {("train", name): key for name, key in OF_TRAINING.items() if name.partition("/")[0] not in evaltypes}
    for part, title in records.SPLIT_TITLES.items():
        table |= {(part, name): f"{title}: {key}" for name, key in metrics.items()}
    assert {value: icml_name(*value, evaltypes).key for value in table} == table
    assert len(set(table.values())) == len(table)
    read = {key: value_name(key, evaltypes) for key in table.values() if not key.startswith("Train: criterion_")}
    assert read == {key: value for value, key in table.items() if key in read}


def test_evaltypes_and_domains_of_all_shapes_stay_apart():
    words = ["a", "b", "a_b", "b_a", "a_a", "b_a_b", "e", "recall", "c"]
    for evaltypes in (["a"], ["a_b"], ["a", "b"], ["a", "a_b", "a_b_a"], ["b", "a_b", "b_a"]):
        heads = ["", *(f"{word}/" for word in words)]
        heads += [f"{first}/{second}/" for first, second in itertools.product(words, repeat=2)]
        if len(evaltypes) > 1:
            heads = [f"{evaltype}/{head}" for evaltype in evaltypes for head in heads]
        names = [f"{head}{metric}" for head in heads for metric in ("e_recall@1", "c_recall@1", "e_recall@2", "nmi")]
        keys = {icml_name("train", name, evaltypes).key: name for name in names}
        assert len(keys) == len(names)
        assert {value_name(key, evaltypes)[1] for key in keys} == set(names)


def test_what_a_version_of_november_logged_is_read():
    """The group of each metric of train was then the first part of its name."""
    for key, name in (
        ("Train: dists@intra: dists@intra", "dists@intra"),
        ("Train: loss: loss", "loss"),
        ("Train: emoji: nmi", "emoji/nmi"),
        ("Train: nmi: nmi", "nmi"),
    ):
        assert value_name(key, ["discriminative"]) == ("train", name)
    assert value_name("Train: other: e_recall@1", ["discriminative", "other"]) == ("train", "other/e_recall@1")
    config = {"evaltypes": ["a", "b"], "save_interval": 1}
    notes = []
    row = {"epoch": 1, "Train: a: nmi": 0.1, "Train: b: nmi": 0.2}
    row |= {"Test: a_x_nmi: nmi": 0.3, "Test: a_nmi: nmi": 0.4, "Test: b_nmi: nmi": 0.5}
    series = online._series([row], config, notes)
    # "Train: a: nmi" is a's mean or that of x: unknown
    assert set(series.keys) == {("train", "b/nmi"), ("test", "a/x/nmi"), ("test", "a/nmi"), ("test", "b/nmi")}
    assert len(notes) == 1 and "left out" in notes[0]


def test_a_run_of_two_evaltypes_and_three_domains_logs_each_value_once(tmp_path, monkeypatch):
    rows = []
    service = records.Sink()
    service.write = rows.extend
    monkeypatch.setattr("runs.records.online.online_sink", lambda opt, folder: service)
    words = make_union(tmp_path)
    evaltypes = ["discriminative", "Combined_discriminative"]
    words = ["--dataset union --union", *words, "--source_path", tmp_path, "--save_path", tmp_path / "runs", *SHORT_RUN]
    words += ["--allow_partial_dataset --n_epochs 1 --loss multisimilarity --evaltypes", *evaltypes]
    opt = read(*words, "--evaluation_metrics map_r dists@intra dists@inter")
    run = main.main(opt.but(no_records=False))
    table = {row.title: (row.split, row.metric) for row in rows}
    assert len(table) == len(rows) == len(set(table.values()))
    metrics = {name for part, name in table.values() if part == "test"}
    assert {"discriminative/map_r", "discriminative/birds/map_r", "Combined_discriminative/cars/dists@inter"} <= metrics
    assert {name for part, name in table.values() if part == "train" and is_metric(name)} == metrics
    for key, (part, name) in table.items():
        assert value_name(key, evaltypes) == (part, name)
        assert part != "train" or not is_metric(name) or f"Test{key.removeprefix('Train')}" in table
    assert {"Train: loss", "Train: discriminative_birds_dists: dists@intra"} <= set(table)
    assert {"Model Grad: L2: Grad L2", "Model Grad: Max: Grad Max"} <= set(table)
    files = {path.stem for path in (run.folder / "CSV_Logs").iterdir()}
    assert files == {"metrics"} | {f"{row.icml_name.section}_{row.group}" for row in rows}
    of_train = {name for name in files if name.startswith("Train_disc")}
    assert of_train == {name.replace("Test", "Train") for name in files if name.startswith("Test_disc")}


def test_the_size_of_a_gradients_entries():
    network = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    entries = GradientEntries(network)

    def measure():
        entries.measure({p: p.grad.norm() for p in network.parameters() if p.grad is not None})

    measure()
    assert entries.values == {}, "no gradient yet"
    network[1].requires_grad_(False)
    network(torch.randn(5, 3)).pow(2).sum().backward()
    measure()
    values = [float(value) for p in network.parameters() if p.grad is not None for value in p.grad.double().flatten()]
    assert len(values) == 8 + 3
    rms = (sum(value * value for value in values) / len(values)) ** 0.5
    expected = {"gradient_rms": rms, "gradient_max": max(map(abs, values))}
    assert {name: value.item() for name, value in entries.values.items()} == pytest.approx(expected, rel=1e-6)
    with torch.no_grad():
        network[2].bias.grad.fill_(-100.0)
    measure()
    assert entries.values["gradient_max"] == 100, "of a negative entry"
    network[2].bias.grad.fill_(torch.nan)
    measure()
    assert entries.values["gradient_rms"].isnan() and entries.values["gradient_max"].isnan()


def test_the_norm_of_a_step_serves_the_size_of_its_entries(monkeypatch):
    """Each gradient's norm is computed once; the root mean square is the network's, before gradients are limited."""
    network = torch.nn.Linear(4, 3)
    criterion = torch.nn.Linear(3, 1)
    runtime = Runtime(Namespace(gpu=[0], seed=0, precision="float32", clip_grad_norm=1e-3))
    entries = GradientEntries(network)
    sizes = []
    runtime.on_gradients = entries.measure
    norms = torch._foreach_norm
    monkeypatch.setattr(torch, "_foreach_norm", lambda tensors, *order: sizes.append(tensors) or norms(tensors, *order))
    optimizer = torch.optim.SGD([*criterion.parameters(), *network.parameters()], lr=0.0)
    runtime.step(criterion(network(torch.randn(6, 4))).pow(2).sum(), optimizer)
    assert sum(tensor.numel() for tensors in sizes for tensor in tensors if tensor.ndim) == 15 + 4
    # The gradients have been limited since, all by one factor
    gradient = torch.cat([p.grad.flatten() for p in network.parameters()])
    ratio = gradient.double().square().mean().sqrt() / gradient.abs().max()
    recorded_ratio = entries.values["gradient_rms"] / entries.values["gradient_max"]
    assert recorded_ratio.item() == pytest.approx(ratio.item(), rel=1e-5)
    assert entries.values["gradient_max"] > 100 * gradient.abs().max()
