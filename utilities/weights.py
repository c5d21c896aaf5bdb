"""Values of a state dict that are no weights: refused with the file's name before they are loaded."""

import torch

from utilities.errors import UserError

# buffers that hold finite numbers as parameters do; masks of attention may hold -inf
STATISTICS = (
    "running_mean",
    "running_var",
)
# keys that a message names
NAMED = 3


def add_to_hash(digest, module: torch.nn.Module) -> None:
    """Update a `hashlib` digest by the names and bytes of a module's state."""
    for name, value in module.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)


def refuse_faults(
    state: dict,
    module: torch.nn.Module,
    source: str,
    prefix: str = "",
    way_out: str = "give weights of a training that did not diverge",
) -> None:
    """Raise UserError where integers stand for floating-point weights, or weights are NaN or infinite.

    Args:
        state: in the names of `module`; other keys are not looked at. source: the file, for the message.
        prefix: of the keys in the file.
        way_out: from weights that are NaN or infinite, for the message.

    Quantised and sparse tensors of torch are let through, see `dequantized`.
    """
    parameters = {name for name, _ in module.named_parameters()}
    floating = {key for key, value in module.state_dict().items() if value.is_floating_point()}
    values = {key: value for key, value in state.items() if key in floating}
    unusable = [key for key, value in values.items() if not (value.is_floating_point() or value.is_quantized)]
    if unusable:
        types = {str(state[key].dtype).removeprefix("torch.") for key in unusable}
        raise UserError(
            f"{source} holds {', '.join(sorted(types))} instead of floating-point numbers in "
            f"{_few(prefix, unusable)}: give the weights before quantisation"
        )
    broken = []
    for key, value in values.items():
        is_checked = key in parameters or key.endswith(STATISTICS)
        if is_checked and not _is_finite(dequantized(value)):
            broken.append(key)
    if broken:
        raise UserError(f"{source} holds NaN or infinity in {_few(prefix, broken)}: {way_out}")


def dequantized(value: torch.Tensor) -> torch.Tensor:
    """The tensor; a quantised one of torch as floating-point numbers, a sparse one with its zeros."""
    if value.layout != torch.strided:
        return value.to_dense()
    return value.dequantize() if value.is_quantized else value


def _is_finite(value: torch.Tensor) -> bool:
    if value.is_meta:
        return True
    if value.element_size() == 1:
        # torch has no isfinite for float8
        value = value.float()
    # A sum with NaN or infinity is never finite, and takes a quarter of the time; it may overflow without any.
    return bool(value.sum().isfinite()) or bool(value.isfinite().all())


def _few(prefix: str, keys: list[str]) -> str:
    text = ", ".join(f"{prefix}{key}" for key in keys[:NAMED])
    return f"{text} … ({len(keys)} in all)" if len(keys) > NAMED else text
