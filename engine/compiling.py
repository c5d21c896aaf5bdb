"""`--compile`: torch.compile of the network alone, with a count of its recompilations."""

import importlib.util

import torch

from utilities.errors import UserError

BACKEND = "inductor"
# graphs of a function: training and evaluation, each batch and chunk size; beyond it torch silently runs uncompiled
GRAPH_LIMIT = 64


class Compiler:
    """Compiles networks and counts their graphs. Raises UserError where this machine has no compiler.

    Each batch size gets its own graph: a batch's graph thus never depends on earlier batches,
    which a resumed run relies on.
    """

    def __init__(self, device: torch.device):
        self.graphs = 0
        self.epochs = 0
        self.epoch = 0
        if BACKEND == "inductor":
            _check(device)

    def compile(self, network: torch.nn.Module) -> None:
        """Compile the network in place: `network(images)` runs the graphs, its state dict keeps its names."""
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, GRAPH_LIMIT)
        network.compile(backend=self._counted, dynamic=False)

    def _counted(self, graph, inputs):
        self.graphs += 1
        if self.epochs > 1:
            print(f"--compile: recompiled in epoch {self.epoch}, {self.graphs} graphs in all")
        return torch._dynamo.lookup_backend(BACKEND)(graph, inputs)

    def start_epoch(self, epoch: int) -> None:
        """Begin an epoch.

        Before the second the graphs of the first, evaluation included, are printed;
        later ones are printed as they come.
        """
        self.epochs = self.epochs + 1 if epoch else 0
        self.epoch = epoch
        if self.epochs == 2:
            print(f"--compile: {self.graphs} graphs")


def _check(device: torch.device) -> None:
    """Raise UserError where the parts that compile for `device` are missing."""
    if device.type == "cuda" and importlib.util.find_spec("triton") is None:
        raise UserError("--compile needs triton on a GPU: pip install triton, or leave it out")
    if device.type == "cpu":
        from torch._inductor import cpp_builder

        try:
            cpp_builder.get_cpp_compiler()
        except Exception:
            raise UserError(
                "--compile needs a C++ compiler on a CPU, and there is none: install g++, or leave it out"
            ) from None
