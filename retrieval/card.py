"""The model card of an export, README.md: how its files are loaded, data, protocol, metrics and the rule that selected
the epoch, licence of the weights.
"""

from pathlib import Path
from typing import NamedTuple

import criteria
from evaluation import from_splits
from retrieval import weights
from retrieval.exporting import described_input
from retrieval.trackers import Comparison
from runs.folder import RunFolder
from utilities.errors import UserError
from utilities.reading import Unreadable, read_yaml

FILES = {"onnx": "model.onnx", "torchscript": "model.pt", "torch_export": "model.pt2", "safetensors": weights.FILE}
TAGS = ["image-retrieval", "metric-learning", "embeddings"]
# the flags of the protocol, in the order of the card; flags of the loss and the miner follow
PROTOCOL = (
    *("arch", "embed_dim", "loss", "batch_mining", "trainer", "data_sampler", "samples_per_class", "bs"),
    *("augmentation", "optim", "lr", "n_epochs", "lora_rank", "lora_alpha", "prompts", "prompt_depth", "prompt_step"),
    *("train_biases", "split_scheme", "use_tv_split", "tv_split_perc", "seed"),
)
LOADING = {
    "onnx": """import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
embeddings = session.run(["embeddings"], {"{name}": {name}})[0]  # {name}: numpy {kind}""",
    "torchscript": """import torch

network = torch.jit.load("model.pt")
embeddings = network({name})  # {name}: torch {kind}""",
    "torch_export": """import torch

network = torch.export.load("model.pt2").module()
embeddings = network({name})  # {name}: torch {kind}""",
}
OF_FEATURES = (
    "Training began from random weights, on features that another program had computed: the terms of its weights, and "
    "of what they were trained on, hold."
)
IN_TRACKERS = {
    "boxmot": """from pathlib import Path

from boxmot.reid.core.runtime import ReID

encoder = ReID(Path("{file}"))
embeddings = encoder(frame, boxes)  # BGR uint8 (H, W, 3); boxes (n, 4): x1, y1, x2, y2""",
    "ultralytics": """from ultralytics import YOLO

# tracker.yaml: ultralytics' botsort.yaml with `with_reid: True` and `model: {file}`
results = YOLO("yolo26n.pt").track("video.mp4", tracker="tracker.yaml")""",
    "fastreid": """import onnxruntime

session = onnxruntime.InferenceSession("{file}")
# crops: numpy float32 (B, 3, H, W), RGB, 0 to 255
embeddings = session.run(["embeddings"], {"images": crops})[0]""",
    "roboflow": """from reid import ReIDModel

model = ReIDModel.from_pretrained("roboflow")
embeddings = model.extract_embeddings(detections, frame)  # supervision's Detections; BGR uint8 (H, W, 3)""",
}


class Checked(NamedTuple):
    """What an export has written and how it was compared with the run.

    cosines: format -> least cosine to the run's embeddings, over `images` images. loading_code: the lines that
    load `model.safetensors`, None if no code does. checkpoint: best or last. code: as `coding.write` describes it,
    None without one. preparation: the lines of `pillow_code.code`, None if there are none; difference: the greatest
    to the run's input, of 255. comparisons: of the files of --tracker.
    """

    cosines: dict[str, float]
    images: int
    loading_code: str | None = None
    checkpoint: str = "best"
    code: dict | None = None
    preparation: str | None = None
    difference: int = 0
    comparisons: tuple[Comparison, ...] = ()


def model_card(embedder, checked: Checked):
    """The card of a run's export, a `huggingface_hub.ModelCard`."""
    from huggingface_hub import ModelCard, ModelCardData

    run = RunFolder(embedder.folder)
    opt = embedder.opt
    environment = _environment(run)
    licence = None
    if not opt.weights:
        licence = (environment.get("data_config") or {}).get("license")
    head = ModelCardData(license=licence, pipeline_tag="image-feature-extraction", tags=TAGS)
    terms = _licence(environment, opt)
    if embedder.takes_features is not None:
        head = ModelCardData(license=licence, pipeline_tag="feature-extraction", tags=TAGS[1:])
        terms = OF_FEATURES
    files = [(FILES[name], f"{cosine:.6f}") for name, cosine in checked.cosines.items()]
    files += [(comparison.file, f"{comparison.cosine:.6f}") for comparison in checked.comparisons]
    parts = [
        f"---\n{head.to_yaml()}\n---",
        *_introduction(embedder),
        "## Use",
        *_use(embedder, checked),
        "## Data",
        _data(environment, opt),
        "## Protocol",
        _table(("flag", "value"), _flags(opt)),
        _versions(environment),
        "## Results",
        _results(run, checked.checkpoint, opt),
        "## Licence of the weights",
        terms,
        "## Checked",
        f"Each file was run on {checked.images} images, one alone and all at once, and compared with the run:",
        _table(("file", "least cosine"), files),
        _resized(checked),
    ]
    return ModelCard("\n\n".join(part for part in parts if part) + "\n")


