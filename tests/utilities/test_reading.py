"""Readers of files, one per kind: whatever is wrong with a file, the user reads one line with its name."""

import io
import json
import pickle
import re
import sqlite3
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from PIL import Image

from datasets import _images
from runs.records import local
from tests.conftest import ROOT
from tests.kit.refusals import refused
from utilities import errors, pickles, reading
from utilities.errors import UserError

VALUES = {"seed": 1, "loss": "margin", "values": [0.5, None, {"a": "ä"}], "nested": {"x": {"y": [1, 2]}}}


def made_by(write) -> bytes:
    """The bytes that `write(file)` writes."""
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def npz(compressed: bool) -> bytes:
    save = np.savez_compressed if compressed else np.savez
    arrays = {"features": np.arange(12.0).reshape(4, 3), "labels": np.arange(4), "names": np.array(["a", "bb"])}
    return made_by(lambda file: save(file, **arrays))


def sqlite_file(tmp: Path) -> bytes:
    path = tmp / "sound.db"
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("create table runs (epoch integer, name text, value real, primary key (epoch, name))")
        rows = [(epoch, "x" * 50, epoch / 7) for epoch in range(400)]
        connection.executemany("insert into runs values (?, ?, ?)", rows)
    connection.close()
    return path.read_bytes()


def matlab_file() -> bytes:
    from scipy.io import savemat

    content = {"class_names": np.array(["a", "b"], dtype=object), "annotations": np.zeros((2, 3))}
    return made_by(lambda file: savemat(file, content))


def picture(kind: str) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 255, (24, 31, 3), dtype=np.uint8)
    return made_by(lambda file: Image.fromarray(pixels).save(file, kind))


def tensors_file() -> bytes:
    content = {"epoch": 3, "state_dict": {"weight": torch.arange(6.0).view(2, 3)}, "lists": [1, "a", None]}
    return made_by(lambda file: torch.save(content, file))


def safetensors_file() -> bytes:
    import safetensors.torch

    return safetensors.torch.save({"weight": torch.arange(6.0).view(2, 3), "bias": torch.zeros(2)})


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """Kind -> (ending, sound content, its reader)."""
    tmp = tmp_path_factory.mktemp("kinds")
    text = json.dumps(VALUES).encode()
    table = b'epoch,split,metric,value\n1,test,"a,b",0.5\n2,test,c,0.25\n'
    plain_pickle = pickle.dumps({1: {"train": ["a", "b"], "test": np.arange(5)}}, protocol=2)
    return {
        "text": (".txt", "1 a/ä.jpg\n2 b.jpg\n".encode(), reading.read_text),
        "JSON": (".json", text, reading.read_json),
        "YAML": (".yaml", yaml.safe_dump(VALUES).encode(), reading.read_yaml),
        "YAML nodes": (".yaml", yaml.safe_dump(VALUES).encode(), reading.read_yaml_nodes),
        "CSV": (".csv", table, reading.read_csv),
        "records": (".csv", table, reading.read_records),
        "npz": (".npz", npz(False), reading.read_arrays),
        "compressed npz": (".npz", npz(True), reading.read_arrays),
        "npz or npy": (".npz", npz(True), lambda path: reading.read_array_or_arrays(path, lambda name: True)),
        "npy": (".npy", made_by(lambda file: np.save(file, np.arange(12.0).reshape(4, 3))), reading.map_array),
        "tensors": (".pth", tensors_file(), reading.read_tensors),
        "tensors, lazily": (".pth", tensors_file(), lambda path: reading.read_tensors(path, lazily=True)),
        "safetensors": (".safetensors", safetensors_file(), reading.read_safetensors),
        "pickle": (".pkl", plain_pickle, lambda path: pickles.load(path, arrays=True)),
        "MATLAB": (".mat", matlab_file(), reading.read_matlab),
        "SQLite": (".db", sqlite_file(tmp), lambda path: reading.check_sqlite(path, 1)),
        **{kind: (f".{kind.lower()}", picture(kind), lambda path: _images.decode(str(path))) for kind in FORMATS},
        "size of an image": (".tif", picture("TIFF"), lambda path: _images.size(str(path))),
        "grey image": (".png", picture("PNG"), lambda path: _images.grey(str(path))),
    }


FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
KINDS = [
    "text",
    "JSON",
    "YAML",
    "YAML nodes",
    "CSV",
    "records",
    "npz",
    "compressed npz",
    "npz or npy",
    "npy",
    "tensors",
]
KINDS += ["tensors, lazily", "safetensors", "pickle", "MATLAB", "SQLite", *FORMATS, "size of an image", "grey image"]


def message_of(read, path) -> str:
    """The message of a file that cannot be read, which is one printable line with its name; else empty."""
    try:
        read(path)
    except UserError as error:
        message = str(error)
        assert path.name in message and message.isprintable(), message
        return message
    return ""


@pytest.mark.parametrize("kind", KINDS)
def test_a_sound_file_is_read_and_what_is_none_is_one_line(kinds, kind, tmp_path):
    ending, content, read = kinds[kind]
    path = tmp_path / f"file{ending}"
    path.write_bytes(content)
    assert message_of(read, path) == ""
    assert message_of(read, tmp_path / f"missing{ending}")
    folder = tmp_path / f"folder{ending}"
    folder.mkdir()
    assert message_of(read, folder)
    for name in ("a" * 300, "a\0b"):
        with pytest.raises(UserError) as caught:
            read(Path(f"{tmp_path}/{name}{ending}"))
        assert str(caught.value).isprintable()
    if kind not in ("text", "SQLite"):
        path.write_bytes(b"\x00\xff\xfe nothing of the kind \x00" * 9)
        assert message_of(read, path)
    assert not (tmp_path / f"missing{ending}").exists()


DAMAGES = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "insert", "delete", "fill"]),
        st.floats(0, 1, exclude_max=True),
        st.binary(min_size=1, max_size=9),
    ),
    min_size=1,
    max_size=4,
)


def damaged(content: bytes, damages) -> bytes:
    for how, place, noise in damages:
        at = int(len(content) * place)
        if how == "flip":
            flipped = bytes(old ^ new for old, new in zip(content[at : at + len(noise)], noise, strict=False))
            content = content[:at] + flipped + content[at + len(flipped) :]
        elif how == "cut":
            content = content[:at]
        elif how == "fill":
            content = content[:at] + bytes(len(content) - at)
        elif how == "insert":
            content = content[:at] + noise + content[at:]
        else:
            content = content[:at] + content[at + len(noise) :]
    return content


FUZZED = settings(
    deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck)
)


