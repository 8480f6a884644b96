"""Shards are bytes and JSON; nothing that lies in a checkpoint is believed, or executed."""

from __future__ import annotations

import json
import pickle
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Partial, distribute_tensor

from hpcflow import runtime
from hpcflow.runtime.files import NewFile
from hpcflow.runtime.manifest import CheckpointError
from hpcflow.runtime.program_state import ProgramState
from hpcflow.runtime.ranks import Alone
from hpcflow.runtime.shards import read_index
from tests.runtime.harness import RunFolder, rewritten
from tests.runtime.test_objects import Bomb


@pytest.fixture(autouse=True)
def one_rank() -> Iterator[None]:
    """A process group of this process alone."""
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.fixture
def inside(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunFolder]:
    """This process as a program inside a job."""
    for name, value in folder.environ().items():
        monkeypatch.setenv(name, value)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR2)}
    yield folder
    for number, handler in before.items():
        signal.signal(number, handler)


class Counted(Alone):
    """One rank that counts how often it is asked what it has."""

    asked = 0

    def consult(self, value: Any, decide: Callable[[list[Any]], list[Any]]) -> Any:
        self.asked += 1
        return super().consult(value, decide)


def model_and_optimizer() -> dict[str, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Linear(6, 4))
    fully_shard(model)
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters())}


def train(objects: dict[str, Any]) -> None:
    objects["model"](torch.ones(2, 4)).sum().backward()
    objects["optimizer"].step()
    objects["optimizer"].zero_grad()


def write(state: ProgramState, folder: Path) -> None:
    folder.mkdir(parents=True)
    for part in state.capture(folder, None):
        part.write(folder, NewFile)


class Odd(torch.nn.Module):  # type: ignore[misc]
    """Tensors of all kinds, one of them sharded."""

    def __init__(self) -> None:
        super().__init__()
        self.sharded = torch.nn.Parameter(torch.arange(6.0).reshape(3, 2))
        kinds = {
            "of_half": torch.arange(5, dtype=torch.bfloat16),
            "of_eighth": torch.arange(3.0).to(torch.float8_e4m3fn),
            "of_flags": torch.tensor([True, False, True]),
            "of_whole": torch.arange(7, dtype=torch.int16),
            "of_complex": torch.tensor([1 + 2j, 3j]).conj(),
            "of_double": torch.tensor(2.5, dtype=torch.float64),
            "of_empty": torch.zeros(0, 5),
            "of_view": torch.arange(12.0).reshape(3, 4).T[1:],
        }
        for name, tensor in kinds.items():
            self.register_buffer(name, tensor)

    def get_extra_state(self) -> dict[str, Any]:
        return {"note": "text", "pair": (1, 2.5), "more": torch.tensor([7])}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.extra = state


def test_every_kind_of_number_comes_back(tmp_path: Path) -> None:
    one, other = Odd(), Odd()
    fully_shard(one)
    with torch.no_grad():
        for tensor in other.state_dict().values():
            if isinstance(tensor, torch.Tensor):
                tensor.zero_()
    write(ProgramState({"model": one}, Alone()), tmp_path / "checkpoint")

    ProgramState({"model": other}, Alone()).load(tmp_path / "checkpoint", is_same_size=True)

    assert torch.equal(other.sharded, torch.arange(6.0).reshape(3, 2))
    for (name, buffer), (_, expected) in zip(
        other.named_buffers(), one.named_buffers(), strict=True
    ):
        assert buffer.dtype == expected.dtype
        assert buffer.tolist() == expected.tolist(), name
    assert other.extra == {"note": "text", "pair": (1, 2.5), "more": torch.tensor([7])}


def test_ranks_ask_each_other_only_when_something_is_new(tmp_path: Path) -> None:
    objects, ranks = model_and_optimizer(), Counted()
    state = ProgramState(objects, ranks)
    write(state, tmp_path / "1")
    assert ranks.asked == 1
    train(objects)
    for number in (2, 3, 4):
        write(state, tmp_path / str(number))
        train(objects)
    assert ranks.asked == 2, "once for the optimizer, which has a state since its first train step"
    assert len(read_index(tmp_path / "4")) == 4 + 3 * 4


