"""The commands of the installed package: each is a program of the clone, `dmlkit` is `python main.py`."""

import runpy


def _run(program: str) -> None:
    runpy.run_module(f"{__package__}.{program}", run_name="__main__", alter_sys=True)


def train() -> None:
    """`dmlkit`: train and evaluate a run."""
    _run("main")


def results() -> None:
    """`dmlkit-results`: runs to tables, figures and a page."""
    _run("Result_Evaluations")


def launch() -> None:
    """`dmlkit-launch`: the runs of a script."""
    _run("launch")


def search() -> None:
    """`dmlkit-search`: hyperparameters."""
    _run("search")


def evaluate() -> None:
    """`dmlkit-evaluate`: embeddings in files, frozen networks, codes."""
    _run("evaluation")


def retrieval() -> None:
    """`dmlkit-retrieval`: index, query, serve, export, explore."""
    _run("retrieval")


def appraise() -> None:
    """`dmlkit-appraise`: from a folder of photographs to one page."""
    _run("appraise")
