"""Data sets of several domains: union, the layout of UnED in small; samplers of domains; results of each domain."""

import json
import os
from collections import Counter

import numpy as np
import pytest
import torch

import criteria
import datasampler
import datasets
import evaluation
import main
import metrics
import parameters
import trainers
from datasets import uned
from datasets._layout import Published
from engine.runtime import Runtime
from evaluation import checks, from_splits, queries
from results import collect, columns, groups, tables
from results.roles import FlagRoles
from runs.records import metric_group
from tests.datasets import layouts
from tests.kit import tiny
from tests.kit.data_sets import make_cub200, make_folder
from tests.kit.refusals import refused
from tests.kit.runs import SHORT_RUN
from tests.kit.samplers import labels_of, make_data

# classes of a split
SIZES = {"food2k": 2, "cars": 3, "sop": 2, "inshop": 2, "inat": 2, "met": 2, "gldv2": 2, "rp2k": 2}


def make_uned(path):
    """Two images of each class; a gldv2 query shows two landmarks; a file of rp2k has a Chinese name."""
    root = path / "uned"
    for domain, n_classes in SIZES.items():
        for split in ("train", "val", "test", *uned.INDEXES.get(domain, {}).values()):
            first = 50 if domain == "met" and "train" in split else 0
            mark = "商" if domain == "rp2k" else ""
            labels = {f"{c}_{i}{mark}": first + c for c in range(n_classes) for i in range(2)}
            if domain == "gldv2" and split == "test":
                labels = {"both": [0, 1, 7], "one": 1}
            rows = [{"path": f"{domain}/{split}/{file}.jpg", "class_id": label} for file, label in labels.items()]
            layouts.write_images(root / "images", [row["path"].replace("商", "#U5546") for row in rows])
            layouts.write_lines(root / "info_files" / domain / f"{split}.json", [json.dumps(rows)])
    return root


@pytest.fixture
def small_uned(tmp_path, monkeypatch):
    root = make_uned(tmp_path)
    monkeypatch.setattr(uned, "PUBLISHED", Published((17, None), (34, 44), (32, None), (34, None)))
    return root


def make_union(path):
    """Two folders whose classes have the same names, and CUB."""
    for name, n_images in (("birds", 3), ("cars", 4)):
        make_folder(path / name, n_classes=6, n_images=n_images, size=layouts.SIZE)
    make_cub200(path, n_classes=8, n_images=5, size=layouts.SIZE)
    return ["cub200", f"folder:{path / 'birds'}", f"folder:{path / 'cars'}/"]


def test_uned_is_read_as_its_split_files_say(small_uned, capsys):
    splits = datasets.select("uned", None, small_uned.parent, 8)
    training = splits["training"]
    testing = splits["testing"]
    assert not capsys.readouterr().err
    assert training.n_classes == 17 and len(training) == 34 and testing.by_domain
    roles = {}
    for query, gallery, (_, label) in zip(testing.is_query, testing.is_gallery, testing.image_list, strict=True):
        roles.setdefault(testing.super_labels[label], []).append((bool(query), bool(gallery)))
    assert roles["cars"] == [(True, True)] * 6
    assert sorted(roles["inshop"]) == [(False, True)] * 4 + [(True, False)] * 4
    assert list(splits["validation"].super_labels.values()) == [*Counter(SIZES).elements()]
    (row,) = testing.further_labels
    (further_label,) = testing.further_labels[row]
    assert testing.paths[row].endswith("both.jpg") and testing.class_names[further_label] == "gldv2/1"
    counts = "training 4 images of 2 classes, validation 8 images of 2 classes, test 8 images of 2 classes"
    assert f"domain met: {counts}" in datasets.describe(splits)
    with refused("--evaluate_all: the training images of met"):
        datasets.select("uned", None, small_uned.parent, 8, evaluate_all=True)
    (small_uned / "info_files/food2k/test.json").write_text('[{"path": "a.jpg"}]')
    with refused("food2k/test.json"):
        datasets.select("uned", None, small_uned.parent, 8)


