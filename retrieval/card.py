"""The model card of an export, README.md: how it is loaded, data, protocol, metrics and what selected them, licence of
the weights.
"""

from pathlib import Path

import criteria
from evaluation import spaces
from retrieval import plain
from runs.folder import RunFolder
from utilities.errors import UserError
from utilities.reading import Unreadable, read_yaml

FILES = {"onnx": "model.onnx", "torchscript": "model.pt", "torch_export": "model.pt2", "safetensors": plain.FILE}
SHOWN = (
    "arch",
    "embed_dim",
    "loss",
    "batch_mining",
    "trainer",
    "data_sampler",
    "samples_per_class",
    "bs",
    "augmentation",
    "optim",
    "lr",
    "n_epochs",
    "lora_rank",
    "lora_alpha",
    "prompts",
    "prompt_depth",
    "prompt_step",
    "train_biases",
    "split_scheme",
    "use_tv_split",
    "tv_split_perc",
    "seed",
)
LOADING = {
    "onnx": """import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
embeddings = session.run(["embeddings"], {"images": images})[0]  # images: numpy uint8 (B, 3, {height}, {width})""",
    "torchscript": """import torch

network = torch.jit.load("model.pt")
embeddings = network(images)  # images: torch uint8 (B, 3, {height}, {width})""",
    "torch_export": """import torch

network = torch.export.load("model.pt2").module()
embeddings = network(images)  # images: torch uint8 (B, 3, {height}, {width})""",
}


def made(embedder, cosines: dict, lines: str | None, checkpoint: str, compared: int, code: dict | None = None):
    """The card, a `huggingface_hub.ModelCard`.

    Args:
        cosines: format -> least cosine to the run. lines: the plain code of safetensors, None where there is none.
        checkpoint: best or last. compared: the number of images on which they were compared. code: as `coding.write`
        describes it, None for none.
    """
    from huggingface_hub import ModelCard, ModelCardData

    run = RunFolder(embedder.folder)
    environment = _environment(run)
    tags = ["image-retrieval", "metric-learning", "embeddings"]
    opt = embedder.opt
    licence = None if opt.weights else (environment.get("data_config") or {}).get("license")
    head = ModelCardData(license=licence, pipeline_tag="image-feature-extraction", tags=tags)
    parts = [
        f"---\n{head.to_yaml()}\n---",
        f"# {_cell(getattr(opt, 'group', None) or embedder.folder.name)}: embeddings of images by `{_cell(opt.arch)}`",
        (
            f"Images that are alike in the sense of the classes it was trained on are near: {embedder.dimensions} "
            "dimensions"
        )
        + (" at unit length" if getattr(embedder.network, "normalizes", False) else "")
        + ", compared by Euclidean distance.",
        "## Use",
        (
            "Images are decoded, resized and cropped as `preprocessing.json` says; the rest is inside, of "
            "`model.safetensors` "
        )
        + ("in the lines that load it." if lines is not None else "it is to be done."),
        *_loading(embedder, cosines, lines),
        *(
            [f"Embeddings are held in the code {code['name']}, {code['bytes_a_vector']} bytes each: {code['how']}."]
            if code
            else []
        ),
        "## Data",
        _data(environment, opt),
        "## Protocol",
        _table(("flag", "value"), _flags(opt)),
        (
            f"Commit `{_cell(environment.get('git_commit') or 'unknown')}`, torch "
            f"{_cell(environment.get('packages', {}).get('torch', 'unknown'))}."
        ),
        "## Results",
        _results(run, checkpoint, opt),
        "## Licence of the weights",
        _licence(environment, opt),
        "## Checked",
        f"Each file was run on {compared} images, one alone and all at once, and compared with the run:",
        _table(("file", "least cosine"), [(FILES[name], f"{cosine:.6f}") for name, cosine in cosines.items()]),
    ]
    return ModelCard("\n\n".join(part for part in parts if part) + "\n")


def _environment(run: RunFolder) -> dict:
    """The content of environment.yaml; empty where it is missing or damaged, as a card is of use without it."""
    try:
        content = read_yaml(run.path / "environment.yaml")
    except Unreadable:
        content = None
    return content if isinstance(content, dict) else {}


def _loading(embedder, cosines: dict, lines: str | None) -> list[str]:
    height, width = embedder.preparation.size
    sections = []
    for name in cosines:
        sections.append(f"`{FILES[name]}`:")
        if name != "safetensors":
            sections.append(_fence(LOADING[name].replace("{height}", str(height)).replace("{width}", str(width))))
        elif lines is not None:
            sections.append(_fence(lines))
        else:
            sections.append(
                f"The network `{_cell(embedder.opt.arch)}` is the training program's own, or has parts of it (its "
                "layers, its input in other "
                "colours or ranges): there is no plain code that loads these weights. In that program "
                "`architectures.select(…)` makes the network and `load_state_dict(load_file(…))` fills it. Elsewhere "
                "take the formats that hold "
                "the whole network: onnx, torchscript, torch_export."
            )
    return sections


