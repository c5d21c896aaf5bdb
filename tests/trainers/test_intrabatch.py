"""Messages within a batch: the graph against loops, its pins, what the step minimises."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from tests.criteria._table import PINNED, PINNED_LABELS
from tests.kit import tiny
from trainers.intrabatch import Graph


def resting(graph):
    """The graph in float64, without dropout."""
    for module in graph.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return graph.double()


def received(layer, nodes):
    """Image by image, head by head: attention with a key of score 0 whose value is 0."""
    rows = []
    size = nodes.shape[1] // layer.n_heads
    query, key, value = (
        [linear.weight @ node + linear.bias for node in nodes] for linear in (layer.query, layer.key, layer.value)
    )
    for i in range(len(nodes)):
        heads = []
        for h in range(layer.n_heads):
            part = slice(h * size, (h + 1) * size)
            masses = [torch.exp(query[i][part] @ key[j][part] / size**0.5) for j in range(len(nodes))]
            heads.append(sum(mass * value[j][part] for j, mass in enumerate(masses)) / (1 + sum(masses)))
        rows.append(layer.out.weight @ torch.cat(heads) + layer.out.bias)
    return torch.stack(rows)


def normed(layer, rows):
    return torch.stack(
        [(row - row.mean()) / (row.var(correction=0) + 1e-5).sqrt() * layer.weight + layer.bias for row in rows]
    )


def slow(graph, rows):
    nodes = torch.stack([graph.first.weight @ row + graph.first.bias for row in rows])
    outputs = []
    for layer in graph.layers:
        nodes = normed(layer.norms[0], nodes + received(layer, nodes))
        hidden = (nodes @ layer.up.weight.T + layer.up.bias).clamp(min=0)
        nodes = normed(layer.norms[1], nodes + hidden @ layer.down.weight.T + layer.down.bias)
        outputs.append(nodes)
    joined = torch.cat(outputs, 1) if graph.joins else outputs[-1]
    scaled = (joined - joined.mean(0)) / (joined.var(0, correction=0) + 1e-5).sqrt()
    return scaled * graph.norm.weight @ graph.last.weight.T


@pytest.mark.parametrize(("layers", "heads", "joins"), [(1, 1, False), (2, 3, True), (2, 2, False)])
def test_the_graph_is_that_of_loops(layers, heads, joins):
    torch.manual_seed(0)
    graph = resting(Graph(6, 5, layers, heads, joins))
    rows = torch.randn(7, 6, dtype=torch.float64, requires_grad=True)
    ours = graph(rows)
    expected = slow(graph, rows)
    assert_close(ours, expected)
    assert_close(*(torch.autograd.grad(logits.square().sum(), rows)[0] for logits in (ours, expected)))
    assert graph.norm.bias.abs().sum() == 0 and not graph.norm.bias.requires_grad
    assert ours.std() < 0.1, "the last layer starts small"
    assert graph(rows[:1]).isfinite().all() and all(buffer.isfinite().all() for buffer in graph.buffers())


def test_the_authors_functions_give_the_same():
    graph = resting(Graph(3, 3, 1, 1, False))
    (layer,) = graph.layers
    identity = torch.eye(3, dtype=torch.float64)
    with torch.no_grad():
        for linear in (graph.first, layer.query, layer.key, layer.value, layer.out, graph.last):
            linear.weight.copy_(identity)
        graph.first.bias.zero_()
        layer.down.weight.zero_(), layer.down.bias.zero_()
    # of the first image's message; less than 1 together
    shares = torch.tensor([0.2797, 0.2492, 0.1570, 0.1570], dtype=torch.float64)
    assert_close(layer.attention(PINNED)[0], shares @ PINNED, atol=2e-4, rtol=0)
    loss = cross_entropy(graph(PINNED) / 0.2, PINNED_LABELS, label_smoothing=0.1)
    assert round(loss.item(), 7) == pytest.approx(2.0629014, abs=1e-7)


def test_a_step_minimises_both_cross_entropies():
    flags = "--intrabatch_heads 2 --intrabatch_layers 2 --intrabatch_join"
    trainer, opt = tiny.trainer("intrabatch", flags, "--intrabatch_temperature .5 --intrabatch_smoothing .3")
    resting(trainer)
    batch = tiny.batch()
    outputs, losses, total = tiny.step(opt, trainer).forward(batch)
    rows = outputs["embeddings"] / outputs["embeddings"].norm(dim=1, keepdim=True)
    expected = {}
    for name, logits in (("classifier_loss", outputs["classifier_logits"]), ("graph_loss", slow(trainer.graph, rows))):
        logs = torch.log_softmax(logits / 0.5, 1)
        terms = [0.7 * row[y] + 0.3 * row.mean() for row, y in zip(logs, batch.labels, strict=True)]
        expected[name] = -sum(terms) / len(logs)
        assert_close(losses[name], expected[name])
    assert_close(total, sum(expected.values()))
    head = trainer.evaluated_heads.linear
    assert_close(outputs["classifier_logits"], outputs["embeddings"] @ head.weight.T + head.bias)
    assert {name.split(".")[0] for name in trainer.state_dict()} == {"network", "evaluated_heads", "graph"}
    assert {"graph.norm.running_mean", "graph.norm.running_var"} <= set(trainer.state_dict())
