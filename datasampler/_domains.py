"""Base of the samplers whose batches are of one domain each: a subclass says whose turn it is."""

import torch

from datasampler._base import BatchSampler
from utilities.errors import UserError


def add_arguments(group) -> None:
    """Declare the flag of the samplers of domains."""
    group.add_argument(
        "--data_domains",
        nargs="+",
        default=None,
        metavar="NAME",
        help=(
            "domain_balanced, domain_size and domain_round_robin take batches of these domains alone: a specialist, "
            "where there is one (unset: of all)"
        ),
    )


class DomainSampler(BatchSampler):
    """Batches of bs/m groups of m images of a class, all of one domain (a super-class; with m 1 simply images).

    Each domain's groups come in random order, all of them before any again; one that is smaller than a batch repeats
    its images within it.

    Raises UserError where the data set has no super labels, or `--data_domains` names none of them.
    """

    def __init__(self, opt, image_dict: dict, image_list: list):
        super().__init__(opt, image_dict, image_list)
        self.split_batch(opt)
        self.domain_of = None
        self.names = opt.data_domains

    def set_super_labels(self, super_labels: dict | None) -> None:
        """Class -> domain, for every class of `image_dict`; UserError where one has none (None)."""
        if missing := [name for name in self.classes if (super_labels or {}).get(name) is None]:
            raise UserError(
                f"--data_sampler takes batches of one domain, and {len(missing)} of {len(self.classes)} classes have "
                "none: --dataset union and uned have domains; those of other data sets are their super-classes"
            )
        numbers = {
            name: number for number, name in enumerate(dict.fromkeys(super_labels[name] for name in self.classes))
        }
        self.domain_of = torch.tensor([numbers[super_labels[name]] for name in self.classes])  # (C,)
        wrong = [name for name in self.names or () if name not in numbers]
        if wrong:
            raise UserError(
                f"--data_domains {wrong[0]}: no domain of the training images; these are {', '.join(map(str, numbers))}"
            )
        # (D,) domains that take turns
        self.chosen = torch.tensor(sorted({numbers[name] for name in self.names or numbers}))
        # (D,) images
        self.domain_sizes = torch.bincount(self.domain_of, weights=self.class_sizes.double())[self.chosen]

    def turns(self, n_batches: int) -> torch.Tensor:
        """Whose turn each batch of an epoch is, positions in `domain_sizes` `(D,)`: `(n_batches,)`."""
        raise NotImplementedError

    def draw_epoch(self) -> torch.Tensor:
        """Indices `(batches, bs)`, the m images of a class next to each other."""
        if self.domain_of is None:
            self.set_super_labels(None)
        groups, owners = self.cut_into_groups(self.samples_per_class)
        turns = self.chosen[self.turns(len(self))]
        batches = torch.empty(len(self), self.batch_size, dtype=torch.long)
        # There are few domains; the groups of each are passed through by themselves.
        for domain in turns.unique():
            domain_groups = groups[self.domain_of[owners] == domain]
            rows = turns == domain
            needed = int(rows.sum()) * self.classes_per_batch
            passes = torch.cat([torch.randperm(len(domain_groups)) for _ in range(-(-needed // len(domain_groups)))])
            batches[rows] = domain_groups[passes[:needed]].view(-1, self.batch_size)
        return batches


def shared_out(shares: torch.Tensor, n_batches: int) -> torch.Tensor:
    """The domain of each batch, `(n_batches,)`, in random order: a share `(D,)` of them, rounded up or down at random,
    so that the mean is exact.
    """
    ends = shares.cumsum(0) / shares.sum() * n_batches
    points = torch.arange(n_batches) + torch.rand((), dtype=torch.float64)
    return torch.searchsorted(ends, points, right=True).clamp(max=len(shares) - 1)[torch.randperm(n_batches)]
