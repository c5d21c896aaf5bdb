"""Processes of one run, joined by gloo on the CPU, and what is compared in each of them with one process alone."""

import contextlib
import tempfile
import traceback
from pathlib import Path
from unittest import mock

import torch

from tests.utilities import test_chunks
from utilities.ranks import Ranks


class Alone(Ranks):
    """One process, whatever the group."""

    def __init__(self):
        self.rank, self.size = 0, 1


@contextlib.contextmanager
def alone():
    with mock.patch("utilities.runtime.Ranks", Alone):
        yield


def spawned(n: int, work, *arguments) -> None:
    """`work(rank, *arguments)` in n joined processes; an error of one of them is an AssertionError with its traceback."""
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.suppress(torch.multiprocessing.ProcessExitedException):
            torch.multiprocessing.spawn(_start, (n, folder, work, arguments), nprocs=n)
        errors = sorted(Path(folder).glob("error_*"), key=lambda path: path.stat().st_mtime)
        assert not errors, errors[0].read_text()
        assert len(list(Path(folder).glob("done_*"))) == n


def _start(rank, n, folder, work, arguments):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=n)
    try:
        work(rank, *arguments)
    except BaseException:
        (Path(folder) / f"error_{rank}").write_text(traceback.format_exc())
        raise SystemExit(1) from None
    (Path(folder) / f"done_{rank}").touch()
    torch.distributed.barrier()


def same_steps(rank, cases):
    """Each case, (chunk size, flags, how), of `test_chunks.trained`: the parameters are those of one process."""
    for chunk_size, flags, how in cases:
        with alone():
            one, _, wanted, draw = test_chunks.trained(0, *flags, **how)
        many, step, found, draw_of_many = test_chunks.trained(chunk_size, *flags, **how)
        assert step.runtime.ranks.rank == rank and step.runtime.ranks.size > 1
        exact = how.get("dtype", torch.float64) == torch.float64
        near = {"rtol": 1e-10, "atol": 1e-11} if exact else {"rtol": 1e-5, "atol": 1e-6}
        for (name, a), b in zip(one.state_dict().items(), many.state_dict().values(), strict=True):
            if torch.is_tensor(a):
                torch.testing.assert_close(b, a, **near, msg=lambda said, at=f"{flags}, {name}": f"{at}: {said}")
        for a, b in zip(wanted, found, strict=True):
            loose = {name: 10 * value for name, value in near.items()}
            torch.testing.assert_close(b.loss, a.loss, **loose)
            torch.testing.assert_close(b.gradient_norm, a.gradient_norm, **loose)
            assert b.images == a.images
        assert torch.equal(draw, draw_of_many), f"{flags}: the next draw is that of one process"
        assert all(done.gradient_norm > 0 for done in found), f"{flags}: the steps moved the parameters"


def whole_run(rank, words):
    """What the command line asks for, in this process."""
    import main
    import parameters

    main.main(parameters.read(words))
