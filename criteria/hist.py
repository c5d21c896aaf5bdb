"""HIST, hypergraph-induced semantic tuplets (Lim et al., CVPR 2022): class distributions, and a network on the batch's
hypergraph of classes.

Rows whose own class underflows in the softmax count here; the authors' code (github.com/ljin0429/HIST) leaves them out
of the mean.
"""

import functools

import torch
from torch.nn.functional import cross_entropy, leaky_relu, linear, relu6

from criteria._proxies import ProxyCriterion
from options.flags import Flag
from utilities.batchnorm import WholeBatchNorm
from utilities.numbers import WIDEST, number, whole
from utilities.tensors import normalize
from utilities.tuples import same_class

REQUIRES_OPTIM = True

# slope of the network's leaky ReLU
SLOPE = 0.1

FLAGS = {
    "tau": Flag(number(1e-6), 32, "scale of the distances in the distribution loss"),
    "alpha": Flag(number(0), 0.9, "scale of the distances in the hypergraph: of semantic tuplets"),
    "weight": Flag(number(0), 1, "weight of the network's cross-entropy (lambda_s)"),
    "hidden": Flag(whole(1, WIDEST), 512, "units of the network's hidden layer"),
    "lr": Flag(number(0), 0.1, "learning rate of means and variances"),
    "network_lrmulti": Flag(number(0), 10, "learning rate of the network, in multiples of --lr"),
}


class Criterion(ProxyCriterion):
    """mean_i CE(-tau M_i) + weight * mean_i CE(G (lrelu(BN(G (X W_1 + b_1))) W_2 + b_2))_i,
    X the embeddings as they are.

    M_ic = sum_d (x_id - mu_cd)^2 / exp(relu6(rho_cd)) is the distance of the unit embedding to class c's distribution
    of unit mean. G = Dv^-1/2 H De^-1 H^T Dv^-1/2 on the classes in the batch: H_ic = 1 at the own class, else
    exp(-alpha M_ic), Dv and De its row and column sums.
    """

    def __init__(self, opt):
        start = functools.partial(torch.nn.init.kaiming_normal_, mode="fan_out")
        # The proxies are the means.
        super().__init__(opt, start=start, pml_start=start)
        self.log_variances = torch.nn.Parameter(start(torch.empty_like(self.proxies)))
        self.layers = torch.nn.ModuleList(
            [torch.nn.Linear(opt.embed_dim, self.hidden), torch.nn.Linear(self.hidden, self.n_classes)]
        )
        self.norm = WholeBatchNorm(self.hidden)
        network = [*self.layers.parameters(), *self.norm.parameters()]
        self.optim_dict_list = [
            {"params": [self.proxies, self.log_variances], "lr": self.lr},
            {"params": network, "lr": opt.lr * self.network_lrmulti},
        ]

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`."""
        distances = self.distances(batch)  # (B, C)
        graph = self.graph(distances, labels)
        first, second = self.layers
        hidden = leaky_relu(self.norm(graph @ _through(first, batch)), SLOPE)
        of_distributions = cross_entropy(-self.tau * distances, labels)
        of_graph = cross_entropy(graph @ _through(second, hidden), labels)
        self.stats = {"distribution_loss": of_distributions.detach(), "hypergraph_loss": of_graph.detach()}
        return of_distributions + self.weight * of_graph

    def distances(self, batch: torch.Tensor) -> torch.Tensor:
        """M `(B, C)`."""
        unit = normalize(batch)
        means = self.unit_proxies(batch)
        precisions = torch.exp(-relu6(self.log_variances.to(batch)))
        return unit.square() @ precisions.T - 2 * unit @ (means * precisions).T + (means.square() * precisions).sum(1)

    def graph(self, distances: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """G `(B, B)`. A column of H is that of an image's class; of a class's images one counts, as the number of
        classes is no size to wait for.
        """
        same_classes = same_class(labels)
        # 1 at the first image of each class
        counts = torch.tril(same_classes, -1).any(1).logical_not().to(distances.dtype)
        # H of the formula in the class's docstring
        incidence = torch.where(same_classes, 1.0, torch.exp(-self.alpha * distances.index_select(1, labels)))
        scaled = incidence * (incidence @ counts).rsqrt()[:, None]
        return scaled @ ((counts / incidence.sum(0))[:, None] * scaled.T)


def _through(layer: torch.nn.Linear, rows: torch.Tensor) -> torch.Tensor:
    """A layer in the precision of `rows`."""
    return linear(rows, layer.weight.to(rows), layer.bias.to(rows))