def _environment(run: RunFolder) -> dict:
    """The content of environment.yaml; empty if it is missing or damaged, as a card is of use without it."""
    try:
        content = read_yaml(run.path / "environment.yaml")
    except Unreadable:
        return {}
    return content if isinstance(content, dict) else {}


def _introduction(embedder) -> list[str]:
    title = vars(embedder.opt).get("group") or embedder.folder.name
    length = " at unit length" if getattr(embedder.network, "normalizes", False) else ""
    name, _ = described_input(embedder.preparation.size)
    return [
        f"# {_cell(title)}: embeddings of {name} by `{_cell(embedder.opt.arch)}`",
        (
            f"{name.capitalize()} of the same class, as classes were defined in training, have a small Euclidean "
            f"distance. Embeddings have {embedder.dimensions} dimensions{length}."
        ),
    ]


def _use(embedder, checked: Checked) -> list[str]:
    """How images are prepared, the code that loads each file, and the code in which embeddings are stored."""
    sections = []
    if checked.cosines:
        sections += _use_of_formats(embedder, checked)
    if checked.code is not None:
        sections.append(
            f"Embeddings are held in the code {checked.code['name']}, {checked.code['bytes_a_vector']} bytes each: "
            f"{checked.code['how']}."
        )
    return [*sections, *_use_in_trackers(embedder, checked)]


def _use_of_formats(embedder, checked: Checked) -> list[str]:
    """How images are prepared, and the code that loads each file of --format."""
    sections = [
        (
            "Images are decoded, resized and cropped as `preprocessing.json` says. The exported programs apply the "
            "remaining steps themselves; for `model.safetensors` the code below does."
        ),
        *_preparation(checked),
    ]
    if embedder.takes_features is not None:
        sections = ["Features are computed as those of the training, and enter as they are."]
    name, kind = described_input(embedder.preparation.size)
    for form in checked.cosines:
        sections.append(f"`{FILES[form]}`:")
        if form != "safetensors":
            sections.append(_fence(LOADING[form].replace("{name}", name).replace("{kind}", kind)))
        elif checked.loading_code is not None:
            sections.append(_fence(checked.loading_code))
        else:
            sections.append(
                f"The network `{_cell(embedder.opt.arch)}` has parts that only its run's folder describes, such as the "
                "heads of its trainer: in the training program `utilities.load_run` loads the folder. Elsewhere use "
                "the formats that hold the whole network: onnx, torchscript, torch_export."
            )
    return sections


def _use_in_trackers(embedder, checked: Checked) -> list[str]:
    """The code that loads each tracker's file."""
    sections = []
    loaded = set()
    for comparison in checked.comparisons:
        height, width = embedder.preparation.size
        head = f"`{comparison.file}`, for {comparison.tracker}, crops of {height} x {width}"
        if comparison.tracker in loaded:
            sections.append(f"{head}, is loaded in the same way.")
        else:
            sections += [f"{head}:", _fence(IN_TRACKERS[comparison.tracker].replace("{file}", comparison.file))]
        loaded.add(comparison.tracker)
    if sections:
        sections.append(
            "Trackers cut boxes from frames, resize them in their own way and bring embeddings to unit length."
        )
    return sections


def _resized(checked: Checked) -> str:
    """How near the run embeddings are once the tracker itself has resized the images."""
    rows = []
    for comparison in checked.comparisons:
        rows += [(comparison.file, how, f"{cosine:.4f}") for how, cosine in comparison.resized.items()]
    if not rows:
        return ""
    return (
        "The same images, resized as the tracker resizes a box, against the run:\n\n"
        f"{_table(('file', 'resized by', 'least cosine'), rows)}"
    )


def _preparation(checked: Checked) -> list[str]:
    """The code from a photograph to the input, and how exact it is."""
    if checked.preparation is None:
        return ["Two kinds of interpolation follow one another here: no short code gives the network's exact input."]
    exactness = f"differ from the run's input by at most {checked.difference} of 255"
    if not checked.difference:
        exactness = "give the run's input exactly"
    notes = [f"On the {checked.images} images of the check these lines {exactness}."]
    if "def resize" in checked.preparation:
        notes.append("Pillow's own `resize` would not: it rounds in another way.")
    notes.append("Images with 16 bits per channel must be scaled to 8 bits before.")
    return [
        "From a photograph to `images`, with Pillow and NumPy; torch takes `torch.from_numpy(images)`:",
        _fence(checked.preparation),
        " ".join(notes),
    ]


