"""--dataset mot: layouts of the benchmarks, splits, roles, detections, damaged files; the same crops as a table."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch

import datasets
import evaluation
from datasets import _mot, _mot_table
from evaluation import outputs
from tests.datasets.layouts import film_rows, make_film, make_mot, names, write_lines
from tests.kit import runs as kit
from tests.kit.images import write_image
from tests.kit.refusals import refused
from tools import tracks

SPLITS = ("training", "testing")


def read(root, **flags):
    """The splits; every box of 20 pixels is a crop."""
    return datasets.select("mot", dataset_mot=str(root), input_size=8, **{"mot_stride": 1, **flags})


def note(splits):
    """The note on what is left out."""
    (line,) = [line for line in splits["training"].notes if "rows of ground truth" in line]
    return line


def test_dancetrack_has_parts_roles_and_boxes(tmp_path):
    splits = read(make_mot(tmp_path), mot_gap=3)
    assert names(splits) == {
        "training": ["dancetrack0001_1", "dancetrack0001_2", "dancetrack0002_1", "dancetrack0002_2"],
        "testing": ["dancetrack0004_1", "dancetrack0004_2"],
    }
    testing = splits["testing"]
    assert testing.frames.tolist() == [*range(1, 9)] * 2 and set(testing.cameras) == {"dancetrack0004"}
    # blocks of frames 1 to 3, 4 to 6, 7 and 8: the first of each is a query, all are in the gallery
    assert np.flatnonzero(testing.is_query).tolist() == [0, 3, 6, 8, 11, 14] and testing.is_gallery.all()
    assert [testing.sequence_names[number] for number in testing.sequences[2:4]] == [
        "dancetrack0004_1 0",
        "dancetrack0004_1 1",
    ]
    assert splits["training"].roles == {} and splits["training"].sequences is not None
    assert testing.boxes[0].tolist() == [0, 4, 20, 24], "files count from 1"
    frame = datasets.decode(testing.paths[0])
    assert torch.equal(testing.original(0), frame[:, 4:24, 0:20])


def test_mot17_is_read_once_and_rows_are_chosen(tmp_path):
    root = make_mot(tmp_path, "mot17")
    with refused("--mot_split folders needs sequences with ground truth in train/ and in val/ or test/"):
        read(root)
    flags = {"mot_split": "sequences", "mot_test_sequences": ["MOT17-04-DPM"]}
    splits = read(root, **flags)
    assert names(splits) == {
        "training": ["MOT17-02-FRCNN_1", "MOT17-02-FRCNN_2", "MOT17-02-FRCNN_9"],
        "testing": ["MOT17-04-FRCNN_1", "MOT17-04-FRCNN_2", "MOT17-04-FRCNN_9"],
    }
    assert note(splits) == "38 rows of ground truth, 34 crops; left out: 2 with flag 0, 2 of other classes"
    assert any(
        "6 folders are 2 sequences: one detector of each is read, as MOT17-02-FRCNN" in line
        for line in splits["training"].notes
    )
    assert any("without gt/gt.txt are not read: 1, as test/MOT17-01-DPM" in line for line in splits["training"].notes)
    splits = read(root, **flags, mot_classes=[1, 7], mot_visibility=0.5)
    assert "MOT17-04-FRCNN_8" in names(splits)["testing"] and "MOT17-04-FRCNN_9" not in names(splits)["testing"]
    with refused("--mot_test_sequences MOT17-05: no such sequence; there are MOT17-02, MOT17-04"):
        read(root, mot_split="sequences", mot_test_sequences=["MOT17-05"])
    with refused("all 2 sequences validate or test"):
        read(root, mot_split="sequences", mot_test_sequences=["MOT17-02", "MOT17-04"])
    with refused("--mot_split sequences needs --mot_test_sequences"):
        read(root, mot_split="sequences")


def test_half_of_each_sequence_trains(tmp_path):
    splits = read(make_mot(tmp_path, "mot17"), mot_split="half", mot_stride=2)
    training, testing = (splits[split] for split in SPLITS)
    assert training.class_names[0] == testing.class_names[0] and training.frames.max() == 5 == 8 // 2 + 1
    assert [frame for frame, camera in zip(testing.frames, testing.cameras, strict=True) if "02" in camera] == [7, 7]
    assert any("the same persons, in later frames" in line for line in training.notes)


def test_sportsmot_counts_ids_from_0_and_soccernet_has_no_classes(tmp_path):
    assert names(read(make_mot(tmp_path, "sportsmot")))["testing"] == ["v_00HRwkvvjtQ_c001_0", "v_00HRwkvvjtQ_c001_1"]
    root = make_mot(tmp_path, "soccernet")
    splits = read(root)
    assert names(splits)["testing"] == ["SNMOT-116_1", "SNMOT-116_2"] and "16 of the ball" in note(splits)
    with refused("--mot_visibility 0.5: .*SNMOT-060/gt/gt.txt, row 1, has no visibility"):
        read(root, mot_visibility=0.5)


def test_validation_is_of_whole_sequences(tmp_path):
    root = make_mot(tmp_path)
    splits = read(root, mot_val_sequences=["dancetrack0002"])
    assert names(splits)["validation"] == ["dancetrack0002_1", "dancetrack0002_2"]
    assert splits["validation"].roles == {"query_images": 2, "gallery_images": 16}, "one block each"
    make_film(root / "test" / "dancetrack0003", film_rows())
    splits = read(root)
    assert names(splits)["validation"] == ["dancetrack0004_1", "dancetrack0004_2"], "test/ has ground truth"
    assert names(splits)["testing"] == ["dancetrack0003_1", "dancetrack0003_2"]
    with refused("--mot_val_sequences dancetrack0003: the sequence is in test already"):
        read(root, mot_val_sequences=["dancetrack0003"])
    make_film(root / "val" / "dancetrack0003", film_rows())
    with refused("are one sequence: keep one of them"):
        read(root)


def test_several_benchmarks_are_domains(tmp_path):
    films = [f"mot:{make_mot(tmp_path, layout)}" for layout in ("dancetrack", "sportsmot")]
    splits = datasets.select("union", union=films, input_size=8, mot_stride=1)
    assert names(splits)["testing"][0] == "dancetrack/dancetrack0004_1"
    assert names(splits)["testing"][-1] == "sportsmot/v_00HRwkvvjtQ_c001_1" and len(splits["training"]) == 48
    assert splits["testing"].roles == {"query_images": 4, "gallery_images": 32} and splits["testing"].frames is not None


def test_embeddings_of_films_have_what_tracks_needs(tmp_path):
    root = make_mot(tmp_path)
    testing = read(root)["testing"]
    labels = np.array([label for _, label in testing.image_list])
    embedded = evaluation.Embedded({}, labels, 0.0, testing)
    arrays = outputs._arrays(embedded, kit.resolve("--dataset mot --dataset_mot", root))
    films = tracks.films_of("file", {**arrays, "features": np.zeros((16, 2))})
    assert set(films.sequences) == {"dancetrack0004"} and set(films.tracks) == {"dancetrack0004_1", "dancetrack0004_2"}
    queries = list(tracks.scored(films, 2, 4, Counter()))
    assert [(query.row, query.match) for query in queries] == [(3, 0), (11, 1)], "frame 4; frame 8 has none later"
    photographs = datasets.select("csv", dataset_csv=str(films_free_table(tmp_path)), input_size=8)["testing"]
    assert photographs.frames is None and photographs.cameras is None


def films_free_table(folder):
    """A table of images that are of no film."""
    rows = ["label,path,split", "a,a.png,train", "b,a.png,train", "c,a.png,validation", "c,a.png,validation"]
    write_lines(folder / "photographs.csv", rows)
    write_image(folder / "a.png", 1)
    return folder / "photographs.csv"


def test_boxes_are_clipped_and_strides_count_boxes(tmp_path):
    rows = [(1, 1, -9, -4, 30, 20, 1, 1, 1), (2, 1, 50, 40, 30, 30, 1, 1, 1), (5, 1, 1, 1, 16, 16, 1, 1, 1)]
    root = tmp_path / "films"
    make_film(root / "train" / "a", [*rows, (6, -1, 1, 1, 20, 20, 1, 1, 1)])
    make_film(root / "val" / "b", film_rows())
    training = read(root)["training"]
    assert training.boxes.tolist() == [[0, 0, 20, 15], [0, 0, 16, 16]][1:], "sides of 15, and of 9, are too small"
    training = read(root, mot_min_side=5)["training"]
    assert training.boxes.tolist() == [[0, 0, 20, 15], [49, 39, 64, 48], [0, 0, 16, 16]]
    splits = read(root, mot_min_side=5, mot_stride=2)
    assert splits["training"].frames.tolist() == [1, 5], "every second box, whatever the frames"
    assert "1 with an id below 0" in note(splits) and "between the boxes of --mot_stride 2" in note(splits)


def test_detections_get_the_id_of_the_box_they_overlap(tmp_path):
    root = tmp_path / "films"
    truth = [(1, 1, 1, 1, 20, 20, 1, 1, 1), (1, 2, 11, 1, 20, 20, 1, 1, 1), (2, 1, 1, 1, 20, 20, 1, 1, 1)]
    for part in ("train", "val"):
        folder = make_film(root / part / part, truth)
        # the first overlaps id 2 by .9 and id 1 by .38; the second id 1 by .67, and id 2 less
        boxes = ["1,-1,12,1,20,20,.9,-1,-1,-1", "1,-1,5,1,20,20,.9,-1,-1,-1", "2,-1,40,1,20,20,.9,-1,-1,-1"]
        write_lines(folder / "det" / "det.txt", boxes)
    splits = read(root, mot_boxes="det")
    assert names(splits)["training"] == ["train_1", "train_2"] and "2 without a detection" in note(splits)
    assert splits["training"].boxes[:, 0].tolist() == [4, 11]
    (root / "val" / "val" / "det" / "det.txt").unlink()
    with refused("det/det.txt"):
        read(root, mot_boxes="det")


def test_overlap_is_that_of_loops():
    draw = np.random.default_rng(0)
    corners = draw.uniform(0, 10, (2, 7, 2))
    first, second = (np.concatenate([places, places + draw.uniform(1, 6, (7, 2))], axis=1) for places in corners)
    second[3] = first[3]
    values = _mot.overlap(list(first), list(second))
    for i, j in itertools.product(range(7), range(7)):
        a = first[i]
        b = second[j]
        width = max(min(a[2], b[2]) - max(a[0], b[0]), 0)
        height = max(min(a[3], b[3]) - max(a[1], b[1]), 0)
        areas = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
        assert values[i, j] == pytest.approx(width * height / (areas - width * height))
    assert values[3, 3] == 1 and _mot.overlap([(0, 0, 1, 1)], []).shape == (1, 0)


BAD = {
    "1,1,1,1,20,20": "row 2: 6 columns, expected at least frame, id",
    "1,x,1,1,20,20,1,1,1": "row 2: '1,x,1,1,20,20,1,1,1' is not of numbers",
    "1.5,9,1,1,20,20,1,1,1": "row 2: .* is not of numbers",
    "1,9,1,1,nan,20,1,1,1": "row 2: .* is not of numbers",
    "1,9,1,1,0,20,1,1,1": "row 2: a box of 0 x 20 pixels",
    "9,1,1,1,20,20,1,1,1": "row 2: frame 9 is not in .*img1",
    "1,1,1,1,20,20,1,1,1": "row 2: frame 1 has id 1 twice",
}


@pytest.mark.parametrize("row", BAD)
def test_a_bad_row_is_named(tmp_path, row):
    make_film(tmp_path / "val" / "b", film_rows())
    make_film(tmp_path / "train" / "a", [(1, 1, 1, 1, 20, 20, 1, 1, 1), row])
    with refused(f"train/a/gt/gt.txt, {BAD[row]}"):
        read(tmp_path)


def test_bad_folders_are_one_line(tmp_path):
    root = make_mot(tmp_path)
    with refused("--dataset mot needs --dataset_mot ROOT"):
        datasets.select("mot")
    with refused("--dataset mot needs --dataset_mot ROOT"):
        kit.resolve("--dataset mot")
    with refused("--dataset_mot .*none: no such folder"):
        read(tmp_path / "none")
    with refused("no sequence there, nor in its train/, val/ or test/"):
        read(tmp_path / "dancetrack" / "train" / "dancetrack0001")
    with refused("36 rows of ground truth, 0 crops; left out: 36|48 rows .*: nothing is left"):
        read(root, mot_min_side=50)
    with refused("only with --mot_split sequences|has no effect"):
        read(root, mot_test_sequences=["dancetrack0001"])
    for frame in (root / "val" / "dancetrack0004" / "img1").iterdir():
        frame.unlink()
    with refused("dancetrack0004/img1: no frames such as 000001.jpg"):
        read(root)


def test_missing_frames_are_left_out_if_the_user_says_so(tmp_path):
    root = make_mot(tmp_path)
    (root / "train" / "dancetrack0001" / "img1" / "00000003.jpg").unlink()
    with refused("dancetrack0001/gt/gt.txt, row 3: frame 3 is not in"):
        read(root)
    splits = read(root, allow_partial_dataset=True)
    assert len(splits["training"]) == 30 and "2 listed files are missing" in splits["training"].partial


def test_half_needs_the_length(tmp_path):
    root = make_mot(tmp_path, "mot17")
    for path in root.glob("train/*/seqinfo.ini"):
        path.write_text("[Sequence]\nseqLength=many\n")
    with refused("seqinfo.ini: seqLength 'many', expected the number of frames"):
        read(root, mot_split="half")
    for path in root.glob("train/*/seqinfo.ini"):
        path.write_text("seqLength\n")
    with refused("seqinfo.ini"):
        read(root, mot_split="half")


@pytest.mark.parametrize("write", [False, True])
def test_the_table_has_the_same_crops_and_roles(tmp_path, write, capsys):
    root = make_mot(tmp_path)
    words = [str(root), "--out", str(tmp_path / "crops.csv"), "--mot_stride", "2", "--mot_gap", "3"]
    if write:
        words += ["--write", str(tmp_path / "crops")]
    table = _mot_table.main(words)
    assert "written" in capsys.readouterr().out
    direct = read(root, mot_stride=2, mot_gap=3)
    splits = datasets.select("csv", dataset_csv=str(table), input_size=8)
    assert names(splits) == names(direct)
    for split in SPLITS:
        from_table = splits[split]
        films = direct[split]
        assert len(from_table) == len(films) >= 8
        assert all(torch.equal(from_table.original(row), films.original(row)) for row in range(len(films)))
        for name in ("is_query", "is_gallery", "frames", "cameras", "sequences"):
            assert np.array_equal(getattr(from_table, name), getattr(films, name)), name
        assert from_table.sequence_names == films.sequence_names and (from_table.boxes is None) == write
    if write:
        with refused("--write .*crops: it exists already"):
            _mot_table.main(words)


def test_the_table_of_halves_and_what_no_table_holds(tmp_path):
    words = [str(make_mot(tmp_path, "mot17")), "--out", str(tmp_path / "crops.csv"), "--mot_split", "half"]
    _mot_table.main(words)
    splits = datasets.select("csv", dataset_csv=str(tmp_path / "crops.csv"), input_size=8)
    assert splits["validation"] is None and names(splits)["testing"][0] == "test_MOT17-02-FRCNN_1"
    words = [str(make_mot(tmp_path)), "--out", str(tmp_path / "b.csv"), "--mot_val_sequences", "dancetrack0002"]
    with refused("a table of --dataset csv has no validation part"):
        _mot_table.main(words)
    assert not (tmp_path / "b.csv").exists()
    with refused("--mot_test_sequences .*--mot_split"):
        _mot_table.main([*words[:3], "--mot_test_sequences", "dancetrack0002"])
    with refused("the folder .* does not exist"):
        _mot_table.main([words[0], "--out", str(tmp_path / "none" / "b.csv")])


def test_the_preset_of_small_networks_trains_on_films(tmp_path, capsys):
    words = kit.words_of("--config tracks_mot --bs 8 --mot_gap 3 --dataset_mot", make_mot(tmp_path))
    output = kit.pass_dry_run(words, capsys)
    assert "48 rows of ground truth" in output and "osnet_x0_25" in output


@pytest.mark.long
def test_the_command_of_the_table(tmp_path):
    root = make_mot(tmp_path)
    done = kit.program("-m", "datasets.mot", root, "--out", tmp_path / "crops.csv", "--mot_stride", 2)
    assert done.returncode == 0 and "24 crops" in done.stdout and not done.stderr
    done = kit.program("-m", "datasets.mot", root / "val", "--out", tmp_path / "a.csv")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "error: --dataset_mot" in done.stderr
