"""No backbone: the pooled features are given, in rows `(B, F)`, and the layers behind a backbone are the network.

Its name is `features:<F>`, or `features:<F>:<name>` if the network <name> has computed the features. The second draws
its first weights behind random ones of that backbone: with the same seed it begins as a run of <name> does.
"""

import argparse

import torch

from architectures import _network
from utilities.errors import UserError

NAME = "features"
NO_BACKBONE = {
    **{"weights": None, "not_pretrained": True, "pool": None, "last_stride": 2, "stem_pool": "padded"},
    **{"patch_stride": None, "grad_checkpointing": False, "freeze_backbone": True},
}


def is_name(backbone: str) -> bool:
    """Whether a name without its traits is one of these; `features` alone leaves F open."""
    name, _, parameters = backbone.partition(":")
    return name == NAME and (not parameters or parameters.partition(":")[0].isdecimal())


def parts(backbone: str) -> tuple[int | None, str]:
    """F, None where it is open, and the network that has computed the features, "" for none."""
    _, width, source = (*backbone.split(":", 2), "", "")[:3]
    return int(width) if width else None, source


class Network(_network.Network):
    """The layers behind a backbone, `pooled` `(B, F)` -> embeddings; `takes_features`: F.

    Args:
        width: F; None: that of the name.
    """

    def __init__(self, opt, name, width: int | None = None):
        width = width or parts(name.backbone)[0]
        if width is None:
            raise UserError(
                f"--arch {name.full}: of how many features? features:<F>, which --dataset arrays adds itself"
            )
        opt = argparse.Namespace(**{**vars(opt), **NO_BACKBONE})
        super().__init__(opt, name, torch.nn.Identity(), width, None)
        self.takes_features = width

    def wrong_size(self, images: torch.Tensor) -> UserError:
        """The error for images, and for rows of another width."""
        return UserError(f"{self.name} takes rows (B, {self.feature_dim}) of features, not {tuple(images.shape)}")

    def prepare(self, images: torch.Tensor) -> torch.Tensor:
        """Raises UserError: rows are not prepared, and images are not taken."""
        raise self.wrong_size(images)

    def give_stages(self, names: list[str]) -> list[int]:
        """Raises UserError: there are no maps."""
        raise UserError(f"{self.name} takes features, and maps of a backbone's stages are needed")
