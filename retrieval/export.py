"""A run's network for other programs: ONNX, TorchScript, torch.export, safetensors; each is compared with the run
before it is kept.

The programs take images uint8 `(batch, 3, H, W)`, RGB, any number of them, and give embeddings float32
`(batch, D)`. Scaling, colour order and normalisation are inside; resizing and cropping, which come before, are
described in preprocessing.json.
"""

import contextlib
import json
import warnings
from pathlib import Path

import numpy as np
import torch

from datasets import _content
from retrieval import card, coding, data, exporting, pillow_code, sources, trackers, weights
from retrieval.folders import check_new, replacing_folder
from runs import Embedder
from utilities.console import propose, say
from utilities.errors import UserError

# number of images on which an export is compared with the run
IMAGES = 8


def export(flags) -> dict[str, float]:
    """Write the formats that the flags ask for with preprocessing.json, the files of trackers, and README.md.
    Returns format or tracker's file -> least cosine to the run's embeddings.

    Nothing is written if one of them fails. Raises UserError.
    """
    _check(flags)
    embedder = Embedder(flags.run_folder, flags.checkpoint, device="cpu", evaltype=flags.evaltype)
    if vars(embedder.opt).get("eval_long_side"):
        raise UserError(
            f"{flags.run_folder}: with --eval_long_side images keep their shapes, and an export takes one size"
        )
    if flags.tracker or flags.images is not None:
        embedder.check_images("leave out --tracker and --images")
    images, crops = _images_to_compare(embedder, flags.images)
    coded = None if flags.code is None else coding.learned(embedder, flags)
    _merge(embedder)
    embedder.module.requires_grad_(False)
    with replacing_folder(flags.out) as folder:
        checked = card.Checked({}, len(images), checkpoint=flags.checkpoint)
        if flags.format:
            checked = _formats(embedder, folder, flags, images, coded)
        if flags.tracker:
            comparisons = trackers.write(embedder, folder, flags.tracker, crops)
            checked = checked._replace(comparisons=tuple(comparisons))
        card.model_card(embedder, checked).save(folder / "README.md")
    for name, cosine in checked.cosines.items():
        say(f"{name}: least cosine to the run on {len(images)} images {cosine:.6f}")
    for comparison in checked.comparisons:
        say(comparison.text(len(images)))
    print("\n".join(f"written  {path}" for path in sorted(Path(flags.out).rglob("*")) if path.is_file()))
    if flags.push_to_hub:
        _push(flags)
    propose("cat", Path(flags.out) / "README.md")
    return checked.cosines | {comparison.file: comparison.cosine for comparison in checked.comparisons}


def _check(flags) -> None:
    """Raise UserError for flags that contradict each other, or a folder that is not new, before a network is built."""
    if not flags.format and not flags.tracker:
        raise UserError("an export needs --format, --tracker or both: what is to be written")
    if flags.code is not None and not flags.format:
        raise UserError(f"--code {flags.code} is not used by trackers, which store embeddings themselves: leave it out")
    check_new(flags.out)
    coding.check(flags)


def _formats(embedder: Embedder, folder: Path, flags, images: list, coded) -> "card.Checked":
    """Write the files of --format and preprocessing.json. Returns how they compare with the run."""
    expected = embedder(images)
    prepared = np.stack([embedder.preparation(image).numpy() for image in images])  # (n, 3, H, W)
    cosines = {}
    loading_code = None
    for name in dict.fromkeys(flags.format):
        if name == "safetensors":
            loading_code, embed = FORMATS[name](embedder, folder)
        else:
            embed = FORMATS[name](embedder, folder)
        cosines[name] = exporting.least_cosine(f"--format {name}", embed, prepared, expected)
    steps = preprocessing(embedder)
    if coded is not None:
        steps["output"]["code"] = coding.write(coded, folder)
    (folder / "preprocessing.json").write_text(json.dumps(steps, indent=1), encoding="utf-8")
    checked = card.Checked(cosines, len(images), loading_code, flags.checkpoint, steps["output"].get("code"))
    return checked._replace(**_preparation(embedder, images, prepared))


def _images_to_compare(embedder: Embedder, arguments: list[str] | None) -> tuple[list, list]:
    """`IMAGES` images, spread evenly over those of `--images`, by default over the run's test data.

    Returns their paths, and the same images cropped to their boxes, as trackers crop: uint8 `(3, H, W)`, or again the
    paths where there are no boxes.
    """
    dataset = None
    if arguments is not None:
        paths = sources.listed(arguments)
    else:
        try:
            dataset = data.split(embedder, "test")
        except UserError as error:
            raise UserError(
                f"the run's data are needed to compare the export with the run ({error}); give other images with "
                "--images"
            ) from error
        paths = data.inputs(dataset)
    rows = np.unique(np.linspace(0, len(paths) - 1, IMAGES).astype(int))
    images = [paths[row] for row in rows]
    if dataset is None or dataset.boxes is None:
        return images, images
    return images, [dataset.original(row) for row in rows]