def test_published_counts_of_uned_are_the_sums_of_its_domains():
    queries = [9979, 8131, 60502, 14218, 136093, 1003, 1129, 10931]
    index = [9979, 8131, 60502, 12612, 136093, 397121, 761757, 10931]
    outside = sum(count for count, domain in zip(queries, uned.DOMAINS, strict=True) if domain in uned.INDEXES)
    assert uned.PUBLISHED.query[0] == sum(queries) == 241_986 and uned.PUBLISHED.gallery[0] == sum(index) == 1_397_126
    assert uned.PUBLISHED.images == (2_831_222, sum(index) + outside)
    assert uned.PUBLISHED.classes[0] == 900 + 78 + 9054 + 3198 + 4552 + 224408 + 73182 + 1074


def test_domains_keep_their_classes_and_are_cut_separately(tmp_path, monkeypatch):
    words = make_union(tmp_path)
    monkeypatch.chdir(tmp_path / "birds")
    # The folder "." goes by its own name, birds
    words[1] = "folder:."
    splits = layouts.partial("union", tmp_path, union=words, use_tv_split=True, tv_split_perc=0.67)
    assert splits["training"].n_classes == 6 and splits["testing"].n_classes == 10
    names = layouts.names(splits)
    assert splits["training"].partial.startswith("cub200: ") and "images of" in splits["training"].partial
    assert names["testing"][4:] == [f"{domain}/class_{c}" for domain in ("birds", "cars") for c in (3, 4, 5)]
    assert [name.partition("/")[0] for name in names["validation"]] == ["cub200", "cub200", "birds", "cars"]
    assert list(splits["testing"].super_labels.values()) == ["cub200"] * 4 + ["birds"] * 3 + ["cars"] * 3
    single = layouts.read_folder(tmp_path / "birds")["testing"]
    assert [os.path.abspath(path) for path in splits["testing"].paths[20:29]] == single.paths
    for scheme in ("class_disjoint", "mlrc"):
        flags = {"union": words[1:], "split_scheme": scheme, "split_partitions": 3}
        folds = [layouts.names(datasets.select("union", None, **flags, fold=fold)) for fold in range(3)]
        validated = [name for fold in folds for name in fold["validation"]]
        assert [name.partition("/")[0] for name in validated] == ["birds", "cars"] * 3 and len(set(validated)) == 6
        assert all(fold["testing"] == names["testing"][4:] and len(fold["training"]) == 4 for fold in folds)


def test_what_is_no_union_is_one_line(tmp_path):
    words = make_union(tmp_path)
    layouts.make_vehicleid(tmp_path)
    for union, match in (
        (words[:1], "needs --union A B"),
        ([*words, words[1]], "two domains are called birds"),
        (["vehicleid", words[1]], "--union vehicleid: its gallery is drawn at random"),
    ):
        with refused(match):
            layouts.partial("union", tmp_path, union=union)


def embedded_of(dataset, dim=3, seed=0):
    """Embeddings that are often equal."""
    rng = np.random.default_rng(seed)
    labels = np.array([label for _, label in dataset.image_list])
    features = rng.integers(-1, 2, (len(labels), dim)).astype(np.float32)
    return evaluation.Embedded({"discriminative": features + [1.5, 0, 0]}, labels, 0.0, dataset)


def by_loops(embedded, separate, k=5):
    """Domain -> R@1, mMP@k, MAP@k of its queries, by a loop over queries and one over the index."""
    dataset = embedded.dataset
    features = embedded.features["discriminative"].astype(np.float64)
    domains = [dataset.super_labels[label] for label in embedded.labels]
    values_of_domain = {}
    for query in np.flatnonzero(dataset.is_query).tolist():
        relevant = {embedded.labels[query], *dataset.further_labels.get(query, ())}
        domain = domains[query]
        ranked = []
        for row in np.flatnonzero(dataset.is_gallery).tolist():
            if row != query and (domains[row] == domain or not separate):
                ranked.append((((features[query] - features[row]) ** 2).sum(), row))
        hits = [domains[row] == domain and embedded.labels[row] in relevant for _, row in sorted(ranked)]
        n = min(sum(hits), k)
        if n:
            precisions = [sum(hits[: rank + 1]) / (rank + 1) for rank in range(k) if rank < len(hits) and hits[rank]]
            values_of_domain.setdefault(domain, []).append((hits[0], sum(hits[:n]) / n, sum(precisions) / n))
    return {domain: np.mean(values, axis=0) for domain, values in values_of_domain.items()}


