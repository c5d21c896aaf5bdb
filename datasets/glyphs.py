"""Letters and digits in 16 type faces, 48 x 48 pixels, rendered offline: a small data set that needs no download.

Classes are the characters that all 16 text faces of matplotlib cover (DejaVu Sans, Sans Mono, Serif and STIXGeneral,
four styles each), one image a face: white on black, 36 pixels, centred. A character that looks like an earlier one in
any of the faces, as the Greek Alpha like the Latin A, is left out, so that no two classes share an image. The first
half of the classes trains, the second tests. Super labels are the scripts.

`--glyphs_protocol reid` makes re-identification of it: a character is an identity,
a font with its four styles a camera.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
import unicodedata
from pathlib import Path

import numpy as np

from datasets import _files, _reid
from datasets._images import Image
from datasets._layout import Reading
from options.flags import Flag
from utilities.errors import UserError
from utilities.reading import Unreadable, parsing, read_json

IMAGE_SIZE = 48
# letters may not be mirrored: b would be d
DEFAULT_AUGMENTATION = "shift"
FONT_SIZE = 36
# version of the rendering: raise it when a change below alters an image
VERSION = 1
MANIFEST = "manifest.json"
CHARACTER_FOLDER = re.compile(r"U\+[0-9A-F]{4,6}")  # see `_folder`
LETTERS_AND_DIGITS = ("Lu", "Ll", "Lt", "Lo", "Nd")  # Unicode categories; not Lm, small raised marks
FACES = (
    *(
        f"DejaVu{family}{style}"
        for family in ("Sans", "SansMono")
        for style in ("", "-Bold", "-Oblique", "-BoldOblique")
    ),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
)
# faces of a font, next to each other, the regular one first
STYLES = 4
SCRIPTS = ("latin", "greek", "cyrillic")

FLAGS = {
    "--glyphs_protocol": Flag(
        str,
        "set",
        "set: the test images search each other; reid: re-identification across fonts. The regular face of each "
        "of the four fonts is a query, the other faces are the gallery, and those of the query's own character and "
        "font are ignored",
        choices=["set", "reid"],
    ),
}


def evaluation_metrics(opt) -> list[str] | None:
    """The metrics of re-identification where the flags ask for it."""
    return _reid.EVALUATION_METRICS if opt.glyphs_protocol == "reid" else None


def derived(opt) -> dict:
    """The values of unset flags under re-identification."""
    # runs of earlier versions have no such flag
    protocol = vars(opt).get("glyphs_protocol")
    return _reid.unset(opt) if protocol == "reid" else {}


def default_source_path() -> str:
    """The user's cache folder, which holds the folder `glyphs`."""
    return str(_files.cache_folder())


def prepare(opt, source: Path) -> Path:
    """The folder of the images, `<source>/glyphs` or `source` itself; rendered now if it is missing or out of date.

    Raises UserError if `<source>/glyphs` holds something else: it stays as it is.
    """
    fingerprint = _fingerprint()
    for root in (source / "glyphs", source):
        if _is_current(root, fingerprint):
            return root
    root = source / "glyphs"
    temporary = None
    try:
        _refuse_foreign(root)
        source.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".glyphs-", dir=source))
        _render(temporary, fingerprint)
        # mkdtemp makes folders that only the user can read
        os.chmod(temporary, 0o755)
        _put_in_place(temporary, root, fingerprint)
    except OSError as error:
        raise UserError(
            f"glyphs cannot be written to {source} ({error.strerror or error}): choose another --source_path"
        ) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    return root


def read(opt, root: Path) -> Reading:
    """The images, classes in the order of their code points."""
    characters = read_json(root / MANIFEST)["characters"]
    is_reid = opt.glyphs_protocol == "reid"
    images = []
    for character in characters:
        for number, face in enumerate(FACES):
            image = Image(str(root / _folder(character) / f"{face}.png"), character, script(character))
            if is_reid:
                font = FACES[number - number % STYLES]
                is_regular = number % STYLES == 0
                image = image._replace(
                    is_query=is_regular, is_gallery=not is_regular, sequence=f"{character} in {font}"
                )
            images.append(image)
    return Reading(images, is_rendered=True)


def _refuse_foreign(root: Path) -> None:
    """Raise UserError if `root` exists and holds anything that no rendering writes, such as images of the user."""
    try:
        foreign = _foreign_entry(root)
    except FileNotFoundError:
        # nothing there, or another process is putting its rendering in place
        return
    if foreign is not None:
        raise UserError(
            f"--dataset glyphs renders its images to {root}, which holds something else ({foreign}): choose another "
            "--source_path, or move it away"
        )


def _foreign_entry(root: Path) -> str | None:
    """The first entry of a folder that no rendering, whole or in part, has; None if there is none."""
    if root.is_symlink() or not root.is_dir():
        os.lstat(root)
        return "a link" if root.is_symlink() else "a file"
    faces = {f"{face}.png" for face in FACES}
    for entry in sorted(os.scandir(root), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False) and CHARACTER_FOLDER.fullmatch(entry.name):
            for image in sorted(os.scandir(entry), key=lambda image: image.name):
                if image.name not in faces or not image.is_file(follow_symlinks=False):
                    return f"{entry.name}/{image.name}"
        elif entry.name != MANIFEST or not entry.is_file(follow_symlinks=False):
            return entry.name
    return None


