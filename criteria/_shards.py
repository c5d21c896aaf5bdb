"""Bases of the criteria whose class vectors may lie in shards, be drawn in part,
and be compared in some of their coordinates.

An et al., Partial FC (CVPR 2022, arXiv 2203.15565), and An et al., Unicom (ICLR 2023, arXiv 2304.05884).
"""

import torch

from criteria._pairs import few_at_a_time
from criteria._proxies import ProxyCriterion
from options.flags import roles
from utilities.domains import OwnDomain
from utilities.errors import UserError
from utilities.numbers import WIDEST, number, whole
from utilities.processes import SingleProcess
from utilities.shards import Shard

# entries of a matrix (B, classes) that are computed at once: 16 MB in float32
ENTRIES = 1 << 22


def add_arguments(group) -> None:
    """Declare the flags of many class vectors."""
    group.add_argument(
        "--shard_classes",
        action="store_true",
        help="under torchrun each of N processes holds an N-th of the class vectors, of their gradients and of the "
        "optimiser's means: the loss is that of all vectors, memory falls as 1 / N",
    ).role = roles.PLACE
    group.add_argument(
        "--sample_classes",
        type=number(above=0, most=1),
        default=1.0,
        metavar="Q",
        help="each step compares with the vectors of the batch's classes and of other classes drawn at random, "
        "together this share of all (with --shard_classes of each shard); the vectors that are not drawn do not change",
    )
    group.add_argument(
        "--loss_dims",
        type=whole(1, WIDEST),
        default=None,
        metavar="K",
        help=(
            "each step compares embeddings and class vectors in K of their coordinates, drawn at random (unset: in all)"
        ),
    )
    group.add_argument(
        "--separate_classifiers",
        action="store_true",
        help="--dataset union, uned: one classifier per domain instead of a joint one; each sample is compared only "
        "with the class vectors, also those of --trainer classifier, of its own domain's classes",
    )


def requested(opt) -> str | None:
    """The first of these flags that is given, as the command line has it."""
    defaults = {"shard_classes": "", "sample_classes": 1.0, "loss_dims": None}
    words = {flag: f"--{flag} {getattr(opt, flag)}".removesuffix(" True") for flag in defaults}
    return next((words[flag] for flag, default in defaults.items() if getattr(opt, flag) not in (default, False)), None)