@pytest.mark.parametrize("tester", ["global", "same_parent_label"])
@pytest.mark.parametrize("dataset", ["union", "uned"])
def test_merged_search_is_a_double_loop(tmp_path, small_uned, dataset, tester):
    flags = {"union": make_union(tmp_path)} if dataset == "union" else {}
    testing = layouts.partial(dataset, small_uned.parent, **flags)["testing"]
    names = ["e_recall@1", "mmp@5", "map@5"]
    words = ["--dataset", dataset, "--tester", tester, "--evaluation_metrics", *names, "nmi"]
    if flags:
        words += ["--union", *flags["union"]]
    opt = parameters.read(words)
    embedded = embedded_of(testing)
    checks.check({"test": testing}, opt)
    scores = evaluation.score({"test": embedded}, opt, Runtime(opt))["test"]
    expected = by_loops(embedded, separate=tester != "global")
    assert set(expected) == set(testing.super_labels.values())
    expected_means = np.mean([*expected.values()], axis=0)
    for column, name in enumerate(names):
        for domain, values in expected.items():
            assert scores[f"{domain}/{name}"] == pytest.approx(values[column]), (domain, name)
        assert scores[name] == pytest.approx(expected_means[column])
    assert scores["nmi"] == pytest.approx(np.mean([scores[f"{domain}/nmi"] for domain in expected]))


@pytest.mark.parametrize("tester", ["global", "same_parent_label"])
def test_a_query_finds_all_its_landmarks_in_dumps_and_pictures(small_uned, tester):
    testing = datasets.select("uned", None, small_uned.parent, 8)["testing"]
    opt = parameters.read(["--dataset", "uned", "--tester", tester])
    embedded = embedded_of(testing)
    task = from_splits.tasks({"test": embedded}, opt, "discriminative")["test"]
    asks = np.flatnonzero(testing.is_query)
    found_by = np.flatnonzero(testing.is_gallery)
    (row,) = testing.further_labels
    (query,) = np.flatnonzero(asks == row)
    landmarks = [embedded.labels[row], *testing.further_labels[row]]
    relevant = np.flatnonzero(np.isin(embedded.labels[found_by], landmarks))
    assert len(relevant) == task.findable()[0][query] == 4
    (ranked,) = queries.nearest(task, np.array([query]), len(found_by))
    (kinds,) = queries.judged(task, np.array([query]), [ranked])
    assert np.array_equal(np.sort(ranked[kinds == queries.RIGHT]), relevant)
    assert (kinds != queries.RIGHT).any() == (tester == "global")
    hits = np.isin(ranked, relevant)
    results = queries.results(task)
    assert results["hit"][query] == hits[0] and results["first_hit"][query] == np.argmax(hits) + 1
    precisions = [hits[: rank + 1].mean() for rank in range(4) if hits[rank]]
    assert results["ap_at_r"][query] == pytest.approx(sum(precisions) / 4)


def test_the_pin_of_the_standard():
    """Hits 1 0 1 1 0: n 3 -> 2/3, n 7 -> 3/5; 0 1 1 1 0, n 2 -> 1/2; mean .588889: three domains, whose mean it is."""
    values = []
    # of the third row's three hits the standard counts the first two
    for classes in (
        [1, 2, 1, 1, 2, 2],
        [1, 2, 1, 1, 2, 1, 1, 1, 1, 2],
        [2, 1, 1, 2, 2, 2],
    ):
        gallery = {"reference": np.arange(1.0, len(classes) + 1)[:, None], "reference_labels": classes}
        values.append(metrics.compute(["mmp@5"], np.zeros((1, 1)), [1], **gallery, exclude=[-1])["mmp@5"])
    assert values == pytest.approx([2 / 3, 3 / 5, 1 / 2]) and np.mean(values) == pytest.approx(0.588889, abs=5e-7)


