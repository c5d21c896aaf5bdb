"""Rules on the flags of the split that no declaration of a flag can hold: dates, shares, files, groups."""

from datasets import _groups, _oodml, _schemes, _split_file, _times
from options.flags.shared import has_folds
from utilities.errors import UserError

# default of --split_test_start
DEFAULT_START = 0.5


def check(opt) -> None:
    """Refuse flags that no data set can satisfy. Raises UserError."""
    if opt.split_file is not None and opt.split_scheme != "predefined":
        raise UserError(
            f"--split_file is read by --split_scheme predefined alone, not by {opt.split_scheme}: leave one of them out"
        )
    _oodml.check(opt)
    _groups.check(opt)
    _check_times(opt)
    if not has_folds(vars(opt)):
        return
    if opt.use_tv_split:
        raise UserError(
            f"--use_tv_split cuts validation from --split_scheme half, and {opt.split_scheme} has its own: leave it out"
        )
    if opt.split_scheme == "predefined":
        _check_predefined(opt)
    else:
        _check_folds(opt)


def _check_predefined(opt) -> None:
    scheme = f"--split_scheme {opt.split_scheme}"
    if opt.split_shuffle is not None:
        raise UserError(
            f"--split_shuffle {opt.split_shuffle}: {scheme} names the content of each split, so there is no order to "
            "shuffle. Leave it out"
        )
    if opt.split_file is None:
        raise UserError(f"{scheme} needs --split_file splits.json: train, val and test with class names or image paths")
    _split_file.read(opt.split_file)


def _check_times(opt) -> None:
    if opt.split_scheme == "time_cutoff" and opt.split_time is None:
        raise UserError("--split_scheme time_cutoff needs --split_time DATE: images before it train, the others test")
    for flag in ("split_time", "split_time_end"):
        text = getattr(opt, flag)
        if text is not None and _times.seconds(text) is None:
            raise UserError(f"--{flag} {text}: {_times.EXPECTED}")
    if opt.split_time is None or opt.split_time_end is None:
        return
    if _times.end(opt.split_time_end) <= _times.seconds(opt.split_time):
        raise UserError(
            f"--split_time_end {opt.split_time_end} is before --split_time {opt.split_time}: no image tests"
        )


def _check_folds(opt) -> None:
    if not 0 < opt.split_test_size < 1:
        raise UserError(f"--split_test_size {opt.split_test_size:g}: expected a share between 0 and 1, both excluded")
    if not 0 <= opt.split_test_start < 1:
        raise UserError(f"--split_test_start {opt.split_test_start:g}: expected a share from 0 to below 1")
    if opt.split_scheme == "closed_set" and _groups.kinds(opt) and opt.split_test_start != DEFAULT_START:
        raise UserError(
            f"--split_test_start {opt.split_test_start:g} has no effect with --split_scheme closed_set and "
            "--split_groups, which takes whole groups in their order: leave one out"
        )
    if opt.split_partitions < 2:
        raise UserError(
            f"--split_partitions {opt.split_partitions} must be at least 2: one part validates while the others train"
        )
    if not 1 <= _schemes.sets(opt) <= opt.split_partitions:
        raise UserError(f"--split_sets {opt.split_sets} must be from 1 to --split_partitions {opt.split_partitions}")