def fuzz(kinds, folder, kind, damages):
    ending, content, read = kinds[kind]
    path = folder / f"file{ending}"
    path.write_bytes(damaged(content, damages))
    message_of(read, path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzzed")


@settings(FUZZED, max_examples=300)
@given(st.sampled_from(KINDS), DAMAGES)
@pytest.mark.filterwarnings("ignore")
def test_nothing_but_a_users_error_leaves_a_reader(kinds, folder, kind, damages):
    fuzz(kinds, folder, kind, damages)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@settings(FUZZED, max_examples=500)
@given(damages=DAMAGES)
@pytest.mark.filterwarnings("ignore")
def test_nothing_but_a_users_error_leaves_a_reader_for_long(kinds, folder, kind, damages):
    fuzz(kinds, folder, kind, damages)


def with_method(content: bytes, method: int) -> bytes:
    """The archive, each of whose members claims to be packed by an unknown method."""
    changed = bytearray(content)
    for mark, at in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        for place in re.finditer(re.escape(mark), content):
            changed[place.start() + at : place.start() + at + 2] = method.to_bytes(2, "little")
    return bytes(changed)


def test_known_damages(kinds, tmp_path):
    """What lists of exceptions have missed."""
    sound = npz(True)
    begin = sound.index(b"features.npy") + 40
    broken_stream = sound[:begin] + bytes(20) + sound[begin + 20 :]
    encrypted = bytearray(sound)
    encrypted[6] |= 1
    encrypted[sound.index(b"PK\x01\x02") + 8] |= 1
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999,), }".ljust(117)
    objects = made_by(lambda file: np.savez(file, a=np.array([{}], dtype=object)))
    empty = made_by(lambda file: zipfile.ZipFile(file, "w").close())
    cases = {
        (".npz", reading.read_arrays): {
            "unknown method": with_method(sound, 77),
            "encrypted": bytes(encrypted),
            "a broken stream": broken_stream,
            "objects": objects,
        },
        (".npz", lambda path: reading.read_arrays(path, ["x"])): {"no array": empty},
        (".npy", reading.map_array): {"huge header": b"\x93NUMPY\x01\x00\x76\x00" + header + b"\n"},
        (".json", reading.read_json): {
            "digits": b"9" * 5000,
            "deep JSON": b"[" * 10**6,
            "half a character": b'"\xc3',
        },
        (".yaml", reading.read_yaml): {
            "digits": b"a: " + b"9" * 5000,
            "deep YAML": b"[" * 10**5,
            "deep YAML in blocks": b"- " * 10**5,
            "code in YAML": b"!!python/object/apply:os.system ['ls']",
            "a date that does not exist": b"a: 2020-13-45",
            "an unhashable key": b"? [a]\n: 1",
        },
        (".yaml", reading.read_yaml_nodes): {"deep nodes": b"[" * 10**5},
        (".txt", reading.read_text): {"NUL in a text": b"a\0b"},
        (".csv", reading.read_csv): {
            "NUL in a table": b"a,b\n1,\0\n",
            "a field without end": b'a,b\n1,"2\n',
            "a huge field": b"a\n" + b"1" * 10**6,
        },
        (".csv", reading.read_records): {"a short row": b"a,b\n1\n", "a column twice": b"a,a\n1,2\n"},
        (".pth", reading.read_tensors): {"no tensor": made_by(lambda file: torch.save(pytest.approx, file))},
        (".pkl", pickles.load): {"a huge text": b"\x80\x04\x8d" + b"\xff" * 7 + b"\x7fa."},
    }
    for (ending, read), contents in cases.items():
        path = tmp_path / f"file{ending}"
        for name, content in contents.items():
            path.write_bytes(content)
            assert message_of(read, path), name
    # An index of two billion in the memo may be read
    path.write_bytes(b"\x80\x02]r\xff\xff\xff\x7f.")
    message_of(pickles.load, path)


def test_a_damage_behind_the_first_pages_of_a_database_is_found(kinds, tmp_path):
    path = tmp_path / "study.db"
    content = bytearray(kinds["SQLite"][1])
    assert len(content) > 5 * 4096
    content[4 * 4096 : 5 * 4096] = bytes(4096)
    path.write_bytes(content)
    assert "study.db cannot be read" in message_of(lambda path: reading.check_sqlite(path, 1), path)


def test_a_locked_database_is_locked_not_damaged(kinds, tmp_path):
    path = tmp_path / "study.db"
    path.write_bytes(kinds["SQLite"][1])
    connection = sqlite3.connect(path)
    connection.execute("begin exclusive")
    with pytest.raises(reading.Locked, match="study.db is locked by another program"):
        reading.check_sqlite(path, 0.01)
    connection.close()
    reading.check_sqlite(path, 0.01)


