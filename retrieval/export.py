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
from retrieval import card, coding, data, pillow_code, sources, weights
from retrieval.folders import check_new, replacing_folder
from runs import Embedder
from utilities.console import propose, say
from utilities.errors import UserError
from utilities.programs import IS_PACKAGE

IMAGES = 8  # on which an export is compared with the run
COSINE = 0.9999  # the least that is allowed
LARGEST_ONNX = 1_800_000_000  # bytes of weights within an .onnx file, whose format ends at 2 GiB
ONNX_PACKAGES = "pip install 'dmlkit[export]'" if IS_PACKAGE else "pip install onnx onnxscript onnxruntime"
OTHERWISE = "take another --format"


def export(flags) -> dict[str, float]:
    """Write the formats that the flags ask for, preprocessing.json and README.md.
    Returns format -> least cosine to the run's embeddings.

    Nothing is written if one of them fails. Raises UserError.
    """
    check_new(flags.out)
    coding.check(flags)
    embedder = Embedder(flags.run_folder, flags.checkpoint, device="cpu", evaltype=flags.evaltype)
    if vars(embedder.opt).get("eval_long_side"):
        raise UserError(
            f"{flags.run_folder}: with --eval_long_side images keep their shapes, and an export takes one size"
        )
    images = _images_to_compare(embedder, flags.images)
    expected = embedder(images)
    prepared = np.stack([embedder.preparation(image).numpy() for image in images])  # (n, 3, H, W)
    coded = None if flags.code is None else coding.learned(embedder, flags)
    _merge(embedder)
    embedder.module.requires_grad_(False)
    with replacing_folder(flags.out) as folder:
        cosines = {}
        loading_code = None
        for name in dict.fromkeys(flags.format):
            if name == "safetensors":
                loading_code, embed = FORMATS[name](embedder, folder)
            else:
                embed = FORMATS[name](embedder, folder)
            cosines[name] = _compare(name, embed, prepared, expected)
        steps = preprocessing(embedder)
        if coded is not None:
            steps["output"]["code"] = coding.write(coded, folder)
        (folder / "preprocessing.json").write_text(json.dumps(steps, indent=1), encoding="utf-8")
        checked = card.Checked(cosines, len(images), loading_code, flags.checkpoint, steps["output"].get("code"))
        checked = checked._replace(**_preparation(embedder, images, prepared))
        card.model_card(embedder, checked).save(folder / "README.md")
    for name, cosine in cosines.items():
        say(f"{name}: least cosine to the run on {len(images)} images {cosine:.6f}")
    print("\n".join(f"written  {path}" for path in sorted(Path(flags.out).iterdir())))
    if flags.push_to_hub:
        _push(flags)
    propose("cat", Path(flags.out) / "README.md")
    return cosines


def _images_to_compare(embedder: Embedder, arguments: list[str] | None) -> list:
    """`IMAGES` images, spread evenly over those of `--images`, by default over the run's test data."""
    if arguments is not None:
        paths = sources.listed(arguments)
    else:
        try:
            paths = data.split(embedder, "test").paths
        except UserError as error:
            raise UserError(
                f"the run's data are needed to compare the export with the run ({error}); give other images with "
                "--images"
            ) from error
    rows = np.unique(np.linspace(0, len(paths) - 1, IMAGES).astype(int))
    return [paths[row] for row in rows]


def _preparation(embedder: Embedder, images: list, prepared: np.ndarray) -> dict:
    """The card's code that prepares an image, and its difference to the run's input on `images`."""
    lines = pillow_code.code(embedder.preparation)
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


def _compare(name: str, embed, prepared: np.ndarray, expected: np.ndarray) -> float:
    """The least cosine to the run's embeddings, of one image alone and of all at once. Raises UserError below `COSINE`.

    Args:
        embed: the exported network, images -> embeddings. prepared: images `(n, 3, H, W)`. expected: the run's
        embeddings `(n, D)`.
    """
    least = 1.0
    for batch in (slice(0, 1), slice(None)):
        try:
            embeddings = np.asarray(embed(prepared[batch]), dtype=np.float64)
        except Exception as error:  # each runtime raises its own
            raise UserError(f"--format {name}: what was written cannot be run ({_line(error)}): {OTHERWISE}") from error
        if embeddings.shape != expected[batch].shape or not np.isfinite(embeddings).all():
            raise UserError(
                f"--format {name}: it gives {embeddings.shape}, the run {expected[batch].shape}, or NaN or infinity: "
                f"{OTHERWISE}"
            )
        lengths = np.linalg.norm(embeddings, axis=1) * np.linalg.norm(expected[batch], axis=1)
        cosines = (embeddings * expected[batch]).sum(1) / np.maximum(lengths, 1e-30)
        least = min(least, float(cosines.min()))
    if least < COSINE:
        raise UserError(
            f"--format {name}: its embeddings have a cosine of {least:.6f} to the run's, below {COSINE}: {OTHERWISE}"
        )
    return least


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


@contextlib.contextmanager
def _exporting(name: str):
    """Inside, torch's warnings are silent, and a failed export raises UserError."""
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    except (ImportError, OSError, UserError):
        raise
    except Exception as error:  # tracing, or any layer, may raise anything
        raise UserError(f"--format {name}: this network cannot be written so ({_line(error)}): {OTHERWISE}") from error


def _example(embedder: Embedder) -> tuple:
    """Two images: with one, the number of images would be taken for fixed."""
    generator = torch.Generator().manual_seed(0)
    return (torch.randint(0, 256, (2, 3, *embedder.preparation.size), dtype=torch.uint8, generator=generator),)


def _any_number() -> dict:
    return {"images": {0: torch.export.Dim("batch")}}


def torch_export(embedder: Embedder, folder: Path):
    """Write model.pt2. Returns it, loaded again, as a function: images -> embeddings."""
    with _exporting("torch_export"):
        program = torch.export.export(embedder.module, _example(embedder), dynamic_shapes=_any_number())
        torch.export.save(program, folder / "model.pt2")
        loaded = torch.export.load(folder / "model.pt2").module()
    return lambda images: loaded(torch.from_numpy(images)).detach().numpy()


def torchscript(embedder: Embedder, folder: Path):
    """Write model.pt, traced and frozen. Returns it, loaded again, as a function: images -> embeddings."""
    if not hasattr(torch.jit, "trace"):
        raise UserError(f"--format torchscript: torch {torch.__version__} has dropped it: take torch_export")
    with _exporting("torchscript"):
        traced = torch.jit.freeze(torch.jit.trace(embedder.module, _example(embedder)).eval())
        traced.save(str(folder / "model.pt"))
        loaded = torch.jit.load(str(folder / "model.pt"))
    return lambda images: loaded(torch.from_numpy(images)).detach().numpy()


def onnx(embedder: Embedder, folder: Path):
    """Write model.onnx, with the weights beside it if they are too large for one file.
    Returns it as a function, run by onnxruntime.
    """
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  what torch writes it with
    except ImportError as error:
        raise UserError(f"--format onnx needs a package that is missing ({error.name}): {ONNX_PACKAGES}") from error
    path = folder / "model.onnx"
    size = sum(value.numel() * value.element_size() for value in embedder.module.state_dict().values())
    with _exporting("onnx"):
        program = torch.onnx.export(
            embedder.module,
            _example(embedder),
            dynamo=True,
            dynamic_shapes=_any_number(),
            input_names=["images"],
            output_names=["embeddings"],
            verbose=False,
        )
        program.save(path, external_data=size > LARGEST_ONNX)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda images: session.run(["embeddings"], {"images": images})[0]


def safetensors(embedder: Embedder, folder: Path):
    """Write the weights alone, in the first of `weights.forms` whose network gives the run's embeddings.

    Returns the code of the model card, None for a network that no form fits, and a function, images -> embeddings.
    """
    (images,) = _example(embedder)
    with torch.no_grad():
        expected = embedder.module(images).numpy()
    path = folder / weights.FILE
    for form in weights.forms(embedder):
        # the constructors of packages refuse in many ways; then the next form is tried
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            weights.write(path, form.state, embedder.opt.arch)
            embed = form.loaded(path)
            _compare("safetensors", embed, images.numpy(), expected)
            return form.code, embed
    weights.write(path, embedder.network.state_dict(), embedder.opt.arch)
    weights.read_into(path, embedder.network)
    return None, lambda images: embedder.module(torch.from_numpy(images)).detach().numpy()


FORMATS = {"onnx": onnx, "torchscript": torchscript, "torch_export": torch_export, "safetensors": safetensors}


def preprocessing(embedder: Embedder) -> dict:
    """The content of preprocessing.json: the steps from an image file to a program's input,
    the steps inside, and the output.
    """
    network = embedder.network
    height, width = embedder.preparation.size
    return {
        "before": embedder.preparation.described(),
        "input": {
            "name": "images",
            "shape": ["batch", 3, height, width],
            "type": "uint8",
            "colours": "RGB",
            "values": [0, 255],
        },
        "inside": {
            "programs": (
                "model.onnx, model.pt and model.pt2 do this themselves; for model.safetensors the code in README.md "
                "does"
            ),
            "colours": getattr(network, "input_space", "RGB"),
            "white": getattr(network, "input_range", 1),
            "mean": list(getattr(network, "mean", [])),
            "std": list(getattr(network, "std", [])),
        },
        "output": {
            "name": "embeddings",
            "shape": ["batch", embedder.dimensions],
            "type": "float32",
            "distance": "euclidean",
            "unit_length": bool(getattr(network, "normalizes", False)),
        },
    }


def _push(flags) -> None:
    import huggingface_hub

    hub = huggingface_hub.HfApi()
    try:
        hub.create_repo(flags.push_to_hub, exist_ok=True)
        hub.upload_folder(repo_id=flags.push_to_hub, folder_path=str(flags.out))
    except Exception as error:  # the errors of the client and its transport change with their versions
        raise UserError(
            f"--push_to_hub {flags.push_to_hub}: not uploaded ({_line(error)}). {flags.out} is whole; `hf auth "
            "login` lets you in"
        ) from error
    print(f"uploaded to {flags.push_to_hub}")
