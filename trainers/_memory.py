"""Cross-batch memory (Wang et al., Cross-Batch Memory for Embedding Learning, CVPR 2020, arXiv 1912.06798)."""

import argparse

import torch

import criteria
from criteria._pairs import ENTRIES
from options.flags import Flag, roles
from trainers._added_losses import AddedLoss
from trainers._averaging import MovingAverage
from trainers._guide import guided
from trainers._noise import NoiseFilter, Rows
from utilities.criterion import check_memory
from utilities.errors import UserError
from utilities.numbers import number, whole

NAME = "memory_loss"
# the name of a moving average's embeddings among the outputs
KEYS = "memory_keys"

FLAGS = {
    "--memory_size": Flag(
        whole(0, 10**8),
        0,
        "cross-batch memory: compare each batch also with the last N embeddings; 0: no memory",
        metavar="N",
    ),
    "--memory_start": Flag(
        whole(0), 1000, "step, counted from 0, from which the memory is filled and used", rules={"needs": "memory_size"}
    ),
    "--memory_entries": Flag(
        whole(1, 10**12),
        ENTRIES,
        "numbers of the matrix of batch and memory that a loss on pairs keeps; a larger one is computed for a few "
        "anchors at a time, twice. 2^26 are 256 MiB in float32, and a loss keeps one to a few such matrices",
        metavar="N",
        rules={"needs": "memory_size"},
    ),
    "--memory_weight": Flag(number(0), None, argparse.SUPPRESS, role=roles.weight_of(NAME)),
    "--memory_ema": Flag(
        number(0, below=1),
        None,
        "fill the memory with embeddings of a moving average of the network with this decay, such as .999 (unset: "
        "with the network's own)",
        metavar="DECAY",
        rules={"needs": "memory_size"},
    ),
}


