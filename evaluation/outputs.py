"""The files of an evaluation: pictures and embeddings of the best epoch, and a run measured again (`--evaluate`)."""

import functools
import json
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset
from tqdm import tqdm

import datasets
import evaluation
import metrics
from engine.random_state import random_states, set_random_states
from evaluation import from_splits, galleries, pair_scores, queries, trec
from evaluation.task import Task, take_rows
from pictures import can_draw, curves, space
from pictures.neighbours import Rankings, recoveries
from pictures.text import TITLE_SIZE, fitted
from runs import checkpoint, reports
from runs.changes import changes_of_data
from runs.folder import RunFolder, describe, measurement, run_folder
from runs.idle import overruled
from runs.records.damaged import as_folder
from utilities.console import say
from utilities.files import json_safe, new_folder, write_json, write_npz
from utilities.hyperbolic import Ball

NEIGHBOURS = 7  # images beside a query in a picture
TITLE_WIDTH = 180  # points that a group's name may take in a title
# array of a file of embeddings -> attribute of a data set
OF_IMAGES = {"group": "groups", "time": "times", "sequence_names": "cameras", "frame": "frames"}


def on_test(run, splits: dict, runtime) -> dict:
    """Evaluate the selected epoch's checkpoint on test, and write its queries' results if asked.
    Returns {"test": {metric: value}}.
    """
    opt = run.opt.but(splits_to_eval=["test"])
    states = random_states()
    network = runtime.place(RunFolder(run.folder).network(evaltypes=opt.evaltypes))
    loaders = evaluation.loaders(splits, opt, runtime.ranks)
    run.roles |= evaluation.roles(loaders, opt)
    scores, embedded = evaluation.evaluate(network, loaders, opt, runtime)
    # a run that later gets more epochs draws as one that had them from the start
    set_random_states(states)
    if run.writes and opt.dump_query_results:
        trec.dump_query_results(run.folder, embedded, opt, run.state["selected"]["epoch"])
    if run.writes and opt.rerank_pairs is not None:
        pair_scores.dump(run.folder, embedded, opt, run.state["selected"]["epoch"])
    return scores


def of_best_epoch(run, embedded: dict) -> None:
    """Write the files of the epoch just evaluated that the flags ask for,
    and draw its pictures, unless `--no_records`.
    """
    dump_requested(run.folder, embedded, run.opt, run.epoch)
    if not run.opt.no_records:
        title = _title(run.opt.group, run.epoch)
        with tqdm(total=0, desc=f"pictures of epoch {run.epoch}", bar_format="{desc}", leave=False, disable=None):
            for path in draw_pictures(run.folder, embedded, run.selection.split, run.opt, title):
                run.add_picture(path)


def draw_curves(run) -> None:
    """Draw the curves of metrics.csv into Progression_Plots/; not with `--no_records`,
    and not where nothing was measured.
    """
    measured = run.epoch or run.state["untrained"]
    if not (run.writes and measured) or run.opt.no_records or not can_draw():
        return
    try:
        curves.draw_curves(run.folder)
    except Exception as error:
        # a picture never stops a run
        print(f"the curves failed ({type(error).__name__}: {error}); the run goes on")


def draw_curves_if_due(run) -> None:
    """Every `--plot_every` epochs, draw the curves."""
    if run.opt.plot_every and run.epoch % run.opt.plot_every == 0:
        draw_curves(run)


def draw_pictures(folder: Path, embedded: dict, split: str, opt, title: str) -> list[Path]:
    """Draw all pictures of one epoch into `folder`, in about two seconds whatever the number of images.

    The t-SNE takes longer, and so does the CMC curve of queries and a gallery, for which all queries search once more.

    `embedded`: split -> `evaluation.Embedded`; `split`: whose queries are shown;
    `title`: run and epoch. Returns the paths, none without matplotlib.
    """
    if not can_draw():
        return []
    tasks = from_splits.tasks(embedded, opt, opt.evaltypes[0])
    ball = metrics.ball(opt)
    paths = _draw_queries(folder, embedded, split, tasks[split], opt, title)
    if any(task.pool is not None for task in tasks.values()):
        title += ", queries and gallery"
    rows = {}
    features = {}
    labels = {}
    parents = {}
    for name, task in tasks.items():
        if (task.classified.labels >= 0).any():
            rows[name] = task.classified
            features[name] = task.classified.features
            labels[name] = task.classified.labels
            parents[name] = task.classified.parents
    # no image has a class
    if not rows:
        return paths
    paths.append(space.spectra(folder / "spectrum.png", features, opt.seed, title))
    paths.append(space.distances(folder / "distances.png", features, labels, parents, opt.seed, title, ball))
    if not opt.eval_size_of_tsne:
        return paths
    class_names = from_splits.class_names(embedded, opt)
    for name, of_split in rows.items():
        path = folder / f"tsne_{name}.png"
        supers = None
        if opt.label_hierarchy_level == 0:
            supers = take_rows(queries.super_classes(embedded[name]), tasks[name].classified.ids)
        points = space.Points(of_split.features, of_split.labels, class_names[name], supers, ball)
        if space.tsne(path, points, opt.eval_size_of_tsne, opt.seed, f"{title}: t-SNE of {name}"):
            paths.append(path)
    return paths