def _put_in_place(rendered: Path, root: Path, fingerprint: str) -> None:
    """Rename `rendered` to `root`, unless another process was faster; an outdated `root` is moved aside first."""
    for _ in range(10):
        try:
            rendered.rename(root)
            return
        except OSError:
            # `root` exists and is not empty
            if _is_current(root, fingerprint):
                return
            _refuse_foreign(root)
            aside = Path(tempfile.mkdtemp(prefix=".glyphs-old-", dir=root.parent))
            try:
                root.rename(aside / "glyphs")
            except FileNotFoundError:
                # another process has just moved it
                pass
            finally:
                shutil.rmtree(aside, ignore_errors=True)
    raise OSError(None, f"{root} keeps changing")


def _is_current(root: Path, fingerprint: str) -> bool:
    """Whether `root` holds all images of the current rendering."""
    try:
        with parsing(root / MANIFEST):
            manifest = read_json(root / MANIFEST)
            characters = manifest["characters"]
            return manifest["fingerprint"] == fingerprint and all(
                len(os.listdir(root / _folder(character))) == len(FACES) for character in characters
            )
    except Unreadable:
        return False


def _face_files() -> list[Path]:
    import matplotlib

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    files = [folder / f"{face}.ttf" for face in FACES]
    missing = [file.name for file in files if not file.exists()]
    if missing:
        raise UserError(
            f"--dataset glyphs needs the faces of matplotlib: {', '.join(missing)} missing in {folder}. Reinstall "
            "matplotlib"
        )
    return files


def _fingerprint() -> str:
    """Hash of this code's version and the faces. FreeType's version is only recorded, as caches may be shared."""
    digest = hashlib.sha256(f"{VERSION} {IMAGE_SIZE} {FONT_SIZE} {LETTERS_AND_DIGITS}".encode())
    for file in _face_files():
        digest.update(file.read_bytes())
    return digest.hexdigest()


def covered_characters() -> list[str]:
    """The letters and digits that every face has, in code point order."""
    from matplotlib.ft2font import FT2Font

    charmaps = [set(FT2Font(str(file)).get_charmap()) for file in _face_files()]
    common = sorted(set.intersection(*charmaps))
    return [chr(code) for code in common if unicodedata.category(chr(code)) in LETTERS_AND_DIGITS]


def draw(character: str, font) -> np.ndarray:
    """The character as white on black, `(48, 48)` uint8."""
    import PIL.Image
    import PIL.ImageDraw

    image = PIL.Image.new("L", (IMAGE_SIZE, IMAGE_SIZE))
    PIL.ImageDraw.Draw(image).text((IMAGE_SIZE // 2, IMAGE_SIZE // 2), character, fill=255, font=font, anchor="mm")
    return np.asarray(image)


def distinct(drawings: dict[str, list[np.ndarray]]) -> list[str]:
    """The characters whose images, in all faces, differ from those of the characters kept before."""
    seen = set()
    characters = []
    for character, images in drawings.items():
        keys = {image.tobytes() for image in images}
        if seen.isdisjoint(keys):
            seen |= keys
            characters.append(character)
    return characters


def _render(folder: Path, fingerprint: str) -> None:
    """Write `folder/<code point>/<face>.png` of every distinct character, and last the manifest."""
    import PIL.Image
    from PIL import ImageFont, features
    from tqdm import tqdm

    fonts = [ImageFont.truetype(str(file), FONT_SIZE, layout_engine=ImageFont.Layout.BASIC) for file in _face_files()]
    drawings = {character: [draw(character, font) for font in fonts] for character in covered_characters()}
    characters = distinct(drawings)
    for character in tqdm(characters, desc="rendering glyphs", unit="character", disable=None):
        (folder / _folder(character)).mkdir()
        for face, image in zip(FACES, drawings[character], strict=True):
            PIL.Image.fromarray(image).save(folder / _folder(character) / f"{face}.png")
    manifest = {
        "version": VERSION,
        "fingerprint": fingerprint,
        "freetype": features.version("freetype2"),
        "characters": characters,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, ensure_ascii=False, indent=1), encoding="utf-8")


def _folder(character: str) -> str:
    return f"U+{ord(character):04X}"


def script(character: str) -> str:
    """The script of a letter; `digit` for digits, `other` for the few letters without one, such as click letters."""
    if unicodedata.category(character) == "Nd":
        return "digit"
    words = unicodedata.name(character, "").lower().split()
    # ordinal indicators, raised a and o
    if words[:1] in (["feminine"], ["masculine"]):
        return "latin"
    # the sign is a Greek mu
    if words[:1] == ["micro"]:
        return "greek"
    return words[0] if words and words[0] in SCRIPTS else "other"
