"""Base of the criteria with trained class vectors: the vectors, their optimiser group, logged statistics."""

import torch

from utilities.criterion import MetricCriterion
from utilities.errors import UserError
from utilities.tensors import normalize


def add_arguments(group) -> None:
    """Declare the flag that all losses with class vectors share: how the vectors are initialised."""
    group.add_argument(
        "--loss_vectors_start",
        default="icml",
        choices=["icml", "pml"],
        help="initialisation of class weights, proxies and centres: icml as each loss here defines, most at lengths "
        "around 0.6; pml as in pytorch-metric-learning, most from a unit normal, the longer they are the slower a rate "
        "turns them",
    )


def _check_width(criterion: "ProxyCriterion", args: tuple, kwargs: dict) -> None:
    embedding_width = kwargs["batch"].shape[1]
    vector_width = criterion.proxies.shape[1]
    if embedding_width != vector_width:
        raise UserError(
            f"embeddings have {embedding_width} dimensions, class vectors {vector_width}: the network's embed_dim is "
            "not the size of its output (of several embeddings, embed_dims gives the size of each)"
        )


class ProxyCriterion(MetricCriterion):
    """Base of criteria that train one or several vectors per class (class-major: those of class 0 first).

    Args:
        lr: learning rate of the vectors; default: that of the file's flag `lr`, or `--lr` times its flag `lrmulti`.
        start: initialises the parameter in place, given `(C * per_class, D)`; default: uniform in +-1/sqrt(D).
        pml_start: the same under `--loss_vectors_start pml`; default: a unit normal,
        drawn as columns `(D, C * per_class)`.
        n_vectors: number of vectors, where they do not belong to classes.

    Raises UserError where `opt` lacks `n_classes` or `embed_dim`.
    """

    def __init__(
        self,
        opt,
        lr: float | None = None,
        start=None,
        per_class: int = 1,
        pml_start=None,
        n_vectors: int | None = None,
    ):
        super().__init__(opt)
        if lr is None:
            lr = self.lr if hasattr(self, "lr") else opt.lr * self.lrmulti
        self.n_classes = getattr(opt, "n_classes", None)
        if not self.n_classes or opt.embed_dim < 1:
            raise UserError(
                f"n_classes {self.n_classes}, embed_dim {opt.embed_dim}: a criterion with class vectors needs both, "
                "at least 1: select(name, opt, n_classes=100, embed_dim=128)"
            )
        self.per_class = per_class
        self.of_classes = n_vectors is None
        self.proxies = torch.nn.Parameter(torch.empty(n_vectors or self.n_classes * per_class, opt.embed_dim))
        if opt.loss_vectors_start == "pml":
            start = pml_start or _normal_columns
        with torch.no_grad():
            (start or _uniform)(self.proxies)
        self.optim_dict_list = [{"params": [self.proxies], "lr": lr}]
        self.expect_classes(self.n_classes)
        self.register_forward_pre_hook(_check_width, with_kwargs=True)

    def unit_proxies(self, batch: torch.Tensor) -> torch.Tensor:
        """The vectors `(C * per_class, D)` at unit length, in the precision and on the device of `batch`."""
        return normalize(self.proxies.to(batch))

    def cosines(self, batch: torch.Tensor, vectors: torch.Tensor | None = None) -> torch.Tensor:
        """Cosine similarities `(B, C * per_class)` of embeddings and `vectors`, by default all."""
        return normalize(batch) @ (self.unit_proxies(batch) if vectors is None else normalize(vectors)).T

    def unit_centres(self, batch: torch.Tensor, vectors: torch.Tensor | None = None) -> torch.Tensor:
        """`vectors`, by default all, at unit length `(per_class, C, D)`: a reduction over `per_class` is slow where its
        entries are adjacent in memory.
        """
        unit = self.unit_proxies(batch) if vectors is None else normalize(vectors)
        return unit.unflatten(0, (-1, self.per_class)).transpose(0, 1).contiguous()

    def centre_cosines(self, batch: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
        """Cosine similarities `(B, per_class, C)` of embeddings and `unit_centres`."""
        return (normalize(batch) @ centres.flatten(0, 1).T).view(len(batch), *centres.shape[:2])

    def note(self, similarities: torch.Tensor, labels: torch.Tensor) -> None:
        """Put the share of samples nearest to their own class, and their similarity to it, into `stats`.

        `similarities` is `(B, C)`, without any margin.
        """
        similarities = similarities.detach()
        self.note_shares(similarities.amax(1), similarities.gather(1, labels[:, None]).squeeze(1))

    def note_shares(self, highest: torch.Tensor, own_class: torch.Tensor) -> None:
        """`note` of each sample's highest similarity `(B,)` and that with its own class, `(B,)`."""
        self.stats = {
            "accuracy": (own_class >= highest).to(own_class.dtype).mean(),
            "own_class_similarity": own_class.mean(),
        }


def spread_of_centres(centres: torch.Tensor) -> torch.Tensor:
    """sum_c sum_{t<u} sqrt(2 + 1e-5 - 2 w_ct.w_cu) / (C K (K - 1)) of unit centres `(K, C, D)`,
    without products across classes.
    """
    per_class, n_classes = centres.shape[:2]
    first, second = torch.triu_indices(per_class, per_class, 1, device=centres.device)
    cosines = (centres.index_select(0, first) * centres.index_select(0, second)).sum(2)  # (K (K - 1) / 2, C)
    return (2 + 1e-5 - 2 * cosines.clamp(max=1)).sqrt().sum() / (n_classes * per_class * (per_class - 1))


def _uniform(proxies: torch.Tensor) -> None:
    bound = proxies.shape[1] ** -0.5
    proxies.uniform_(-bound, bound)


def in_columns(start, proxies: torch.Tensor) -> None:
    """Apply `start` to a `(D, C * per_class)` tensor and transpose: the same draws and fan as in a package whose
    vectors are columns.
    """
    columns = torch.empty(proxies.shape[::-1], dtype=proxies.dtype, device=proxies.device)
    start(columns)
    proxies.copy_(columns.T)


def _normal_columns(proxies: torch.Tensor) -> None:
    in_columns(torch.nn.init.normal_, proxies)
