"""The registries of plug-ins: by their kind, and by the flag that names a plug-in."""

import architectures
import batch_mining
import criteria
import datasampler
import datasets
import trainers

# in the order in which their flags are listed
REGISTRIES = {
    "datasets": datasets.REGISTRY,
    "architectures": architectures.REGISTRY,
    "samplers": datasampler.REGISTRY,
    "trainers": trainers.REGISTRY,
    "losses": criteria.REGISTRY,
    "miners": batch_mining.REGISTRY,
}
# flag -> the registry of its values
NAMED = {
    "dataset": datasets.REGISTRY,
    "data_sampler": datasampler.REGISTRY,
    "trainer": trainers.REGISTRY,
    "loss": criteria.REGISTRY,
    "batch_mining": batch_mining.REGISTRY,
}
