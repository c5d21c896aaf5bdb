"""Losses of pytorch-metric-learning in place of ours, for `benchmarks/methods.py --peers`."""

import contextlib

import torch

import criteria


def _arcface(pml, opt, n: int, d: int) -> torch.nn.Module:
    degrees = opt.loss_arcface_angular_margin * 180 / torch.pi
    return pml.ArcFaceLoss(n, d, margin=degrees, scale=opt.loss_arcface_feature_scale)


def _circle(pml, opt, n: int, d: int) -> torch.nn.Module:
    return pml.CircleLoss(m=opt.loss_circle_m, gamma=opt.loss_circle_gamma)


def _cosface(pml, opt, n: int, d: int) -> torch.nn.Module:
    return pml.CosFaceLoss(n, d, margin=opt.loss_cosface_margin, scale=opt.loss_cosface_scale)


def _fastap(pml, opt, n: int, d: int) -> torch.nn.Module:
    return pml.FastAPLoss(num_bins=opt.loss_fastap_num_bins)


def _multisimilarity(pml, opt, n: int, d: int) -> torch.nn.Module:
    return pml.MultiSimilarityLoss(
        opt.loss_multisimilarity_pos_weight, opt.loss_multisimilarity_neg_weight, opt.loss_multisimilarity_thresh
    )


def _nca(pml, opt, n: int, d: int) -> torch.nn.Module:
    return pml.NCALoss(softmax_scale=opt.loss_nca_scale)


def _ntxent(pml, opt, n: int, d: int) -> torch.nn.Module:
    return pml.NTXentLoss(temperature=opt.loss_ntxent_temperature)


def _proxyanchor(pml, opt, n: int, d: int) -> torch.nn.Module:
    return pml.ProxyAnchorLoss(n, d, margin=opt.loss_proxyanchor_delta, alpha=opt.loss_proxyanchor_alpha)


def _proxynca_pp(pml, opt, n: int, d: int) -> torch.nn.Module:
    return pml.ProxyNCALoss(n, d, softmax_scale=opt.loss_proxynca_pp_scale**2)


def _softmax(pml, opt, n: int, d: int) -> torch.nn.Module:
    return pml.NormalizedSoftmaxLoss(n, d, temperature=opt.loss_softmax_temperature)


def _supcon(pml, opt, n: int, d: int) -> torch.nn.Module:
    return pml.SupConLoss(temperature=opt.loss_supcon_temperature)


# Losses that pytorch-metric-learning has too -> a function (its losses, options, classes, dimensions) -> its loss with
# our flags. None of them draws at random.
PEERS = {
    "arcface": _arcface,
    "circle": _circle,
    "cosface": _cosface,
    "fastap": _fastap,
    "multisimilarity": _multisimilarity,
    "nca": _nca,
    "ntxent": _ntxent,
    "proxyanchor": _proxyanchor,
    "proxynca_pp": _proxynca_pp,
    "softmax": _softmax,
    "supcon": _supcon,
}
# Losses with class vectors, which each program starts in its own way.
WITH_VECTORS = ("arcface", "cosface", "proxyanchor", "proxynca_pp", "softmax")


class Peer(torch.nn.Module):
    """pytorch-metric-learning's loss as a criterion, with its miner for multisimilarity.

    Args:
        ours: our criterion. Its class vectors are copied, unless `own_start`.
        theirs: the other library's loss.
        epsilon: margin of its multisimilarity miner; None: no miner.
        own_start: the class vectors start as the other library starts them.
    """

    def __init__(self, ours: torch.nn.Module, theirs: torch.nn.Module, epsilon: float | None, own_start: bool):
        super().__init__()
        from pytorch_metric_learning.miners import MultiSimilarityMiner

        self.loss = theirs
        self.stats = {}
        self.miner = MultiSimilarityMiner(epsilon) if epsilon is not None else None
        if not own_start:
            self._start_as(ours)
        parameters = list(theirs.parameters())
        self.optim_dict_list = [{**group, "params": parameters} for group in getattr(ours, "optim_dict_list", [])]

    def _start_as(self, ours: torch.nn.Module) -> None:
        """Copy the class vectors of our criterion, which may have the classes in the other dimension."""
        for our_parameter, parameter in zip(ours.parameters(), self.loss.parameters(), strict=True):
            start = our_parameter.detach()
            if start.shape != parameter.shape:
                start = start.T
            parameter.data.copy_(start.reshape(parameter.shape))

    def forward(self, batch, labels, **kwargs):
        """The loss, a scalar, of embeddings `batch` `(B, D)` and `labels` `(B,)`."""
        pairs = None
        if self.miner is not None:
            pairs = self.miner(batch, labels)
        return self.loss(batch, labels, pairs)


def peer_of(name: str, ours: torch.nn.Module, opt, own_start: bool) -> Peer:
    """pytorch-metric-learning's loss `name` with the flags of `opt`, in place of our criterion."""
    from pytorch_metric_learning import losses

    epsilon = None
    if name == "multisimilarity":
        epsilon = opt.loss_multisimilarity_margin
    # random numbers of its start must not change the batches
    with torch.random.fork_rng():
        theirs = PEERS[name](losses, opt, opt.n_classes, opt.embed_dim)
        return Peer(ours, theirs, epsilon, own_start)


@contextlib.contextmanager
def computed_by_the_peer(loss: str, own_start: bool):
    """Context in which main.py trains with pytorch-metric-learning's loss instead of ours."""
    select = criteria.select

    def select_peer(name, opt, batchminer, **flags):
        return peer_of(loss, select(name, opt, batchminer, **flags), opt, own_start)

    criteria.select = select_peer
    try:
        yield
    finally:
        criteria.select = select