def test_metrics_that_a_domain_does_not_have(small_uned):
    testing = datasets.select("uned", None, small_uned.parent, 8)["testing"]
    for words, match in (
        ("--evaluation_metrics e_recall@1 e_recall@1_group_gap", "domain by domain, and one has a single super-class"),
        ("--eval_reference_set compared_to_sets_combined", "queries of test show several classes"),
        ("--evaluation_metrics e_recall@1 h_ap", "whose levels are not compared"),
        ("--tester same_parent_label", "the distractors of test have no super-class"),
    ):
        opt = parameters.read(["--dataset", "uned", *words.split()])
        if "distractors" in match:
            checks.check({"test": testing}, opt)
            testing.counts["distractors"] = 1
        with refused(match):
            checks.check({"test": testing}, opt)


DOMAIN_SIZES = {"a": [8, 8, 8, 8], "b": [5, 1, 2], "c": [90, 30]}


def sampler_of(name, bs=8, m=2, **flags):
    """The sampler, labels `(N,)` and domain of each label."""
    domains = [domain for domain, sizes in DOMAIN_SIZES.items() for _ in sizes]
    sizes = sum(DOMAIN_SIZES.values(), [])
    sampler = datasampler.select(name, None, *make_data(sizes), bs=bs, samples_per_class=m, **flags)
    sampler.set_super_labels(dict(enumerate(domains)))
    return sampler, labels_of(sizes).numpy(), np.array(domains)


