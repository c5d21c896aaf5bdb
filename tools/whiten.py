"""Fit a whitening: `python -m evaluation whiten FEATURES.npz --out FILE`, for `--eval_whiten FILE`.

FEATURES.npz holds embeddings of other data than it is used on,
such as `--dump_embeddings` writes of the training images.
"""

from pathlib import Path

from evaluation import file_arrays, from_files, whitening
from evaluation.missing_labels import refuse_missing
from tools._command import new_parser, refuse_torchrun
from utilities.console import propose, say
from utilities.errors import OneLineParser
from utilities.files import write_npz
from utilities.numbers import whole


def parser() -> OneLineParser:
    """The command's flags."""
    parser = new_parser(whitening.PROGRAM, "Fit a whitening on embeddings of other data than it is used on.")
    parser.add_argument("features", help="an .npz file with features (N, D), and labels (N,) for --learned")
    parser.add_argument("--out", required=True, metavar="FILE", help="the .npz file to write, for --eval_whiten")
    help_learned = "learn from pairs of a class (unset: principal components)"
    parser.add_argument("--learned", action="store_true", help=help_learned)
    help_dims = "keep the first N dimensions (unset: all)"
    parser.add_argument("--dims", type=whole(1), default=None, metavar="N", help=help_dims)
    return parser


def _propose_next(fitted_on: Path, whitening_file: str) -> None:
    """Print the command that measures other embeddings with the whitening: those of test or validation in the same
    folder, if it has them.
    """
    for split in ("test", "val"):
        path = fitted_on.with_name(fitted_on.name.replace("train", split))
        if path != fitted_on and path.is_file():
            propose("python", "-m", "evaluation", path, "--eval_whiten", whitening_file)
            return
    say("FILE.npz below: embeddings of other images than those of the whitening")
    propose("python", "-m", "evaluation", "FILE.npz", "--eval_whiten", whitening_file)


def main(argv: list[str] | None = None) -> Path:
    """Fit, write the file, and return its path. Raises UserError."""
    flags = parser().parse_args(argv)
    refuse_torchrun(whitening.PROGRAM)
    arrays = file_arrays.read(flags.features, (), needs_labels=flags.learned)
    if flags.learned:
        refuse_missing(flags.features, arrays)
    space = from_files.plain_space(flags.features, arrays)
    if flags.learned:
        fitted = whitening.learned(space.features, whitening.pairs_of_classes(space.labels), flags.dims)
    else:
        fitted = whitening.pca(space.features, flags.dims)
    write_npz(flags.out, fitted._asdict())
    n_kept, n_dimensions = fitted.projection.shape
    say(f"{flags.out}: {space.size:,} embeddings, {n_dimensions} dimensions to {n_kept}")
    _propose_next(Path(flags.features), flags.out)
    return Path(flags.out)
