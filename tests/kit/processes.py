"""Processes of one run, joined by gloo on the CPU, and what is compared in each of them with one process alone."""

import contextlib
import functools
import io
import tempfile
import traceback
from pathlib import Path
from unittest import mock

import torch

import batch_mining
from engine.ranks import Ranks
from tests.engine import test_chunks
from tests.kit.runs import equal_states
from utilities.processes import Alone


class Of(Ranks):
    """One of several processes, without the others."""

    def __init__(self, rank, size):
        self.rank = rank
        self.size = size


@contextlib.contextmanager
def alone():
    with mock.patch("engine.runtime.Ranks", Alone):
        yield


def spawned(n: int, work, *arguments, backend="gloo") -> None:
    """`work(rank, *arguments)` in n joined processes; an error of one of them is an AssertionError with its
    traceback.
    """
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.suppress(torch.multiprocessing.ProcessExitedException):
            how = "spawn" if torch.cuda.is_available() else "fork"  # which has imported all; CUDA's state is in no fork
            torch.multiprocessing.start_processes(
                _start, (n, folder, backend, work, arguments), nprocs=n, start_method=how
            )
        errors = sorted(Path(folder).glob("error_*"), key=lambda path: path.stat().st_mtime)
        assert not errors, errors[0].read_text()
        assert len(list(Path(folder).glob("done_*"))) == n


def _start(rank, n, folder, backend, work, arguments):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(backend, init_method=f"file://{folder}/store", rank=rank, world_size=n)
    try:
        work(rank, *arguments)
    except BaseException:
        (Path(folder) / f"error_{rank}").write_text(traceback.format_exc())
        raise SystemExit(1) from None
    (Path(folder) / f"done_{rank}").touch()
    torch.distributed.barrier()


@contextlib.contextmanager
def mining():
    """Inside, what miners give is kept in the list that this gives."""
    tuples = []
    plain = batch_mining.select

    def select(*arguments, **named):
        miner = plain(*arguments, **named)

        class Recording(type(miner)):
            @functools.wraps(type(miner).__call__)  # whether it takes a reference is asked of its signature
            def __call__(self, *inputs, **more):
                found = super().__call__(*inputs, **more)
                tuples.append([part.clone() for part in found if torch.is_tensor(part)])
                return found

        miner.__class__ = Recording
        return miner

    with mock.patch("batch_mining.select", select):
        yield tuples


def same_steps(rank, cases):
    """Each case, (chunk size, flags, how), of `test_chunks.trained`: the parameters are those of one process, and the
    mined tuples.

    What one process gives is computed by one of the processes, a case each in turn. All that is wrong is said at the
    end.
    """
    wanted = {}
    wrong = []
    with alone():
        for number in range(rank, len(cases), torch.distributed.get_world_size()):
            _, flags, how = cases[number]
            with mining() as mined:
                wanted[number] = (*test_chunks.trained(0, *flags, **how), mined)
    for number, (chunk_size, flags, how) in enumerate(cases):
        with mining() as mined:
            found = test_chunks.trained(chunk_size, *flags, **how)
        ranks = found[1].runtime.ranks
        assert ranks.rank == rank and ranks.size > 1
        state = {name: value for name, value in found[0].state_dict().items() if torch.is_tensor(value)}
        shared = ranks.share(state)
        try:
            assert equal_states(state, shared), "all processes have the same"
            if number in wanted:
                *one, mined_by_one = wanted[number]
                test_chunks.assert_same_steps(one, found, *test_chunks.TOLERANCES[how.get("dtype", torch.float64)])
                assert equal_states(mined, mined_by_one), "the same tuples"
        except AssertionError as error:
            wrong.append(f"{chunk_size} {flags} {how}: {error}")
    assert not wrong, "\n".join(wrong)


def own_draws(rank):
    """Each process draws its own dropout, another one in each step; what the losses draw stays equal, and so do the
    parameters.
    """
    said = io.StringIO()
    masks = []

    class Masked(test_chunks.Noisy):
        def forward(self, images):
            masks.append(torch.nn.functional.dropout(torch.ones(64), 0.5))
            return super().forward(images)

    for chunk_size, flags in (
        (0, ["--loss", "softmax"]),
        (4, ["--loss", "triplet", "--batch_mining", "random"]),
    ):  # draws nothing; draws
        masks.clear()
        with contextlib.redirect_stdout(said):
            made, step, _, draw = test_chunks.trained(chunk_size, *flags, network=Masked)
        drawn = step.runtime.ranks.gather({"masks": torch.stack(masks)[None]}, step.runtime.ranks.size)[
            "masks"
        ].flatten(0, 1)
        runs = 2 if chunk_size else 1  # a chunk draws the same in both of its runs
        assert len(drawn.unique(dim=0)) == len(drawn) / runs, "no two alike"
        mine = torch.cat([draw[None], *[parameter.detach().flatten() for parameter in made.network.parameters()]])
        assert torch.equal(step.runtime.ranks.share(mine), mine)
    assert said.getvalue().count("2 processes: dropout and stochastic depth draw for each process's part") == 2


def steps_and_draws(rank, cases):
    same_steps(rank, cases)
    own_draws(rank)


def whole_run(rank, words):
    """What the command line asks for, in this process."""
    import main
    import parameters

    main.main(parameters.read(words))


def programs(rank, commands):
    """What command lines ask for, one after the other: (main.py or search, words) each. Without pictures, which take
    longer.
    """
    from search import __main__ as searcher

    with (
        mock.patch("evaluation.outputs.draw_pictures", lambda *given: []),
        mock.patch("search.report.draw", lambda *given: []),
    ):
        for program, words in commands:
            searcher.search(words) if program != "main.py" else whole_run(rank, words)
