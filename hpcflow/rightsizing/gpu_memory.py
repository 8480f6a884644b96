"""Estimate the GPU memory of a training before its first run. Pure.

**Model states**, for Ψ parameters sharded over N GPUs, are those of ZeRO (Rajbhandari et al.,
"ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 2020, arXiv:1910.02054,
section 3.1 and figure 1). With weights of w bytes, gradients of g bytes, and K bytes of optimizer
states for each parameter::

    none            (w + g + K) Ψ
    zero1           (w + g + K/N) Ψ
    zero2           (w + (g + K)/N) Ψ
    zero3, fsdp     (w + g + K)/N Ψ

=============  =====  =====  ===================================================================
precision      w      g      K
=============  =====  =====  ===================================================================
fp32           4      4      the optimizer's states
bf16, fp16     2      2      4 for the copy of the weights in fp32, and the optimizer's states
bf16-pure      2      2      the optimizer's states, in 16 bits
=============  =====  =====  ===================================================================

The states are 8 bytes for adam and adamw, 4 for sgd-momentum, 0 for sgd, 2 for adam8bit (Dettmers
et al., "8-bit Optimizers via Block-wise Quantization", 2021, arXiv:2110.02861). torch.autocast has
weights and gradients in fp32 instead of the copy: the same sum for adamw.

**Activations** of a transformer with L layers of width h and a heads, for sequences of length s and
b of them on a GPU, are those of Korthikanti et al., "Reducing Activation Recomputation in Large
Transformer Models", 2022, arXiv:2205.05198, equations 1 and 2, table 2; in 16 bits, with t GPUs of
tensor parallelism::

    none            s b h L (10 + 24/t + 5 a s / (h t))
    selective       s b h L (10 + 24/t)        attention is computed again, or never stored (flash)
    full            s b h (2 L + 10 + 24/t)    only the input of each layer is kept

Unlike in that paper, ``full`` includes the one layer that is being computed again (Chen et al.,
"Training Deep Nets with Sublinear Memory Cost", 2016, arXiv:1604.06174, section 3).
Layers in fp32 take twice that. With a vocabulary of v words, 4 s b v / t are added for the logits
in fp32 (section 4.3). If only Ψ is known, the shape is that of large language models:
Ψ = 12 L h² (the weights of the layers), h = 128 L, heads of 128.

**Not included**: the CUDA context and kernels (some 0.5 to 1 GiB), buffers of NCCL, buckets of DDP,
layers that FSDP or zero3 gathers while it computes them (about 2 w Ψ/L), the attention of the one
layer that is computed again (5 a s² b / t, none with flash attention), fragmentation in the
allocator, and other data of the program. So a GPU counts as large enough only if a tenth of it
stays free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Bytes of weights, gradients and the copy of the weights; size of optimizer states / fp32.
PRECISIONS: Final = {
    "fp32": (4, 4, 0, 1.0),
    "bf16": (2, 2, 4, 1.0),
    "fp16": (2, 2, 4, 1.0),
    "bf16-pure": (2, 2, 0, 0.5),
}
#: Bytes of optimizer states for each parameter, in fp32.
OPTIMIZERS: Final = {"adamw": 8, "adam": 8, "adam8bit": 2, "sgd-momentum": 4, "sgd": 0}
#: Whether weights, gradients and optimizer states are sharded.
SHARDINGS: Final = {
    "none": (False, False, False),
    "ddp": (False, False, False),
    "zero1": (False, False, True),
    "zero2": (False, True, True),
    "zero3": (True, True, True),
    "fsdp": (True, True, True),
}
#: The share of a GPU's memory that an estimate may take.
MOST_TAKEN: Final = 0.9
_ASPECT: Final = 128
_HEAD: Final = 128


@dataclass(frozen=True)
class Model:
    """A transformer: its parameters, and the shape of its layers."""

    parameters: float
    layers: int
    hidden: int
    heads: int
    vocabulary: int = 0


@dataclass(frozen=True)
class Estimate:
    """Bytes on one GPU; ``activations`` is None without batch and sequence."""

    weights: float
    gradients: float
    optimizer: float
    activations: float | None

    @property
    def total(self) -> float:
        """Return the sum of the known parts."""
        return self.weights + self.gradients + self.optimizer + (self.activations or 0.0)

    def fits(self, mem_mb: int) -> bool:
        """Return whether a GPU with this memory is enough, with a tenth of it free."""
        return self.total <= MOST_TAKEN * mem_mb * (1 << 20)


def shaped(
    parameters: float,
    layers: int | None = None,
    hidden: int | None = None,
    heads: int | None = None,
    vocabulary: int = 0,
) -> Model:
    """Return a model; parts that are not given are as in large language models."""
    if hidden is None and layers is None:
        hidden = round((_ASPECT * parameters / 12) ** (1 / 3))
    if hidden is None:
        hidden = max(1, round((parameters / (12 * (layers or 1))) ** 0.5))
    layers = layers or max(1, round(parameters / (12 * hidden**2)))
    return Model(parameters, layers, hidden, heads or max(1, round(hidden / _HEAD)), vocabulary)


def estimate(
    model: Model,
    *,
    precision: str = "bf16",
    optimizer: str = "adamw",
    sharding: str = "none",
    gpus: int = 1,
    batch: int | None = None,
    sequence: int | None = None,
    checkpointing: str = "none",
    tensor_parallel: int = 1,
) -> Estimate:
    """Estimate the bytes that a training takes on each GPU.

    Args:
        gpus: number of GPUs on all nodes.
        batch: sequences on one GPU at a time.
        tensor_parallel: number of GPUs that share each layer.

    Raises:
        KeyError: a word is not in the tables above.
    """
    weight, gradient, copy, scale = PRECISIONS[precision]
    states = copy + OPTIMIZERS[optimizer] * (1.0 if optimizer == "adam8bit" else scale)
    each = model.parameters / tensor_parallel
    shares = [
        each / (gpus / tensor_parallel if is_shared else 1) for is_shared in SHARDINGS[sharding]
    ]
    activations = None
    if batch is not None and sequence is not None:
        activations = _activations(model, batch, sequence, checkpointing, tensor_parallel)
        activations *= 2 if precision == "fp32" else 1
        activations += 4 * sequence * batch * model.vocabulary / tensor_parallel
    return Estimate(weight * shares[0], gradient * shares[1], states * shares[2], activations)


def _activations(model: Model, batch: int, sequence: int, checkpointing: str, t: int) -> float:
    """Return the bytes of the activations of all layers, in 16 bits."""
    attention = 5 * model.heads * sequence / (model.hidden * t)
    layer = 10 + 24 / t
    of_all = {
        "none": model.layers * (layer + attention),
        "selective": model.layers * layer,
        "full": model.layers * 2 + layer,
    }
    return sequence * batch * model.hidden * of_all[checkpointing]
