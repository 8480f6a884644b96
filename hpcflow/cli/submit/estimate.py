"""``hpcflow estimate``."""

from __future__ import annotations

import math
import re
from typing import Any, Final, TypedDict

import click

from hpcflow.cli.arguments import json_option, site_option
from hpcflow.cli.output import print_json
from hpcflow.cli.session import Session
from hpcflow.errors import HpcflowError
from hpcflow.model.units import counted, format_bytes
from hpcflow.rightsizing.gpu_memory import (
    OPTIMIZERS,
    PRECISIONS,
    SHARDINGS,
    Model,
    estimate,
    shaped,
)
from hpcflow.terminal import echo


class FittingGpu(TypedDict):
    """A type of GPU of the site."""

    mem_mb: int
    fits: bool


class GpuMemory(TypedDict):
    """Memory on each GPU; `activations_bytes` is null without batch and sequence."""

    weights_bytes: int
    gradients_bytes: int
    optimizer_states_bytes: int
    activations_bytes: int | None
    total_bytes: int
    model: Model
    gpu_types: dict[str, FittingGpu]


_CHECKPOINTING: Final = ("none", "selective", "full")
_NUMBER: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e[0-9]{1,2})?) *([KMBT]?)", re.I | re.A)
_UNITS: Final = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_MOST: Final = 1e15


def _parameters(_ctx: click.Context, param: click.Parameter, value: str) -> float:
    match = _NUMBER.fullmatch(value.strip()) if len(value) < 40 else None
    number = float(match[1]) * _UNITS[match[2].upper()] if match else math.nan
    if not 1 <= number <= _MOST:
        message = f"expected a number of parameters, like 7e9, 350M or 7B; got {value!r}"
        raise click.BadParameter(message, param=param)
    return number


_count: Final = click.IntRange(1, 10**7)


@click.command("estimate", short_help="Estimate how much GPU memory a training takes.")
@click.option(
    "--parameters",
    required=True,
    callback=_parameters,
    help="Parameters of the model, such as 7e9 or 7B.",
)
@click.option(
    "--precision", type=click.Choice(tuple(PRECISIONS)), default="bf16", show_default=True,
    help="bf16 and fp16 keep a copy of the weights in fp32; bf16-pure does not.",
)  # fmt: skip
@click.option(
    "--optimizer", type=click.Choice(tuple(OPTIMIZERS)), default="adamw", show_default=True,
    help="Optimizer states per parameter: adamw and adam two, adam8bit two of one byte each, "
    "sgd-momentum one, sgd none.",
)  # fmt: skip
@click.option(
    "--sharding", type=click.Choice(tuple(SHARDINGS)), default="none", show_default=True,
    help="How weights, gradients and optimizer states are divided among the GPUs.",
)  # fmt: skip
@click.option(
    "--gpus",
    type=_count,
    metavar="N",
    default=1,
    show_default=True,
    help="Number of GPUs on all nodes together.",
)
@click.option("--batch", type=_count, metavar="N", help="Sequences per GPU in a batch.")
@click.option("--sequence", type=_count, metavar="N", help="Tokens per sequence.")
@click.option(
    "--checkpointing", type=click.Choice(_CHECKPOINTING), default="none", show_default=True,
    help="Activations that are recomputed: those of attention, as flash attention does, or all.",
)  # fmt: skip
@click.option(
    "--tensor-parallel", type=_count, metavar="N", default=1, show_default=True,
    help="GPUs that share each layer. --gpus includes them.",
)  # fmt: skip
@click.option(
    "--layers", type=_count, metavar="N", help="Number of layers. Default: typical of large models."
)
@click.option(
    "--hidden", type=_count, metavar="N", help="Width of a layer. Default: typical of large models."
)
@click.option(
    "--heads",
    type=_count,
    metavar="N",
    help="Attention heads. Default: as many as have 128 dimensions each.",
)
@click.option(
    "--vocabulary",
    type=_count,
    metavar="N",
    help="Size of the vocabulary, for the memory of the logits.",
)
@site_option
@json_option(GpuMemory)
def command(
    parameters: float,
    precision: str,
    optimizer: str,
    sharding: str,
    gpus: int,
    batch: int | None,
    sequence: int | None,
    checkpointing: str,
    tensor_parallel: int,
    layers: int | None,
    hidden: int | None,
    heads: int | None,
    vocabulary: int | None,
    site: str | None,
    as_json: bool,
) -> int:
    """Estimate the memory that a training takes on each GPU, and which GPUs of the site have it.

    \b
    hpcflow estimate --parameters 7e9 --sharding fsdp --gpus 8 --batch 4 --sequence 2048
    """
    if (batch is None) != (sequence is None):
        raise click.UsageError("--batch and --sequence go together")
    if gpus % tensor_parallel:
        raise click.UsageError(f"--gpus {gpus} is not a multiple of --tensor-parallel")
    model = shaped(parameters, layers, hidden, heads, vocabulary or 0)
    found = estimate(
        model,
        precision=precision,
        optimizer=optimizer,
        sharding=sharding,
        gpus=gpus,
        batch=batch,
        sequence=sequence,
        checkpointing=checkpointing,
        tensor_parallel=tensor_parallel,
    )
    types = _gpu_types(site)
    parts = {
        "weights": found.weights,
        "gradients": found.gradients,
        "optimizer states": found.optimizer,
        "activations": found.activations,
        "total": found.total,
    }
    if as_json:
        named = {
            f"{name.replace(' ', '_')}_bytes": None if size is None else round(size)
            for name, size in parts.items()
        }
        gpu_types = {name: {"mem_mb": mb, "fits": found.fits(mb)} for name, mb in types.items()}
        print_json({**named, "model": model, "gpu_types": gpu_types})
        return 0
    _print(parts, {name: (mb, found.fits(mb)) for name, mb in types.items()})
    shape = (
        f"{counted(model.layers, 'layer')} of width {model.hidden} with "
        f"{counted(model.heads, 'head')}"
    )
    if batch is not None and (layers is None or hidden is None or heads is None):
        echo(f"assumed: {shape}; if that is wrong, set --layers, --hidden and --heads")
    echo("CUDA, NCCL and fragmentation need more: keep a tenth of the GPU free")
    return 0


def _gpu_types(site: str | None) -> dict[str, int]:
    """Return GPU type -> memory; nothing if no site was named and none is recognized."""
    try:
        found = Session().site(site)
    except HpcflowError:
        if site is not None:
            raise
        return {}
    sizes = {name: each.mem_mb for name, each in found.gpu_types.items()}
    return {name: mb for name, mb in sizes.items() if mb is not None}


def _print(parts: dict[str, float | None], types: dict[str, tuple[int, bool]]) -> None:
    def line(name: str, text: str, **style: Any) -> None:
        echo(f"  {name:<17} {text:>10}", **style)

    echo("on each GPU")
    for name, size in parts.items():
        text = "?" if size is None else format_bytes(round(size))
        line(name, text, bold=name == "total")
    if parts["activations"] is None:
        echo("without activations: give --batch and --sequence")
    enough = "holds these" if parts["activations"] is None else "is large enough"
    for name, (mb, fits) in sorted(types.items(), key=lambda each: (each[1][0], each[0])):
        word = enough if fits else "is too small"
        echo(f"  {name} with {format_bytes(mb << 20)} {word}")
