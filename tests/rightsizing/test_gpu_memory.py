"""The estimate of GPU memory, against the numbers that its sources publish."""

from __future__ import annotations

import pytest

from hpcflow.rightsizing.gpu_memory import OPTIMIZERS, SHARDINGS, Model, estimate, shaped

GB = 1e9
GIB = 1 << 30
#: Figure 1 of the ZeRO paper: 7.5 billion parameters, 64 GPUs, mixed precision, Adam.
ZERO = Model(7.5e9, 1, 1, 1)
#: Table 3 of Korthikanti et al.: layers, width and heads of GPT-3 and MT-NLG.
GPT3 = Model(175e9, 96, 12288, 96)
MT_NLG = Model(530e9, 105, 20480, 128)


@pytest.mark.parametrize(
    ("sharding", "published_gb"),
    [("none", 120), ("zero1", 31.4), ("zero2", 16.6), ("zero3", 1.9), ("fsdp", 1.9)],
)
def test_the_states_are_those_of_figure_1_of_zero(sharding: str, published_gb: float) -> None:
    found = estimate(ZERO, sharding=sharding, gpus=64)
    assert found.total / GB == pytest.approx(published_gb, abs=0.05)
    assert found.activations is None


@pytest.mark.parametrize(("model", "published"), [(GPT3, 0.70), (MT_NLG, 0.65)])
def test_selective_recomputation_saves_what_its_paper_says(model: Model, published: float) -> None:
    """Section 5: 70 % of the memory for activations of GPT-3, 65 % of MT-NLG's."""
    whole, selective = (
        estimate(model, batch=1, sequence=2048, checkpointing=each).activations or 0
        for each in ("none", "selective")
    )
    assert 1 - selective / whole == pytest.approx(published, abs=0.005)


def test_activations_are_those_of_the_equations() -> None:
    model, s, b = Model(1, 10, 1000, 10), 100, 3
    sbhl = s * b * 1000 * 10
    told = {
        (checkpointing, t): (
            estimate(
                model, batch=b, sequence=s, checkpointing=checkpointing, tensor_parallel=t
            ).activations
        )
        for checkpointing in ("none", "selective", "full")
        for t in (1, 4)
    }
    assert told == {
        ("none", 1): sbhl * (34 + 5),
        ("none", 4): sbhl * (10 + 24 / 4 + 5 / 4),
        ("selective", 1): sbhl * 34,
        ("selective", 4): sbhl * 16,
        ("full", 1): sbhl * 2 + sbhl / 10 * 34,
        ("full", 4): sbhl * 2 + sbhl / 10 * 16,
    }


def test_a_layer_that_is_computed_again_is_there_as_a_whole_meanwhile() -> None:
    """Of few layers the one is more than the inputs of all."""
    shallow = Model(1e9, 4, 4096, 32)
    full = estimate(shallow, batch=1, sequence=2048, checkpointing="full").activations or 0
    selective = estimate(shallow, batch=1, sequence=2048, checkpointing="selective").activations
    assert (selective or 0) / 4 < full < (selective or 0)


def test_fp32_takes_twice_the_activations_and_has_no_copy_of_the_weights() -> None:
    single = estimate(GPT3, precision="fp32", batch=1, sequence=128)
    half = estimate(GPT3, precision="bf16", batch=1, sequence=128)
    assert single.activations == 2 * (half.activations or 0)
    assert (single.weights, single.optimizer) == (2 * half.weights, half.optimizer * 8 / 12)


@pytest.mark.parametrize(
    ("precision", "optimizer", "bytes_each"),
    [
        ("fp32", "adamw", 16),
        ("bf16", "adamw", 16),
        ("fp16", "sgd", 8),
        ("bf16", "sgd-momentum", 12),
        ("bf16-pure", "adamw", 8),
        ("bf16", "adam8bit", 10),
        ("bf16-pure", "adam8bit", 6),
    ],
)
def test_bytes_for_each_parameter(precision: str, optimizer: str, bytes_each: int) -> None:
    found = estimate(Model(1e9, 1, 1, 1), precision=precision, optimizer=optimizer)
    assert found.total == bytes_each * 1e9


def test_logits_come_with_a_vocabulary() -> None:
    without, with_words = (
        estimate(Model(1e9, 10, 100, 1, vocabulary), batch=2, sequence=100).activations
        for vocabulary in (0, 50_000)
    )
    assert (with_words or 0) - (without or 0) == 4 * 100 * 2 * 50_000


@pytest.mark.parametrize(
    ("parameters", "layers", "hidden", "heads"),
    [(6.7e9, 32, 4096, 32), (175e9, 96, 12288, 96)],  # as they are: LLaMA 7B, GPT-3
)
def test_a_shape_that_is_not_given_is_about_that_of_real_models(
    parameters: float, layers: int, hidden: int, heads: int
) -> None:
    found = shaped(parameters)
    assert found.layers == pytest.approx(layers, rel=0.05)
    assert found.hidden == pytest.approx(hidden, rel=0.05)
    assert found.heads == pytest.approx(heads, rel=0.05)
    assert shaped(parameters, layers=layers).hidden == pytest.approx(hidden, rel=0.05)
    assert shaped(parameters, hidden=hidden).layers == pytest.approx(layers, rel=0.05)


@pytest.mark.parametrize("given", [{}, {"layers": 100}, {"hidden": 10**7}, {"layers": 10**7}])
def test_the_smallest_of_models_has_a_shape_too(given: dict[str, int]) -> None:
    found = shaped(1, **given)
    assert min(found.layers, found.hidden, found.heads) >= 1
    assert estimate(found, batch=1, sequence=1).total > 0


@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_more_gpus_never_take_more_each(sharding: str, optimizer: str) -> None:
    totals = [
        estimate(ZERO, sharding=sharding, optimizer=optimizer, gpus=gpus).total
        for gpus in (1, 2, 8, 64)
    ]
    assert totals == sorted(totals, reverse=True)
    assert estimate(ZERO, sharding=sharding, optimizer=optimizer).total == totals[0]


def test_a_tenth_of_a_gpu_stays_free() -> None:
    found = estimate(Model(1e9, 1, 1, 1))  # 16 GB are 15,259 MiB
    assert not found.fits(16 * 1024)
    assert found.fits(17 * 1024)