def _draw_queries(folder: Path, embedded: dict, split: str, task: Task, opt, title: str) -> list[Path]:
    """Draw what the queries of a split find: a sample of them, the worst, and with a gallery their CMC curve."""
    sources = from_splits.sources_of(split, from_splits.scored(embedded, opt), opt)
    images = _subset(embedded[split].dataset, task.queries.ids)
    gallery_images = images
    if task.gallery is not None:
        gallery_images = _subset(ConcatDataset([embedded[source].dataset for source in sources]), task.gallery.ids)
    scope = f"on {split}"
    if sources != [split]:
        scope += f" in {', '.join(sources)}"
    elif task.pool is not None:
        scope += " in its gallery"
    protocol = next(iter(task.relevance or [""]))
    if protocol:
        scope += f", {protocol}"
    ball = metrics.ball(opt)
    picture = functools.partial(
        recoveries,
        images=(images, gallery_images),
        task=task,
        class_names=from_splits.class_names(embedded, opt)[split],
        ball=ball,
    )
    paths = []
    worst = ()
    # rows of features show nothing
    if getattr(embedded[split].dataset, "width", None) is None:
        paths.append(folder / "sample_recoveries.png")
        sampled = queries.sample_queries(task.queries.labels, opt.seed)
        picture(paths[0], rankings=_rankings(task, sampled, ball), title=f"{title}: nearest neighbours {scope}")
        worst, notes = queries.worst_queries(task, opt.seed, ball)
    if len(worst):
        paths.append(folder / "worst_queries.png")
        picture(paths[-1], rankings=_rankings(task, worst, ball, notes), title=f"{title}: worst queries {scope}")
    if task.pool is not None:
        # metrics leave out queries without lists
        skips = bool(opt.eval_skip_unmatched) or task.relevance is not None
        ranks = queries.first_hits(task, skips, ball)
        if len(ranks):
            paths.append(space.cmc(folder / "cmc.png", ranks, f"{title}, {scope}"))
    return paths


def _rankings(task: Task, rows: np.ndarray, ball: Ball | None, notes=()) -> Rankings:
    """The nearest neighbours of the queries `rows`, for a picture."""
    neighbours = queries.nearest(task, rows, NEIGHBOURS, ball)
    return Rankings(rows, neighbours, queries.judged(task, rows, neighbours), notes)


def _subset(dataset, rows: np.ndarray | None):
    """The images `rows` of a data set; all if it is None."""
    return dataset if rows is None else Subset(dataset, rows)


def of_untrained(run, epoch: int, scores: dict, embedded: dict) -> dict:
    """Where nothing is trained, write the files that the flags ask for,
    of the untrained network (epoch 0). Returns `scores`.
    """
    if run.writes and run.opt.n_epochs == 0 and epoch == 0:
        for path in dump_requested(run.folder, embedded, run.opt, epoch):
            print(f"written  {path}")
    return scores


def dump_requested(folder: Path, embedded: dict, opt, epoch: int, instead: Path | None = None) -> list[Path]:
    """Write what `--dump_embeddings` and `--dump_query_results` ask for, and the scores of `--rerank_pairs`; `instead`
    as in `dump`. Returns the paths.
    """
    paths = []
    if opt.dump_embeddings:
        paths += dump(folder, embedded, opt, instead)
    if opt.dump_query_results:
        paths += trec.dump_query_results(folder, embedded, opt, epoch, instead)
    if opt.rerank_pairs is not None:
        paths += pair_scores.dump(folder, embedded, opt, epoch, instead)
    return paths


