"""The maps inside a backbone, reduced to a mean of each image: what `Network.give_stages` adds to the features."""

import functools

import torch

from utilities.errors import UserError


class Stages:
    """Means over the maps of chosen modules, kept by hooks on the backbone while the network embeds.

    Args:
        network: the `Network`, whose `STAGES` names maps and whose `mean_of` reduces one.
    """

    def __init__(self, network: torch.nn.Module):
        self.network = network
        self.names = []
        # name -> (B, C), of the current batch
        self.means = {}
        self.hooked = set()

    def choose(self, names: list[str]) -> None:
        """Collect these stages from now on. Raises UserError for a name that the backbone does not have."""
        network = self.network
        modules = dict(network.backbone.named_modules())
        self.names = list(names)
        for name in self.names:
            if name not in network.STAGES and name not in modules:
                known_names = ", ".join(network.STAGES) or "it names none, but any of its modules may be given"
                raise UserError(f"{network.name} has no stage {name!r}: {known_names}")
            self._hook(name, modules[network.STAGES.get(name, name)])

    def take(self) -> list[torch.Tensor]:
        """The means `(B, C)` of the batch that the network has just embedded, in the order of the chosen names."""
        means = [self.means[name] for name in self.names]
        self.means = {}
        return means

    def _hook(self, name: str, module: torch.nn.Module) -> None:
        if name in self.hooked:
            return
        self.hooked.add(name)
        if name in self.network.STAGES and self.network.STAGES_ARE_INPUTS:
            module.register_forward_pre_hook(functools.partial(self._keep_input, name))
        else:
            module.register_forward_hook(functools.partial(self._keep, name))

    def _keep(self, name: str, module: torch.nn.Module, inputs: tuple, output) -> None:
        if not isinstance(output, torch.Tensor) or output.ndim < 2:
            raise UserError(
                f"the stage {name!r} of {self.network.name} gives no features of each image: choose another"
            )
        self.means[name] = output if output.ndim == 2 else self.network.mean_of(output)

    def _keep_input(self, name: str, module: torch.nn.Module, inputs: tuple) -> None:
        self._keep(name, module, (), inputs[0])
