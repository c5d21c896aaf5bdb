"""Manifold similarity with proxies
(Aziere & Todorovic, Ensemble Deep Manifold Similarity Learning using Hard Proxies, CVPR 2019).

Classes are grouped at random, once, and each group has a proxy. This is one embedding of the paper's ensemble, without
its step that makes proxies hard. pytorch-metric-learning ignores labels: the user gives each sample's group, or samples
are grouped anew at every call.
"""

import torch

from criteria._proxies import ProxyCriterion
from options.flags import Flag
from utilities.numbers import number, whole
from utilities.tensors import normalize

REQUIRES_OPTIM = True

# temperature of the edges
TEMPERATURE = 0.5

FLAGS = {
    "lr": Flag(number(0), 0.0005, "learning rate of the proxies"),
    "n_proxies": Flag(whole(1, 10000), 50, "groups of classes, at most one per class (K)"),
    "context_weight": Flag(number(0), 1, "weight of the context part (lambda_C)"),
    "alpha": Flag(number(above=0, below=1), 0.8, "share that a step of the random walk passes on"),
    "margin": Flag(number(0), 5e-4, "by which the own proxy is to be the most similar"),
}


class Criterion(ProxyCriterion):
    """mean_i log(1 + sum_k exp(F_ik - F_iy + margin)) + context_weight * the same of the cosines between rows of F.

    F = (1 - alpha) (I - alpha D^-1/2 S D^-1/2)^-1, the random walk's limit on the graph of samples and proxies whose
    edges are S = exp([cos]+ / 0.5), D the degrees. y is the own proxy; k are the other groups' proxies with F_ik - F_iy
    + margin >= 0.
    """

    def __init__(self, opt):
        n_proxies = min(opt.loss_manifold_n_proxies, getattr(opt, "n_classes", None) or 1)
        super().__init__(opt, n_vectors=n_proxies, pml_start=torch.nn.init.normal_)
        # depends on the run's seed only, not on earlier draws
        generator = torch.Generator().manual_seed(torch.initial_seed())
        self.register_buffer("groups", torch.randperm(self.n_classes, generator=generator) % n_proxies)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`."""
        own_groups = self.groups.to(labels.device)[labels][:, None]  # (B, 1)
        walk = self.walk(torch.cat([normalize(batch), self.unit_proxies(batch)]))
        samples, proxies = walk.split([len(batch), len(self.proxies)])
        intrinsic = samples[:, len(batch) :]  # (B, K)
        context = normalize(samples) @ normalize(proxies).T  # (B, K)
        self.note(intrinsic, own_groups.squeeze(1))
        return self.part(intrinsic, own_groups) + self.context_weight * self.part(context, own_groups)

    def walk(self, nodes: torch.Tensor) -> torch.Tensor:
        """F `(N, N)` of unit vectors `(N, D)`."""
        identity = torch.eye(len(nodes), dtype=nodes.dtype, device=nodes.device)
        edges = torch.exp((nodes @ nodes.T).clamp(min=0) / TEMPERATURE) * (1 - identity)
        degrees = edges.sum(1).rsqrt()
        # invertible, as the normalised edges have eigenvalues of at most 1; inv_ex does not check, so NaN reaches the
        # loss
        return (1 - self.alpha) * torch.linalg.inv_ex(
            identity - self.alpha * degrees[:, None] * edges * degrees
        ).inverse

    def part(self, similarities: torch.Tensor, own_groups: torch.Tensor) -> torch.Tensor:
        """mean log(1 + sum exp) of the excesses of `similarities` `(B, K)` over that to the own proxy.

        `own_groups` `(B, 1)` is the column of that proxy.
        """
        excesses = similarities - similarities.gather(1, own_groups) + self.margin
        counted = (excesses < 0).logical_not().scatter(1, own_groups, False)
        return torch.log1p((counted * excesses.exp()).sum(1)).mean()
