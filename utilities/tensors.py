"""Small tensor helpers shared by criteria, miners and samplers: zero-safe, deterministic, batched."""

import functools

import torch

# least value of variances and norms in denominators
FLOOR = 1e-12


def raise_half(x: torch.Tensor) -> torch.Tensor:
    """float16 and bfloat16 become float32; float32 and float64 stay."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


class Products:
    """Context, to be entered any number of times, in which matrices
    of float32 are multiplied at a precision, see `multiply_at`.
    """

    def __init__(self, precision: str | None):
        self.precision = precision
        self.before = []

    def __enter__(self):
        self.before.append(precision_of_products())
        multiply_at(self.precision)

    def __exit__(self, *error):
        multiply_at(self.before.pop())


def precision_of_products() -> str | None:
    """As torch names it; None where parts of that state were set apart,
    as by `torch.backends`, and torch refuses to say.
    """
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def multiply_at(precision: str | None) -> None:
    """Set the precision of products of float32 matrices: "highest", or "high": TF32 on a GPU, and on CPUs that have it;
    None leaves it.

    The program's only call that does.
    """
    # to set it again would move torch's state, which compiled networks watch
    if precision not in (None, precision_of_products()):
        torch.set_float32_matmul_precision(precision)


def normalize(x: torch.Tensor) -> torch.Tensor:
    """Rows of `x` `(..., D)` at unit length; a zero row stays zero,
    and so does its gradient, which would be 1 / FLOOR.
    """
    has_length = (x.detach().norm(dim=-1, keepdim=True) > FLOOR).to(x.dtype)
    return torch.nn.functional.normalize(x, dim=-1, eps=FLOOR) * has_length


def safe_sqrt(x: torch.Tensor) -> torch.Tensor:
    """Square root whose gradient at 0 is 0 instead of infinite. Negative values count as 0; NaN stays NaN, so that it
    reaches the loss.
    """
    not_positive = x <= 0
    return torch.where(not_positive, 0.0, torch.where(not_positive, 1.0, x).sqrt())


def squared_distances(
    x: torch.Tensor, y: torch.Tensor | None = None, y_norms: torch.Tensor | None = None
) -> torch.Tensor:
    """Squared Euclidean distances `(B, B')` between the rows of `x` `(B, D)` and `y` `(B', D)` (default: `x`).

    By matrix product; a value within its rounding error of 0 becomes 0, so that equal points are exactly 0 apart.
    `y_norms`: the squared lengths `(B',)` of `y`, where they are known.
    """
    y = x if y is None else y
    squared, is_apart = _squared_and_apart(x, y, y_norms)
    return torch.where(is_apart, squared, 0.0)


def _squared_and_apart(x, y, y_norms) -> tuple[torch.Tensor, torch.Tensor]:
    """Squared distances by matrix product, and whether they are larger than their rounding error."""
    x_norms = x.square().sum(1)
    if y_norms is None:
        y_norms = x_norms if y is x else y.square().sum(1)
    scale = x_norms[:, None] + y_norms
    squared = torch.addmm(scale, x, y.T, alpha=-2)
    return squared, squared > scale.detach().mul(8 * torch.finfo(x.dtype).eps)


def pairwise_distances(
    x: torch.Tensor, y: torch.Tensor | None = None, y_norms: torch.Tensor | None = None
) -> torch.Tensor:
    """Euclidean distances `(B, B')`, zero-safe in the gradient; see `squared_distances`."""
    y = x if y is None else y
    squared, is_apart = _squared_and_apart(x, y, y_norms)
    # the infinite slope at 0 ends at `where`
    return torch.where(is_apart, squared, 0.0).sqrt()


@functools.lru_cache(maxsize=64)
def _odd_numbers(count: int, device: torch.device) -> torch.Tensor:
    """Fixed random odd numbers of 64 bits, `(count,)`.

    They stay on the device: each copy to it would make the host wait.
    """
    numbers = torch.randint(-(2**63), 2**63 - 1, (count,), generator=torch.Generator().manual_seed(count))
    return (numbers | 1).to(device)


def first_equal_rows(x: torch.Tensor) -> torch.Tensor:
    """For each row of `x` `(N, D)`, float32 or float64, the index `(N,)` of the first row that equals it.

    Waits for the device only at the first call with a width.

    Rows are sorted by a sum of products of their bits with random numbers, exact modulo 2^64, and then compared with
    the first row of the same sum. Two different rows have the same sum with a probability of about 2^-64; their
    duplicates would then count as different.
    """
    places = torch.arange(len(x), device=x.device)
    # -0 equals 0 and has other bits
    x = x.detach() + 0.0
    whole_type = torch.int64 if x.dtype == torch.float64 else torch.int32
    bits = x.contiguous().view(whole_type).long()
    sums = (bits * _odd_numbers(x.shape[1], x.device)).sum(1)
    sorted_sums, order = sums.sort(stable=True)
    begins = torch.ones_like(sorted_sums, dtype=torch.bool)
    begins[1:] = sorted_sums[1:] != sorted_sums[:-1]
    begin = torch.where(begins, places, 0).cummax(0).values
    first = torch.empty_like(order).scatter_(0, order, order[begin])
    return torch.where((x == x[first]).all(1), first, places)


def take_pairs(matrix: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """`matrix[rows, columns]`, `(T,)`, whose backward is deterministic on CPU where that of indexing is not."""
    return matrix.flatten().index_select(0, rows * matrix.shape[1] + columns)


def amax_at(start: torch.Tensor, dim: int, index: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """`start.scatter_reduce(dim, index, values, "amax")`, without gradient, also under `--deterministic`.

    torch refuses it there, as on a GPU the values of an entry arrive in any order; their maximum is the same in each.
    """
    mode = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("default")
    try:
        return start.scatter_reduce(dim, index, values.detach(), "amax")
    finally:
        torch.set_deterministic_debug_mode(mode)


def pair_distances(
    x: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor, squared=False, y: torch.Tensor | None = None
) -> torch.Tensor:
    """Distances `(T,)` between rows `x[rows]` and `y[columns]` (default of `y`: `x`).

    Few pairs (up to 4 B) are taken by their differences, exact for near points;
    many are looked up in the matrix. NaN stays NaN.
    """
    y = x if y is None else y
    if len(rows) <= 4 * len(x):
        distances = (x.index_select(0, rows) - y.index_select(0, columns)).square().sum(1)
    else:
        matrix, is_apart = _squared_and_apart(x, y, None)
        distances = take_pairs(torch.where(is_apart | matrix.isnan(), matrix, 0.0), rows, columns)
    return distances if squared else safe_sqrt(distances)


def masked_mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean of `values` where `mask`, without a host synchronisation;
    where the mask is empty, a zero that keeps the graph.
    """
    return torch.where(mask, values, 0.0).sum() / mask.sum().clamp(min=1)


def chosen_uniformly(mask: torch.Tensor) -> torch.Tensor:
    """One column index `(R,)` drawn uniformly from the True entries of each row of `mask` `(R, C)`.

    Draws from torch's global generator. A row without a True entry gets an arbitrary index.
    """
    return torch.rand(mask.shape, dtype=torch.float32, device=mask.device).masked_fill_(~mask, -1.0).argmax(1)
