"""Peak memory of `python -m retrieval index` as images are added: `python benchmarks/retrieval_memory.py RUN IMAGE --images 100000`.

IMAGE is indexed under that many names (links), each decoded and transformed anew. In the network's place stands a projection of the pixels to
`--dimensions`, so that the time is that of the stream; a network adds its weights and the activations of one batch.
"""

import os
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch  # noqa: E402

from retrieval import index  # noqa: E402
from runs import Embedder  # noqa: E402
from utilities.errors import OneLineParser  # noqa: E402
from utilities.numbers import whole  # noqa: E402


class Projection(torch.nn.Module):
    """Images -> `(B, dimensions)`: random sums of their pixels and noise, as all are one image."""

    def __init__(self, dimensions: int):
        super().__init__()
        self.weight = torch.randn(3 * 16 * 16, dimensions, generator=torch.Generator().manual_seed(0))
        self.noise = torch.Generator().manual_seed(1)

    def forward(self, images):
        small = torch.nn.functional.adaptive_avg_pool2d(images.float(), 16).flatten(1)
        return torch.nn.functional.normalize(
            small @ self.weight + 100 * torch.randn(len(small), self.weight.shape[1], generator=self.noise)
        )


def peak() -> float:
    """Peak resident memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3 * 1.024


def main():
    parser = OneLineParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("run", help="a run folder")
    parser.add_argument("image", help="an image file")
    parser.add_argument("--images", type=whole(1), default=100_000, help="how many (default: 100,000)")
    parser.add_argument("--dimensions", type=whole(1), default=128, help="of the embeddings (default: 128)")
    parser.add_argument("--index", choices=index.KINDS, default="exact", help="default: exact")
    opt = parser.parse_args()
    embedder = Embedder(opt.run, device="cpu")
    embedder.module, embedder.dimensions = Projection(opt.dimensions), opt.dimensions
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, f"{i:07d}.png") for i in range(opt.images)]
        for path in paths:
            os.symlink(os.path.abspath(opt.image), path)
        list(embedder.stream(paths[:100]))
        before, began = peak(), time.monotonic()
        about = index.build(embedder, paths, os.path.join(folder, "index"), opt.index)
        after, seconds = peak(), time.monotonic() - began
    vectors = opt.images * opt.dimensions * 4 / 1e6
    print(f"{opt.images:,} images, {opt.dimensions} dimensions, {opt.index}: {seconds:.0f} s; recall {about['recall']}")
    print(f"peak memory: {before:.0f} MB with 100 images embedded, {after:.0f} MB at the end; the vectors alone are {vectors:.0f} MB")


if __name__ == "__main__":
    main()