@pytest.mark.parametrize("name", ["domain_balanced", "domain_size", "domain_round_robin"])
@pytest.mark.parametrize("m", [1, 4])
def test_a_batch_is_of_one_domain_and_domains_have_their_shares(name, m):
    sampler, labels, domains = sampler_of(name, m=m)
    torch.manual_seed(0)
    turns = []
    for _ in range(100):
        batches = np.array(list(sampler))
        assert batches.shape == (160 // 8, 8)
        of_batch = domains[labels[batches]]
        of_class = labels[batches].reshape(20, -1, m)
        assert (of_batch == of_batch[:, :1]).all() and (of_class == of_class[:, :, :1]).all()
        turns.append(of_batch[:, 0])
        if name == "domain_round_robin":
            order = ["abc".index(letter) for letter in turns[-1]]
            assert order == [(order[0] + place) % 3 for place in range(20)]
            # All images of a domain come before any comes again
            rows = batches[turns[-1] == "a"].ravel()
            assert m > 1 or len(set(rows[:32])) == 32 and len(set(rows[32:])) == len(rows[32:])
    batches_of = {"a": 4, "b": 1, "c": 15} if name == "domain_size" else dict.fromkeys("abc", 20 / 3)
    for domain, expected in batches_of.items():
        counts = (np.array(turns) == domain).sum(1)
        assert counts.mean() == pytest.approx(expected, abs=0.2) and np.ptp(counts) <= (expected % 1 > 0)
    assert {turn[0] for turn in turns} == set("abc")
    assert any((turn[1:] == turn[:-1]).any() for turn in turns) == (name != "domain_round_robin")


def test_specialists_and_what_is_no_domain():
    sampler, labels, domains = sampler_of("domain_size", data_domains=["b", "a"])
    assert {domain for batch in sampler for domain in domains[labels[batch]]} == {"a", "b"}
    twice, *_ = sampler_of("domain_balanced", data_domains=["a", "a", "b"])
    assert [(domains[labels[np.array(list(twice))[:, 0]]] == "a").mean() for _ in range(3)] == [0.5] * 3
    with refused("--data_domains d: no domain of the training images; these are a, b, c"):
        sampler_of("domain_balanced", data_domains=["d"])
    with refused("6 of 9 classes have none"):
        sampler.set_super_labels(dict.fromkeys(range(3), "a") | dict.fromkeys(range(3, 9)))


OF_CLASSES = torch.tensor([0, 0, 1, 1, 1, 2])


def as_separate(name, batch, labels, vectors, **flags):
    """The loss of each domain's samples by a criterion of its classes alone, weighted by their number."""
    total = 0.0
    for domain in range(3):
        rows = torch.flatten((OF_CLASSES[labels] == domain).nonzero())
        domain_classes = torch.flatten((domain == OF_CLASSES).nonzero())
        if len(rows):
            criterion = (
                criteria.select(name, n_classes=len(domain_classes), embed_dim=batch.shape[1], **flags).double().eval()
            )
            criterion.proxies.data = vectors.unflatten(0, (6, -1))[domain_classes].flatten(0, 1)
            total = total + criterion(batch[rows], labels[rows] - domain_classes[0]) * len(rows) / len(labels)
    return total


@pytest.mark.parametrize("name", criteria.divisible())
@pytest.mark.parametrize("rows", [[0, 1, 1, 2, 4, 5, 5, 0], [2, 3, 4, 4, 2, 2]])
def test_a_classifier_a_domain_is_a_criterion_of_its_classes(name, rows):
    torch.manual_seed(0)
    labels = torch.tensor(rows)
    batch = torch.nn.functional.normalize(torch.randn(len(rows), 5, dtype=torch.float64)).requires_grad_()
    criterion = criteria.select(name, n_classes=6, embed_dim=5, separate_classifiers=True).double().eval()
    joint = criterion(batch, labels)
    criterion.own_domain.set_domains(OF_CLASSES)
    loss = criterion(batch, labels)
    assert not torch.isclose(loss, joint)
    # proxyanchor is no mean over samples, and has a loop of its own
    if name == "proxyanchor" and len(set(OF_CLASSES[labels].tolist())) > 1:
        expected = proxyanchor_by_loops(criterion, batch, labels)
    else:
        expected = as_separate(name, batch, labels, criterion.proxies.detach())
    assert loss.item() == pytest.approx(float(expected), rel=1e-9)
    # a vector of another domain's class, nearest of all, is not in the accuracy that is noted
    with torch.no_grad():
        seen = OF_CLASSES[labels][:, None] == OF_CLASSES
        similarities = criterion.similarities(batch, criterion.proxies).masked_fill(~seen, -torch.inf)
        assert criterion.stats["accuracy"] == (similarities.argmax(1) == labels).double().mean()
    gradients = torch.autograd.grad(loss, [batch, criterion.proxies])
    assert all(gradient.isfinite().all() for gradient in gradients)
    absent = [c for c in range(6) if OF_CLASSES[c] not in OF_CLASSES[labels]]
    assert not gradients[1].unflatten(0, (6, -1))[absent].any()
    assert criterion.bfloat16()(batch.detach().bfloat16(), labels).isfinite()


def proxyanchor_by_loops(criterion, batch, labels):
    unit = torch.nn.functional.normalize(criterion.proxies.detach())
    x = torch.nn.functional.normalize(batch.detach())
    positives = []
    negatives = []
    for c in range(6):
        is_member = labels == c
        in_domain = OF_CLASSES[labels] == OF_CLASSES[c]
        similarities = x @ unit[c]
        if is_member.any():
            terms = torch.exp(-criterion.alpha * (similarities[is_member] - criterion.delta))
            positives.append(torch.log(1 + terms.sum()))
        if in_domain.any():
            terms = torch.exp(criterion.alpha * (similarities[in_domain & ~is_member] + criterion.delta))
            negatives.append(torch.log(1 + terms.sum()))
    return sum(positives) / len(positives) + sum(negatives) / len(negatives)


def test_flags_of_separate_classifiers_are_checked(folder_data, capsys):
    for words, match in (
        ("--loss margin", "neither --loss margin nor --trainer metric_only"),
        ("--loss proxynca", "compares with the vectors of all classes"),
        ("--loss softmax --sample_classes .5", "--sample_classes 0.5"),
        ("--loss margin --trainer classifier --classifier_smoothing .1", "without smoothing"),
        ("--loss proxyanchor --metrix .4", "mixed points"),
        ("--loss softmax --trainer intrabatch", "has a classifier of all domains"),
        ("--loss softmax --trainer s2sd --s2sd_target proxynca", "--s2sd_target proxynca compares with the vectors of"),
        ("--loss hier --loss_hier_base proxynca --trainer classifier", "--loss_hier_base proxynca compares with"),
        ("--loss softmax --weight_regularizer regular_face", "repels the vectors of all domains"),
    ):
        with pytest.raises(SystemExit):
            parameters.read(f"--dataset union --union cub200 cars196 --separate_classifiers {words}".split())
        assert match in (message := capsys.readouterr().err) and message.count("\n") == 1, message
    training = layouts.read_folder(folder_data)["training"]
    with refused("--separate_classifiers: --dataset folder has no domains"):
        criteria.with_levels(criteria.select("softmax", n_classes=3, embed_dim=4, separate_classifiers=True), training)


def test_runs_record_each_domain_and_means_and_tables_show_both(tmp_path):
    """A checkpoint for each embedding's mean, none for a domain; tables know the means and the domains."""
    words = [
        *f"--dataset union --source_path {tmp_path} --save_path {tmp_path / 'runs'} --allow_partial_dataset".split(),
        *["--union", *make_union(tmp_path), *SHORT_RUN, "--evaluation_metrics", "map_r", "dists@intra"],
        *"--n_epochs 1 --loss softmax --separate_classifiers --no_train_metrics --group".split(),
    ]
    for group, evaltypes, flags in (
        ("one", ["discriminative"], ["--data_sampler", "domain_round_robin"]),
        ("two", ["discriminative", "Combined_discriminative"], ["--trainer", "classifier"]),
    ):
        run = main.main(parameters.read([*words, group, "--evaltypes", *evaltypes, *flags]))
        written = {path.name for path in run.folder.glob("checkpoint_Test_*")}
        assert written == {f"checkpoint_Test_{evaltype}_map_r.pth.tar" for evaltype in evaltypes}
    assert metric_group("discriminative/birds/map_r", ["discriminative", "other"]) == "discriminative_birds_map_r"
    runs = collect.collect([str(tmp_path / "runs")], [], FlagRoles(parameters.declared_roles()))[0]
    available = columns.recorded(runs)
    names = ["map_r", *(f"{evaltype}/map_r" for evaltype in evaltypes)]
    assert [column.metric for column in columns.performance(available)] == names
    expected = {name.replace("map_r", "dists@intra") for name in names}
    assert {column.metric for column in columns.structure(available)} == expected
    assert sorted(columns.by_domain(available)) == ["birds", "cars", "cub200"]
    domain_tables = tables.by_domain(groups.build([run for run in runs if run.group == "one"]), 1)
    titles = [table.title.partition(":")[0] for table in domain_tables]
    assert titles == ["union, birds", "union, cars", "union, cub200"]
    assert "MAP@R [birds] [%]" in domain_tables[0].head


def test_the_classifier_of_a_trainer_is_one_a_domain():
    def select(name, opt, *arguments):
        return trainers.select(name, opt.but(separate_classifiers=True), *arguments)

    trainer, _ = tiny.trainer("classifier", n_classes=6, make=select)
    trainer.own_domain.set_domains(OF_CLASSES)
    batch = tiny.batch([0, 2, 4, 5])
    outputs, losses = tiny.losses(trainer, batch)
    terms = []
    for row, label in zip(outputs["classifier_logits"], batch.labels.tolist(), strict=True):
        terms.append(torch.log(row[OF_CLASSES[label] == OF_CLASSES].exp().sum()) - row[label])
    assert losses["classifier_loss"].item() == pytest.approx(float(sum(terms) / 4))