def _fence(code: str) -> str:
    return f"```python\n{code}\n```"


def _data(environment: dict, opt) -> str:
    data = environment.get("data") or {}
    counts = data.get("counts") or {}
    rows = []
    for split in ("training", "validation", "testing"):
        if isinstance(counts.get(split), dict):
            images = counts[split].get("images", 0)
            classes = counts[split].get("classes", 0)
            rows.append((split, f"{images:,}", f"{classes:,}"))
    parts = [f"`{_cell(data.get('name') or opt.dataset)}`", _table(("split", "images", "classes"), rows)]
    if data.get("partial"):
        parts.append(f"Partial: {_cell(data['partial'])}")
    if any("Box; " in str(steps) for steps in (data.get("transforms") or {}).values()):
        parts.append(
            "In training and evaluation images were cropped to their boxes, before all other steps: crop yours as well."
        )
    return "\n\n".join(parts)


def _flags(opt) -> list[tuple[str, str]]:
    """The flags of the method that had an effect: those of the miner only if the loss takes one."""
    prefixes = [f"loss_{opt.loss}_"]
    without_effect = set()
    if criteria.takes_miner(opt.loss, opt):
        prefixes.append(f"miner_{opt.batch_mining}_")
    else:
        without_effect.add("batch_mining")
    if not opt.lora_rank:
        without_effect |= {"lora_rank", "lora_alpha"}
    if not opt.prompts:
        without_effect |= {"prompts", "prompt_depth", "prompt_step"}
    if not opt.train_biases:
        without_effect.add("train_biases")
    of_plug_ins = [name for name in vars(opt) if name.startswith(tuple(prefixes))]
    rows = []
    for name in dict.fromkeys([*PROTOCOL, *weights.flags_of_network(opt), *of_plug_ins]):
        value = vars(opt).get(name)
        if value is not None and name not in without_effect:
            rows.append((f"`--{name}`", _cell(value)))
    return rows


def _versions(environment: dict) -> str:
    commit = environment.get("git_commit") or "unknown"
    torch_version = environment.get("packages", {}).get("torch", "unknown")
    return f"Commit `{_cell(commit)}`, torch {_cell(torch_version)}."


def _results(run: RunFolder, checkpoint: str, opt) -> str:
    """The selected epoch's values with the rule that selected it;
    of the last checkpoint those of the last evaluation.
    """
    try:
        summary = run.summary
    except UserError:
        return "The run has recorded none."
    selected = summary["selected"]
    if checkpoint == "best":
        values = selected["values"]
        selection = f"Epoch {selected['epoch']}, selected by: {_cell(selected['rule'])}."
    else:
        values = summary.get("last") or {}
        selection = "The last evaluated epoch; nothing selected it."
    rows = []
    for split, metrics in values.items():
        for metric, value in metrics.items():
            if value is None:
                rows.append((split, _cell(metric), "NaN"))
            elif isinstance(value, int | float):
                rows.append((split, _cell(metric), f"{value:.4f}"))
    if not rows:
        return "The run has recorded none."
    flags = from_splits.changed_flags(
        vars(opt), from_splits.OF_SEARCH | from_splits.OF_EMBEDDINGS | from_splits.OF_DISTANCES
    )
    if flags:
        selection += f" Measured with `{_cell(' '.join(flags))}`, which the exported files do not do."
    return f"{selection}\n\n{_table(('split', 'metric', 'value'), rows)}"


def _licence(environment: dict, opt) -> str:
    start = environment.get("weights")
    if start == "random":
        return "Training began from random weights: no other licence than that of the training images applies."
    # The data_config has the licence of the architecture's own weights, not that of a file.
    if opt.weights:
        sha256 = environment.get("weights_sha256") or "not recorded"
        return (
            f"Training began from the file `{_cell(Path(opt.weights).name)}` (SHA-256 {_cell(sha256)}). Its licence "
            "is not stated."
        )
    if start is None:
        return "The run has not recorded which weights it began with."
    licence = (environment.get("data_config") or {}).get("license")
    if licence:
        return (
            f"Training began from `{_cell(start)}`, which its publisher gives under: {_cell(licence)}. The training "
            "images have their own terms."
        )
    return (
        f"Training began from `{_cell(start)}`. The run has recorded no licence of these weights: its publisher's "
        "terms hold, and those of the images that they and this network were trained on."
    )


def _cell(value) -> str:
    """A value as text without markup: on one line, with bars, backticks and `<` replaced."""
    words = map(str, value) if isinstance(value, list) else str(value).split()
    return " ".join(words).replace("|", "\\|").replace("`", "'").replace("<", "&lt;")


def _table(head: tuple, rows: list[tuple]) -> str:
    """A Markdown table; empty without rows."""
    if not rows:
        return ""
    lines = [head, ["-"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
