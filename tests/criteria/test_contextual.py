import pytest
import torch

from criteria.contextual import SLOPE
from tests.criteria._oracles import LABELS, PINNED, PINNED_LABELS, batch_of, build, compare, gradcheck
from utilities.errors import UserError

PINNED_FLAGS = {"loss_contextual_k": 2, "loss_contextual_eps": 0.05}


def step(value, bound):
    """0 or 1; with a slope."""
    return float(value >= bound) + SLOPE * (value - value.detach())


def slow(criterion, labels):
    labels = labels.tolist()

    def loss(x, *projection):
        n = len(x)
        rows = [row @ projection[0].T if projection else row for row in x]
        s = [[a @ b / (a.norm() * b.norm()) for b in rows] for a in rows]
        closeness = [[-(2 - 2 * value).clamp(min=0) for value in row] for row in s]
        k = min(criterion.k, n)

        def neighbours(size):
            bounds = [sorted((value.item() for value in row), reverse=True)[size - 1] for row in closeness]
            return [[step(value + criterion.eps, bound) for value in row] for row, bound in zip(closeness, bounds, strict=True)]

        near, half = neighbours(k), neighbours(max(k // 2, 1))
        outside = [[1 - value for value in row] for row in near]
        overlap = [[0] * n for _ in range(n)]
        for i in range(n):
            for j in range(n):
                for members in (near, outside):
                    size = sum(value.item() for value in members[i])
                    if size:
                        overlap[i][j] += sum(members[i][m] * members[j][m] for m in range(n)) / size
                    else:
                        overlap[i][j] += sum(members[i][m] * members[j][m] for m in range(n))
                overlap[i][j] = overlap[i][j] / 2 * near[i][j]
        alike = []
        for i in range(n):
            mutual = [half[i][m] * half[m][i] for m in range(n)]
            alike.append([sum(mutual[m] * overlap[m][j] for m in range(n)) / sum(mutual) for j in range(n)])
        context, far, close = 0.0, [], []
        for i in range(n):
            for j in range(n):
                value = (alike[i][j] + alike[j][i]) / 2
                if i != j:
                    context = context + ((1 - value) ** 2 if labels[i] == labels[j] else value**2) / n**2
                if labels[i] == labels[j]:
                    far.append((criterion.pos_margin - s[i][j]).clamp(min=0))
                else:
                    close.append((s[i][j] - criterion.neg_margin).clamp(min=0))
        far, close = ([term for term in terms if term > 0] for terms in (far, close))
        contrastive = sum(sum(terms) / len(terms) for terms in (far, close) if terms)
        mean = sum(sum(row) for row in s) / n**2
        return criterion.context_weight * context + criterion.contrastive_weight * contrastive + criterion.mean_weight * (mean - criterion.mean) ** 2

    return loss


@pytest.mark.parametrize("flags", [{}, {"loss_contextual_k": 2, "loss_contextual_eps": 0.5}, {"loss_contextual_k": 3, "loss_contextual_projection": 7}], ids=str)
@pytest.mark.parametrize("kind", LABELS)
def test_formula(kind, flags):
    batch, labels = batch_of(kind)
    criterion = build("contextual", loss_contextual_mean=0.1, **flags)
    compare(criterion, slow(criterion, labels), batch, labels, kinks=kind == "duplicates")


def test_gradient_of_the_parts_without_a_step():
    gradcheck(build("contextual", loss_contextual_context_weight=0.0, loss_contextual_contrastive_weight=1.0, loss_contextual_projection=3), *batch_of("pairs"))


def test_the_authors_function_gives_the_same():
    def parts(**flags):
        criterion = build("contextual", **PINNED_FLAGS | flags)
        value = criterion(PINNED, PINNED_LABELS)
        return round(value.item(), 8), {name: round(part.item(), 8) for name, part in criterion.stats.items()}

    total, found = parts()
    assert (total, found["context"], found["contrastive"]) == (0.01948123, 0.00629340, 0.15)
    assert round((found["mean_cosine"] - 0.3) ** 2, 6) == 0.060025
    assert parts(loss_contextual_eps=0.5)[1]["context"] == pytest.approx(0.01350908, abs=1e-7)  # theirs goes on in float32
    assert parts(loss_contextual_pos_margin=0.9)[1]["contrastive"] == 0.2


@pytest.mark.parametrize("flags", [{"loss_contextual_k": 4}, {"loss_contextual_k": 9}, {"loss_contextual_eps": 4.0}], ids=str)
def test_a_neighbourhood_of_the_whole_batch_is_finite(flags):
    """NaN in the authors' code, as is a collapsed batch."""
    criterion = build("contextual", **flags)
    for x in (PINNED, PINNED[:1].repeat(4, 1), torch.zeros_like(PINNED)):
        x = x.clone().requires_grad_()
        value = criterion(x, PINNED_LABELS)
        value.backward()
        assert value.isfinite() and x.grad.isfinite().all()


def test_a_memory_is_refused_in_one_line():
    with pytest.raises(UserError, match="^the criterion contextual takes no reference"):
        build("contextual")(PINNED, PINNED_LABELS, reference=PINNED, reference_labels=PINNED_LABELS)
