"""From a run to its use: `python -m retrieval index | query | serve | export | explore`."""

import argparse
import sys
from pathlib import Path

from options.flags import reranking
from utilities import codes, plug_in_folders
from utilities.console import propose, propose_view, warn
from utilities.errors import OneLineParser, UserError, one_line_errors
from utilities.numbers import WIDEST, number, whole

PROGRAM = "python -m retrieval"
# images that cannot be decoded and are printed by name; a file names all
NAMED = 5
HELP_RUN = "a run folder, or that of a fold of a cross-validation"
HELP_DEVICE = "where the network runs: cpu, cuda, cuda:1 … (default: the first GPU, else the CPU)"
HELP_WHICH = "the checkpoint: best (of the selected epoch) or last (default: best, with --add that of the index)"
HELP_EVALTYPE = "which embedding of a network that has several (default: the first of the run's --evaltypes)"


def parser() -> argparse.ArgumentParser:
    """The command line: one parser a command."""
    parser = OneLineParser(prog=PROGRAM, description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run, description: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=description, description=description, allow_abbrev=False)
        added.set_defaults(run=run)
        added.add_argument(
            plug_in_folders.FLAG, nargs="+", default=[], metavar="FOLDER", help="folders with plug-ins of the run's"
        )
        return added

    _index_flags(command("index", index, "embed images with a run and write an index that is searched").add_argument)
    _query_flags(command("query", query, "the nearest images of an index"))
    _serve_flags(command("serve", serve, "an index that answers photographs over HTTP, with a page").add_argument)
    _export_flags(
        command("export", export, "write a run's network for other programs, checked against the run").add_argument
    )
    _explore_flags(
        command("explore", explore, "one HTML page: map, neighbours, worst queries, confusions, distances").add_argument
    )
    return parser


def _embedding_flags(add) -> None:
    add("--checkpoint", choices=["best", "last"], default=None, help=HELP_WHICH)
    add("--evaltype", default=None, metavar="NAME", help=HELP_EVALTYPE)
    add("--device", default=None, help=HELP_DEVICE)
    add("--batch_size", type=whole(1, 10**5), default=None, help="images per batch (default: 16 on a CPU, else 128)")


def _index_flags(add) -> None:
    add("run_folder", metavar="RUN", help=HELP_RUN)
    add(
        "images",
        nargs="+",
        metavar="IMAGES",
        help="image files, folders with all below them, CSV files with a column `path`",
    )
    add("--out", required=True, metavar="FOLDER", help="where the index is written")
    help_kind = (
        "exact, or for millions hnsw (a graph: fast, more memory) or ivfpq (a byte for four dimensions); their recall "
        "against exact is measured and printed (default: exact, with --add that of the index)"
    )
    add("--index", choices=["exact", "hnsw", "ivfpq"], default=None, help=help_kind)
    help_prefix = (
        "search with the first D dimensions, at unit length again where the network normalises, as --matryoshka "
        "trains them (default: all; with --add as the index)"
    )
    add("--prefix", type=whole(1, WIDEST), default=None, metavar="D", help=help_prefix)
    _code_flags(add, "of an exact index (default: float32, with --add that of the index)")
    add("--add", action="store_true", help="add to the index that is there; images that it holds are passed over")
    _embedding_flags(add)


def _code_flags(add, explanation: str) -> None:
    add("--code", type=codes.name, default=None, metavar="CODE", help=f"{codes.NAMES} {explanation}")
    help_calibration = (
        "images from which int8, pq and opq learn: files, folders, CSV (default: training images of the run's data)"
    )
    add("--calibration", nargs="+", default=None, metavar="IMAGES", help=help_calibration)


