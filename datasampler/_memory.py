"""Base of the samplers with a memory: stored embeddings of the training set, pools, the choice of an epoch's batches.

Roth et al., arXiv 2002.08473. Positions in a pool are mapped to image indices through that same pool; the published
code mapped them through another one.
"""

import torch
from tqdm import tqdm

from datasampler._base import CHUNK, BatchSampler, draw_within, random_below
from utilities.errors import UserError
from utilities.numbers import WIDEST, number, whole
from utilities.tensors import raise_half, squared_distances


def add_arguments(group) -> None:
    """Declare the flags of the samplers with a memory."""
    group.add_argument(
        "--data_batchmatch_bigbs",
        type=whole(1),
        default=512,
        help="pool that a batch is chosen from, at most as many as the data",
    )
    group.add_argument(
        "--data_batchmatch_ncomps",
        type=whole(1, 10**4),
        default=10,
        help="candidate batches per batch of the *_batchmatch samplers",
    )
    group.add_argument(
        "--data_storage_no_update",
        action="store_true",
        help="do not update the embeddings stored at the start of training",
    )
    group.add_argument(
        "--data_sampler_lowproj_dim",
        type=whole(1, WIDEST, special=-1),
        default=-1,
        help="dimensions of a random projection to choose in (-1: none)",
    )
    group.add_argument(
        "--data_mb_mom",
        type=number(0, 1, special=-1),
        default=-1,
        help="storage updates give mom * old + (1 - mom) * new (-1: the new)",
    )
    group.add_argument("--data_mb_lr", type=number(0, 1), default=1, help="step of the storage towards its update")


def pool_distances(embeddings: torch.Tensor) -> torch.Tensor:
    """Squared distances `(b, P, P)` within each pool of `embeddings` `(b, P, D)`."""
    return torch.vmap(squared_distances)(embeddings)


class StoringSampler(BatchSampler):
    """Keeps an embedding of every training image. A subclass defines `precompute_indices`, which sets `epoch`.

    The storage stays on the embeddings' device, so that an update does not wait for the device.
    """

    requires_storage = True

    def __init__(self, opt, image_dict: dict, image_list: list):
        super().__init__(opt, image_dict, image_list)
        self.projected_dim = opt.data_sampler_lowproj_dim
        self.update_storage = not opt.data_storage_no_update
        self.update_rate = opt.data_mb_lr * (1 - max(opt.data_mb_mom, 0))
        self.storage = None  # (number of images, D)
        self.epoch = None  # (batches, bs)

    @torch.no_grad()
    def create_storage(self, loader, model: torch.nn.Module, device) -> None:
        """Embed the training set with `model` in evaluation mode; every module's mode is restored.

        Args:
            loader: yields `(labels, images, indices)` over the training set,
            images `(b, 3, H, W)`, indices into `image_list`.
            model: `model(images) -> (embeddings (b, D), features)`.
            device: where model and storage live.

        Raises ValueError where the loader leaves out an image.
        """
        storage = None
        is_stored = torch.zeros(self.n_images, dtype=torch.bool)
        modes = {module: module.training for module in model.modules()}
        model.eval()
        try:
            for _, images, indices in tqdm(loader, desc="storage of embeddings", leave=False, disable=None):
                output = model(images.to(device, non_blocking=True))
                if isinstance(output, tuple):
                    output = output[0]
                embeddings = raise_half(output)
                if storage is None:
                    storage = embeddings.new_zeros(self.n_images, embeddings.shape[1])
                indices = torch.as_tensor(indices)
                storage.index_copy_(0, indices.to(embeddings.device), embeddings)
                is_stored[indices.cpu()] = True
        finally:
            for module, mode in modes.items():
                module.training = mode
        if not is_stored[self.images].all():
            raise ValueError(f"the loader of the storage gave {int(is_stored.sum())} of {self.n_images} images")
        self.storage = storage

    @torch.no_grad()
    def replace_storage_entries(self, embeddings: torch.Tensor, indices: torch.Tensor) -> None:
        """Store `embeddings` `(B, D)` of the images `indices` `(B,)`;
        of an image that occurs twice the last embedding counts.

        Does nothing under `--data_storage_no_update`.
        """
        if not self.update_storage:
            return
        # a storage from a checkpoint may be on another device
        self.storage = self.require_storage().to(embeddings.device)
        indices = torch.as_tensor(indices).to(embeddings.device, non_blocking=True)
        same_images = indices[:, None] == indices[None, :]  # (B, B)
        # equal rows write equal values: deterministic on every device
        last = len(indices) - 1 - same_images.flip(1).int().argmax(1)
        new = embeddings.to(self.storage.dtype).index_select(0, last)
        old = self.storage.index_select(0, indices)
        self.storage.index_copy_(0, indices, torch.lerp(old, new, self.update_rate))

    def require_storage(self) -> torch.Tensor:
        """The storage; RuntimeError if there is none yet."""
        if self.storage is None:
            raise RuntimeError("the sampler has no storage yet: call create_storage(loader, model, device) first")
        return self.storage

    def projected(self) -> torch.Tensor:
        """The stored embeddings, randomly projected to `--data_sampler_lowproj_dim` where that is given and smaller."""
        storage = self.require_storage()
        if not 0 < self.projected_dim < storage.shape[1]:
            return storage
        directions = torch.randn(storage.shape[1], self.projected_dim, dtype=torch.float32) / self.projected_dim**0.5
        return storage @ directions.to(storage)

    def draw_epoch(self) -> torch.Tensor:
        """The batches that `precompute_indices` chose, `(batches, bs)`; RuntimeError before its first call."""
        if self.epoch is None:
            raise RuntimeError(
                "the sampler has chosen no batches yet: call precompute_indices() at the start of each epoch"
            )
        return self.epoch

    def state_dict(self) -> dict:
        """The storage, `{"storage": (number of images, D)}`; empty before it is created."""
        return {} if self.storage is None else {"storage": self.storage}

    def load_state_dict(self, state: dict) -> None:
        """Load a storage. Raises ValueError where it has another number of images, width or precision."""
        storage = state.get("storage")
        if storage is None:
            raise ValueError("it holds no embeddings of the training images, as a sampler without them leaves none")
        if self.storage is not None and (storage.shape[1:], storage.dtype) != (
            self.storage.shape[1:],
            self.storage.dtype,
        ):
            raise ValueError(
                f"the storage is {storage.dtype} {tuple(storage.shape)}, this network's {self.storage.dtype} "
                f"{tuple(self.storage.shape)}"
            )
        if len(storage) != self.n_images:
            raise ValueError(f"the storage holds {len(storage)} embeddings, the training data {self.n_images} images")
        self.storage = storage.clone()


