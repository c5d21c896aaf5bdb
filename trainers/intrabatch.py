"""Intra-batch connections: images of a batch pass messages before they are classified
(Seidenschwarz et al., ICML 2021, arXiv 2102.07753).

As in the authors' code no edge has a weight of its own, and attention may go to nobody:
its weights are exp(s) / (1 + sum exp(s)).
"""

import torch
from torch.nn.functional import cross_entropy

from options.flags import Flag
from trainers import _classifier
from trainers._classifier import CLASSIFIER_LOSS, LOGITS
from trainers._heads import width
from trainers._trainer import METRIC_LOSS
from utilities.batchnorm import WholeBatchNorm
from utilities.errors import UserError
from utilities.numbers import number, whole
from utilities.tensors import normalize

GRAPH_LOSS = "graph_loss"
# Of attention weights, of both branches of a layer and of its hidden units, as in all the authors' settings.
DROPOUT = 0.1
# standard deviation of the last layer's weights at the start
LAST_START = 1e-3

FLAGS = {
    "layers": Flag(whole(1, 100), 1, "layers of messages"),
    "heads": Flag(whole(1, 1024), 2, "heads of attention; they divide the embedding's dimensions"),
    "join": Flag(bool, False, "classify all layers' outputs side by side, not the last one's"),
    "temperature": Flag(number(1e-6), 0.2, "divides the logits of both cross-entropies"),
    "smoothing": Flag(number(0, below=1), 0.1, "label smoothing of both: EPS / C to each of C classes", metavar="EPS"),
}


def check(opt) -> None:
    """See `trainers.check`."""
    if opt.classifier_loss != "CrossEntropyLoss" or opt.classifier_smoothing or opt.classifier_layer != "linear":
        raise UserError(
            "--trainer intrabatch has cross-entropies of linear layers, with --intrabatch_smoothing: leave "
            "--classifier_loss, _smoothing and _layer out"
        )


class Trainer(_classifier.ClassifyingTrainer):
    """`classifier_loss` = CE of a linear layer on the embedding as it is; `graph_loss` = CE of one on what the batch's
    messages make of it.

    Both divide logits by T and smooth labels. `metric_loss` weighs 0 unless `--loss_weights` says otherwise. Evaluation
    is of the embedding alone, by cosine; the network's name is without `_normalize`.
    """

    LOSSES = (METRIC_LOSS, CLASSIFIER_LOSS, GRAPH_LOSS)
    WEIGHTS = {METRIC_LOSS: 0.0}

    def __init__(self, opt, network, criterion):
        check(opt)
        super().__init__(opt, network, criterion)
        dimensions = width(network, opt)
        if dimensions % opt.intrabatch_heads:
            raise UserError(
                f"--intrabatch_heads {opt.intrabatch_heads} does not divide the embedding's {dimensions} dimensions"
            )
        self.graph = Graph(dimensions, opt.n_classes, opt.intrabatch_layers, opt.intrabatch_heads, opt.intrabatch_join)
        self.temperature = opt.intrabatch_temperature
        self.smoothing = opt.intrabatch_smoothing

    def losses(self, outputs: dict, batch) -> dict:
        """See `trainers._trainer.Trainer.losses`."""
        logits = {CLASSIFIER_LOSS: outputs[LOGITS], GRAPH_LOSS: self.graph(normalize(outputs["embeddings"]))}
        smoothed = {}
        for name, rows in logits.items():
            smoothed[name] = cross_entropy(rows / self.temperature, batch.labels, label_smoothing=self.smoothing)
        return {**super().losses(outputs, batch), **smoothed}

    def param_groups(self, opt) -> list[dict]:
        """The classifier at `--classifier_lr`, the graph at `--lr`."""
        graph = [parameter for parameter in self.graph.parameters() if parameter.requires_grad]
        return [_classifier.param_group(self.evaluated_heads, opt), {"params": graph, "name": "graph"}]


class Graph(torch.nn.Module):
    """Unit embeddings `(B, D)` of a batch -> logits `(B, C)`.

    A linear layer, layers of messages, BatchNorm without bias, a linear layer.
    """

    def __init__(self, dimensions: int, n_classes: int, n_layers: int, n_heads: int, joins: bool):
        super().__init__()
        self.first = torch.nn.Linear(dimensions, dimensions)
        self.joins = joins
        self.layers = torch.nn.ModuleList(Layer(dimensions, n_heads) for _ in range(n_layers))
        n_joined = n_layers if joins else 1
        self.norm = WholeBatchNorm(dimensions * n_joined)
        # the bias stays 0
        self.norm.bias.requires_grad_(False)
        self.last = torch.nn.Linear(self.norm.num_features, n_classes, bias=False)
        torch.nn.init.normal_(self.last.weight, std=LAST_START)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """The logits."""
        nodes = [self.first(rows)]
        for layer in self.layers:
            nodes.append(layer(nodes[-1]))
        rows = torch.cat(nodes[1:], 1) if self.joins else nodes[-1]
        return self.last(self.norm(rows))


class Layer(torch.nn.Module):
    """A layer of messages: attention of every image to all, itself included, then two linear layers.

    Each branch is added and normalised.
    """

    def __init__(self, dimensions: int, n_heads: int):
        super().__init__()
        self.n_heads = n_heads
        self.query, self.key, self.value, self.out = (torch.nn.Linear(dimensions, dimensions) for _ in range(4))
        for linear in (self.query, self.key, self.value, self.out):
            torch.nn.init.xavier_uniform_(linear.weight)
            torch.nn.init.zeros_(linear.bias)
        self.up = torch.nn.Linear(dimensions, 4 * dimensions)
        self.down = torch.nn.Linear(4 * dimensions, dimensions)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(dimensions) for _ in range(2))
        self.dropout = torch.nn.Dropout(DROPOUT)

    def forward(self, nodes: torch.Tensor) -> torch.Tensor:
        """Nodes `(B, D)` after one exchange of messages."""
        nodes = self.norms[0](nodes + self.dropout(self.attention(nodes)))
        return self.norms[1](nodes + self.dropout(self.down(self.dropout(torch.relu(self.up(nodes))))))

    def attention(self, nodes: torch.Tensor) -> torch.Tensor:
        """What each of `nodes` `(B, D)` receives."""
        query, key, value = (
            layer(nodes).view(len(nodes), self.n_heads, -1).transpose(0, 1)
            for layer in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(1, 2) / query.shape[2] ** 0.5  # (heads, B, B)
        # a further key of score 0, which takes the attention that no sample gets
        to_nobody = torch.zeros_like(scores[..., :1])
        weights = torch.softmax(torch.cat([scores, to_nobody], 2), 2)[..., :-1]
        return self.out((self.dropout(weights) @ value).transpose(0, 1).flatten(1))