def dump(folder: Path, embedded: dict, opt, instead: Path | None = None) -> list[Path]:
    """Write `embeddings_<split>.npz` for each split, with several evaltypes `embeddings_<split>_<evaltype>.npz`.
    Returns the paths.

    `python -m evaluation` reads such a file. It holds `features` `(N, D)` float32 as they were measured, after
    --eval_pca, `labels` `(N,)`, `flags`, the JSON of the evaluation's flags with `split` and `selected_on`, the split
    that selected the epoch, and where the data set has them `paths`, `class_names`, `super_names`, `domains`,
    `is_query`, `is_gallery`, `sequence`, `group`, `time`, of films `sequence_names`, `track`, `frame` `(N,)`,
    `higher_names` `(N, L - 2)` of the levels above the super-classes and `role_draws` `(D, N)` (not with --eval_pca or
    --eval_whiten, which may differ from draw to draw).
    Under `--eval_space hyperbolic` features are the tangent vectors, and `points` `(N, D)` float32 are their points of
    the Poincare ball, which the flags name. `instead`: the folder for a file whose name is taken in `folder`.
    """
    ball = metrics.ball(opt)
    measured = opt.measured()
    if ball is not None:
        measured |= {"eval_space_c": ball.c, "eval_space_clip_r": ball.clip_r}
    measured["selected_on"] = _selected_on(embedded, opt)
    paths = []
    features = {evaltype: from_splits.projected(embedded, evaltype, opt) for evaltype in opt.evaltypes}
    for split, of_split in embedded.items():
        arrays = _arrays(of_split, opt)
        flags = np.array(json.dumps({**measured, "split": split}))
        for evaltype in opt.evaltypes:
            name = queries.file_name(split, evaltype, opt.evaltypes, "embeddings")
            if ball is not None:
                arrays["points"] = ball.in_ball(torch.from_numpy(features[evaltype][split])).numpy()
            place = folder
            if instead is not None and (folder / name).exists():
                place = instead
            paths.append(place / name)
            write_npz(paths[-1], dict(features=features[evaltype][split], flags=flags, **arrays))
    return paths


def _selected_on(embedded: dict, opt) -> str | None:
    """The split on which the epoch was selected; None for frozen networks and for data of another run."""
    if opt.job == "evaluate_only" or opt.n_epochs == 0 or opt.other_data:
        return None
    has_validation = opt.is_cross_validation or opt.use_tv_split or "val" in embedded
    return "val" if has_validation else "test"


def _arrays(embedded: evaluation.Embedded, opt) -> dict[str, np.ndarray]:
    """The arrays of a split's file of embeddings, but for the features and the flags."""
    arrays = {}
    # Where no image has a class there are no labels: lists say what is relevant.
    if (embedded.labels >= 0).any():
        arrays["labels"] = embedded.labels
    arrays |= queries.described(embedded)
    arrays |= galleries.dumped(galleries.roles_of(embedded.dataset, len(embedded.labels)))
    for name, attribute in OF_IMAGES.items():
        values = getattr(embedded.dataset, attribute, None)
        if values is not None:
            arrays[name] = values
    if "frame" in arrays:
        arrays["track"] = arrays["class_names"]
    draws = getattr(embedded.dataset, "role_draws", None)
    if draws is not None and opt.eval_pca is None and opt.eval_whiten is None:
        arrays["role_draws"] = draws
    supers = queries.super_classes(embedded)
    if supers is not None:
        arrays["super_names"] = supers
        arrays |= queries.higher_names(embedded)
    domains = from_splits.domains_of(embedded)
    if domains is not None:
        arrays["domains"] = domains
    return arrays


def evaluate_run(model, splits: dict, opt, runtime) -> dict:
    """Measure the best network of a finished run, print the table, and write `evaluation_<checkpoint>.json` and
    pictures beside the records.

    Nothing that the training wrote is touched. The same flags and data write the same file again; others get a new
    number. Embeddings go beside the pictures of that number where the run has some already, or where they are of other
    data. Returns split -> {metric: value}. Raises UserError where the run's own data changed.
    """
    folder = run_folder(opt)
    loaders = evaluation.loaders(splits, opt, runtime.ranks)
    if not opt.other_data:
        changes_of_data(folder, datasets.record(splits), opt)
    state = checkpoint.read(folder / checkpoint.LAST)["run"]
    name = checkpoint.selected(folder, state).name
    epoch = state["selected"]["epoch"]
    evaluation.check(model, loaders, opt, runtime)
    scores, embedded = evaluation.evaluate(model, loaders, opt, runtime)
    if not runtime.ranks.writes:
        return scores
    data = _data(loaders, opt)
    settings = {"flags": opt.measured(), "other_data": opt.other_data or None}
    target = measurement(folder / f"evaluation_{name.removeprefix('checkpoint_').removesuffix('.pth.tar')}", settings)
    write_json(target, {"checkpoint": name, "epoch": epoch, **settings, "data": data, "values": jsonable(scores)})
    pictures = as_folder(target.with_suffix(""))
    title = _title(RunFolder(folder).flags["group"], epoch)
    data_note = ""
    if opt.other_data:
        title += ", on other data"
        data_note = f", on {data['root']}"
    draw_pictures(pictures, embedded, _first_split(scores), opt, title)
    place = pictures if opt.other_data else folder
    written = [target, pictures, *dump_requested(place, embedded, opt, epoch, instead=pictures)]
    for text in overruled(opt):
        say(f"note  {text}")
    if opt.dataset_fixes is None and RunFolder(folder).flags.get("dataset_fixes") is not None:
        say("note  the run's --dataset_fixes names its own images: it is not applied to these")
    print(f"\n{folder / name}, epoch {epoch}{data_note}\n\n{table(scores)}\n")
    for path in written:
        print(f"written  {path}")
    return scores


