"""Times an epoch's batches of every sampler on made-up data of the size of Stanford Online Products' training half.

    python benchmarks/samplers.py [names ...] [--images 60000] [--classes 11318] [--dim 128] [--bs 112] [--device cpu]

Prints a table: seconds to build the sampler, to choose the epoch from the storage (samplers with a memory) and to draw it.
"""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch  # noqa: E402

import datasampler  # noqa: E402
from utilities.errors import OneLineParser  # noqa: E402
from utilities.numbers import WIDEST, whole  # noqa: E402


def seconds(function) -> float:
    """Wall time of one call, the GPU's queue emptied on both sides."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    wait()
    start = time.perf_counter()
    function()
    wait()
    return time.perf_counter() - start


def main() -> None:
    parser = OneLineParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", default=datasampler.REGISTRY.names(), help="samplers")
    parser.add_argument("--images", type=whole(1, 10**8), default=60000)
    parser.add_argument("--classes", type=whole(1, 10**8), default=11318)
    parser.add_argument("--dim", type=whole(1, WIDEST), default=128)
    parser.add_argument("--bs", type=whole(1, 10**6), default=112)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    args = parser.parse_args()

    torch.manual_seed(0)
    labels = (torch.arange(args.images) % args.classes).tolist()
    image_list = [(f"{index}.jpg", label) for index, label in enumerate(labels)]
    image_dict = {}
    for index, (path, label) in enumerate(image_list):
        image_dict.setdefault(label, []).append([path, index])
    centres = torch.randn(args.classes, args.dim)
    embeddings = torch.nn.functional.normalize(centres[torch.tensor(labels)] + 0.5 * torch.randn(args.images, args.dim), dim=1)

    print(
        f"{args.images} images, {args.classes} classes, {args.dim} dimensions, --bs {args.bs}, on {args.device}; load {os.getloadavg()[0]:.1f}"
    )
    print(f"{'sampler':<22}{'build s':>10}{'choose s':>10}{'draw s':>10}{'batches':>10}")
    for name in args.names:
        start = time.perf_counter()
        sampler = datasampler.select(name, None, image_dict, image_list, bs=args.bs)
        build = time.perf_counter() - start
        sampler.set_super_labels({label: label % 12 for label in image_dict})
        if sampler.requires_storage:
            sampler.load_state_dict({"storage": embeddings.to(args.device)})
        choose = seconds(sampler.precompute_indices)
        draw = seconds(lambda sampler=sampler: list(sampler))
        print(f"{name:<22}{build:>10.2f}{choose:>10.2f}{draw:>10.2f}{len(sampler):>10}", flush=True)


if __name__ == "__main__":
    main()
