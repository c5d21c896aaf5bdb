"""The flags that every data set reads: its location, its split, the augmentation of its images.

`_reading.py` reads those of the location, `_splits.py` and `_schemes.py` those of the split, `_transforms.py` those of
the images. The flags of one data set are in its own module.
"""

from options.flags.roles import DATA, EVALUATION, METHOD, PLACE
from utilities.numbers import OneOrTwo, number, whole

FOLDS = {"split_scheme": ["class_disjoint", "mlrc", "closed_set", "index"]}  # the schemes that cut folds


def add_arguments(group) -> None:
    """Declare the flags that the data sets share."""
    group.add_argument(
        "--source_path",
        "--source",
        "--dataset_root",
        default=None,
        help=(
            "parent folder of the data sets, or one data set's own folder (default: ./Datasets; glyphs: the user's "
            "cache folder)"
        ),
    ).role = PLACE
    group.add_argument(
        "--dataset_name",
        default=None,
        metavar="NAME",
        help="name of the data in tables, for data such as those of a folder (unset: --dataset)",
    ).role = DATA.but(fixed=None)
    group.add_argument(
        "--download",
        action="store_true",
        help="download cub200, cars196, online_products or inaturalist2018 if it is missing: resumable, MD5-checked",
    ).role = PLACE
    group.add_argument(
        "--allow_partial_dataset",
        action="store_true",
        help="accept a data set whose counts are not the published ones; the run records it",
    ).role = DATA.but(fixed=None, compared=False)
    group.add_argument(
        "--dataset_unknown_label",
        nargs="+",
        default=None,
        metavar="LABEL",
        help="labels of folder, csv and shards that stand for no class, such as unknown: test images in the gallery "
        "become distractors, others are left out",
    ).role = DATA
    _split(group)
    _images(group)


def _split(group) -> None:
    """Declare the flags of the division into training, validation and test."""
    group.add_argument(
        "--label_level_train",
        type=whole(),
        default=0,
        choices=[0, 1],
        help="labels used in training: 0 the classes, 1 the super-classes (online_products, inshop, inaturalist2018, "
        "glyphs, csv, shards, folder X/<super>/<class>/); those of evaluation: --label_hierarchy_level",
    )
    group.add_argument("--use_tv_split", action="store_true", help="cut a validation split from the training classes")
    group.add_argument(
        "--tv_split_by_samples",
        action="store_true",
        help="cut validation from each class's images, not from the classes",
    ).needs = "use_tv_split"
    group.add_argument(
        "--tv_split_perc",
        type=number(above=0, below=1),
        default=0.8,
        help="share of the training classes (or of each class's images) that stays in training",
    ).needs = "use_tv_split"
    group.add_argument(
        "--split_scheme",
        default="half",
        choices=["half", "class_disjoint", "mlrc", "closed_set", "index", "predefined", "oodml"],
        help="how the data are split into training, validation and test. half: the first half of the classes trains, "
        "the second tests; class_disjoint: folds of whole classes; mlrc: the folds of the Reality Check; closed_set: "
        "folds of images, all classes in each; index: folds of images whatever their class; predefined: --split_file; "
        "oodml: the class lists of --oodml_file, one run without folds",
    )
    group.add_argument(
        "--split_shuffle",
        type=whole(0),
        default=None,
        metavar="SEED",
        help="shuffle the classes (and the images, where these are split) before the split into training, validation "
        "and test; a published test set, or one given by folders, stays (unset: blocks of the order, which in most "
        "data sets is that of the names)",
    )
    _folds(group)


def _folds(group) -> None:
    """Declare the flags of the schemes with folds."""
    group.add_argument(
        "--split_test_size",
        type=number(above=0, below=1),
        default=0.5,
        help="share of the classes (or images) in test, the same in every fold",
    ).only_with = FOLDS
    group.add_argument(
        "--split_test_start",
        type=number(0, below=1),
        default=0.5,
        help="position in the order of the classes at which test begins, as a share; it wraps around the end",
    ).only_with = FOLDS
    group.add_argument(
        "--split_partitions",
        type=whole(2, 1000),
        default=4,
        help="parts into which the data outside test are split: one validates while the others train",
    ).only_with = FOLDS
    group.add_argument(
        "--split_sets",
        type=whole(1, 1000),
        default=None,
        help=(
            "number of folds: how many of the parts serve as validation, one in each fold (unset: all of "
            "--split_partitions)"
        ),
    ).only_with = FOLDS
    group.add_argument(
        "--split_file",
        default=None,
        metavar="FILE",
        help=(
            "JSON of --split_scheme predefined: train, val (may be left out), test -> list of class names or image "
            "paths"
        ),
    ).role = DATA.but(fixed=None, moves=True)
    group.add_argument(
        "--evaluate_all",
        action="store_true",
        help=(
            "with --evaluate on other data (--dataset and its flags): all its images, those of training too, are one "
            "split, test"
        ),
    ).role = DATA.but(compared=False)