def evaluate_untrained(model, splits: dict, opt, runtime) -> dict:
    """Measure an untrained network and its bare backbone, print the table, and write a new folder: flags,
    evaluation.json, pictures, and the files that the flags ask for.

    Returns split -> {metric: value} of the network.
    """
    loaders = evaluation.loaders(splits, opt, runtime.ranks)
    evaluation.check(model, loaders, opt, runtime)
    bare = {}
    if opt.embed_dim:
        bare, _ = evaluation.evaluate(model, loaders, opt, runtime, bare=True)
    scores, embedded = evaluation.evaluate(model, loaders, opt, runtime)
    if not runtime.ranks.writes:
        return scores
    folder = new_folder(run_folder(opt))
    describe(folder, opt)
    write_json(
        folder / "evaluation.json",
        {"data": _data(loaders, opt), "values": jsonable(scores), "bare_backbone": jsonable(bare)},
    )
    if not opt.no_records and can_draw():
        draw_pictures(folder, embedded, _first_split(scores), opt, fitted(opt.arch, TITLE_SIZE, TITLE_WIDTH))
    dump_requested(folder, embedded, opt, epoch=0)
    print(f"\n{opt.arch}, weights: {model.weights_name}\n")
    columns = {"network": plain(scores)}
    if bare:
        columns = {"bare backbone": plain(bare), **columns}
    print(reports.table(columns))
    print(f"\nwritten  {folder}")
    return scores


def plain(scores: dict) -> dict:
    """split -> {metric: value}, without arrays."""
    numbers = {}
    for split, values in scores.items():
        numbers[split] = {name: value for name, value in values.items() if not np.ndim(value)}
    return numbers


def _first_split(scores: dict) -> str:
    """The split whose queries pictures show."""
    for split in ("val", "test"):
        if split in scores:
            return split
    return "train"


def _title(group: str, epoch: int) -> str:
    """The title of the pictures, short enough to fit; not measured where nothing can be drawn."""
    if not can_draw():
        return f"{group}, epoch {epoch}"
    return f"{fitted(group, TITLE_SIZE, TITLE_WIDTH)}, epoch {epoch}"


def _data(loaders: dict, opt) -> dict:
    """The data that were measured: name, folder, fingerprint of the files, counts of each split."""
    datasets = {split: evaluation.without_seeds(loader.dataset) for split, loader in loaders.items()}
    first = next(iter(datasets.values()))
    return {
        "dataset": opt.dataset,
        "dataset_name": opt.dataset_name,
        "root": getattr(first, "root", None),
        "fingerprint": getattr(first, "fingerprint", None),
        "counts": {split: getattr(dataset, "counts", None) for split, dataset in datasets.items()},
        **_roles(loaders, opt),
    }


def about_data(splits: dict, loaders: dict, opt) -> dict:
    """`datasets.record`, and under `roles` a line on each measured split that has queries and a gallery."""
    return {**datasets.record(splits), **_roles(loaders, opt)}


def _roles(loaders: dict, opt) -> dict:
    roles = evaluation.roles(loaders, opt)
    return {"roles": roles} if roles else {}


def table(scores: dict, column: str = "value") -> str:
    """Text table of split -> {metric: value}; of an array, its length alone."""
    numbers = plain(scores)
    lengths = []
    for split, values in scores.items():
        lengths += [f"{split}  {name}: {len(value)} values" for name, value in values.items() if np.ndim(value)]
    return "\n".join([reports.table({column: numbers}), *lengths])


def jsonable(scores: dict) -> dict:
    """The scores with arrays as lists, and None for NaN."""
    lists = {}
    for split, values in scores.items():
        lists[split] = {name: np.asarray(value).tolist() for name, value in values.items()}
    return json_safe(lists)
