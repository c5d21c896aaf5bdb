"""`python -m evaluation models`: frozen networks in one table, from features that are kept on disk."""

import importlib
import math
import os
import pathlib
import re
import shutil
import types

import numpy as np
import pytest
import torch

import architectures
import criteria
import datasets
import evaluation
import metrics
import parameters
from architectures import _code, _weights
from engine.random_state import seed_everything
from evaluation import __main__ as command
from evaluation import feature_store, knn, whitening
from tests.kit.images import write_image
from tests.kit.plain_metrics import plain, unit
from tests.kit.refusals import refused
from tests.kit.runs import equal_states
from tools import _frozen_model, models
from utilities.errors import UserError
from utilities.shapes import side_or_pair

SIZES = "--kernels 0 --bs 4 --resize_size 18 --crop_size 16".split()
CONV = "conv4 --not_pretrained"


CROPPED = f"{CONV} --crop_size 18"


METRICS = ["--evaluation_metrics", "e_recall@1", "map_r"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Training and test images of the same five classes."""
    root = tmp_path_factory.mktemp("shared") / "things"
    for split, start, count in (("train", 0, 4), ("test", 10, 3)):
        for label in range(5):
            for i in range(start, start + count):
                write_image(root / split / f"class_{label}" / f"{i}.png", (label, i // 2))
    return root


def flags(root, out, *words):
    return ["--dataset", "folder", "--dataset_folder_path", str(root), "--save_path", str(out), *SIZES, *words]


def table_of(root, out, archs, *words):
    """The table of these networks on a folder."""
    return models.main(["--archs", *archs, *flags(root, out, *words)])


def cells(table, row):
    """Head -> text of one row."""
    return {head: cell.mean_text for head, cell in zip(table.head, table.rows[row], strict=True)}


def column(table, head):
    return [cells(table, row)[head] for row in range(len(table.rows))]


def shards(out):
    return sorted((out / "features").glob("*/*.npz"))


def stored(files):
    return {file: torch.from_numpy(np.load(file)["features"]) for file in files}


def knn_by_loops(queries, labels, reference, reference_labels, k, exclude=None):
    right = 0
    for row, (query, label) in enumerate(zip(queries, labels, strict=True)):
        cosines = []
        for place, candidate in enumerate(reference):
            if exclude is None or exclude[row] != place:
                cosines.append((-(query @ candidate) / (np.linalg.norm(query) * np.linalg.norm(candidate)), place))
        votes = dict.fromkeys(range(max(reference_labels) + 1), 0.0)
        for cosine, place in sorted(cosines)[:k]:
            votes[reference_labels[place]] += math.exp(-cosine / 0.07)
        right += max(votes, key=votes.get) == label
    return right / len(queries)


def test_votes_are_those_of_dino_and_of_loops():
    sims = np.array([[0.9, 0.8, 0.79]])
    classes = np.array([[0, 1, 1]])
    for k, share in ((3, 0.690894), (2, 0.806679)):
        votes = knn.votes(sims[:, :k], classes[:, :k], 2)[0]
        assert votes[0] / votes.sum() == pytest.approx(share, abs=5e-7)
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((4, 6))
    reference_labels = np.arange(40) % 4
    labels = np.arange(23) % 4
    reference, queries = (
        centres[classes] + 1.5 * rng.standard_normal((len(classes), 6)) for classes in (reference_labels, labels)
    )
    queries[3] = reference[5]
    # 500: fewer references than k
    counts = (1, 3, 10, 39, 500)
    accuracies = knn.accuracies(metrics.EmbeddingSpace(queries, labels, reference, reference_labels), counts)
    assert accuracies == {k: knn_by_loops(queries, labels, reference, reference_labels, k) for k in counts}
    assert len({*accuracies.values()}) > 1
    itself = (reference, reference_labels, reference, reference_labels)
    self_accuracies = knn.accuracies(metrics.EmbeddingSpace(reference, reference_labels), (1, 5))
    assert self_accuracies == {k: knn_by_loops(*itself, k, np.arange(40)) for k in (1, 5)}
    one_class = metrics.EmbeddingSpace(queries, np.zeros(23, int), reference, np.zeros(40, int))
    assert knn.accuracies(one_class, (5,)) == {5: 1.0}


def features_by_hand(opt):
    """Split -> pooled features of conv4's random weights, image by image, and labels."""
    seed_everything(opt.seed)
    network = architectures.select("conv4", opt).eval()
    splits = datasets.select(opt.dataset, opt, **datasets.shape_for(network))
    features = {}
    for split in ("evaluation", "testing"):
        with torch.no_grad():
            rows = [network(image[None])[1]["pooled"][0].double().numpy() for _, image, _ in splits[split]]
        features[split] = np.array(rows), np.array([label for label, _, _ in splits[split]])
    return features


def assert_row(row, model, rows, labels, train, train_labels):
    """A table's row is of this model, and its numbers those of these rows by loops."""
    values = plain(["e_recall@1", "map_r"], unit(rows), labels)
    expected = {name: values[name] for name in ("e_recall@1", "map_r")}
    expected |= {f"k-NN@{k}": knn_by_loops(rows, labels, train, train_labels, k) for k in (10, 200)}
    assert (row["model"], row["width"]) == (model, str(rows.shape[1]))
    printed = [float(row[f"{name} in %"]) for name in expected]
    assert printed == pytest.approx([100 * value for value in expected.values()], abs=0.006)


def test_the_table_by_hand(shared, tmp_path, capsys):
    table = table_of(shared, tmp_path, [CONV, CROPPED], "--ensembles", "--whitened", "3", *METRICS)
    output = capsys.readouterr().out
    # aligned columns; Markdown goes to the file
    assert "Frozen networks on folder" in output and "|" not in output.replace(" | ", "")
    head, rule, *lines = output.partition("\n\n")[2].splitlines()[:7]
    starts = [match.start() for match in re.finditer("(?<![^ ])-", rule)]
    assert len(starts) == len(table.head)
    assert all(line[start - 1] == " " for line in (head, *lines) for start in starts[1:])
    assert "Part test: 15 images of 5 classes (--split_scheme half)." in output
    assert {path.suffix for path in (tmp_path / "folder").glob("models_folder.*")} == {".md", ".tex", ".csv", ".json"}
    assert (tmp_path / "folder" / "models_folder.md").read_text().startswith("## Frozen networks on folder")
    next_command = output.splitlines()[-1]
    assert next_command.startswith(f"next: python main.py --dataset folder --dataset_folder_path {shared}")
    assert re.search(r" --arch conv4\w*_normalize\b", next_command)

    opt = parameters.read(flags(shared, tmp_path, *METRICS, *PLAIN))
    features = [features_by_hand(opt.but(crop_size=size)) for size in (16, 18)]
    (test, labels), (train, train_labels) = (features[0][split] for split in ("testing", "evaluation"))
    test = unit(test)
    train = unit(train)
    rows = [cells(table, row) for row in range(5)]
    assert (rows[0]["input"], rows[0]["licence"]) == ("16 x 16", "not stated") and float(rows[0]["images/s"]) > 0
    assert table.remarks[0] == ["random weights"] and len(table.rows) == 5
    assert_row(rows[0], CONV, test, labels, train, train_labels)
    whiten = whitening.pca(train.astype(np.float32), 3)
    whitened = [unit(whiten(split.astype(np.float32)).astype(np.float64)) for split in (test, train)]
    assert_row(rows[1], f"{CONV}, whitened to 3", whitened[0], labels, whitened[1], train_labels)
    joined = []
    for first, split in ((test, "testing"), (train, "evaluation")):
        joined.append(np.concatenate([first, unit(features[1][split][0])], 1))
    assert " + " in rows[4]["model"] and rows[4]["input"] == "16 x 16, 18 x 18"
    assert_row(rows[4], rows[4]["model"], joined[0], labels, joined[1], train_labels)
    marks = [line[table.head.index("map_r in %")].mark for line in table.rows]
    assert marks[int(np.argmax([float(row["map_r in %"]) for row in rows]))] == "best"


PLAIN = "--not_pretrained --no_train_metrics --evaluate_only --arch conv4".split()


def adapter_by_hand(train, labels, opt, hidden):
    """features -> embeddings: Adam by its formulas on all images at once, cross-entropy of scaled cosines, float64."""
    seed_everything(opt.seed)
    network = architectures.behind(train.shape[1], opt.but(embed_hidden=hidden))
    vectors = criteria.select(opt.loss, opt, n_classes=5)
    parameters_of = [*network.parameters(), *vectors.parameters()]
    weights = [p.detach().double().requires_grad_() for p in parameters_of]
    moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in weights]
    x = torch.from_numpy(train)
    targets = torch.from_numpy(labels)

    def embed(rows):
        for first in range(0, len(weights) - 3, 2):
            rows = (rows @ weights[first].T + weights[first + 1]).clamp(min=0)
        rows = rows @ weights[-3].T + weights[-2]
        return rows / rows.norm(dim=1, keepdim=True)

    for step in range(1, opt.n_epochs + 1):
        logits = 16 * embed(x) @ (weights[-1] / weights[-1].norm(dim=1, keepdim=True)).T
        loss = -(logits[torch.arange(len(x)), targets] - logits.exp().sum(1).log()).mean()
        for place, (weight, gradient) in enumerate(zip(weights, torch.autograd.grad(loss, weights), strict=True)):
            gradient = gradient + 1e-6 * weight.detach()
            first = 0.9 * moments[place][0] + 0.1 * gradient
            second = 0.999 * moments[place][1] + 0.001 * gradient**2
            moments[place] = first, second
            weight.data -= 1e-3 * (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
    return lambda rows: embed(torch.from_numpy(rows)).detach().numpy()


def test_adapters_and_components_by_hand(shared, tmp_path):
    words = [*METRICS, *"--bs 20 --n_epochs 7 --embed_dim 6".split()]
    table = table_of(shared, tmp_path, [CONV], "--adapters", "linear", "mlp", "--pca", "3", *words)
    words = flags(shared, tmp_path, *words)
    opt = parameters.read([*words, *PLAIN])
    (train, train_labels), (test, labels) = (features_by_hand(opt)[split] for split in ("evaluation", "testing"))
    test = unit(test)
    train = unit(train)
    directions = np.linalg.svd(train - train.mean(0), full_matrices=False)[2][:3]
    recipe = models.training_options(words, opt)
    assert (recipe.loss, recipe.loss_cosface_scale, recipe.lr, recipe.decay) == ("cosface", 16, 1e-3, 1e-6)
    assert recipe.arch == "conv4_normalize"
    width = train.shape[1]
    projections = {
        "PCA to 3": lambda rows: (rows - train.mean(0)) @ directions.T,
        "linear adapter": adapter_by_hand(train, train_labels, recipe, []),
        "mlp adapter": adapter_by_hand(train, train_labels, recipe, [width]),
    }
    for place, (name, project) in enumerate(projections.items(), 1):
        rows = unit(project(test))
        assert_row(cells(table, place), f"{CONV}, {name}", rows, labels, unit(project(train)), train_labels)
    assert table.remarks[1] == ["random weights"]
    assert "--loss cosface, 7 epochs on 20 training images" in table.remarks[2][1]
    plain_size, _, *of_adapters = map(float, column(table, "parameters in M"))
    sizes = [6 * width + 6, width * width + width + 6 * width + 6]
    assert [size - plain_size for size in of_adapters] == pytest.approx(np.array(sizes) / 1e6, abs=0.11)


def test_an_adapter_takes_any_flags_of_training(shared, tmp_path):
    """Prefixes, a miner, a sampler; the backbone is not built again, other networks' data stay images."""
    words = "--loss margin --batch_mining semihard --data_sampler class_random --bs 8 --samples_per_class 2".split()
    words += "--dump_embeddings --embed_dim 4 --matryoshka 2 4 --n_epochs 1 --evaluation_metrics map_r".split()
    table = table_of(shared, tmp_path, [CONV, CROPPED], "--adapters", "linear", *words)
    assert table.head[7:9] == ["map_r in %", "map_r@d2 in %"] and column(table, "width")[1::2] == ["4", "4"]
    assert "--loss margin, 1 epoch" in table.remarks[3][1]
    folder = tmp_path / "folder"
    shapes = {file.relative_to(folder).as_posix(): rows.shape for file, rows in stored(folder.glob("*/*.npz")).items()}
    assert shapes["conv4---not_pretrained-linear-adapter/embeddings_train.npz"] == (20, 4)
    assert shapes["conv4---not_pretrained/embeddings_test.npz"] == (15, 576)
    assert len(shapes) == 8, "two rows of each network, two splits of each"


def test_what_cannot_learn_is_told_in_a_line(shared, tmp_path):
    table = table_of(shared, tmp_path, [CONV], "--pca", "999", "--whitened", "999")
    notes = [line.partition(":")[2][:40] for line in table.notes[-2:]]
    assert notes == [f" {CONV}, {label} to 999: whiten"[:40] for label in ("PCA", "whitened")]
    assert len(table.rows) == 1
    with refused("not measured before it is trained"):
        table_of(shared, tmp_path, [CONV], "--adapters", "linear", "--scheduler", "plateau")
    # no image is read
    words = flags(shared, tmp_path, *"--adapters linear --eval_scales 1 1.5 --augmentation base".split())
    command.main(["models", "--archs", CONV, *words])


def test_classes_apart_have_no_knn(folder_data, tmp_path):
    table = table_of(folder_data, tmp_path, [CONV])
    assert table.head[7:] == [f"{name} in %" for name in models.DEFAULT_METRICS]
    assert len(shards(tmp_path)) == 1, "training images are not embedded"


def test_a_killed_extraction_is_finished(shared, tmp_path, monkeypatch):
    monkeypatch.setattr(feature_store, "ROWS", 5)
    first = table_of(shared, tmp_path, [CONV])
    files = shards(tmp_path)
    assert len(files) == 4 + 3, "20 and 15 images"
    before = stored(files)
    for key in (tmp_path / "features").glob(f"*/{feature_store.KEY}"):
        key.unlink()
    files[1].unlink()
    files[3].write_bytes(files[3].read_bytes()[:-40])
    files[5].write_bytes(b"")
    np.savez(files[2], features=before[files[2]][:3], seconds=1.0, device="cpu")
    times = {file: file.stat().st_mtime_ns for file in (files[0], files[4], files[6])}
    second = table_of(shared, tmp_path, [CONV])
    assert shards(tmp_path) == files and equal_states(stored(files), before)
    assert times == {file: file.stat().st_mtime_ns for file in times}, "whole shards are not made again"
    assert [cell.mean_text for cell in first.rows[0][7:]] == [cell.mean_text for cell in second.rows[0][7:]]


def test_a_part_that_another_process_writes_meanwhile_is_passed_over(shared, tmp_path, monkeypatch):
    monkeypatch.setattr(feature_store, "ROWS", 5)
    table_of(shared, tmp_path, [CONV])
    before = stored(shards(tmp_path))
    embed = evaluation.embed
    for file in before:
        file.unlink()

    def beside_another(network, batches, *settings):
        embedded = embed(network, batches, *settings)
        # The other process is a part ahead
        if batches.dataset.start == 0:
            for file, rows in before.items():
                if file.name.startswith("000000005"):
                    np.savez(file, features=rows, seconds=1.0, device="cpu")
        return embedded

    monkeypatch.setattr(evaluation, "embed", beside_another)
    table_of(shared, tmp_path, [CONV])
    assert equal_states(stored(before), before)


@pytest.mark.long
def test_keys_change_with_what_decides_features_and_a_second_table_needs_no_network(shared, tmp_path, monkeypatch):
    network = architectures.select("conv4", parameters.read(["--arch", "conv4", "--not_pretrained"]))
    weights = tmp_path / "weights.pth"
    of_file = f"conv4 --weights {weights}"
    tables = []

    def count_new_folders(*words, arch=CONV):
        before = {file.parent for file in shards(tmp_path)}
        tables.append(table_of(shared, tmp_path, [arch], *words))
        return len({file.parent for file in shards(tmp_path)} - before)

    assert count_new_folders() == 2 and count_new_folders("--eval_bs", "3") == 0
    for words in ("--seed 5", "--resize_size 20", "--crop_size 17", "--precision bfloat16", "--feature_type float16"):
        assert count_new_folders(*words.split()) == 2, words
    # another file under the same name
    for _ in range(2):
        with torch.no_grad():
            next(network.backbone.parameters()).mul_(2)
        torch.save(network.backbone.state_dict(), weights)
        assert count_new_folders(arch=of_file) == 2 and tables[-1].remarks[-1] == [_frozen_model.WEB]
    with monkeypatch.context() as patch:
        patch.setattr(architectures, "select", None)
        assert count_new_folders("--evaluation_metrics", "nmi", "e_recall@1", arch=of_file) == 0
    first, joined = tables[-2:]
    assert joined.name == first.name and set(joined.head) == {*first.head, "nmi"}, "the row has joined its table"
    assert column(joined, "e_recall@1 in %") == column(first, "e_recall@1 in %")
    write_image(next((shared / "test" / "class_0").iterdir()), (99, 99))
    assert count_new_folders() == 2, "a changed image: the fingerprint is of the whole data set"


def test_the_code_of_an_architecture_is_that_of_its_modules(tmp_path, monkeypatch):
    file = tmp_path / "user_nets.py"
    (tmp_path / "user_widths.py").write_text("WIDTHS = (3, 4)\n")
    imports = "import architectures.conv4\nfrom user_widths import WIDTHS\n\n\n"
    file.write_text(f"{imports}class Network(architectures.conv4.Network):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module(file.stem)
    before = _code.code_of(module)
    assert {"user_nets", "user_widths", "architectures.conv4", "architectures._network", "torch"} <= before.keys()
    foreign = ("torch.", "utilities", "architectures.googlenet")
    assert not [name for name in before if name.startswith(foreign)]
    file.write_text(file.read_text() + "    WIDER = True\n")
    after = _code.code_of(module)
    file.unlink()
    assert before | {"user_nets": after["user_nets"]} == after != before
    assert _code.code_of(module)["user_nets"] == _code.MISSING, "it goes on where a file was deleted meanwhile"
    assert _code._is_installed(pathlib.Path("/home/x/.local/lib/python3.11/site-packages/torch/nn.py"))
    assert "timm" in architectures.code_of("timm:resnet18_frozen")
    assert "torchvision" in architectures.code_of("resnet50_normalize")


def test_contents_and_code_are_part_of_the_key(shared, tmp_path, monkeypatch):
    """Weights and images of the same size and time, an edited architecture, another version of torch."""
    data = shutil.copytree(shared, tmp_path / "data")
    weights = tmp_path / "weights.pth"
    state = architectures.select("conv4", not_pretrained=True).backbone.state_dict()
    torch.save(dict(state), weights)
    runtime = types.SimpleNamespace(place=lambda network: network)

    def key():
        (opt,) = models.read(["--archs", f"conv4 --weights {weights}", *flags(data, tmp_path)])[1].values()
        model = _frozen_model.Model("", opt, tmp_path / "features", "float32", runtime)
        return model._remembered, model.shards(models.splits_for(opt, model.facts, False)["test"]).folder

    def replaced(path, content):
        """The file has other bytes, and the size and times of before."""
        stat = path.stat()
        path.write_bytes(content)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        assert path.stat().st_size == stat.st_size

    keys = [key()]
    assert key() == keys[0]
    image = sorted((data / "test" / "class_0").iterdir())[0]
    content = bytearray(image.read_bytes())
    content[-20] ^= 1
    replaced(image, bytes(content))
    keys.append(key())
    assert keys[1][0] == keys[0][0], "the network is the same"
    doubled = {name: value * 2 if value.is_floating_point() else value for name, value in state.items()}
    torch.save(doubled, data / weights.name)
    replaced(weights, (data / weights.name).read_bytes())
    keys.append(key())
    assert keys[2][0] != keys[1][0]
    monkeypatch.setattr(_code.torch, "__version__", "0.0.1")
    keys.append(key())
    monkeypatch.setattr(architectures, "code_of", lambda name: {"edited": name})
    keys.append(key())
    assert len({folder for _, folder in keys}) == 5 and keys[3][0] not in (keys[2][0], keys[4][0])
    monkeypatch.setattr(feature_store, "MOST_HASHED", 10)
    stat = weights.stat()
    assert feature_store.stamp_of(weights) == [stat.st_size, stat.st_mtime_ns], "larger files are not read"


def test_no_table_is_overwritten_rows_join_those_that_compare(shared, tmp_path, capsys):
    def table(arch, *words):
        return table_of(shared, tmp_path, [arch], "--evaluation_metrics", "map_r", *words)

    older = tmp_path / "folder" / "models_folder.md"
    older.parent.mkdir(parents=True)
    older.write_text("a table of an earlier version")
    first = table(CONV)
    assert first.name == "models_folder_1" and older.read_text() == "a table of an earlier version"
    next_command = " ".join(capsys.readouterr().out.rpartition("next: ")[2].split())
    assert f"--dataset_folder_path {shared}" in next_command
    assert "--arch conv4_normalize --not_pretrained" in next_command
    second = table(CROPPED)
    assert second.name == first.name and column(second, "input") == ["16 x 16", "18 x 18"]
    assert [cell.mean_text for cell in second.rows[0]] == [cell.mean_text for cell in first.rows[0]]
    assert column(table(CONV), "model") == column(second, "model"), "nothing new: the same table"
    assert table(CONV, "--seed", "7").name == "models_folder_2"
    assert table(CONV, "--eval_no_normalize").name == "models_folder_3"
    image = write_image(shared / "test" / "class_1" / "more.png", (1, 9))
    assert table(CONV).name == "models_folder_4", "other images"
    image.unlink()


def test_a_licence_is_that_of_published_weights_alone(tmp_path):
    facts = {"mean": (0,), "std": (1,), "input_space": "RGB", "input_range": 1, "input_size": 8, "feature_dim": 2}
    facts |= {"interpolation": "bicubic", "backbone": torch.nn.Linear(2, 2), "data_config": {"license": "mit"}}
    for words, weights_name, licence in (
        (["--not_pretrained"], "random", "not stated"),
        (["--weights", str(tmp_path / "weights.pth")], "a", "not stated"),
        ([], "a", "mit"),
    ):
        network = types.SimpleNamespace(weights_name=weights_name, **facts)
        assert _frozen_model.facts_of(network, parameters.read(["--arch", "conv4", *words])).licence == licence


def test_features_of_other_shapes_have_other_keys(shared, tmp_path):
    """A network of rotary positions has the same weights for all sizes."""
    keys = []
    for words in ("--crop_size 32", "--crop_size 64 32", "--crop_size 32 --eval_long_side 32"):
        shape = ["--arch", "timm:vit_small_patch16_rope_224", "--not_pretrained", *words.split()]
        opt = parameters.read(["--dataset", "folder", "--dataset_folder_path", str(shared), *shape])
        model = _frozen_model.Model("rope", opt, tmp_path, "float32", None)
        network = types.SimpleNamespace(
            **{"mean": (0,), "std": (1,), "input_space": "RGB", "input_range": 1, "feature_dim": 2, "patch": (16, 16)},
            **{"interpolation": "bicubic", "weights_name": "random", "backbone": torch.nn.Linear(2, 2)},
            native_shapes=bool(opt.eval_long_side),
            input_size=side_or_pair(opt.crop_size),
        )
        torch.nn.init.zeros_(network.backbone.weight)
        torch.nn.init.zeros_(network.backbone.bias)
        model.facts = _frozen_model.facts_of(network, opt)
        dataset = datasets.select("folder", opt, **datasets.shape_for(model.facts))["testing"]
        keys.append(model.shards(dataset).about)
    assert [(key["input"], key["native"]) for key in keys] == [(32, False), ((64, 32), False), (32, True)]
    assert len({key["weights"] for key in keys}) == 1 and keys[2]["transform"] == "Limit(side=32); Multiple(16)"


def test_types_and_hashes(tmp_path):
    rows = np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32)
    store = feature_store.Store(tmp_path, {"name": "a"}, 7, "float16")
    assert store.read() is None
    store.fill(lambda part: (rows[part], 2.0), "cpu")
    half, seconds, devices = store.read()
    assert half.dtype == np.float32 and np.array_equal(half, rows.astype(np.float16).astype(np.float32))
    assert (seconds, devices) == (2.0, {"cpu"})
    for value, message in ((1e5, "take float32"), (np.nan, "NaN or infinity")):
        features = np.full((7, 3), value, np.float32)
        with refused(message):
            store = feature_store.Store(tmp_path, {"name": message}, 7, "float16")
            store.fill(lambda part, features=features: (features, 1.0), "cpu")
    state = {"a": torch.ones(2, 3), "b": torch.tensor(1.0), "c": torch.ones(3, dtype=torch.bfloat16)}
    changes = [{"a": torch.ones(3, 2)}, {"b": torch.tensor(2.0)}, {"c": torch.ones(3, dtype=torch.float16)}]
    states = [state, *(state | change for change in changes), {"d": state["a"], "b": state["b"]}]
    assert len(set(map(feature_store.hash_of, states))) == 5
    assert feature_store.hash_of(dict(reversed(state.items()))) == feature_store.hash_of(state)


@pytest.mark.long
def test_weights_that_cannot_be_had_are_one_line(shared, tmp_path, monkeypatch, capsys):
    def download(name, pretrained, cache):
        raise UserError(f"{name}: no network")

    monkeypatch.setattr(_weights, "_download", download)
    table = table_of(shared, tmp_path, ["resnet50", CONV], "--ensembles")
    assert len(table.rows) == 1 and table.notes[-1] == "Left out: resnet50: resnet50: no network"
    assert "left out  resnet50: resnet50: no network" in capsys.readouterr().out
    with refused("no network could be had: resnet50"):
        table_of(shared, tmp_path, ["resnet50"])


def test_names_and_bad_command_lines(tmp_path):
    (tmp_path / "names").write_text("conv4   # small\n\n# nothing\nconv4 --pool avg\n")
    words = ["--archs", "conv4", "--archs_file", str(tmp_path / "names"), "--dataset", "glyphs", "--not_pretrained"]
    _, options = models.read(words)
    assert {name: opt.pool for name, opt in options.items()} == {"conv4": None, "conv4 --pool avg": "avg"}
    dino = "timm:vit_small_patch16_dinov3.lvd1689m"
    _, options = models.read(["--archs", dino, f"{dino} --pool avg", "timm:convnext_tiny.dinov3_lvd1689m"])
    assert [opt.pool for opt in options.values()] == ["token", "avg", None]
    for words, message in (
        (["--archs", "resnet5O"], "Did you mean 'resnet50'"),
        (["--archs", "timm:vit_smal_patch14_dinov2"], "Did you mean 'timm:vit_small_patch14_dinov2'"),
        ([], "name some by --archs"),
        (["--arch", "conv4", "--archs", "conv4"], "name the networks by --archs"),
        (["--archs", "conv4 --dataset glyphs"], "--dataset is not a flag of one network"),
        (["--archs_file", "/nowhere"], "cannot be read"),
    ):
        with refused(None, message):
            models.read(words)


def test_which_pretraining_may_have_seen_the_data(tmp_path):
    closed = (
        "vit_small_patch16_224.dino resnet50.a1_in1k vit_small_patch16_224.augreg_in21k_ft_in1k convnextv2_base.fcmae "
        "vit_base_patch16_224.mae"
    )
    opened = (
        "vit_small_patch14_dinov2.lvd142m vit_base_patch16_clip_224.laion2b_ft_in1k "
        "vit_base_patch16_siglip_224.v2_webli vit_pe_core_base_patch16_224.fb resnext101_32x8d.fb_swsl_ig1b_ft_in1k "
        "vit_huge_patch14.something_new tf_efficientnet_b0.ns_jft_in1k"
    )
    opt = parameters.read(["--arch", "conv4", "--dataset", "cub200"])
    for names, remark in ((closed, _frozen_model.IMAGENET_HOLDS["cub200"]), (opened, _frozen_model.WEB)):
        for name in names.split():
            model = _frozen_model.Model(name, opt.but(arch=f"timm:{name}"), tmp_path, "float32", None)
            model.facts = _frozen_model.Facts("", name, 224, "bicubic", [], 1, 1, "", "")
            assert model.remarks() == [remark], name


def test_the_adapter_of_ilias_has_the_authors_settings():
    opt = parameters.read(["--config", "ilias_adapter", "--dataset_csv", "uned.csv"])
    settings = {"loss": "cosface", "loss_cosface_margin": 0, "loss_cosface_scale": 16, "embed_dim": 512, "bs": 128}
    settings |= {"n_epochs": 5, "optim": "adam", "lr": 1e-3, "loss_cosface_lr": 1e-3, "decay": 1e-6, "loss_decay": 1e-6}
    settings |= {"scheduler": "none", "augmentation": "none", "data_sampler": "shuffle"}
    settings |= {"freeze_backbone": True, "feature_cache": True}
    assert vars(opt).items() >= settings.items()
