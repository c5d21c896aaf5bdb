"""Types of what users pass to the calls of the package, for type checkers and for readers of signatures."""

from collections.abc import Sequence
from os import PathLike
from typing import Any, Protocol, TypeAlias


class HasArray(Protocol):
    """What numpy turns into an array: arrays, tensors, columns of a frame, Pillow images."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any: ...


class Frame(Protocol):
    """What a pandas frame has, as far as it is data."""

    @property
    def columns(self) -> Any:
        """Names of the columns."""

    def assign(self, **columns: Any) -> Any:
        """The frame with further columns."""


Values: TypeAlias = HasArray | Sequence[Any]
File: TypeAlias = str | PathLike[str]
Image: TypeAlias = File | HasArray