def _fence(code: str) -> str:
    return f"```python\n{code}\n```"


def _data(environment: dict, opt) -> str:
    data = environment.get("data") or {}
    counts = data.get("counts") or {}
    rows = [
        (split, f"{counts[split].get('images', 0):,}", f"{counts[split].get('classes', 0):,}")
        for split in ("training", "validation", "testing")
        if isinstance(counts.get(split), dict)
    ]
    notes = [f"Partial: {_cell(data['partial'])}"] if data.get("partial") else []
    if any("Box; " in str(steps) for steps in (data.get("transforms") or {}).values()):
        notes.append(
            "In training and evaluation images were cropped to their boxes, before all other steps: crop yours, too."
        )
    return "\n\n".join(
        [f"`{_cell(data.get('name') or opt.dataset)}`", _table(("split", "images", "classes"), rows), *notes]
    )


def _flags(opt) -> list[tuple[str, str]]:
    """The flags of the method that had an effect: those of the miner where the loss takes one."""
    mines = criteria.takes_miner(opt.loss, opt)
    own = (f"loss_{opt.loss}_", *([f"miner_{opt.batch_mining}_"] if mines else []))
    idle = {
        *(() if mines else ("batch_mining",)),
        *(() if opt.lora_rank else ("lora_rank", "lora_alpha")),
        *(() if opt.prompts else ("prompts", "prompt_depth", "prompt_step")),
        *(() if opt.train_biases else ("train_biases",)),
    }
    return [
        (f"`--{name}`", _cell(value))
        for name in dict.fromkeys([*SHOWN, *(name for name in vars(opt) if name.startswith(own))])
        if name not in idle and (value := getattr(opt, name, None)) is not None
    ]


def _results(run: RunFolder, checkpoint: str, opt) -> str:
    """The selected epoch's values with the rule that selected it; of the last checkpoint those of the last
    evaluation.
    """
    asked = spaces.asked(vars(opt), spaces.OF_SEARCH | spaces.OF_EMBEDDINGS | spaces.OF_DISTANCES)
    try:
        summary = run.summary
    except UserError:
        return "The run has recorded none."
    selected = summary["selected"]
    values = selected["values"] if checkpoint == "best" else summary.get("last") or {}
    rows = [
        (split, _cell(metric), "NaN" if value is None else f"{value:.4f}")
        for split, metrics in values.items()
        for metric, value in metrics.items()
        if value is None or isinstance(value, int | float)
    ]
    if checkpoint == "best":
        chosen = f"Epoch {selected['epoch']}, selected by: {_cell(selected['rule'])}."
    else:
        chosen = "The last evaluated epoch; nothing selected it."
    chosen += f" Measured with `{_cell(' '.join(asked))}`, which the exported files do not do." if asked else ""
    return f"{chosen}\n\n{_table(('split', 'metric', 'value'), rows)}" if rows else "The run has recorded none."


def _licence(environment: dict, opt) -> str:
    weights = environment.get("weights")
    licence = (environment.get("data_config") or {}).get("license")
    if weights == "random":
        return "Training began from random weights: no licence of others but that of the training images."
    if opt.weights:  # the data_config is that of the architecture's own weights
        sha256 = environment.get("weights_sha256") or "not recorded"
        return (
            f"Training began from the file `{_cell(Path(opt.weights).name)}` (SHA-256 {_cell(sha256)}). Its licence "
            "is not stated."
        )
    if weights is None:
        return "The run has not recorded which weights it began with."
    if licence:
        return (
            f"Training began from `{_cell(weights)}`, which its publisher gives under: {_cell(licence)}. The training "
            "images have their own terms."
        )
    return (
        f"Training began from `{_cell(weights)}`. The run has recorded no licence of these weights: its publisher's "
        "terms hold, "
        "and those of the images that they and this network were trained on."
    )


def _cell(value) -> str:
    """A value as text without markup: on one line, with bars, backticks and `<` replaced."""
    text = " ".join(str(value).split()) if not isinstance(value, list) else " ".join(map(str, value))
    return text.replace("|", "\\|").replace("`", "'").replace("<", "&lt;")


def _table(head: tuple, rows: list[tuple]) -> str:
    lines = [head, ["-"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) if rows else ""
