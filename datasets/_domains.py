"""What data sets of several domains share.

A class belongs to its domain and carries the domain's name; a domain is the super-class of its classes. Two domains may
so have classes of the same name, and a hit needs the same class and the same domain.
"""

import itertools
from collections import Counter, defaultdict

from datasets._images import Image
from datasets._layout import Reading
from utilities.splits import WORDS


def placed(image: Image, domain: str) -> Image:
    """The image with the class `<domain>/<class>` and the domain as super-class, without the levels between them."""
    group = image.group and f"{domain}/{image.group}"
    # a distractor
    if image.class_name is None:
        return image._replace(group=group)
    return image._replace(
        class_name=f"{domain}/{image.class_name}",
        super_name=domain,
        higher_names=(),
        sequence=image.sequence and f"{domain}/{image.sequence}",
        further_names=tuple(f"{domain}/{name}" for name in image.further_names),
        group=group,
    )


def validation_groups(names: list[str]) -> list[list[str]]:
    """The training classes of each domain: each list is cut for validation by itself."""
    return [list(group) for _, group in itertools.groupby(names, key=lambda name: name.partition("/")[0])]


def notes(reading: Reading) -> list[str]:
    """A line on each domain: how many images of how many classes each of its splits has."""
    n_images = Counter()
    classes = defaultdict(dict)  # (domain, split) -> its classes
    for image, split in zip(reading.images, reading.split_of, strict=True):
        # no distractor
        if image.super_name:
            n_images[image.super_name, split] += 1
            classes[image.super_name, split][image.class_name] = True
    lines = []
    for domain in dict.fromkeys(domain for domain, _ in classes):
        counts = [
            f"{name} {n_images[domain, split]:,} images of {len(classes[domain, split]):,} classes"
            for split, name in WORDS.items()
            if n_images[domain, split]
        ]
        lines.append(f"domain {domain}: {', '.join(counts)}")
    return lines