@pytest.mark.parametrize("is_sharded", [True, False], ids=["sharded", "whole"])
def test_whatever_device_new_tensors_are_on_by_default(inside: RunFolder, is_sharded: bool) -> None:
    """As a script has it that says torch.set_default_device("cuda"); "meta" exists everywhere."""

    def objects() -> dict[str, Any]:
        with torch.device("cpu"):
            model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Linear(6, 4))
            if is_sharded:
                fully_shard(model)
            return {"model": model, "optimizer": torch.optim.AdamW(model.parameters())}

    one, other = objects(), objects()
    run = runtime.start()
    with torch.device("meta"):
        run.restore(**one)
        for _ in run.train_steps(3):
            with torch.device("cpu"):
                train(one)
            run._begin_save()
        run.finish()
        assert runtime.start().restore(**other) == 3

    assert inside.complete() == [1, 2, 3]
    for name, expected in one["model"].state_dict().items():
        assert torch.equal(whole(other["model"].state_dict()[name]), whole(expected)), name
    for number, state in one["optimizer"].state_dict()["state"].items():
        for key, expected in state.items():
            back = other["optimizer"].state_dict()["state"][number][key]
            assert torch.equal(whole(back), whole(expected)), key


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def test_a_state_of_an_own_kind_may_be_sharded_too(tmp_path: Path) -> None:
    class Average:
        def __init__(self) -> None:
            mesh = init_device_mesh("cpu", (1,))
            self.state = {"mean": distribute_tensor(torch.zeros(4), mesh), "count": 0}

        def state_dict(self) -> dict[str, Any]:
            return dict(self.state)

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.state = state

    one, other = Average(), Average()
    one.state["mean"].to_local().fill_(3)
    one.state["count"] = 5
    write(ProgramState({"average": one}, Alone()), tmp_path / "checkpoint")

    ProgramState({"average": other}, Alone()).load(tmp_path / "checkpoint", is_same_size=True)

    assert other.state["count"] == 5
    assert other.state["mean"].to_local().tolist() == [3] * 4


def other_model(objects: dict[str, Any]) -> None:
    objects["model"] = torch.nn.Sequential(torch.nn.Linear(4, 6))


def another_size(objects: dict[str, Any]) -> None:
    objects["model"] = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Linear(6, 5))


def larger_model(objects: dict[str, Any]) -> None:
    objects["model"] = torch.nn.Sequential(*(torch.nn.Linear(4, 6) for _ in range(5)))


def other_groups(objects: dict[str, Any]) -> None:
    groups = [{"params": [each]} for each in objects["model"].parameters()]
    objects["optimizer"] = torch.optim.AdamW(groups)


def other_parameters(objects: dict[str, Any]) -> None:
    objects["optimizer"] = torch.optim.AdamW(list(objects["model"].parameters())[:3])


def no_memory(objects: dict[str, Any]) -> None:
    with torch.device("meta"):
        objects["model"] = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Linear(6, 4))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (other_model, r"model: only in the checkpoint: 1\.bias, 1\.weight"),
        (larger_model, r"model: not in the checkpoint: 2\.bias, 2\.weight, 3\.bias and 3 more"),
        (another_size, r"1\.weight has shape \[4, 6\] in the checkpoint, \[5, 6\] here"),
        (other_groups, "optimizer, parameter groups: not in the checkpoint: 1, 2, 3"),
        (other_parameters, r"optimizer: only in the checkpoint: model\.1\.bias"),
        (no_memory, r"0\.weight has no memory yet: model\.to_empty"),
    ],
)
def test_what_does_not_fit_is_called_by_its_name(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], text: str
) -> None:
    objects = model_and_optimizer()
    train(objects)
    write(ProgramState(objects, Alone()), tmp_path / "checkpoint")

    change(objects)

    with pytest.raises(CheckpointError, match=text):
        ProgramState(objects, Alone()).load(tmp_path / "checkpoint", is_same_size=True)