class MemorySampler(StoringSampler):
    """Chooses the batches of an epoch from pools, by the stored embeddings.
    A subclass defines `draw_pools` and `choose`.

    Raises UserError for a pool that is smaller than what is chosen from it.
    """

    def __init__(self, opt, image_dict: dict, image_list: list):
        super().__init__(opt, image_dict, image_list)
        self.split_batch(opt)
        self.pool_size = min(opt.data_batchmatch_bigbs, len(self.images))
        self.class_of_slot = torch.arange(len(self.classes)).repeat_interleave(self.class_sizes)
        # image -> class
        self.class_of = torch.full((self.n_images,), -1).index_copy_(0, self.images, self.class_of_slot)

    def require_pool(self, smallest: int) -> None:
        """UserError where the pool is smaller than what is chosen from it."""
        if self.pool_size < smallest:
            raise UserError(
                f"--data_batchmatch_bigbs {self.pool_size} is too small to choose {smallest} samples from: raise it."
            )

    def draw_pools(self) -> torch.Tensor:
        """Indices of a pool for every batch, `(batches, P)`."""
        raise NotImplementedError

    def choose(self, pools: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        """Indices `(b, bs)` of the batches chosen from `pools` `(b, P)` with `embeddings` `(b, P, D)`."""
        raise NotImplementedError

    def entries(self, pool_size: int, stored: torch.Tensor) -> int:
        """Entries of the largest tensor that choosing one batch takes, for embeddings like `stored` `(N, D)`."""
        # Distances in float64 are computed from differences, of D entries each.
        return pool_size**2 * (stored.shape[1] if stored.dtype == torch.float64 else 1)

    @torch.no_grad()
    def precompute_indices(self) -> None:
        """Choose all batches of the next epoch from the storage."""
        stored = self.projected()
        pools = self.draw_pools()
        batches = []
        chunks = pools.split(max(1, CHUNK // self.entries(pools.shape[1], stored)))
        for chunk in tqdm(chunks, desc="batches of the epoch", leave=False, disable=None):
            embeddings = stored.index_select(0, chunk.flatten().to(stored.device)).view(*chunk.shape, -1)
            batches.append(self.choose(chunk, embeddings))
        self.epoch = torch.cat(batches)


class CoresetSampler(MemorySampler):
    """Chooses anchors one by one from a pool of distinct samples, and adds samples of each anchor's whole class.

    A subclass defines `first_anchors` and `next_anchors`.
    """

    def __init__(self, opt, image_dict: dict, image_list: list):
        super().__init__(opt, image_dict, image_list)
        self.require_pool(self.classes_per_batch)
        places = torch.arange(len(self.images)) - self.class_starts[self.class_of_slot]
        # image -> its place in the class
        self.place_of = torch.full((self.n_images,), -1).index_copy_(0, self.images, places)

    def draw_pools(self) -> torch.Tensor:
        """Indices `(batches, P)`, distinct in a row, in random order."""
        # One permutation per batch: drawing without replacement for all rows at once would need a matrix of batches and
        # images.
        return torch.stack([self.images[torch.randperm(len(self.images))[: self.pool_size]] for _ in range(len(self))])

    def first_anchors(self, embeddings: torch.Tensor) -> tuple[torch.Tensor, object]:
        """First anchor of each pool `(b,)`, and a context that is passed to `next_anchors`,
        from `embeddings` `(b, P, D)`.
        """
        raise NotImplementedError

    def next_anchors(self, nearest: torch.Tensor, is_anchor: torch.Tensor, context) -> torch.Tensor:
        """Next anchor of each pool `(b,)`.

        Args:
            nearest: squared distance of each sample to the nearest anchor so far, `(b, P)`.
            is_anchor: whether a sample is an anchor already, `(b, P)`.
            context: the second value of `first_anchors`.
        """
        raise NotImplementedError

    def choose_anchors(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Positions of bs/m distinct anchors in each pool, `(b, bs / m)`, from `embeddings` `(b, P, D)`."""
        distances = pool_distances(embeddings)
        pools = torch.arange(len(embeddings), device=embeddings.device)
        first, context = self.first_anchors(embeddings)
        anchors = [first]
        nearest = torch.full_like(distances[:, 0], torch.inf)  # (b, P)
        is_anchor = torch.zeros_like(nearest, dtype=torch.bool)
        # A loop over the anchors, as each depends on those before it; all pools of the chunk at once.
        for _ in range(self.classes_per_batch - 1):
            nearest = torch.minimum(nearest, distances[pools, anchors[-1]])
            is_anchor[pools, anchors[-1]] = True
            anchors.append(self.next_anchors(nearest, is_anchor, context))
        return torch.stack(anchors, dim=1)

    def with_partners(self, anchors: torch.Tensor) -> torch.Tensor:
        """Add m - 1 others of its class to each of `anchors` `(b, bs / m)`:
        indices `(b, bs)`, the anchor first in its group.

        A class that has too few others repeats them; an anchor that is alone in its class is itself repeated.
        """
        rows = anchors.flatten()
        classes = self.class_of[rows]
        places = self.place_of[rows]
        n_others = self.class_sizes[classes] - 1
        # (rows, m - 1), the anchor not counted
        partners = draw_within(n_others.clamp(min=1), self.samples_per_class - 1)
        partners += (partners >= places[:, None]) & (n_others > 0)[:, None]
        partners = self.images_of(classes[:, None], partners)
        return torch.cat([rows[:, None], partners], dim=1).view(len(anchors), -1)

    def choose(self, pools: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        """Indices `(b, bs)`: anchors from the pool, each followed by its partners."""
        return self.with_partners(pools.gather(1, self.choose_anchors(embeddings).cpu()))


class BatchMatchSampler(MemorySampler):
    """Of several random candidate batches from a pool, takes the one whose statistics are nearest to the pool's.

    As published, classes are drawn uniformly with replacement, whatever their size: a pool's from all classes, a
    candidate's from the pool's. Each drawn class gives m images, distinct where it has them (published: with
    replacement, so that a pair could be one image twice). A subclass defines `score`.
    """

    def __init__(self, opt, image_dict: dict, image_list: list):
        super().__init__(opt, image_dict, image_list)
        self.require_pool(self.batch_size)
        self.n_candidates = opt.data_batchmatch_ncomps
        if self.batch_size < 2:
            raise UserError(f"--bs {self.batch_size}: one image has no spread to match the pool's: 2 or more.")

    def draw_pools(self) -> torch.Tensor:
        """Indices `(batches, P)`, the m of a group next to each other;
        P is the largest multiple of m up to the pool size.
        """
        return self.groups_of(torch.randint(len(self.classes), (len(self), self.pool_size // self.samples_per_class)))

    def draw_candidates(self, pools: torch.Tensor) -> torch.Tensor:
        """Positions in the `pools` `(b, P)`, `(b, candidates, bs)`: one group of each drawn class in the pool."""
        m = self.samples_per_class
        # (b, G) each, a pool's classes side by side
        classes, groups = self.class_of[pools[:, ::m]].sort(stable=True, dim=1)
        n_groups = classes.shape[1]
        begins = torch.ones_like(classes, dtype=torch.bool)
        begins[:, 1:] = classes[:, 1:] != classes[:, :-1]
        ends = torch.full_like(classes[:, :1], n_groups)
        starts = torch.where(begins, torch.arange(n_groups), n_groups).sort(1).values
        bounds = torch.cat([starts, ends], 1)  # (b, G + 1)
        n_classes = begins.sum(1, keepdim=True)
        # numbers of the drawn classes
        numbers = random_below(n_classes.expand(-1, self.n_candidates * self.classes_per_batch))
        first = bounds.gather(1, numbers)
        end = bounds.gather(1, numbers + 1)
        chosen = groups.gather(1, first + random_below(end - first)).view(len(pools), self.n_candidates, -1)
        return (chosen[..., None] * m + torch.arange(m)).flatten(2)

    def entries(self, pool_size: int, stored: torch.Tensor) -> int:
        """Entries of the largest tensor, which can be that of the candidates; see the base class."""
        candidates = self.n_candidates * self.batch_size * max(self.batch_size, stored.shape[1])
        return max(super().entries(pool_size, stored), candidates)

    @staticmethod
    def members(embeddings: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """Embeddings `(b, candidates, bs, D)` of the `candidates`."""
        rows = embeddings.gather(1, candidates.flatten(1)[..., None].expand(-1, -1, embeddings.shape[2]))
        return rows.view(*candidates.shape, -1)

    def score(self, embeddings: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """Distances `(b, candidates)` of each of `candidates` `(b, candidates, bs)`
        from its pool `embeddings` `(b, P, D)`.
        """
        raise NotImplementedError

    def choose(self, pools: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        """Indices `(b, bs)` of the candidate with the smallest score."""
        candidates = self.draw_candidates(pools)
        best = self.score(embeddings, candidates.to(embeddings.device)).argmin(1).cpu()
        return pools.gather(1, candidates[torch.arange(len(pools)), best])
