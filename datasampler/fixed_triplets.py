"""A fixed set of triplets, drawn once from the seed and shuffled every epoch; goes with the miner packaged."""

import torch

from datasampler._triplets import TripletSampler

GIVES_TRIPLETS = True


class Sampler(TripletSampler):
    """bs / 3 triplets a batch: rows 3t and 3t + 1 are of one class, 3t + 2 of another one.

    The set depends on --seed, the data and --data_fixed_triplets_n only. Triplets that do not fill a batch are left out
    of the epoch.
    """

    def __init__(self, opt, image_dict: dict, image_list: list):
        super().__init__(opt, image_dict, image_list)
        self.require_batch(f"--data_fixed_triplets_n {opt.data_fixed_triplets_n}")
        with torch.random.fork_rng(devices=[]):
            # the seed of the CPU alone: the states of the GPUs stay as they are
            torch.default_generator.manual_seed(opt.seed)
            self.triplets = self.draw_triplets(self.n_triplets)

    def draw_epoch(self) -> torch.Tensor:
        """Indices `(batches, bs)`."""
        return self.shuffled(self.triplets)

    def state_dict(self) -> dict:
        """The set, `{"triplets": (n, 3)}`."""
        return {"triplets": self.triplets}

    def load_state_dict(self, state: dict) -> None:
        """Load a set; one of another size, as --data_fixed_triplets_n has changed, is ignored. Raises ValueError for
        one of other data.
        """
        triplets = state.get("triplets", self.triplets)
        if triplets.ndim != 2 or triplets.shape[1] != 3 or triplets.min() < 0 or triplets.max() >= self.n_images:
            raise ValueError(f"the triplets {tuple(triplets.shape)} are not of the {self.n_images} training images")
        if len(triplets) == self.n_triplets:
            self.triplets = triplets.clone()