def test_what_has_no_plain_bytes_is_refused(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    model.register_buffer("sparse", torch.eye(3).to_sparse())
    fully_shard(model)
    with pytest.raises(TypeError, match=r"model\.sparse is torch\.sparse_coo, which cannot be"):
        ProgramState({"model": model}, Alone()).capture(tmp_path, None)

    class Pairs:
        mesh = init_device_mesh("cpu", (1,))

        def state_dict(self) -> dict[Any, Any]:
            return {("a", 1): distribute_tensor(torch.zeros(4), self.mesh)}

        load_state_dict = state_dict

    with pytest.raises(TypeError, match="a key is neither text nor an integer"):
        ProgramState({"pairs": Pairs()}, Alone()).capture(tmp_path, None)

    class Sums:
        mesh = init_device_mesh("cpu", (1,))

        def state_dict(self) -> dict[str, Any]:
            from torch.distributed.tensor import DTensor

            return {"sum": DTensor.from_local(torch.ones(2), self.mesh, [Partial()])}

        load_state_dict = state_dict

    with pytest.raises(ValueError, match="partial"):
        ProgramState({"sums": Sums()}, Alone()).capture(tmp_path, None)


def test_an_optimizer_that_could_not_be_made_again_is_refused_when_it_is_saved(
    tmp_path: Path,
) -> None:
    model = model_and_optimizer()["model"]
    optimizer = torch.optim.LBFGS(model.parameters())

    def closure() -> torch.Tensor:
        loss = model(torch.ones(2, 4)).pow(2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    state = ProgramState({"model": model, "optimizer": optimizer}, Alone())
    with pytest.raises(TypeError, match="LBFGS cannot be resumed when its parameters are sharded"):
        state.capture(tmp_path, None)


Index = dict[str, Any]


def piece(change: Callable[[list[Any]], None]) -> Callable[[Index], None]:
    """Change the first piece of the first tensor."""
    return lambda index: change(index["tensors"][0]["pieces"][0])


def overlap(index: Index) -> None:
    """Two halves of which the second is the first once more: as many numbers, and a hole."""
    (box, shape, rank, begin), *_ = index["tensors"][0]["pieces"]
    half = [shape[0] // 2, *shape[1:]]
    second = [1, *[0] * (len(box) - 1)]
    index["tensors"][0]["pieces"] = [[box, half, rank, begin], [second, half, rank, begin]]


BREAKS: dict[str, Callable[[Index], Any]] = {
    "from tomorrow": lambda index: index.update(format=2),
    "no tensors": lambda index: index.pop("tensors"),
    "a tensor that is text": lambda index: index["tensors"].append("tensor"),
    "a type that is code": lambda index: index["tensors"][0].update(dtype="load"),
    "a type that is not there": lambda index: index["tensors"][0].update(dtype="float3"),
    "a shape below zero": lambda index: index["tensors"][0].update(shape=[-6, -4]),
    "a piece outside": piece(lambda each: each.__setitem__(0, [1, 0])),
    "a piece of other dimensions": piece(lambda each: each.__setitem__(1, [24])),
    "a rank that is a path": piece(lambda each: each.__setitem__(2, "../../secret")),
    "a rank that is not there": piece(lambda each: each.__setitem__(2, 7)),
    "a byte behind the end": piece(lambda each: each.__setitem__(3, 1 << 40)),
    "a byte at an odd place": piece(lambda each: each.__setitem__(3, 3)),
    "a byte before the beginning": piece(lambda each: each.__setitem__(3, -64)),
    "a piece too few": lambda index: index["tensors"][0].update(pieces=[]),
    "a shape that fits into no memory": lambda index: index["tensors"][-1].update(shape=[10**13]),
    "pieces that overlap": overlap,
    "a smaller piece": piece(lambda each: each.__setitem__(1, [2, 4])),
}


@pytest.mark.parametrize("how", BREAKS)
def test_an_index_that_makes_no_sense_is_refused(tmp_path: Path, how: str) -> None:
    objects = model_and_optimizer()
    train(objects)
    write(ProgramState(objects, Alone()), tmp_path / "checkpoint")
    path = tmp_path / "checkpoint" / "shards.json"
    index = json.loads(path.read_text())
    BREAKS[how](index)
    path.write_text(json.dumps(index))

    with pytest.raises(CheckpointError):
        ProgramState(objects, Alone()).load(tmp_path / "checkpoint", is_same_size=True)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("dump", [torch.save, pickle.dump], ids=["torch.save", "pickle.dump"])
def test_whatever_file_is_a_pickle_nothing_is_executed(
    inside: RunFolder, dump: Callable[..., None]
) -> None:
    def restore() -> None:
        objects = model_and_optimizer()
        scheduler = torch.optim.lr_scheduler.StepLR(objects["optimizer"], 5)
        run = runtime.start()
        run.restore(**objects, scheduler=scheduler, notes={"a": 1})
        if not inside.complete():
            for _ in run.train_steps(2):
                train(objects)
            run.finish()

    restore()
    path, crater = inside.checkpoint(2), inside.path / "crater"
    names = sorted(file.name for file in path.iterdir())
    assert len(names) == 8
    for name in names:
        before = {file.name: file.read_bytes() for file in path.iterdir()}
        with (path / name).open("wb") as file:
            dump(Bomb(crater), file)
        if name == "manifest.json":
            restore()  # it is no checkpoint any more
            assert inside.complete() == [2]
        else:
            rewritten(path, name)
            # Whatever bytes there are in shards, they are numbers, if there are enough of them.
            with (
                suppress(CheckpointError)
                if name == "rank-00000.shards"
                else pytest.raises(CheckpointError)
            ):
                restore()
        assert not crater.exists()
        for file_name, data in before.items():
            (path / file_name).write_bytes(data)
    restore()