def test_a_failed_allocation_names_the_file(tmp_path):
    path = tmp_path / "large.npz"
    message = r"large\.npz cannot be read \(it needs more memory than there is: .*allocate"
    for error in (
        MemoryError("Unable to allocate 8.00 TiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ):
        with pytest.raises(reading.Unreadable, match=message), reading.parsing(path):
            raise error


def test_an_error_of_a_reader_survives_a_process_and_its_causes_are_told(tmp_path):
    with pytest.raises(reading.Unreadable) as caught:
        reading.read_json(tmp_path / "none.json", "put it back")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value) and str(copy).endswith("none.json cannot be read (no such file): put it back")
    assert (copy.reason, copy.is_missing) == ("no such file", True)
    with pytest.raises(reading.Unreadable, match="'epoch' is missing"), reading.parsing("x"):
        {}["epoch"]
    with refused("^its own words$"), reading.parsing("x"):
        raise UserError("its own words")
    for error in (KeyboardInterrupt, SystemExit):
        with pytest.raises(error), reading.parsing("x"):
            raise error


class Setting:
    """Pickles to code that sets attributes of what stands for a name."""

    def __init__(self, module, name, state):
        self.content = b"\x80\x02c" + f"{module}\n{name}\n".encode() + pickle.dumps(state, protocol=2)[2:-1] + b"b."


MULTIARRAY = "numpy.core.multiarray"
NAMES = [("numpy", "dtype"), ("_codecs", "encode"), (MULTIARRAY, "scalar"), ("numpy", "ndarray")]
NAMES += [(MULTIARRAY, "_reconstruct"), ("builtins", "bytes")]


@pytest.mark.parametrize("name", NAMES, ids=[name for _, name in NAMES])
@pytest.mark.parametrize(
    "state",
    [{"values": 1}, (None, {"__defaults__": (1,), "__name__": "x", "_function": print}), {"__call__": 1}, (1, 2)],
    ids=str,
)
def test_a_pickle_sets_no_attribute_of_what_it_is_handed(tmp_path, name, state):
    path = tmp_path / "splits.pkl"
    path.write_bytes(Setting(*name, state).content)
    stand_in = {**pickles.PLAIN, **pickles.ARRAYS}[name]
    function = stand_in._function
    before = {key: getattr(function, key, None) for key in ("__defaults__", "__name__", "__dict__", "__call__")}
    before = {key: dict(value) if key == "__dict__" else value for key, value in before.items()}
    with pytest.raises(reading.Unreadable, match="splits.pkl cannot be read"):
        pickles.load(path, arrays=True)
    assert stand_in._function is function and not hasattr(stand_in, "__dict__")
    after = {key: getattr(function, key, None) for key in before}
    assert {key: dict(value) if key == "__dict__" else value for key, value in after.items()} == before


def test_arrays_of_pickles_have_no_other_attributes(tmp_path):
    path = tmp_path / "splits.pkl"
    path.write_bytes(pickle.dumps({"a": np.arange(3), "b": np.float64(2.5), "c": np.array(["x", "yy"])}, protocol=2))
    loaded = pickles.load(path, arrays=True)
    assert np.asarray(loaded["a"]).tolist() == [0, 1, 2] and loaded["b"] == 2.5 and list(loaded["c"]) == ["x", "yy"]
    assert not hasattr(loaded["a"], "__dict__")


def test_a_name_that_the_system_refuses_is_one_line(capsys):
    with pytest.raises(SystemExit) as stop, errors.one_line_errors("main.py"):
        Path("/tmp/" + "a" * 300).exists()
    assert stop.value.code == 2 and capsys.readouterr().err.endswith("aaa: File name too long\n")
    with pytest.raises(FileNotFoundError), errors.one_line_errors("main.py"):
        open("/tmp/there is no such file")  # noqa: SIM115


def test_records_of_a_run_in_any_damage(tmp_path, kinds):
    """The tables of a run, which are read faster than by `read_csv`."""
    path = tmp_path / "metrics.csv"
    header = b"epoch,split,metric,value\n"
    rows = (b"\0\n", b"9" * 5000 + b",test,a,1\n", b"1,test,a\n", b"1,,a,1\n")
    for content in (b"\xff\n", b"epoch\n1\n", b"", *(header + row for row in rows)):
        path.write_bytes(content)
        with refused("metrics.csv cannot be read"), reading.parsing(path):
            local.read_metrics(path)


def test_deep_yaml_does_not_end_the_process():
    """libyaml's loader overflows the stack, of which Python knows nothing."""
    code = "from utilities.files import load_yaml\n"
    code += "try: load_yaml('[' * 300_000)\nexcept Exception as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "nested more than 1000 times" in done.stdout
