"""How like a batch of a student is to that of its teacher: the losses of `--distill`, each of their rows alone.

`rkd_distance`, `rkd_angle`: Park et al., Relational Knowledge Distillation, CVPR 2019, arXiv 1904.05068; `darkrank`:
Chen et al., AAAI 2018, arXiv 1707.01220; `pkt`: Passalis and Tefas, ECCV 2018, arXiv 1803.10837; `sp`: Tung and Mori,
Similarity-Preserving Knowledge Distillation, ICCV 2019, arXiv 1907.09682; `logits` as FastReID (arXiv 2006.02631) has
it. Rows of student `(B, D)` and teacher `(B, E)` may be of different widths, and are taken at the length that they
have.
"""

import torch
from torch.nn.functional import smooth_l1_loss

from criteria._pairs import anchors_at_once, few_at_a_time, joined
from utilities.tensors import FLOOR, normalize, squared_distances

PKT_EPS = 1e-7
ALPHA = 2.0
BETA = 3.0
TEMPERATURE = 16.0


def distances(rows: torch.Tensor) -> torch.Tensor:
    """Distances `(B, B)`, 0 on the diagonal.

    Squares are at least 1e-12 before the root, as in the authors' code: no slope is infinite.
    """
    roots = squared_distances(rows).clamp(min=FLOOR).sqrt()
    is_own = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    return roots.masked_fill(is_own, 0.0)


def rkd_distance(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Mean over B^2 pairs of the Huber loss of distances, each set in units of its mean over different images."""
    return smooth_l1_loss(_of_mean(distances(student)), _of_mean(distances(teacher)))


def _of_mean(matrix: torch.Tensor) -> torch.Tensor:
    """Distances in units of their mean off the diagonal; those of one image stay 0."""
    n_pairs = max(len(matrix) * (len(matrix) - 1), 1)
    return matrix / (matrix.sum() / n_pairs).clamp(min=FLOOR**0.5)


def rkd_angle(student: torch.Tensor, teacher: torch.Tensor, entries: int | None = None) -> torch.Tensor:
    """Mean over B^3 triples of the Huber loss of cosines of unit differences x_j - x_i, x_k - x_i.

    entries: of the tensors that are in memory at once; more are computed for a few images i at a time, and again in
    the backward pass. A difference of equal rows is 0, as its slope is.
    """

    def of_images(student_rows, teacher_rows):
        cosines = [_cosines_at(student_rows, student), _cosines_at(teacher_rows, teacher)]
        return smooth_l1_loss(*cosines, reduction="sum")

    n_images = len(student)
    size = anchors_at_once(n_images * (n_images + student.shape[1] + teacher.shape[1]), entries)
    if size >= n_images:
        return of_images(student, teacher) / n_images**3
    blocks = zip(student.split(size), teacher.split(size), strict=True)
    return joined(few_at_a_time(of_images, blocks)) / n_images**3


def _cosines_at(centres: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Cosines `(b, B, B)` of the differences of the rows `(B, D)` from each of the centres `(b, D)`."""
    differences = rows[None] - centres[:, None]
    squares = differences.square().sum(2, keepdim=True)
    is_apart = squares > FLOOR
    lengths = torch.where(is_apart, squares, 1.0).sqrt()
    units = torch.where(is_apart, differences, 0.0) / lengths
    return units @ units.transpose(1, 2)


def darkrank(
    student: torch.Tensor, teacher: torch.Tensor, nearest: int = 4, alpha: float = ALPHA, beta: float = BETA
) -> torch.Tensor:
    """-mean log-likelihood of the order of the teacher's `nearest` images, by the student's scores -alpha d^beta.

    An image is never among its own nearest; equally near ones keep their order in the batch.
    """
    length = min(nearest, len(student) - 1)
    if length < 1:
        return 0.0 * student.sum()
    is_own = torch.eye(len(teacher), dtype=torch.bool, device=teacher.device)
    # by differences, in which equal images are equally far to the bit: products round them apart
    far = torch.cdist(teacher, teacher, compute_mode="donot_use_mm_for_euclid_dist").masked_fill(is_own, torch.inf)
    order = far.argsort(dim=1, stable=True)[:, :length]
    scores = -alpha * distances(student).gather(1, order) ** beta
    remaining = scores.flip(1).logcumsumexp(1).flip(1)
    return (remaining - scores).sum(1).mean()


def pkt(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Mean over B^2 of P log(P / Q): rows of (cosine + 1) / 2 scaled to the sum 1, P of the teacher, Q of the student.

    1e-7 is added to both below the logarithm, as in the authors' code: opposite rows have P = 0.
    """
    of_teacher = _probabilities(teacher)
    of_student = _probabilities(student)
    return (of_teacher * ((of_teacher + PKT_EPS) / (of_student + PKT_EPS)).log()).mean()


def _probabilities(rows: torch.Tensor) -> torch.Tensor:
    unit = normalize(rows)
    similarities = (unit @ unit.T + 1) / 2
    # by rounding, the similarity of opposite rows may be below 0
    similarities = similarities.clamp(min=0)
    return similarities / similarities.sum(1, keepdim=True)


def sp(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Squared differences of the Gram matrices, whose rows have length 1, over B^2."""
    grams = [normalize(rows @ rows.T) for rows in (student, teacher)]
    return (grams[0] - grams[1]).square().mean()


def regression(mapped: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Mean of 1 - cosine of the student's rows, mapped to the teacher's width, and the teacher's."""
    return (1 - (normalize(mapped) * normalize(teacher)).sum(1)).mean()


def logits(student: torch.Tensor, teacher: torch.Tensor, temperature: float = TEMPERATURE) -> torch.Tensor:
    """T^2 times the mean of KL(teacher || student) and KL(student || teacher) of logits `(B, C)` over T."""
    logs = [torch.log_softmax(rows / temperature, 1) for rows in (student, teacher)]
    symmetric = ((logs[0].exp() - logs[1].exp()) * (logs[0] - logs[1])).sum(1).mean()
    return temperature**2 * symmetric / 2