class ShardedCriterion(ProxyCriterion):
    """Base of criteria that compare each embedding with the vectors of each class, so that other processes may hold
    some of these.

    A subclass gives `loss`, from the similarities of all classes, and for the classes in parts `terms` and `join`.
    Vectors that are sharded, drawn or many are compared a block of classes at a time, in float32 or float64, and again
    in the backward pass, so that no `(B, C)` matrix is kept.

    Raises UserError where `--loss_dims` is more than the embedding has.
    """

    def __init__(self, opt, lr: float | None = None, start=None, per_class: int = 1, pml_start=None):
        super().__init__(opt, lr, start, per_class, pml_start)
        self.share = opt.sample_classes
        self.dims = opt.loss_dims
        self.own_domain = OwnDomain(opt.separate_classifiers)
        if self.dims and self.dims > opt.embed_dim:
            raise UserError(f"--loss_dims {self.dims} is more than the {opt.embed_dim} dimensions of the embedding")
        self.shard_over(SingleProcess())

    def shard_over(self, ranks) -> None:
        """Keep this process's part of the vectors, that of all processes of `ranks`,
        which have the same vectors so far.
        """
        self.shard = self.proxies.shard = Shard(ranks, self.n_classes, self.per_class, self.share)
        self.proxies.data = self.proxies.data[self.shard.rows].clone()

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}proxies"] = self.shard.whole(destination[f"{prefix}proxies"])

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *arguments) -> None:
        name = f"{prefix}proxies"
        part = {name: self.shard.part(state_dict[name], self.proxies.shape)} if name in state_dict else {}
        super()._load_from_state_dict({**state_dict, **part}, prefix, *arguments)

    def similarities(self, batch: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        """Similarities `(B, C)` of embeddings and classes with `vectors` `(C * per_class, D)`; here cosines."""
        return self.cosines(batch, vectors)

    def loss(self, similarities: torch.Tensor, labels: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        """Scalar loss from the similarities `(B, C)` of all classes."""
        raise NotImplementedError

    def terms(
        self, similarities: torch.Tensor, class_columns: torch.Tensor, labels: torch.Tensor, batch: torch.Tensor, n: int
    ) -> tuple:
        """What `join` needs of n classes, tensors.

        Args:
            similarities: `(B, n)` or more: those with n classes, behind them a column that stands for no class.
            class_columns: `(B,)`, the column of each sample's class; n where it is not among these classes.
            labels: `(B,)`, by which hyperparameters are learned.
        """
        raise NotImplementedError

    def join(self, *terms: torch.Tensor) -> torch.Tensor:
        """Scalar loss from what `terms` gives of each block of classes here, each one's blocks stacked; `self.shard`
        asks the other processes.
        """
        raise NotImplementedError

    def follow(self, batch: torch.Tensor, vectors: torch.Tensor, class_columns: torch.Tensor) -> None:
        """Update statistics of a step before its loss is computed; none here.

        Args:
            batch: `(B, D)`. vectors: `(n * per_class, D)`, of the classes that this process compares.
            class_columns: `(B,)`, which of them is each sample's class; n where it is not among them.
        """

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`."""
        shard = self.shard
        vectors = self.proxies
        if not shard.divided and shard.share == 1 and self.dims is None:
            self.follow(batch, vectors, labels)
            similarities = self.similarities(batch, vectors.to(batch))  # (B, C)
            self.note(self.own_domain(similarities, labels), labels)
            return self.loss(similarities, labels, batch)
        classes, class_columns = shard.draw(labels)
        vectors = shard.own(vectors)
        if classes is not None:
            vectors = vectors.unflatten(0, (-1, self.per_class)).index_select(0, classes).flatten(0, 1)
        if self.dims is not None:
            # the same on all processes
            dims = torch.randperm(batch.shape[1])[: self.dims].to(batch.device, non_blocking=True)
            batch = batch.index_select(1, dims)
            vectors = vectors.index_select(1, dims)
        self.follow(batch, vectors, class_columns)
        blocks = vectors.split(max(ENTRIES // len(batch), 1) * self.per_class)
        starts = range(0, len(vectors) // self.per_class, len(blocks[0]) // self.per_class)
        blocks_of_arguments = [
            (batch, labels, block, class_columns - start) for start, block in zip(starts, blocks, strict=True)
        ]
        results = (
            few_at_a_time(self._block, blocks_of_arguments)
            if len(blocks_of_arguments) > 1
            else [self._block(*blocks_of_arguments[0])]
        )
        highest, own_similarities, *terms = map(torch.stack, zip(*results, strict=True))
        self.note_shares(shard.ranks.largest(highest.amax(0)), shard.ranks.total(own_similarities.sum(0)))
        return self.join(*terms)

    def _block(
        self, batch: torch.Tensor, labels: torch.Tensor, vectors: torch.Tensor, class_columns: torch.Tensor
    ) -> tuple:
        """Of classes with `vectors` `(n * per_class, D)`: each sample's highest similarity, that with its own class or
        0, and the terms.
        """
        n = len(vectors) // self.per_class
        class_columns = torch.where((class_columns >= 0) & (class_columns < n), class_columns, n)
        vectors = torch.cat([vectors.to(batch), batch.new_zeros(self.per_class, batch.shape[1])])
        similarities = self.similarities(batch, vectors)  # (B, n + 1)
        seen = similarities.detach()
        return (
            seen[:, :n].amax(1),
            own_entries(seen, class_columns, n),
            *self.terms(similarities, class_columns, labels, batch, n),
        )


class SoftmaxCriterion(ShardedCriterion):
    """Base of the criteria that are a cross-entropy of logits, one a class."""

    def logits(
        self, similarities: torch.Tensor, class_columns: torch.Tensor, labels: torch.Tensor, batch: torch.Tensor
    ) -> torch.Tensor:
        """The logits `(B, C)`, with margin and scale, of `similarities` `(B, C)`.

        `class_columns` `(B,)` is the column of each sample's class.
        """
        raise NotImplementedError

    def loss(self, similarities: torch.Tensor, labels: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        """See `ShardedCriterion`."""
        return torch.nn.functional.cross_entropy(
            self.own_domain(self.logits(similarities, labels, labels, batch), labels), labels
        )

    def terms(self, similarities, class_columns, labels, batch, n) -> tuple:
        """The highest logit of each sample, the sum of exp(logit - highest),
        and the logit of its own class or 0; `(B,)` each.
        """
        logits = self.logits(similarities, class_columns, labels, batch)
        highest = logits[:, :n].detach().amax(1)
        return highest, (logits[:, :n] - highest[:, None]).exp().sum(1), own_entries(logits, class_columns, n)

    def join(self, highest: torch.Tensor, sums: torch.Tensor, own_logits: torch.Tensor) -> torch.Tensor:
        """mean_i log sum_c exp(z_ic) - z_iy, logits z of all processes."""
        largest = self.shard.ranks.largest(highest.amax(0))  # (B,)
        sums = self.shard.total((sums * (highest - largest).exp()).sum(0))
        return (largest - self.shard.total(own_logits.sum(0)) + sums.log()).mean()


def own_entries(matrix: torch.Tensor, class_columns: torch.Tensor, n: int) -> torch.Tensor:
    """`(B,)`: of each row of `matrix` the entry in column `class_columns`, 0 where that is column n."""
    return torch.where(class_columns < n, matrix.gather(1, class_columns[:, None]).squeeze(1), 0.0)