class Queue:
    """The last N rows that were put in, with their labels and the indices of their images; empty at the start.

    Where images have several labels, their `relevance` is kept too.

    Args:
        size: N.
    """

    def __init__(self, size: int):
        self.size = size
        self.next = 0
        self.rows = None
        self.labels = None
        self.indices = None
        self.relevance = None

    def put(
        self,
        rows: torch.Tensor,
        labels: torch.Tensor,
        indices: torch.Tensor | None = None,
        relevance: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Write `rows` `(B, D)` with `labels` and `indices` `(B,)` (None: unknown, -1) over the oldest, B at most N.

        `relevance`: `(B, L)`, or None in all calls. Returns their places `(B,)`.
        """
        if indices is None:
            indices = torch.full_like(labels, -1)
        if self.rows is None:
            self.rows = rows.new_empty(0, rows.shape[1])
            self.labels = labels.new_empty(0)
            self.indices = indices.new_empty(0)
            if relevance is not None:
                self.relevance = relevance.new_empty(0, relevance.shape[1])
        # Copies only after a resume on another device.
        self.rows = self.rows.to(rows)
        self.labels = self.labels.to(labels.device)
        self.indices = self.indices.to(indices.device)
        places = torch.arange(self.next, self.next + len(rows), device=rows.device) % self.size
        missing = min(self.next + len(rows), self.size) - len(self.rows)
        if missing > 0:
            self.rows = torch.cat([self.rows, rows.new_empty(missing, rows.shape[1])])
            self.labels = torch.cat([self.labels, labels.new_empty(missing)])
            self.indices = torch.cat([self.indices, indices.new_empty(missing)])
        self.rows[places] = rows.detach()
        self.labels[places] = labels
        self.indices[places] = indices
        if relevance is not None:
            self.relevance = self.relevance.to(relevance.device)
            if missing > 0:
                self.relevance = torch.cat([self.relevance, relevance.new_empty(missing, relevance.shape[1])])
            self.relevance[places] = relevance
        self.next = (self.next + len(rows)) % self.size
        return places

    def restore(self, state: dict) -> None:
        """Take the columns of a checkpoint and the next place; of a longer queue the newest rows stay."""
        self.next = state["next"]
        self.rows = state["rows"]
        self.labels = state["labels"]
        self.relevance = state.get("relevance")
        # a run of an earlier version has none
        self.indices = state.get("indices")
        if self.labels is not None and self.indices is None:
            self.indices = torch.full_like(self.labels, -1)
        if self.rows is not None and len(self.rows) > self.size:
            saved_size = len(self.rows)
            newest = torch.arange(self.next, self.next + saved_size)[-self.size :] % saved_size
            self.next = 0
            self.rows = self.rows[newest]
            self.labels = self.labels[newest]
            self.indices = self.indices[newest]
            if self.relevance is not None:
                self.relevance = self.relevance[newest]


class Memory(AddedLoss):
    """`memory_loss`: the criterion on the batch's embeddings against the memory, to which the batch is written first.

    Older embeddings of an image are its positives, as in the paper; the one just written is the anchor's own image,
    never a positive.
    """

    NAME = NAME
    FLAG = "--memory_size"

    def __init__(self, opt, network: torch.nn.Module, criterion: torch.nn.Module):
        super().__init__()
        loss_module = criteria.REGISTRY.module(opt.loss)
        if not getattr(loss_module, "COMPARES_SAMPLES", True):
            raise UserError(
                f"--memory_size {opt.memory_size}: --loss {opt.loss} compares no samples that a memory could hold"
            )
        check_memory(criterion)
        for part in criterion.modules():
            if hasattr(part, "entries"):
                part.entries = opt.memory_entries
        self.start = opt.memory_start
        self.steps = 0
        self.queue = Queue(opt.memory_size)
        self.noise_filter = None
        if opt.noise_filter:
            self.noise_filter = NoiseFilter(opt.noise_rate, opt.noise_window, opt.n_classes)
        self.average = None if opt.memory_ema is None else MovingAverage(network, opt.memory_ema)

    def outputs(self, images: torch.Tensor, named) -> dict:
        """The keys `(B, D)` of a moving average, where there is one."""
        if self.average is None:
            return {}
        with torch.no_grad():
            return {KEYS: named(*self.average(images))["embeddings"]}

    def without_noise(self, outputs: dict, batch) -> tuple[dict, object]:
        """Outputs and batch of the images that the noise filter keeps; of all until there are rows to judge by."""
        if self.noise_filter is None or self.queue.rows is None:
            return outputs, batch
        rows = self.noise_filter(outputs["embeddings"], batch.labels, self.queue.rows, self.queue.labels)
        return Rows(outputs, rows), batch._replace(
            labels=batch.labels.index_select(0, rows), indices=batch.indices[rows.to(batch.indices.device)]
        )

    def loss(self, trainer, outputs: dict, batch) -> torch.Tensor | None:
        """See `trainers._added_losses.AddedLoss.loss`; None before `--memory_start`."""
        self.steps += 1
        # raised in the first step, not only at --memory_start
        if len(outputs["embeddings"]) > self.queue.size:
            raise UserError(
                f"--memory_size {self.queue.size} is less than the {len(outputs['embeddings'])} embeddings of a "
                "batch: it holds some batches"
            )
        if self.steps <= self.start:
            return None
        if self.average is not None and KEYS not in outputs:
            raise UserError(
                "--memory_ema: this --trainer calls the network itself and does not add `added_outputs(images)`: "
                "leave it out"
            )
        keys = outputs.get(KEYS, outputs["embeddings"]).detach()
        indices = batch.indices.to(batch.labels.device)
        own_places = self.queue.put(keys, batch.labels, indices, batch.relevance)
        parts = (trainer.criterion, getattr(trainer.criterion, "batchminer", None))
        stats_of_parts = [(part, part.stats) for part in parts if hasattr(part, "stats")]
        form = {"reference": self.queue.rows, "reference_labels": self.queue.labels, "own": own_places}
        if batch.relevance is not None:
            form["reference_relevance"] = self.queue.relevance
        value = trainer.metric_loss(outputs, batch, **form, **guided(trainer, batch, self.queue.indices))
        # Recorded are the statistics of the batch, not those of the comparison with the memory.
        for part, stats in stats_of_parts:
            part.stats = stats
        return value

    def after_step(self, network: torch.nn.Module) -> None:
        """Move the average."""
        if self.average is not None:
            self.average.update(network)

    def get_extra_state(self) -> dict:
        """The queue and the counts of steps and places, for checkpoints."""
        queue = self.queue
        columns = {"rows": queue.rows, "labels": queue.labels, "indices": queue.indices}
        if queue.relevance is not None:
            columns["relevance"] = queue.relevance
        return {"steps": self.steps, "next": queue.next, **columns}

    def set_extra_state(self, state: dict) -> None:
        """Restore the state from `get_extra_state`."""
        self.steps = state["steps"]
        self.queue.restore(state)
