"""What every export shares: the example that is traced, ONNX files, the comparison with the run."""

import contextlib
import warnings
from pathlib import Path

import numpy as np
import torch

from utilities.errors import UserError
from utilities.programs import IS_PACKAGE

COSINE = 0.9999  # the least that is allowed
LARGEST_ONNX = 1_800_000_000  # bytes of weights within an .onnx file, whose format ends at 2 GiB
ONNX_PACKAGES = "pip install 'dmlkit[export]'" if IS_PACKAGE else "pip install onnx onnxscript onnxruntime"
OTHERWISE = "take another --format"


def example(size: tuple[int, ...]) -> torch.Tensor:
    """Two images uint8 `(2, 3, H, W)`, or rows `(2, F)`: with one, the number of images would be taken for fixed."""
    generator = torch.Generator().manual_seed(0)
    if len(size) == 1:
        return torch.randn((2, *size), generator=generator)
    return torch.randint(0, 256, (2, 3, *size), dtype=torch.uint8, generator=generator)


def described_input(size: tuple[int, ...]) -> tuple[str, str]:
    """Name of what a network takes, and its type and shape as text; size: (height, width) of images, (F,) of rows."""
    if len(size) == 1:
        return "features", f"float32 (B, {size[0]})"
    return "images", f"uint8 (B, 3, {size[0]}, {size[1]})"


def any_number() -> dict:
    """The dynamic shape of any number of images."""
    return {"images": {0: torch.export.Dim("batch")}}


def line(error: Exception) -> str:
    """An error's text on one short line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


@contextlib.contextmanager
def guarded(flag: str, way_out: str = OTHERWISE):
    """Inside, torch's warnings are silent, and a failed export raises UserError.

    Args:
        flag: for messages, as `--format onnx`. way_out: what the user can do instead.
    """
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    except (ImportError, OSError, UserError):
        raise
    except Exception as error:
        # tracing, or any layer, may raise anything
        raise UserError(f"{flag}: this network cannot be written so ({line(error)}): {way_out}") from error


def write_onnx(module: torch.nn.Module, images: torch.Tensor, path: Path, flag: str, way_out: str = OTHERWISE):
    """Write a graph `images`, or `features`, -> `embeddings`; weights too large for one file lie beside it.

    Returns it as a function, run by onnxruntime. Raises UserError if a package is missing or the export fails.

    Args:
        images: an example; height and width are fixed by it. flag, way_out: see `guarded`.
    """
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  what torch writes it with
    except ImportError as error:
        raise UserError(f"{flag} needs a package that is missing ({error.name}): {ONNX_PACKAGES}") from error
    name = "features" if images.ndim == 2 else "images"
    size = sum(value.numel() * value.element_size() for value in module.state_dict().values())
    with guarded(flag, way_out):
        program = torch.onnx.export(
            module,
            (images,),
            dynamo=True,
            dynamic_shapes=any_number(),
            input_names=[name],
            output_names=["embeddings"],
            verbose=False,
        )
        program.save(path, external_data=size > LARGEST_ONNX)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(["embeddings"], {name: inputs})[0]


def least_cosine(flag: str, embed, inputs: np.ndarray, expected: np.ndarray, way_out: str = OTHERWISE) -> float:
    """The least cosine to the run's embeddings, of one image alone and of all at once. Raises UserError below `COSINE`.

    Args:
        embed: the exported network, inputs -> embeddings. inputs: of `n` images `(n, 3, H, W)`. expected: the run's
        embeddings `(n, D)`.
    """
    least = 1.0
    for batch in (slice(0, 1), slice(None)):
        try:
            embeddings = np.asarray(embed(inputs[batch]), dtype=np.float64)
        except Exception as error:
            # each runtime raises errors of its own kinds
            raise UserError(f"{flag}: what was written cannot be run ({line(error)}): {way_out}") from error
        if embeddings.shape != expected[batch].shape or not np.isfinite(embeddings).all():
            raise UserError(
                f"{flag}: it gives {embeddings.shape}, the run {expected[batch].shape}, or NaN or infinity: {way_out}"
            )
        least = min(least, float(cosines(embeddings, expected[batch]).min()))
    if least < COSINE:
        raise UserError(f"{flag}: its embeddings have a cosine of {least:.6f} to the run's, below {COSINE}: {way_out}")
    return least


def cosines(embeddings: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """The cosine `(n,)` of each row to the same row of another array."""
    lengths = np.linalg.norm(embeddings, axis=1) * np.linalg.norm(expected, axis=1)
    return (embeddings * expected).sum(1) / np.maximum(lengths, 1e-30)
