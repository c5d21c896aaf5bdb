"""The flags that every data set reads: its location, its split, the augmentation of its images.

`_reading.py` reads those of the location, `_splits.py` and `_schemes.py` those of the split, `_transforms.py` those of
the images. The flags of one data set are in its own module.
"""

from options.flags import Flag
from options.flags.roles import DATA, EVALUATION, METHOD, PLACE
from options.flags.shared import OF_KNOWN_CLASSES
from utilities.numbers import OneOrTwo, number, whole

# the schemes that cut folds
FOLD_SCHEMES = ["class_disjoint", "mlrc", "closed_set", "index"]
FOLDS = {"split_scheme": FOLD_SCHEMES}

FLAGS = {
    "--source_path": Flag(
        str,
        None,
        "parent folder of the data sets, or one data set's own folder (default: ./Datasets; glyphs: the user's "
        "cache folder)",
        aliases=("--source", "--dataset_root"),
        role=PLACE,
    ),
    "--dataset_name": Flag(
        str,
        None,
        "name of the data in tables, for data such as those of a folder (unset: --dataset)",
        metavar="NAME",
        role=DATA.but(fixed=None),
    ),
    "--download": Flag(
        bool,
        False,
        "download cub200, cars196, online_products or inaturalist2018 if it is missing: resumable, MD5-checked",
        role=PLACE,
    ),
    "--allow_partial_dataset": Flag(
        bool,
        False,
        "accept a data set whose counts are not the published ones; the run records it",
        role=DATA.but(fixed=None, compared=False),
    ),
    "--dataset_unknown_label": Flag(
        str,
        None,
        "labels of folder, csv and shards that stand for no class, such as unknown: test images in the gallery "
        "become distractors, others are left out",
        nargs="+",
        metavar="LABEL",
        role=DATA,
    ),
    "--dataset_fixes": Flag(
        str,
        None,
        "table of wrong labels, duplicates and images of no class in folder, csv and shards, as the explorer's page "
        "saves it (docs/retrieval.md): its images get the class in the column right_label, or are left out",
        metavar="FILE",
        # the run keeps a copy
        role=DATA.but(moves=True),
    ),
    # Division into training, validation and test
    "--label_level_train": Flag(
        whole(),
        0,
        "labels used in training: 0 the classes, 1 the super-classes (online_products, inshop, inaturalist2018, "
        "glyphs, csv, shards, folder X/<super>/<class>/); those of evaluation: --label_hierarchy_level",
        choices=[0, 1],
    ),
    "--use_tv_split": Flag(bool, False, "cut a validation split from the training classes"),
    "--tv_split_by_samples": Flag(
        bool, False, "cut validation from each class's images, not from the classes", rules={"needs": "use_tv_split"}
    ),
    "--tv_split_perc": Flag(
        number(above=0, below=1),
        0.8,
        "share of the training classes (or of each class's images) that stays in training",
        rules={"needs": "use_tv_split"},
    ),
    "--split_scheme": Flag(
        str,
        "half",
        "how the data are split into training, validation and test. half: the first half of the classes trains, "
        "the second tests; class_disjoint: folds of whole classes; mlrc: the folds of the Reality Check; closed_set: "
        "folds of images, all classes in each; index: folds of images whatever their class; predefined: --split_file; "
        "oodml: the class lists of --oodml_file. In one run without folds, with the same classes in training and test: "
        "time_proportion: the first dates of each class train, its last ones test; time_cutoff: images before "
        "--split_time train, later ones test; open_set: some classes test alone, of the others some images train",
        choices=["half", *FOLD_SCHEMES, "predefined", "oodml", *OF_KNOWN_CLASSES],
    ),
    "--split_groups": Flag(
        str,
        ["none"],
        "images that stay on one side of every split, several at once. sequence: those of one sequence, burst: of one "
        "class (and camera) taken within --burst_seconds of the next; FILE: a table with the columns path and group, "
        "or of pairs of paths such as near_duplicates.csv of python -m evaluation.overlap; with any of these also "
        "those of one group (--dataset csv)",
        nargs="+",
        metavar="none|sequence|burst|FILE",
        role=DATA.but(fixed=None, moves=True),
    ),
    "--burst_seconds": Flag(
        number(0),
        60.0,
        "longest pause, in seconds, between two images of a burst",
        metavar="S",
        rules={"only_with": {"split_groups": ["burst"]}},
    ),
    "--split_time": Flag(
        str,
        None,
        "images taken before this date train, the others test: 2024-05-31, 2024-05-31 14:05:00, or a year",
        metavar="DATE",
        rules={"only_with": {"split_scheme": ["time_cutoff"]}},
    ),
    "--split_time_end": Flag(
        str,
        None,
        "the last date (or year) that tests; later images are left out (unset: all)",
        metavar="DATE",
        rules={"only_with": {"split_scheme": ["time_cutoff"]}},
    ),
    "--split_unknown": Flag(
        number(above=0, below=1),
        0.1,
        "share of the images whose classes test alone, unknown to training",
        rules={"only_with": {"split_scheme": ["open_set"]}},
    ),
    "--split_shuffle": Flag(
        whole(0),
        None,
        "shuffle the classes (and the images, where these are split) before the split into training, validation "
        "and test; a published test set, or one given by folders, stays (unset: blocks of the order, which in most "
        "data sets is that of the names)",
        metavar="SEED",
    ),
    # Schemes with folds
    "--split_test_size": Flag(
        number(above=0, below=1),
        0.5,
        "share of the classes (or images) in test, the same in every fold; of each class's dates in time_proportion",
        rules={"only_with": {"split_scheme": [*FOLD_SCHEMES, "time_proportion", "open_set"]}},
    ),
    "--split_test_start": Flag(
        number(0, below=1),
        0.5,
        "position in the order of the classes at which test begins, as a share; it wraps around the end",
        rules={"only_with": FOLDS},
    ),
    "--split_partitions": Flag(
        whole(2, 1000),
        4,
        "parts into which the data outside test are split: one validates while the others train",
        rules={"only_with": FOLDS},
    ),
    "--split_sets": Flag(
        whole(1, 1000),
        None,
        "number of folds: how many of the parts serve as validation, one in each fold (unset: all of "
        "--split_partitions)",
        rules={"only_with": FOLDS},
    ),
    "--split_file": Flag(
        str,
        None,
        "JSON of --split_scheme predefined: train, val (may be left out), test -> list of class names or image paths",
        metavar="FILE",
        role=DATA.but(fixed=None, moves=True),
    ),
    "--evaluate_all": Flag(
        bool,
        False,
        "with --evaluate on other data (--dataset and its flags): all its images, those of training too, are one "
        "split, test",
        role=DATA.but(compared=False),
    ),
    # Resizing, cropping and augmentation
    "--augmentation": Flag(
        str,
        None,
        "training transform (default: base; glyphs: shift). base: RandomResizedCrop, flip; adv: base with grey "
        "and colour jitter; big: base at 256; red: short side 256, random crop, flip; mlrc: short side 256, "
        "RandomResizedCrop 227 of .16-1, flip; plain: 256 x 256, random crop 227, flip; shift: the test transform "
        "moved by at most 2 pixels; none: the test transform. Glyphs are never cropped or mirrored: base means shift "
        "there",
        choices=["base", "adv", "big", "red", "mlrc", "plain", "shift", "none"],
        role=METHOD,
    ),
    "--resize_size": Flag(
        whole(1, 10**4),
        None,
        "short side that images get before the crop, in training and test (default: the preset's)",
        role=METHOD,
    ),
    "--eval_resize_size": Flag(
        whole(1, 10**4), None, "as --resize_size, of test images alone (unset: that of --resize_size)", role=EVALUATION
    ),
    "--resize_mode": Flag(
        str,
        None,
        "resize before the crop, in training and test. short: the short side gets --resize_size; squash: the "
        "whole image gets the crop's ratio, its longer side --resize_size; long: the long side gets it, black where "
        "the crop is larger; none: no resize (default: the preset's)",
        choices=["short", "squash", "long", "none"],
        role=METHOD,
    ),
    "--crop_size": Flag(
        whole(1, 10**4),
        None,
        "side of the crop, or height and width, in training and test (default: the preset's, else the network's input)",
        nargs="+",
        metavar=("H", "W"),
        action=OneOrTwo,
        role=METHOD,
    ),
    "--eval_long_side": Flag(
        whole(0, 10**5),
        None,
        "images are evaluated in their own shape, whole, in batches of one: the long side at most N pixels, "
        "never enlarged; what is cut from a box gets the scale of its whole image; 0: the test transform (unset: 0; "
        "Oxford and Paris: 1024)",
        metavar="N",
        role=EVALUATION,
    ),
    # Crops and other fixed steps of the training transform
    "--crop_scale": Flag(
        number(above=0, most=1),
        None,
        "least and greatest share of the area in RandomResizedCrop (default: the preset's)",
        nargs=2,
        role=METHOD,
    ),
    "--crop_ratio": Flag(
        number(0.1, 10),
        None,
        "least and greatest width by height in RandomResizedCrop (default: the preset's)",
        nargs=2,
        role=METHOD,
    ),
    "--pad_crop": Flag(
        whole(0, 1000),
        0,
        "pixels of black border on each side before the random crop of red and plain",
        metavar="P",
        role=METHOD,
    ),
    # What is added to the training transform of any --augmentation but none
    "--color_jitter": Flag(
        number(0),
        None,
        "change brightness, contrast, saturation and hue by up to these shares (unset: the preset's: .2 each "
        "under adv)",
        nargs=4,
        metavar=("B", "C", "S", "H"),
        role=METHOD,
    ),
    "--color_jitter_p": Flag(
        number(0, 1),
        None,
        "share of the images that it changes (unset: 1)",
        metavar="P",
        role=METHOD,
        rules={"needs": "color_jitter"},
    ),
    "--auto_augment": Flag(
        number(0, 1), 0.0, "share of the images that get AutoAugment's policy for ImageNet", metavar="P", role=METHOD
    ),
    "--randaugment": Flag(
        whole(1, 30), None, "RandAugment: N operations of magnitude M, of 30", nargs=2, metavar=("N", "M"), role=METHOD
    ),
    # Random Erasing
    "--random_erasing": Flag(
        number(0, 1),
        0.0,
        "Random Erasing: share of the training images that lose a rectangle, after normalisation, on the device",
        metavar="P",
        role=METHOD,
    ),
    "--random_erasing_area": Flag(
        number(above=0, most=1),
        None,
        "its least and greatest share of the image (unset: .02 .4)",
        nargs=2,
        role=METHOD,
        rules={"needs": "random_erasing"},
    ),
    "--random_erasing_ratio": Flag(
        number(0.1, 10),
        None,
        "its least and greatest height by width (unset: .3 3.333)",
        nargs=2,
        role=METHOD,
        rules={"needs": "random_erasing"},
    ),
    "--random_erasing_aspect": Flag(
        str,
        None,
        "how height by width is drawn: uniformly (Zhong et al., BoT, IBC), or its logarithm uniformly "
        "(torchvision, FastReID, timm) (unset: uniform)",
        choices=["uniform", "log"],
        role=METHOD,
        rules={"needs": "random_erasing"},
        before=lambda saved: "log" if saved.get("random_erasing") else None,
    ),
    "--random_erasing_value": Flag(
        number(),
        None,
        "its value after normalisation, one number or three (RGB): 0 is the mean colour, that of FastReID; BoT "
        "has .485 .456 .406 (unset: 0)",
        nargs="+",
        metavar="V",
        role=METHOD,
        rules={"needs": "random_erasing"},
    ),
}