def _preparation(embedder: Embedder, images: list, prepared: np.ndarray) -> dict:
    """The card's code that prepares an image, and its difference to the run's input on `images`."""
    lines = None if embedder.takes_features is not None else pillow_code.code(embedder.preparation)
    if lines is None:
        return {}
    files = [_content.opened(image) for image in images]
    return {"preparation": lines, "difference": pillow_code.greatest_difference(lines, files, prepared)}


def _merge(embedder: Embedder) -> None:
    """Make the low-rank updates of --lora_rank part of the weights."""
    if vars(embedder.opt).get("lora_rank"):
        for module in embedder.network.modules():
            if hasattr(module, "merge") and hasattr(module, "resting"):
                module.merge()
        embedder.network.eval()


def _example(embedder: Embedder) -> tuple:
    return (exporting.example(embedder.preparation.size),)


def torch_export(embedder: Embedder, folder: Path):
    """Write model.pt2. Returns it, loaded again, as a function: images -> embeddings."""
    with exporting.guarded("--format torch_export"):
        program = torch.export.export(embedder.module, _example(embedder), dynamic_shapes=exporting.any_number())
        torch.export.save(program, folder / "model.pt2")
        loaded = torch.export.load(folder / "model.pt2").module()
    return lambda images: loaded(torch.from_numpy(images)).detach().numpy()


def torchscript(embedder: Embedder, folder: Path):
    """Write model.pt, traced and frozen. Returns it, loaded again, as a function: images -> embeddings."""
    if not hasattr(torch.jit, "trace"):
        raise UserError(f"--format torchscript: torch {torch.__version__} has dropped it: take torch_export")
    with exporting.guarded("--format torchscript"):
        traced = torch.jit.freeze(torch.jit.trace(embedder.module, _example(embedder)).eval())
        traced.save(str(folder / "model.pt"))
        loaded = torch.jit.load(str(folder / "model.pt"))
    return lambda images: loaded(torch.from_numpy(images)).detach().numpy()


def onnx(embedder: Embedder, folder: Path):
    """Write model.onnx, with the weights beside it if they are too large for one file.
    Returns it as a function, run by onnxruntime.
    """
    return exporting.write_onnx(embedder.module, *_example(embedder), folder / "model.onnx", "--format onnx")


def safetensors(embedder: Embedder, folder: Path):
    """Write the weights alone, in the first of `weights.forms` whose network gives the run's embeddings.

    Returns the code of the model card, None for a network that no form fits, and a function, images -> embeddings.
    """
    (images,) = _example(embedder)
    with torch.no_grad():
        expected = embedder.module(images).numpy()
    path = folder / weights.FILE
    grid = getattr(embedder.network, "grid", None)
    for form in weights.forms(embedder):
        # the constructors of packages refuse in many ways; then the next form is tried
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            weights.write(path, form.state, embedder.opt.arch, grid)
            embed = form.loaded(path)
            exporting.least_cosine("--format safetensors", embed, images.numpy(), expected)
            if form.config is not None:
                (folder / "config.json").write_text(json.dumps(form.config, indent=1), encoding="utf-8")
            return form.code, embed
    weights.write(path, embedder.network.state_dict(), embedder.opt.arch, grid)
    weights.read_into(path, embedder.network)
    return None, lambda images: embedder.module(torch.from_numpy(images)).detach().numpy()


FORMATS = {"onnx": onnx, "torchscript": torchscript, "torch_export": torch_export, "safetensors": safetensors}


def preprocessing(embedder: Embedder) -> dict:
    """The content of preprocessing.json: the steps from an image file to a program's input,
    the steps inside, and the output.
    """
    network = embedder.network
    blank = embedder.preparation.blank(1)
    name, _ = exporting.described_input(embedder.preparation.size)
    kind = str(blank.dtype).removeprefix("torch.")
    steps = {
        "before": embedder.preparation.described(),
        "input": {"name": name, "shape": ["batch", *blank.shape[1:]], "type": kind},
    }
    if embedder.takes_features is None:
        steps["input"] |= {"colours": "RGB", "values": [0, 255]}
        steps["inside"] = {
            "programs": (
                "model.onnx, model.pt and model.pt2 do this themselves; for model.safetensors the code in README.md "
                "does"
            ),
            "colours": getattr(network, "input_space", "RGB"),
            "white": getattr(network, "input_range", 1),
            "mean": list(getattr(network, "mean", [])),
            "std": list(getattr(network, "std", [])),
        }
    steps["output"] = {
        "name": "embeddings",
        "shape": ["batch", embedder.dimensions],
        "type": "float32",
        "distance": "euclidean",
        "unit_length": bool(getattr(network, "normalizes", False)),
    }
    return steps


def _push(flags) -> None:
    import huggingface_hub

    hub = huggingface_hub.HfApi()
    try:
        hub.create_repo(flags.push_to_hub, exist_ok=True)
        hub.upload_folder(repo_id=flags.push_to_hub, folder_path=str(flags.out))
    except Exception as error:
        # the errors of the client and its transport change with their versions
        raise UserError(
            f"--push_to_hub {flags.push_to_hub}: not uploaded ({exporting.line(error)}). {flags.out} is whole; `hf "
            "auth login` lets you in"
        ) from error
    print(f"uploaded to {flags.push_to_hub}")
