"""What is kept of an evaluation: pictures and embeddings of the best epoch, and a finished run measured again (`--evaluate`)."""

import json
from pathlib import Path

import numpy as np

import evaluation
from evaluation import charts, pictures, spaces
from runs import checkpoint, reports
from runs.folder import RunFolder, json_safe, measurement, run_folder
from runs.records.damaged import as_folder
from utilities.files import replacing

TITLE_WIDTH = 180  # points that a group's name may take in a title


def on_test(run, splits: dict, runtime) -> dict:
    """What the selected epoch's checkpoint of a run gives on test. Returns {"test": {metric: value}}."""
    opt = run.opt.but(splits_to_eval=["test"])
    network = runtime.place(RunFolder(run.folder).network(evaltypes=opt.evaltypes))
    return evaluation.evaluate(network, evaluation.loaders(splits, opt, runtime.ranks), opt, runtime)[0]


def of_best_epoch(run, embedded: dict) -> None:
    """Draw the pictures of the epoch just evaluated, unless `--no_records`, and write its embeddings with `--dump_embeddings`."""
    if not run.opt.no_records:
        for path in pictures.draw(run.folder, embedded, run.selection.split, run.opt, _title(run.opt.group, run.epoch)):
            run.add_picture(path)
    if run.opt.dump_embeddings:
        dump(run.folder, embedded, run.opt)


def of_untrained(run, epoch: int, scores: dict, embedded: dict) -> dict:
    """Write the untrained network's embeddings (epoch 0) where nothing is trained and `--dump_embeddings` asks for them: the scores."""
    if run.writes and run.opt.dump_embeddings and run.opt.n_epochs == 0 and epoch == 0:
        print("\n".join(f"written  {path}" for path in dump(run.folder, embedded, run.opt)))
    return scores


def dump(folder: Path, embedded: dict, opt, instead: Path | None = None) -> list[Path]:
    """Write `embeddings_<split>.npz` for each split, with several evaltypes `embeddings_<split>_<evaltype>.npz`. Returns the paths.

    A file holds `features` `(N, D)` float32 as they were measured, after --eval_pca, `labels` `(N,)`, `paths`, `class_names` and
    `super_names` `(N,)` where the data set knows them, and `flags`, the JSON of the evaluation's flags. `python -m evaluation` reads it.
    Where `folder` has a file of that name already, it goes to the folder `instead`, if that is given.
    """
    paths, flags = [], np.array(json.dumps(opt.measured()))
    features = {evaltype: _measured(embedded, evaltype, opt) for evaltype in opt.evaltypes}
    for split, e in embedded.items():
        about = {}
        if hasattr(e.dataset, "paths"):
            about["paths"] = np.array([str(path) for path in e.dataset.paths])
        if hasattr(e.dataset, "class_names"):
            about["class_names"] = np.array([str(e.dataset.class_names[label]) for label in e.labels.tolist()])
        if (supers := pictures.super_classes(e)) is not None:
            about["super_names"] = supers
        for evaltype in opt.evaltypes:
            name = f"embeddings_{split}.npz" if len(opt.evaltypes) == 1 else f"embeddings_{split}_{evaltype}.npz"
            paths.append((instead if instead is not None and (folder / name).exists() else folder) / name)
            with replacing(paths[-1], "wb") as file:
                np.savez(file, features=features[evaltype][split], labels=e.labels, flags=flags, **about)
    return paths


def _measured(embedded: dict, evaltype: str, opt) -> dict[str, np.ndarray]:
    """split -> the features `(N, D)` that the metrics are given: the principal components, where these are asked for."""
    if opt.eval_pca is None:
        return {split: evaluation.of_type(e.features, evaltype) for split, e in embedded.items()}
    return {split: compared.space.features for split, compared in spaces.compare(embedded, evaltype, opt).items()}


def again(model, loaders: dict, opt, runtime) -> dict:
    """Measure the best network of a finished run, print the table, and write `evaluation_<checkpoint>.json` and pictures beside the records.

    Nothing that the training wrote is touched. Other flags, and other data, get another number, the same flags the same file.
    Embeddings go beside the pictures of that number where the run has some already, or where they are of other data.
    Returns split -> {metric: value}.
    """
    folder = run_folder(opt)
    state = checkpoint.read(folder / checkpoint.LAST)["run"]
    name, epoch = state["selected"].get("checkpoint", checkpoint.LAST), state["selected"]["epoch"]
    evaluation.check(model, loaders, opt, runtime)
    scores, embedded = evaluation.evaluate(model, loaders, opt, runtime)
    if not runtime.ranks.writes:
        return scores
    data, about = _data(loaders, opt), {"flags": opt.measured(), "other_data": opt.other_data or None}
    target = measurement(folder / f"evaluation_{name.removeprefix('checkpoint_').removesuffix('.pth.tar')}", about)
    with replacing(target) as file:
        json.dump({"checkpoint": name, "epoch": epoch, **about, "data": data, "values": jsonable(scores)}, file, indent=1)
    drawn = as_folder(target.with_suffix(""))
    shown = next(split for split in ("val", "test", "train") if split in scores)
    on = f", on {data['root']}" if about["other_data"] else ""
    pictures.draw(drawn, embedded, shown, opt, _title(RunFolder(folder).flags["group"], epoch) + (", on other data" if on else ""))
    place = drawn if on else folder
    written = [target, drawn, *(dump(place, embedded, opt, instead=drawn) if opt.dump_embeddings else [])]
    print(f"\n{folder / name}, epoch {epoch}{on}\n\n{table(scores)}\n")
    print("\n".join(f"written  {path}" for path in written))
    return scores


def _title(group: str, epoch: int) -> str:
    """What the pictures are of, short enough to stand above them."""
    return f"{charts.fitted(group, charts.TITLE_SIZE, TITLE_WIDTH)}, epoch {epoch}"


def _data(loaders: dict, opt) -> dict:
    """What the data are that were measured: their name, where they lie, the fingerprint of their files, counts of each split."""
    there = {split: evaluation.without_seeds(loader.dataset) for split, loader in loaders.items()}
    one = next(iter(there.values()))
    return {
        "dataset": opt.dataset,
        "dataset_name": opt.dataset_name,
        "root": getattr(one, "root", None),
        "fingerprint": getattr(one, "fingerprint", None),
        "counts": {split: getattr(dataset, "counts", None) for split, dataset in there.items()},
    }


def table(scores: dict, column: str = "value") -> str:
    """Text table of split -> {metric: value}; of an array its length is told."""
    arrays = [(split, name) for split, values in scores.items() for name, value in values.items() if np.ndim(value)]
    numbers = {split: {name: value for name, value in values.items() if (split, name) not in arrays} for split, values in scores.items()}
    lengths = [f"{split}  {name}: {len(scores[split][name])} values" for split, name in arrays]
    return "\n".join([reports.table({column: numbers}), *lengths])


def jsonable(scores: dict) -> dict:
    """The scores with arrays as lists, and None for NaN."""
    return json_safe({split: {name: np.asarray(value).tolist() for name, value in values.items()} for split, values in scores.items()})
