"""The features of a space on a GPU, copied there once; work that several metrics share is done there in float64.

What NumPy sums on a CPU is summed here in another order: values agree to the rounding of float64. Sums go through
sorted segments, so that two evaluations end in the same bits.
"""

import numpy as np
import torch

# numbers of float64 that are held at once
FLOATS = 2**26


def is_gpu(device) -> bool:
    """Whether the device is a GPU, which keeps the features."""
    return torch.device(device).type == "cuda"


class Tensors:
    """Features of the queries and of the reference of an `EmbeddingSpace`, on its device.

    Args:
        space: the space. copies: id of an array -> (the array, its copy on the device), shared by views of the space.
    """

    def __init__(self, space, copies: dict):
        self.device = torch.device(space.device)
        self.block = max(1, FLOATS // space.dimensions)
        self.size = space.size
        self.reference_size = space.reference_size
        self.labels = torch.from_numpy(space.labels).to(self.device)
        arrays = (space.features, space.norms, space.reference, space.reference_norms)
        for array in arrays:
            if id(array) not in copies:
                copies[id(array)] = (array, self._sent(array))
        self.features, self.norms, self.reference, self.reference_norms = (copies[id(array)][1] for array in arrays)

    def _sent(self, array: np.ndarray | None) -> torch.Tensor | None:
        """A copy on the device; torch takes no array that steps backwards or is read-only."""
        if array is None:
            return None
        return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(self.device)

    def queries(self, rows: "slice | np.ndarray | torch.Tensor") -> torch.Tensor:
        """Query features `(R, D)` in float64."""
        if isinstance(rows, np.ndarray):
            rows = torch.from_numpy(rows).to(self.device)
        return _scaled(self.features, self.norms, rows)

    def references(self, rows: "slice | torch.Tensor") -> torch.Tensor:
        """Reference features `(R, D)` in float64."""
        return _scaled(self.reference, self.reference_norms, rows)

    def reference_blocks(self):
        """(first row, float64 features) of the whole reference, block by block."""
        for start in range(0, self.reference_size, self.block):
            yield start, self.references(slice(start, start + self.block))

    def upper(self) -> torch.Tensor:
        """R `(min(N, D), D)` of a QR decomposition of the queries, built block by block, in main memory."""
        upper = self.queries(slice(0))
        for start in range(0, self.size, self.block):
            block = torch.cat([upper, self.queries(slice(start, start + self.block))])
            upper = torch.linalg.qr(block, mode="r").R
        return upper.cpu()

    def class_sums(self, normalised: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Sums `(C, D)` of the classes' query features, at unit length if `normalised`, and `(C,)` of their squares."""
        n_classes = int(self.labels.max()) + 1
        total = torch.zeros(n_classes, self.features.shape[1] + 1, dtype=torch.float64, device=self.device)
        for start in range(0, self.size, self.block):
            labels = self.labels[start : start + self.block]
            rows = self.queries(slice(start, start + self.block))
            if normalised:
                norms = rows.square().sum(1, keepdim=True).sqrt()
                rows = rows / torch.where(norms > 0, norms, 1.0)
            total += group_sums(torch.cat([rows, rows.square().sum(1, keepdim=True)], 1), labels, n_classes)[0]
        return total[:, :-1], total[:, -1]

    def sum_of_means(self, counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As `EmbeddingSpace.sum_of_means`; counts: `(C,)` queries of each class."""
        sums = self.class_sums(normalised=False)[0]
        means = sums / counts.clamp(min=1).to(self.device)[:, None]
        norms = means.square().sum(1, keepdim=True).sqrt()
        means = means / torch.where(norms > 0, norms, 1.0)
        return means.sum(0), means.square().sum()


def _scaled(features: torch.Tensor, norms: "torch.Tensor | None", rows) -> torch.Tensor:
    block = features[rows].double()
    return block if norms is None else block / norms[rows]


def group_sums(rows: torch.Tensor, groups: torch.Tensor, n_groups: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums `(G, D)` of the `rows` `(N, D)` of each group, in their order, 0 where it has none; and sizes `(G,)`."""
    sizes = torch.zeros(n_groups, dtype=torch.int64, device=rows.device).index_add_(0, groups, torch.ones_like(groups))
    order = groups.argsort(stable=True)
    rows = rows[order].double()
    return torch.segment_reduce(rows, "sum", lengths=sizes, axis=0, unsafe=True, initial=0), sizes
