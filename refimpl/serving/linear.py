"""Matrix products with a weight that does not change, by the fastest library that is there.

In float32 on a CPU torch's own `linear` multiplies by MKL, on some processors at less than half the speed of oneDNN
with the weight laid out for it. torch carries oneDNN; the operators that reach it so are private, and where they are
missing the public one serves.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

_BATCH_HINT = 32  # rows of input that the layout is chosen for; measured to be good from 1 to 512


class Linear:
    """`x @ weight.T`, for a weight [out_features, in_features], and what a model does to it next in the same pass.

    silu: apply it to the product.

    >>> linear = Linear(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    >>> x, other = torch.tensor([[1.0, 10.0]]), torch.tensor([[2.0, 100.0]])
    >>> linear(x).tolist(), linear.times(x, other).tolist(), linear.plus(x, other).tolist()
    ([[21.0, 43.0]], [[42.0, 4300.0]], [[23.0, 143.0]])
    """

    def __init__(self, weight: Tensor, *, silu: bool = False) -> None:
        self._silu = silu
        self._packed = _can_be_packed(weight)
        with torch.inference_mode():
            self._weight = (
                torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _BATCH_HINT) if self._packed else weight
            )

    def __call__(self, x: Tensor) -> Tensor:
        """[num_tokens, in_features] to [num_tokens, out_features]."""
        if self._packed:
            then, scalars = ("swish", [1.0]) if self._silu else ("none", [])
            product: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, self._weight, None, then, scalars, "")
            return product
        product = functional.linear(x, self._weight)
        return functional.silu(product) if self._silu else product

    def times(self, x: Tensor, other: Tensor) -> Tensor:
        """The product, element by element times `other`, [num_tokens, out_features]."""
        return self._combined(x, other, "mul") if self._packed else self(x) * other

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        """The product plus `other`, [num_tokens, out_features]."""
        return self._combined(x, other, "add") if self._packed else self(x) + other

    def _combined(self, x: Tensor, other: Tensor, how: str) -> Tensor:
        combined: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, other, self._weight, None, how)
        return combined


def _can_be_packed(weight: Tensor) -> bool:
    return (
        weight.dtype == torch.float32
        and weight.device.type == "cpu"
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )
