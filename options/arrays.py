"""Flags of images and of backbones under `--dataset arrays`, whose rows are the features: they are refused."""

import architectures
import datasets

# flags of networks that are of the layers behind the backbone
OF_HEAD = {"embed_hidden", "head_init", "neck", "neck_feature"}
OF_BACKBONE = ("freeze_backbone_steps", "warmup_head_epochs", "channels_last")
OF_IMAGES = (
    *("resize_size", "eval_resize_size", "resize_mode", "crop_size", "eval_long_side", "crop_scale", "crop_ratio"),
    *("pad_crop", "color_jitter", "auto_augment", "randaugment", "random_erasing", "download", "decode_once"),
    *("image_cache", "image_cache_side", "max_image_pixels", "augmentation", "eval_scales", "views"),
)
# flag -> its value without effect, where this is not None, False or 0
UNCHANGED = {"augmentation": "none", "eval_scales": [1], "views": 1}


def wrong(opt):
    """Yield a line for each flag without a meaning for the rows, and for rows that the network does not take."""
    if datasets.width(opt) is None:
        if architectures.takes_features(opt.arch) and opt.job != "evaluate":
            yield f"--arch {opt.arch} has no backbone: it takes the rows of --dataset arrays, not images"
        return
    unchanged = {**vars(datasets.REGISTRY.options()), **vars(architectures.REGISTRY.options()), **UNCHANGED}
    of_backbone = [*OF_BACKBONE, *sorted(architectures.REGISTRY.flags() - OF_HEAD)]
    reasons = dict.fromkeys(of_backbone, "features, and there is no backbone")
    reasons |= dict.fromkeys(OF_IMAGES, "features, not images")
    # flags that were not typed are those of the run that is evaluated
    if opt.job == "evaluate":
        reasons = {flag: reason for flag, reason in reasons.items() if flag in opt.typed}
    for flag, reason in reasons.items():
        if getattr(opt, flag) not in (None, False, 0, unchanged.get(flag)):
            yield f"--{flag}: the rows of --dataset {opt.dataset} are {reason}: leave it out"
