"""Processes of one run, joined by gloo on the CPU, and what is compared in each of them with one process alone."""

import contextlib
import functools
import io
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from unittest import mock

import torch

import batch_mining
from engine.ranks import Ranks
from tests.engine import test_chunks
from tests.kit.runs import equal_states
from utilities.processes import SingleProcess

ROOT = Path(__file__).resolve().parents[2]


class LoneRank(Ranks):
    """One of several processes, without the others."""

    def __init__(self, rank, size):
        self.rank = rank
        self.size = size


@contextlib.contextmanager
def one_process():
    with mock.patch("engine.runtime.Ranks", SingleProcess):
        yield


def spawned(n: int, work, *arguments, backend="gloo") -> None:
    """`work(rank, *arguments)` in n joined processes; an error in one is an AssertionError with its traceback."""
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.suppress(torch.multiprocessing.ProcessExitedException):
            # A fork has imported everything already, but cannot use the state of CUDA
            how = "spawn" if torch.cuda.is_available() else "fork"
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


HOLD = """
import sys, time
from utilities.locks import Lock
lock = Lock(sys.argv[1])
print(lock.acquire(wait=False), flush=True)
time.sleep(60)
"""


@contextlib.contextmanager
def lock_holder(path, gets_it=True):
    """Context in which another process has, or fails to get, the lock of this path; it is killed at the end."""
    words = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline().strip() == str(gets_it)
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def mining():
    """Context in which the tuples of miners are appended to the list that this gives."""
    tuples = []
    plain_select = batch_mining.select

    def select(*arguments, **flags):
        miner = plain_select(*arguments, **flags)

        class Recording(type(miner)):
            # its signature shows whether it takes a reference
            @functools.wraps(type(miner).__call__)
            def __call__(self, *inputs, **options):
                mined = super().__call__(*inputs, **options)
                tuples.append([part.clone() for part in mined if torch.is_tensor(part)])
                return mined

        miner.__class__ = Recording
        return miner

    with mock.patch("batch_mining.select", select):
        yield tuples


def same_steps(rank, cases):
    """Parameters and mined tuples are those of one process, for each case: what `test_chunks.trained` takes.

    A case is (chunk size, flags, options). What one process gives is computed by one of the processes, a case each in
    turn. All failures are reported at the end.
    """
    expected = {}
    failures = []
    with one_process():
        for number in range(rank, len(cases), torch.distributed.get_world_size()):
            _, flags, options = cases[number]
            with mining() as mined:
                expected[number] = test_chunks.trained(0, *flags, **options), mined
    for number, (chunk_size, flags, options) in enumerate(cases):
        with mining() as mined:
            result = test_chunks.trained(chunk_size, *flags, **options)
        trainer, step, *_ = result
        ranks = step.runtime.ranks
        assert ranks.rank == rank and ranks.size > 1
        state = {name: value for name, value in trainer.state_dict().items() if torch.is_tensor(value)}
        shared = ranks.share(state)
        try:
            assert equal_states(state, shared), "all processes have the same"
            if number in expected:
                expected_result, expected_tuples = expected[number]
                tolerances = test_chunks.TOLERANCES[options.get("dtype", torch.float64)]
                test_chunks.assert_same_steps(expected_result, result, *tolerances)
                assert equal_states(mined, expected_tuples), "the same tuples"
        except AssertionError as error:
            failures.append(f"{chunk_size} {flags} {options}: {error}")
    assert not failures, "\n".join(failures)


def own_draws(rank):
    """Each process draws its own dropout, another one in each step; draws of losses, and parameters, stay equal."""
    output = io.StringIO()
    masks = []

    class Masked(test_chunks.Noisy):
        def forward(self, images):
            masks.append(torch.nn.functional.dropout(torch.ones(64), 0.5))
            return super().forward(images)

    without_draws = (0, ["--loss", "softmax"])
    with_draws = (4, "--loss triplet --batch_mining random".split())
    for chunk_size, flags in (without_draws, with_draws):
        masks.clear()
        with contextlib.redirect_stdout(output):
            trainer, step, _, draw = test_chunks.trained(chunk_size, *flags, network=Masked)
        ranks = step.runtime.ranks
        all_masks = ranks.gather({"masks": torch.stack(masks)[None]}, ranks.size)["masks"].flatten(0, 1)
        # a chunk draws the same in both of its runs
        runs = 2 if chunk_size else 1
        assert len(all_masks.unique(dim=0)) == len(all_masks) / runs, "no two are equal"
        state = torch.cat([draw[None], *[parameter.detach().flatten() for parameter in trainer.network.parameters()]])
        assert torch.equal(ranks.share(state), state)
    assert output.getvalue().count("2 processes: dropout and stochastic depth draw for each process's part") == 2


def steps_and_draws(rank, cases):
    same_steps(rank, cases)
    own_draws(rank)


def whole_run(rank, words):
    """Run main.py's command line in this process."""
    import main
    import parameters

    main.main(parameters.read(words))


def programs(rank, commands):
    """Run command lines one after the other, (main.py or search, words) each; without pictures, which take longer."""
    from search import __main__ as searcher

    def draw_nothing(*arguments):
        return []

    with mock.patch("evaluation.outputs.draw_pictures", draw_nothing), mock.patch("search.report.draw", draw_nothing):
        for program, words in commands:
            if program == "main.py":
                whole_run(rank, words)
            else:
                searcher.search(words)
