"""The pictures of the studies' designs at the top of their pages, from the settings of the scripts."""

from pathlib import Path

from experiments.study import settings
from experiments.study.protocol import COMPARISONS
from experiments.study.settings import DATA, DOMAINS, METHODS, MINED, RECENT, SEEDS, SPLIT_METHODS, SPLIT_SEEDS, SPLITS
from pictures.flow import Step, draw_flow


def _search(rates: int) -> Step:
    return Step("search", f"{rates} learning rates per method, judged on validation classes")


def _runs(methods: str, seeds: int) -> Step:
    return Step("training", f"{methods} x {seeds} seeds")


SELECTION = Step("epoch", "the best R@1 on validation classes")


def steps_of(script: str) -> list[Step]:
    """The steps of a script's experiment, by its `--of`."""
    rates = len(DATA[0].rates)
    if script == "splits":
        return [
            Step("classes", f"shuffled {len(SPLITS)} times: one half trains, the other half tests"),
            _runs(f"{len(SPLIT_METHODS)} losses x {len(SPLITS)} splits", len(SPLIT_SEEDS)),
            SELECTION,
            Step("question", "do differences of losses change with the split more than with seeds?"),
        ]
    if script == "union":
        return [
            Step("data", f"{len(DOMAINS)} domains: {', '.join(DOMAINS.values())}; new classes test"),
            _runs("one network for all domains, or one each,", len(settings.UNION_SEEDS)),
            Step("features", "the pretrained network without training, for comparison"),
            Step("question", "which is better, in one index of all test images?"),
        ]
    if script == "recent":
        compared = next(comparison for comparison in COMPARISONS if comparison.name == "Recent")
        methods = f"{len(RECENT)} methods of 2021 to 2024, {len(compared.methods) - len(RECENT)} older losses"
        return [
            _search(rates),
            _runs(methods, len(SEEDS)),
            SELECTION,
            Step("question", "is a newer method better on new classes?"),
        ]
    return [
        _search(rates),
        _runs(f"{len(METHODS)} losses, {len(MINED)} of them also with rho_distance,", len(SEEDS)),
        SELECTION,
        Step("question", "do losses differ, is rho related, does rho_distance help?"),
    ]


def picture_of(script: str) -> str:
    """The file's name."""
    names = {"losses": "study", "baseline": "study"}
    return f"{names.get(script, f'study_{script}')}_design.png"


def draw(script: str, folder: Path) -> None:
    """Write the picture of a script's design to a folder."""
    draw_flow(steps_of(script), folder / picture_of(script))
