"""What data sets of several domains share: a class belongs to its domain, and carries its name; a domain is the
super-class of its classes.

Two domains may so have classes of the same name, and a hit needs the same class and the same domain.
"""

import itertools
from collections import Counter

from datasets._images import Image
from datasets._layout import Reading

SPLIT_NAMES = {"train": "training", "val": "validation", "test": "test"}


def placed(image: Image, domain: str) -> Image:
    """The image as one of a domain: `<domain>/<class>`, whose super-class is the domain. What lies between the two is
    left out.
    """
    if image.class_name is None:  # a distractor
        return image
    return image._replace(
        class_name=f"{domain}/{image.class_name}",
        super_name=domain,
        higher_names=(),
        sequence=image.sequence and f"{domain}/{image.sequence}",
        further_names=tuple(f"{domain}/{name}" for name in image.further_names),
    )


def validation_groups(names: list[str]) -> list[list[str]]:
    """The training classes of each domain: each list is cut for validation by itself."""
    return [list(of) for _, of in itertools.groupby(names, key=lambda name: name.partition("/")[0])]


def notes(reading: Reading) -> list[str]:
    """A line on each domain: how many images of how many classes each of its splits has."""
    classes = dict.fromkeys(
        (image.super_name, split, image.class_name)
        for image, split in zip(reading.images, reading.split_of, strict=True)
        if image.super_name
    )
    n_classes = Counter((domain, split) for domain, split, _ in classes)
    n_images = Counter((image.super_name, split) for image, split in zip(reading.images, reading.split_of, strict=True))
    return [
        f"domain {domain}: "
        + ", ".join(
            f"{name} {n_images[domain, split]:,} images of {n_classes[domain, split]:,} classes"
            for split, name in SPLIT_NAMES.items()
            if n_images[domain, split]
        )
        for domain in dict.fromkeys(domain for domain, _ in n_classes)
    ]
