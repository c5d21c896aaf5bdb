"""A trainer's layers behind the network whose outputs are evaluated too.

`Heads` is their interface, `Evaluated` the network with them for evaluation.
"""

import torch

from utilities.errors import UserError
from utilities.evaltypes import MAIN as MAIN_EMBEDDING
from utilities.tensors import normalize, raise_half

# name of a classifier's logits among outputs and in `--evaltypes`
LOGITS = "classifier_logits"


class Heads(torch.nn.Module):
    """A trainer's layers behind its network that are evaluated: `--evaltypes` may name the outputs of `forward`.

    A trainer's `build_heads(opt, network)` makes them; the base holds them as `evaluated_heads`, so that they are
    moved, trained and checkpointed as the trainer's own. A saved run builds them again from its flags, `opt.n_classes`
    and the network.

    Attributes:
        CHANGES_MAIN: whether they replace the network's embedding, `discriminative`.
        False: they add others, and for `discriminative`
            alone the bare network is evaluated.
        embed_dim: width of the main embedding, where they replace it.
        normalizes: optional; `--eval_no_normalize` sets it to False during evaluation, as it does with the network's.
    """

    CHANGES_MAIN = False

    def forward(self, embeddings: dict, features: dict) -> dict:
        """Name -> `(B, D)` of the embeddings that it adds or replaces.

        Args:
            embeddings: name -> `(B, D)` from the network, as in training: of unit length where the network normalises.
            features: the network's earlier activations, such as `pooled` `(B, F)`.
        """
        raise NotImplementedError


class Evaluated(torch.nn.Module):
    """A network with heads behind it, of the same shape: `images -> (embeddings, features)`.

    `embeddings` is a dict of all embeddings or, where `evaltypes` names the main embedding only, that one as a tensor.
    Any other attribute is the network's.
    """

    def __init__(self, network: torch.nn.Module, heads: Heads, evaltypes: list[str]):
        super().__init__()
        self.network = network
        self.heads = heads
        self.main_alone = names_main_alone(evaltypes)
        self.trained_normalized = bool(getattr(network, "normalizes", False))
        self.training = network.training

    def __getattr__(self, name: str):
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name in ("network", "heads"):
                raise
            return getattr(self.network, name)

    @property
    def embed_dim(self) -> int:
        """Dimensions of the main embedding."""
        return self.heads.embed_dim if self.heads.CHANGES_MAIN else self.network.embed_dim

    @property
    def normalizes(self) -> bool:
        """Whether the embeddings are brought to unit length; can be set, like a network's."""
        return self.network.normalizes

    @normalizes.setter
    def normalizes(self, value: bool) -> None:
        self.network.normalizes = value
        if hasattr(self.heads, "normalizes"):
            self.heads.normalizes = value

    def forward(self, images: torch.Tensor) -> tuple[dict | torch.Tensor, dict]:
        """Embed `images` `(B, 3, H, W)`."""
        embeddings, features = self.network(images)
        if not isinstance(embeddings, dict):
            embeddings = {MAIN_EMBEDDING: embeddings}
        as_trained = embeddings
        # the heads were trained on unit vectors
        if self.trained_normalized and not self.network.normalizes:
            as_trained = {name: normalize(raise_half(embedding)) for name, embedding in embeddings.items()}
        embeddings = {**embeddings, **self.heads(as_trained, features)}
        if self.main_alone and MAIN_EMBEDDING in embeddings:
            return embeddings[MAIN_EMBEDDING], features
        return embeddings, features


def main_of(embeddings: dict, evaltypes: list[str]) -> torch.Tensor:
    """The one of several embeddings that a trainer trains: the first of `evaltypes` that exists, else the first."""
    return embeddings[next((name for name in evaltypes if name in embeddings), next(iter(embeddings)))]


def width(network: torch.nn.Module, opt) -> int:
    """Dimensions of the embedding that a trainer trains.

    They are in the network's `embed_dims`, name -> dimensions, or its `embed_dim`.
    """
    widths = getattr(network, "embed_dims", None)
    if not widths:
        return network.embed_dim
    return main_of(widths, [*opt.evaltypes, MAIN_EMBEDDING])


def feature_width(network: torch.nn.Module) -> int:
    """Dimensions of a network's pooled features. Raises UserError where the network has no attribute for them."""
    width = getattr(network, "feature_dim", None) or getattr(getattr(network, "last_linear", None), "in_features", None)
    if width is None:
        raise UserError(
            "the trainer puts layers on the network's pooled features, and it does not say how many it has: "
            "attribute feature_dim"
        )
    return width


def embedding_width(network: torch.nn.Module, opt) -> int:
    """Dimensions of a network's main embedding."""
    width = getattr(network, "embed_dim", None) or getattr(getattr(network, "last_linear", None), "out_features", None)
    return width or opt.embed_dim


def names_main_alone(evaltypes: list[str]) -> bool:
    """Whether `evaltypes` names the main embedding only."""
    return set(evaltypes) <= {MAIN_EMBEDDING}


def evaluated(network: torch.nn.Module, heads: Heads | None, evaltypes: list[str]) -> torch.nn.Module:
    """The network that gives the embeddings of `evaltypes`: with the heads, if their outputs are requested."""
    if heads is None or (not heads.CHANGES_MAIN and names_main_alone(evaltypes)):
        return network
    return Evaluated(network, heads, evaltypes)