def _query_flags(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("index_folder", metavar="INDEX", help="the folder of an index")
    add("images", nargs="+", metavar="IMAGE", help="what to search for: image files, folders, CSV files")
    add("-k", type=whole(1, 10**6), default=10, help="how many images (default: 10)")
    _search_flags(add)
    add("--exclude_self", action="store_true", help="a query that is in the index is not among its own neighbours")
    add(
        "--out",
        default=None,
        metavar="FILE",
        help="also write them to this file: page.html with pictures, .json or .csv",
    )
    add("--batch_size", type=whole(1, 10**5), default=None, help="images per batch (default: 16 on a CPU, else 128)")
    reranking.add_arguments(command)


def _search_flags(add) -> None:
    help_rescore = (
        f"of an index in binary code: times as many candidates by Hamming distance (default: {codes.RESCORED})"
    )
    add("--rescore_multiplier", type=whole(1, 10**4), default=codes.RESCORED, metavar="N", help=help_rescore)
    help_threshold = (
        "a query whose nearest image is not nearer than T is answered by `unknown`, and images from T on are left out: "
        "a distance, or the file of `python -m evaluation decide FILE --out T.json`, whose promise is printed "
        "(default: none)"
    )
    add("--threshold", default=None, metavar="T|FILE", help=help_threshold)
    help_run = "where the run lies now (default: where it lay when it was indexed)"
    add("--run", dest="run_folder", default=None, metavar="RUN", help=help_run)
    add("--device", default=None, help=HELP_DEVICE)


def _serve_flags(add) -> None:
    add("index_folder", metavar="INDEX", help="the folder of an index")
    add("--host", default="127.0.0.1", help="the address that it listens at (default: 127.0.0.1, this machine alone)")
    add("--port", type=whole(0, 65535), default=8765, help="0: any that is free (default: 8765)")
    add("-k", type=whole(1, 10**6), default=10, help="how many images, where a request does not say (default: 10)")
    add("--max_k", type=whole(1, 10**6), default=100, help="the most that a request may ask for (default: 100)")
    help_megabytes = "of 1,000,000 bytes: the largest request (default: 10)"
    add("--max_megabytes", type=number(above=0, most=1000), default=10.0, metavar="MB", help=help_megabytes)
    help_pixels = "images of more pixels are refused before they are decoded (default: 50,000,000)"
    add("--max_image_pixels", type=whole(1, 178_956_970), default=50_000_000, metavar="N", help=help_pixels)
    help_waiting = "requests that may wait while one is answered (default: 8)"
    add("--max_waiting", type=whole(1, 1000), default=8, metavar="N", help=help_waiting)
    help_timeout = "seconds in which a request must have arrived (default: 20)"
    add("--timeout", type=number(above=0, most=3600), default=20.0, metavar="SECONDS", help=help_timeout)
    _search_flags(add)


def _export_flags(add) -> None:
    add("run_folder", metavar="RUN", help=HELP_RUN)
    add("--out", required=True, metavar="FOLDER", help="where the files are written: a new or empty folder")
    help_format = "onnx, torchscript, torch_export (a .pt2 program) or safetensors (weights alone); several at once"
    add(
        "--format",
        nargs="+",
        choices=["onnx", "torchscript", "torch_export", "safetensors"],
        default=[],
        help=help_format,
    )
    help_tracker = (
        "the appearance network of these trackers, in files that they load: float32 images of a fixed height and "
        "width; several at once"
    )
    add(
        "--tracker", nargs="+", choices=["boxmot", "ultralytics", "fastreid", "roboflow"], default=[], help=help_tracker
    )
    help_images = (
        "images on which the export is compared with the run: files, folders, CSV (default: test images of the run's "
        "data)"
    )
    add("--images", nargs="+", default=None, metavar="IMAGES", help=help_images)
    _code_flags(
        add, "in which other programs are to hold embeddings: the export carries what it has learned (default: none)"
    )
    help_push = "upload the folder to this repository of the Hugging Face Hub, as `hf auth login` allows"
    add("--push_to_hub", default=None, metavar="REPO", help=help_push)
    add("--checkpoint", choices=["best", "last"], default="best", help=HELP_WHICH)
    add("--evaltype", default=None, metavar="NAME", help=HELP_EVALTYPE)


def _explore_flags(add) -> None:
    add(
        "source",
        metavar="RUN|FILE.npz",
        help=f"{HELP_RUN}, or an .npz file with features, labels and where there are some paths, class_names",
    )
    add("--out", required=True, metavar="PAGE.html", help="the page")
    add("--split", choices=["test", "val", "train"], default="test", help="of a run, which images (default: test)")
    add("--neighbours", type=whole(1, 100), default=12, help="neighbours of each image on the page (default: 12)")
    help_map = (
        "t-SNE, or pca; of more than --map_size images t-SNE arranges a sample and places the others by it (default: "
        "tsne)"
    )
    add("--map", choices=["tsne", "pca"], default="tsne", help=help_map)
    add("--map_size", type=whole(4, 50_000), default=5000, help="images that t-SNE arranges (default: 5000)")
    help_fmr = "false match rates whose thresholds the histogram shows (default: .1 .01 .001)"
    add("--fmr", type=number(above=0, below=1), nargs="+", default=[0.1, 0.01, 0.001], help=help_fmr)
    add("--no_thumbnails", action="store_true", help="no pictures: a smaller page")
    add("--seed", type=whole(0, 2**32 - 1), default=1, help="of map and pairs (default: 1)")
    _embedding_flags(add)


def index(flags) -> dict:
    """Write an index, and say what is in it. Returns what `retrieval.index.build` gives."""
    from retrieval import coding, sources
    from retrieval import index as indices
    from runs import Embedder

    if flags.code not in (None, codes.FLOAT32) and flags.index not in (None, indices.EXACT):
        raise UserError(
            f"--code {flags.code} --index {flags.index}: codes are those of an exact index, leave out one of them"
        )
    old = indices.check_place(flags.out, flags.add)
    if old is not None:
        indices.check_addition(old, flags)
    coding.check(flags)
    paths, notes = sources.listed_with_notes(flags.images)
    how = {"device": flags.device, "batch_size": flags.batch_size}
    if old is None:
        kind = flags.index or indices.EXACT
        checkpoint = flags.checkpoint or "best"
        embedder = Embedder(flags.run_folder, checkpoint, evaltype=flags.evaltype, prefix=flags.prefix, **how)
    else:
        kind = old.about["index"]
        checkpoint = old.about["checkpoint"]
        embedder = old.embedder(flags.run_folder, **how)
    embedder.check_images("search the embeddings of --dump_embeddings, by python -m evaluation FILE.npz")
    coded = None
    if old is None and flags.code not in (None, codes.FLOAT32):
        coded = coding.learned(embedder, flags)
    content = indices.build(embedder, paths, flags.out, kind, checkpoint, flags.add, coded)
    _print_index(content, flags)
    if content["copies"]:
        notes.append(_copies_note(content, flags.add))
    for note in notes:
        warn(note)
    for reason in list(content["left_out"].values())[:NAMED]:
        warn(f"left out: {reason}")
    if content["left_out"]:
        warn(f"{len(content['left_out']):,} images cannot be decoded: {Path(flags.out) / indices.LEFT_OUT}")
    propose("python", "-m", "retrieval", "query", flags.out, paths[0])
    return content


def _print_index(content: dict, flags) -> None:
    """Print what is in an index, and how much of an exact search it finds."""
    added = ""
    if flags.add:
        added = f", {content['added']:,} of them new"
    print(
        f"{flags.out}: {content['images']:,} images{added}, {content['dimensions']} dimensions, index "
        f"{content['index']}, code {content['code']}"
    )
    recall = content["recall"]
    if recall:
        query_source = "the index"
        if flags.add and "images" in recall:
            query_source = f"the first {recall['images']:,} images"
        print(
            f"recall@{recall['at']} against exact search, {recall['queries']} images of {query_source} as queries: "
            f"{recall['recall']:.4f}"
        )


def _copies_note(content: dict, adds: bool) -> str:
    """A line on indexed images whose vector another image of the index has too, with the way out."""
    path, copied_path = content["copies"][0]
    count = len(content["copies"])
    noun = "vector" if content["code"] == codes.FLOAT32 else f"code ({content['code']})"
    way_out = "leave the copies out and make the index anew"
    if adds:
        way_out = f"if the images have moved, make the index anew without --add, else {way_out}"
    return (
        f"note: {count:,} of these images have the same {noun} as another image of the index, such as {path} and "
        f"{copied_path}: they find each other, also with --exclude_self, which goes by path; {way_out}"
    )


def query(flags) -> list:
    """Search, and print rank, distance and path. Returns the `retrieval.answers.Neighbour`s of all queries."""
    from retrieval import answers, reranked, sources, threshold
    from retrieval.index import Index

    if flags.out is not None:
        answers.check(flags.out)
    reranked_by = reranked.check(flags)
    limit = None
    if flags.threshold is not None:
        limit = threshold.read(flags.threshold)
    searched_index = Index(flags.index_folder)
    images, notes = sources.listed_with_notes(flags.images)
    embedder = searched_index.embedder(flags.run_folder, device=flags.device, batch_size=flags.batch_size)
    if limit is not None:
        notes = [*limit.check(searched_index, embedder), *notes]
    vectors = embedder(images, progress=True)
    if reranked_by:
        searched_index = reranked.RerankedIndex(searched_index, images, flags)
        notes.append(f"note: the order is that of {' '.join(reranked_by)}; distances are those of the embeddings")
    neighbours = answers.answers(searched_index, images, vectors, flags.k, flags.exclude_self, flags.rescore_multiplier)
    if limit is not None:
        neighbours = answers.below(neighbours, images, limit.value)
    print(answers.text(neighbours).encode("utf-8", "replace").decode())
    for note in notes:
        warn(note)
    if number := answers.count_self_neighbours(neighbours):
        warn(
            f"{number} of the queries are in the index, and among their own neighbours: --exclude_self leaves them out"
        )
    if flags.out is not None:
        answers.write(neighbours, flags.out, embedder.preparation)
    _propose_after_query(flags)
    return neighbours


def _propose_after_query(flags) -> None:
    """Print the command that shows pictures of the neighbours, on standard error: stdout is for other programs."""
    out = Path(flags.out or "neighbours")
    if out.suffix.lower() == ".html":
        propose_view(out, file=sys.stderr)
        return
    words = ["query", flags.index_folder, flags.images[0], "-k", flags.k, "--out", out.with_suffix(".html")]
    if flags.run_folder is not None:
        words += ["--run", flags.run_folder]
    if flags.threshold is not None:
        words += ["--threshold", flags.threshold]
    if flags.exclude_self:
        words.append("--exclude_self")
    propose(*PROGRAM.split(), *words, file=sys.stderr)


def serve(flags) -> None:
    """Answer photographs over HTTP until Ctrl-C."""
    from retrieval import serve as server

    server.serve(flags)


def export(flags) -> dict:
    """Write a run for other programs. Returns format -> cosine to the run."""
    from retrieval import export as exports

    return exports.export(flags)


def explore(flags) -> Path:
    """Write the page of an embedding space. Returns its path."""
    from retrieval import explore as explorer

    return explorer.explore(flags)


def main(argv: list[str] | None = None):
    """Run one command. Returns what it gives."""
    flags = parser().parse_args(argv)
    plug_in_folders.use([plug_in_folders.FLAG, *flags.plugins])
    return flags.run(flags)


if __name__ == "__main__":
    with one_line_errors(PROGRAM):
        main()