def _images(group) -> None:
    """Declare the flags of resizing, cropping and augmentation."""
    group.add_argument(
        "--augmentation",
        default=None,
        choices=["base", "adv", "big", "red", "mlrc", "plain", "shift", "none"],
        help="training transform (default: base; glyphs: shift). base: RandomResizedCrop, flip; adv: base with grey "
        "and colour jitter; big: base at 256; red: short side 256, random crop, flip; mlrc: short side 256, "
        "RandomResizedCrop 227 of .16-1, flip; plain: 256 x 256, random crop 227, flip; shift: the test transform "
        "moved by at most 2 pixels; none: the test transform. Glyphs are never cropped or mirrored: base means shift "
        "there",
    ).role = METHOD
    group.add_argument(
        "--resize_size",
        type=whole(1, 10**4),
        default=None,
        help="short side that images get before the crop, in training and test (default: the preset's)",
    ).role = METHOD
    group.add_argument(
        "--eval_resize_size",
        type=whole(1, 10**4),
        default=None,
        help="as --resize_size, of test images alone (unset: that of --resize_size)",
    ).role = EVALUATION
    group.add_argument(
        "--resize_mode",
        choices=["short", "squash", "long", "none"],
        default=None,
        help="resize before the crop, in training and test. short: the short side gets --resize_size; squash: the "
        "whole image gets the crop's ratio, its longer side --resize_size; long: the long side gets it, black where "
        "the crop is larger; none: no resize (default: the preset's)",
    ).role = METHOD
    group.add_argument(
        "--crop_size",
        type=whole(1, 10**4),
        nargs="+",
        action=OneOrTwo,
        default=None,
        metavar=("H", "W"),
        help=(
            "side of the crop, or height and width, in training and test (default: the preset's, else the network's "
            "input)"
        ),
    ).role = METHOD
    group.add_argument(
        "--eval_long_side",
        type=whole(0, 10**5),
        default=None,
        metavar="N",
        help="images are evaluated in their own shape, whole, in batches of one: the long side at most N pixels, "
        "never enlarged; what is cut from a box gets the scale of its whole image; 0: the test transform (unset: 0; "
        "Oxford and Paris: 1024)",
    ).role = EVALUATION
    _crops(group)


def _crops(group) -> None:
    """Declare the flags of the crops and of other fixed steps of the training transform."""
    group.add_argument(
        "--crop_scale",
        type=number(above=0, most=1),
        nargs=2,
        default=None,
        help="least and greatest share of the area in RandomResizedCrop (default: the preset's)",
    ).role = METHOD
    group.add_argument(
        "--crop_ratio",
        type=number(0.1, 10),
        nargs=2,
        default=None,
        help="least and greatest width by height in RandomResizedCrop (default: the preset's)",
    ).role = METHOD
    group.add_argument(
        "--pad_crop",
        type=whole(0, 1000),
        default=0,
        metavar="P",
        help="pixels of black border on each side before the random crop of red and plain",
    ).role = METHOD
    _added(group)


def _added(group) -> None:
    """Declare the flags of what is added to the training transform of any --augmentation but none."""
    group.add_argument(
        "--color_jitter",
        type=number(0),
        nargs=4,
        default=None,
        metavar=("B", "C", "S", "H"),
        help=(
            "change brightness, contrast, saturation and hue by up to these shares (unset: the preset's: .2 each "
            "under adv)"
        ),
    ).role = METHOD
    share = group.add_argument(
        "--color_jitter_p",
        type=number(0, 1),
        default=None,
        metavar="P",
        help="share of the images that it changes (unset: 1)",
    )
    share.role = METHOD
    share.needs = "color_jitter"
    group.add_argument(
        "--auto_augment",
        type=number(0, 1),
        default=0.0,
        metavar="P",
        help="share of the images that get AutoAugment's policy for ImageNet",
    ).role = METHOD
    group.add_argument(
        "--randaugment",
        type=whole(1, 30),
        nargs=2,
        default=None,
        metavar=("N", "M"),
        help="RandAugment: N operations of magnitude M, of 30",
    ).role = METHOD
    _erasing(group)


def _erasing(group) -> None:
    """Declare the flags of Random Erasing."""
    group.add_argument(
        "--random_erasing",
        type=number(0, 1),
        default=0.0,
        metavar="P",
        help="Random Erasing: share of the training images that lose a rectangle, after normalisation, on the device",
    ).role = METHOD
    area = group.add_argument(
        "--random_erasing_area",
        type=number(above=0, most=1),
        nargs=2,
        default=None,
        help="its least and greatest share of the image (unset: .02 .4)",
    )
    area.role = METHOD
    area.needs = "random_erasing"
    ratio = group.add_argument(
        "--random_erasing_ratio",
        type=number(0.1, 10),
        nargs=2,
        default=None,
        help="its least and greatest height by width (unset: .3 3.333)",
    )
    ratio.role = METHOD
    ratio.needs = "random_erasing"
    aspect = group.add_argument(
        "--random_erasing_aspect",
        choices=["uniform", "log"],
        default=None,
        help="how height by width is drawn: uniformly (Zhong et al., BoT, IBC), or its logarithm uniformly "
        "(torchvision, FastReID, timm) (unset: uniform)",
    )
    aspect.role = METHOD
    aspect.needs = "random_erasing"
    aspect.before = lambda saved: "log" if saved.get("random_erasing") else None
    value = group.add_argument(
        "--random_erasing_value",
        type=number(),
        nargs="+",
        default=None,
        metavar="V",
        help=(
            "its value after normalisation, one number or three (RGB): 0 is the mean colour, that of FastReID; BoT "
            "has .485 .456 .406 (unset: 0)"
        ),
    )
    value.role = METHOD
    value.needs = "random_erasing"
