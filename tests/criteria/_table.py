"""The table of the losses: each one's formula as obvious loops in float64, the flags that it is tried under, its peer.

A loss that compares samples: `formula(criterion, x, r, pairs, (labels, reference_labels, own_rows))`, with anchors `x`,
reference `r`, and `pairs` the rows of each anchor's positives and those of its negatives. A loss of the batch as a
whole, most with class vectors: `formula(criterion, x, labels)`. Margins and the like are read from the criterion.
"""

import math

import torch
from pytorch_metric_learning import distances, losses

from criteria.contextual import SLOPE
from utilities.reference import Reference
from utilities.tuples import Classes


def partners(labels, reference_labels, own_rows) -> tuple[list[list[int]], list[list[int]]]:
    """The rows of each anchor's positives, and of its negatives; its own image is neither."""
    own_rows = [-1] * len(labels) if own_rows is None else [int(row) for row in own_rows]
    positives = []
    negatives = []
    for a, label in enumerate(labels):
        rows = [j for j in range(len(reference_labels)) if j != own_rows[a]]
        positives.append([j for j in rows if reference_labels[j] == label])
        negatives.append([j for j in rows if reference_labels[j] != label])
    return positives, negatives


def distance(u, v):
    """With no gradient where the points coincide."""
    squared = (u - v).square().sum()
    return squared.sqrt() if squared > 0 else squared


def cosine(u, v):
    return u @ v / u.norm() / v.norm()


def unit(rows):
    return rows / rows.norm(dim=1, keepdim=True) if len(rows) else rows


def mean(terms):
    return sum(terms) / len(terms) if terms else 0.0


def mean_active(terms):
    return mean([term for term in terms if term > 0])


hinge = torch.relu


def log_sum_exp(values):
    return torch.log(sum(torch.exp(value) for value in values))


def log1p_sum(terms):
    return torch.log(1 + sum(terms)) if terms else 0.0


def triplets(pairs):
    """(a, p, n), as the stand-in miner gives them."""
    return [(a, p, n) for a, (ps, ns) in enumerate(zip(*pairs, strict=True)) for p in ps for n in ns]


def pair_values(values, x, r, pairs):
    """The values of all positive and of all negative pairs."""
    return [[values(x[a], r[j]) for a, js in enumerate(kind) for j in js] for kind in pairs]


def noise_ratio(u, v):
    return (u - v).var() / u.var()


def sets(pairs):
    return [(a, ps, ns) for a, (ps, ns) in enumerate(zip(*pairs, strict=True)) if ps and ns]


def contrastive(c, x, r, pairs, context):
    all_triplets = triplets(pairs)
    far = [hinge(distance(x[a], r[p]) - c.pos_margin) for a, p, _ in all_triplets]
    return mean(far) + mean([hinge(c.neg_margin - distance(x[a], r[n])) for a, _, n in all_triplets])


def triplet(c, x, r, pairs, context):
    terms = [distance(x[a], r[p]) ** 2 - distance(x[a], r[n]) ** 2 + c.margin for a, p, n in triplets(pairs)]
    return mean([hinge(term) for term in terms])


def margin(c, x, r, pairs, context):
    terms = []
    betas = 0.0
    for a, p, n in triplets(pairs):
        beta = c.beta[context[0][a]]
        terms += [hinge(distance(x[a], r[p]) - beta + c.margin), hinge(beta - distance(x[a], r[n]) + c.margin)]
        betas = betas + beta
    active = sum(bool(term > 0) for term in terms)
    return (sum(terms) + c.nu * betas) / active if active else 0.0


def quadruplet(c, x, r, pairs, context):
    labels, reference_labels, own_rows = context
    first = []
    second = []
    chosen = triplets(pairs)
    if chosen:
        anchors, _, negatives = torch.tensor(chosen).unbind(1)
        classes = Classes(labels, Reference.build(x, labels, r, reference_labels, own_rows))
        # The criterion draws by the same call
        strangers, _ = classes.draw_strangers(anchors, negatives)
        for (a, p, n), m in zip(chosen, strangers.tolist(), strict=True):
            first.append(hinge(distance(x[a], r[p]) - distance(x[a], r[n]) + c.margin_alpha_1))
            if set(reference_labels.tolist()) - {int(labels[a]), int(reference_labels[n])}:
                assert reference_labels[m] not in (labels[a], reference_labels[n])
                stranger_distance = distance(r[n], r[m]) if n != m else 0.0
                second.append(hinge(distance(x[a], r[p]) - stranger_distance + c.margin_alpha_2))
    return mean(first) + mean(second)


def snr(c, x, r, pairs, context):
    chosen = triplets(pairs)
    terms = [hinge(noise_ratio(x[a], r[p]) - noise_ratio(x[a], r[n]) + c.margin) for a, p, n in chosen]
    return mean_active(terms) + c.reg_lambda * mean([x[a].sum().abs() for a, _, _ in chosen])


def norms(x):
    return sum(row.norm() for row in x) / len(x)


def npair_terms(x, r, pairs):
    return mean([torch.log1p(sum(torch.exp(x[a] @ r[n] - x[a] @ r[ps[-1]]) for n in ns)) for a, ps, ns in sets(pairs)])


def npair(c, x, r, pairs, context):
    return npair_terms(x, r, pairs) + c.l2 * norms(x)


def angular(c, x, r, pairs, context):
    t = math.tan(math.radians(c.alpha)) ** 2
    u = unit(x)
    v = unit(r)
    terms = []
    for a, ps, ns in sets(pairs):
        exponents = [4 * t * (u[a] + v[ps[-1]]) @ v[n] - 2 * (1 + t) * u[a] @ v[ps[-1]] for n in ns]
        terms.append(log1p_sum([torch.exp(e) for e in exponents]))
    return npair_terms(x, r, pairs) + c.npair_l2 * norms(x) + c.npair_ang_weight * mean(terms)


def lifted(c, x, r, pairs, context):
    terms = []
    for a, ps, ns in sets(pairs):
        far = log_sum_exp([distance(x[a], r[p]) for p in ps])
        terms.append(hinge(far + log_sum_exp([c.neg_margin - distance(x[a], r[n]) for n in ns])))
    return mean(terms) + c.l2 * norms(x)


def each_anchor(values, reduce=mean):
    """A loss from the `reduce`d terms of the anchors: `term(criterion, values of positives, of negatives)` is a number,
    a list, or None.
    """

    def loss_of(term):
        def loss(c, x, r, pairs, context):
            terms = []
            for a, (ps, ns) in enumerate(zip(*pairs, strict=True)):
                value = term(c, [values(x[a], r[j]) for j in ps], [values(x[a], r[j]) for j in ns])
                if value is not None:
                    terms += value if isinstance(value, list) else [value]
            return reduce(terms)

        return loss

    return loss_of


def soft_multisimilarity(c, ps, ns):
    near = log1p_sum([torch.exp(-c.pos_weight * (s - c.thresh)) for s in ps]) / c.pos_weight
    return near + log1p_sum([torch.exp(c.neg_weight * (s - c.thresh)) for s in ns]) / c.neg_weight


@each_anchor(torch.dot)
def multisimilarity(c, ps, ns):
    """With an infinite margin all pairs count, of an anchor that lacks a kind too."""
    if c.margin == math.inf:
        return soft_multisimilarity(c, ps, ns)
    if not ps or not ns:
        return 0.0
    return soft_multisimilarity(c, [s for s in ps if s - c.margin < max(ns)], [s for s in ns if s + c.margin > min(ps)])


def node_share(value, node, width):
    """The share of a value that a node of a histogram gets."""
    share = 1 - abs(value - node) / width
    return share * bool(share > 0)


def histogram(c, x, r, pairs, context):
    width = 2 / (c.nbins - 1)
    densities = []
    for values in pair_values(torch.dot, x, r, pairs):
        shares = [[node_share(s.clamp(-1, 1), k * width - 1, width) for s in values] for k in range(c.nbins)]
        densities.append([mean(of_node) for of_node in shares])
    positives, negatives = densities
    return sum(negatives[k] * sum(positives[: k + 1]) for k in range(c.nbins))


@each_anchor(cosine, lambda terms: 1 - mean(terms) if terms else 0.0)
def fastap(c, ps, ns):
    if not ps:
        return None
    width = 4 / c.num_bins
    hits, misses = (
        [sum(node_share(2 - 2 * s, k * width, width) for s in kind) for k in range(c.num_bins + 1)] for kind in (ps, ns)
    )
    average = 0.0
    for k, hits_of_node in enumerate(hits):
        total = sum(hits[: k + 1]) + sum(misses[: k + 1])
        if total > 0:
            average = average + hits_of_node * sum(hits[: k + 1]) / total / len(ps)
    return average


@each_anchor(lambda u, v: (u - v).square().sum())
def nca(c, ps, ns):
    near, far = ([torch.exp(-c.scale * d) for d in kind] for kind in (ps, ns))
    return -torch.log(sum(near) / sum(near + far)) if ps else None


@each_anchor(cosine)
def ntxent(c, ps, ns):
    near, far = ([torch.exp(s / c.temperature) for s in kind] for kind in (ps, ns))
    if c.decoupled:
        return [-torch.log(mass / sum(far)) if ns else 0 * mass for mass in near]
    return [-torch.log(mass / (mass + sum(far))) for mass in near]


@each_anchor(cosine)
def supcon(c, ps, ns):
    near, far = ([torch.exp(s / c.temperature) for s in kind] for kind in (ps, ns))
    return mean([-torch.log(mass / sum(near + far)) for mass in near]) if ps else None


@each_anchor(cosine, mean_active)
def circle(c, ps, ns):
    if not ps or not ns:
        return None
    near = [-c.gamma * hinge(1 + c.m - s.detach()) * (s - 1 + c.m) for s in ps]
    far = [c.gamma * hinge(s.detach() + c.m) * (s - c.m) for s in ns]
    exponent = torch.logsumexp(torch.stack(near), 0) + torch.logsumexp(torch.stack(far), 0)
    return torch.log1p(torch.exp(-exponent.abs())) + exponent.clamp(min=0)


def snr_contrastive(c, x, r, pairs, context):
    near, far = pair_values(noise_ratio, x, r, pairs)
    active = mean_active([d - c.pos_margin for d in near]) + mean_active([c.neg_margin - d for d in far])
    return active + c.regularizer_weight * mean([row.sum().abs() for row in x])


def soft_rank(s, rivals, temperature):
    """Of a value among rivals, of which it may be one itself."""
    return 1 + sum(torch.sigmoid((rival - s) / temperature) for rival in rivals if rival is not s)


@each_anchor(torch.dot)
def smoothap(c, ps, ns):
    ratios = [soft_rank(s, ps, c.temperature) / soft_rank(s, ps + ns, c.temperature) for s in ps]
    return 1 - mean(ratios) if ps else None


def step_bound(c, t):
    if t <= 0:
        return torch.sigmoid(t / c.temperature)
    if t <= c.delta:
        return c.start + torch.sigmoid(t / c.temperature)
    return c.rho * (t - c.delta) + c.offset


def roadmap(c, x, r, pairs, context):
    @each_anchor(cosine)
    def sup_ap(c, ps, ns):
        precisions = []
        for k, s in enumerate(ps):
            rank = 1 + sum(float(p >= s) for place, p in enumerate(ps) if place != k)
            precisions.append(rank / (rank + sum(step_bound(c, n - s) for n in ns) + 0 * s))
        return 1 - mean(precisions) if ps else None

    near, far = pair_values(cosine, x, r, pairs)
    missing = mean_active([torch.relu(c.pos_margin - s) for s in near])
    excess = mean_active([torch.relu(s - c.neg_margin) for s in far])
    return sup_ap(c, x, r, pairs, context) + c.weight * (missing + excess)


def graded(similarity):
    """Positives have grade 1, negatives 0."""

    def formula(c, x, r, pairs, context):
        near, far = pair_values(similarity, x, r, pairs)
        return log1p_sum([torch.exp(c.scale * (n - p)) for p in near for n in far])

    return formula


def complex_similarity(u, v):
    first, second = (torch.complex(*row.chunk(2)) for row in (u, v))
    product = (first * second.conj()).sum() / first.norm() / second.norm()
    return (product.real + product.imag).abs()


cosent = graded(cosine)
angle = graded(complex_similarity)


def recallatk(c, x, r, pairs, context):
    @each_anchor(torch.dot)
    def recalls(c, ps, ns):
        # + 0 * s keeps the rank a tensor where there is a single item
        ranks = [soft_rank(s, ps + ns, c.temperature) + 0 * s for s in ps]
        ks = [k for k in c.ks if k < len(r) and ps]
        hits = [sum(torch.sigmoid((k - rank) / c.k_temperature) for rank in ranks) for k in ks]
        return [1 - hit.clamp(max=k) / min(k, len(ps)) for hit, k in zip(hits, ks, strict=True)]

    return recalls(c, x, r, pairs, context)


def hyperbolic(c, x, r, pairs, context):
    """By the distance's other form, 1/sqrt(c) arcosh(1 + 2c |p - q|^2 / ((1 - c p^2) (1 - c q^2))), in the ball."""

    def point(u):
        norm = u.norm().clamp(max=c.clip_r)
        return torch.tanh(c.c**0.5 * norm) / c.c**0.5 * u / u.norm()

    def ball_distance(u, v):
        p = point(u)
        q = point(v)
        return torch.acosh(1 + 2 * c.c * (p - q).square().sum() / ((1 - c.c * p @ p) * (1 - c.c * q @ q))) / c.c**0.5

    def views(labels):
        return [sum(int(labels[b]) == int(labels[a]) for b in range(a)) for a in range(len(labels))]

    labels, reference_labels, own_rows = context
    anchor_views = views(labels)
    reference_views = views(reference_labels)
    groups = {}
    for a, (ps, ns) in enumerate(zip(*pairs, strict=True)):
        own_row = -1 if own_rows is None else int(own_rows[a])
        for p in ps:
            rivals = [
                n for n in ns if own_row < 0 or reference_views[n] in (reference_views[own_row], reference_views[p])
            ]
            logits = torch.stack([-ball_distance(x[a], r[j]) / c.temperature for j in [p, *rivals]])
            groups.setdefault((anchor_views[a], reference_views[p]), []).append(torch.logsumexp(logits, 0) - logits[0])
    return sum(mean(terms) for terms in groups.values())


def pml(c, x, r, pairs, context):
    """Its ContrastiveLoss: unit vectors, margins 0 and 1, means over what is active; 0 for a pair of a kind or none."""
    near, far = pair_values(distance, unit(x), unit(r), pairs)
    if len(near) <= 1 and len(far) <= 1:
        return 0 * (x.sum() + r.sum())
    return mean_active(near) + mean_active([hinge(1 - d) for d in far])


@each_anchor(cosine)
def tupletmargin(c, ps, ns):
    narrowed = [torch.cos(torch.acos(s.clamp(-1 + 1e-7, 1 - 1e-7)) - c.margin) for s in ps]
    return [torch.log(1 + sum((torch.exp(c.scale * (n - s)) for n in ns), 0 * s)) for s in narrowed]


def weighed_loss(c, ps, ns):
    """The loss that gpw's weights are named after, of one anchor's cosines; None where it has no slope."""
    if c.weights == "contrastive":
        return sum(-s for s in ps) + sum((s - c.threshold).clamp(min=0) for s in ns)
    if c.weights == "triplet":
        return sum((n - p + c.margin).clamp(min=0) for p in ps for n in ns)
    if c.weights == "binomial":
        near = [torch.log1p(torch.exp(c.pos_scale * (c.threshold - s))) for s in ps]
        return mean(near) + mean([torch.log1p(torch.exp(c.neg_scale * (s - c.threshold))) for s in ns])
    if c.weights == "lifted":
        return (log_sum_exp([-s for s in ps]) + log_sum_exp(ns)).clamp(min=0) if ps and ns else None
    positive = log1p_sum([torch.exp(-c.pos_scale * (s - c.threshold)) for s in ps]) / c.pos_scale
    return positive + log1p_sum([torch.exp(c.neg_scale * (s - c.threshold)) for s in ns]) / c.neg_scale


@each_anchor(cosine)
def gpw(c, ps, ns):
    """The weights are that loss's derivatives by automatic differentiation."""
    leaves = [s.detach().clone().requires_grad_() for s in ps + ns]
    value = weighed_loss(c, leaves[: len(ps)], leaves[len(ps) :])
    if not torch.is_tensor(value) or not value.requires_grad:
        return 0.0
    slopes = torch.autograd.grad(value, leaves, allow_unused=True)
    return sum(slope * s for slope, s in zip(slopes, ps + ns, strict=True) if slope is not None)


def intrapair_variance(c, x, r, pairs, context):
    near, far = pair_values(cosine, x, r, pairs)
    below = mean([((1 - c.pos_eps) * mean(near) - s).clamp(min=0) ** 2 for s in near])
    return below + mean([(s - (1 + c.neg_eps) * mean(far)).clamp(min=0) ** 2 for s in far])


def lifted_original(c, x, r, pairs, context):
    positives, negatives = pairs
    terms = []
    for a, ps in enumerate(positives):
        for p in ps:
            near = [c.neg_margin - distance(x[a], r[n]) for n in negatives[a]]
            near += [c.neg_margin - distance(x[b], r[p]) for b in range(len(x)) if p in negatives[b]]
            d = distance(x[a], r[p])
            term = (d + log_sum_exp(near)).clamp(min=0) ** 2 / 2 if near else 0 * d
            terms.append(term)
    return mean(terms)


def weighted(violations, temperature):
    active = [v for v in violations if v > 0]
    weights = [torch.exp(temperature * v.detach()) for v in active]
    return sum(w * v for w, v in zip(weights, active, strict=True)) / sum(weights) if active else 0.0


@each_anchor(distance)
def rankedlist(c, ps, ns):
    far = weighted([d - (c.alpha - c.margin) for d in ps], c.pos_temperature)
    return (1 - c.imbalance) * far + c.imbalance * weighted([c.alpha - d for d in ns], c.neg_temperature)


def threshold_consistent(c, x, r, pairs, context):
    near, far = pair_values(cosine, x, r, pairs)
    below = [c.pos_margin - s for s in near if s <= c.pos_margin]
    above = [s - c.neg_margin for s in far if s >= c.neg_margin]
    return c.pos_weight * mean(below) + c.neg_weight * mean(above)


COSTS = {
    "O": lambda c, r: r,
    "Iu": lambda c, r: (1 + r) * torch.log(1 + r),
    "Ib": lambda c, r: (c.b * r - torch.log(1 + c.b * r)) / c.b**2,
    "Ds": lambda c, r: torch.log(1 + r),
    "Dq": lambda c, r: 1 - 1 / (1 + r) ** c.alpha,
}


@each_anchor(cosine)
def pnp(c, ps, ns):
    before = [sum(torch.sigmoid((n - s) / c.temperature) for n in ns) + 0 * s for s in ps]
    return mean([COSTS[c.variant](c, value) for value in before]) if ps else None


# labels of six classes at three levels
LEVELS = torch.tensor([[0, 0, 0], [1, 0, 0], [2, 1, 0], [3, 2, 1], [4, 2, 1], [5, 3, 1]])


def soft_h_ap(c, similarities, shared, n_levels):
    """Of one anchor, by the other samples' similarities and by how many levels they share; None without relatives."""
    relevance = [level / n_levels / shared.count(level) if level else 0.0 for level in shared]
    total = 0.0
    for k in [k for k, level in enumerate(shared) if level]:
        hits = relevance[k]
        rank = 1.0
        for j in [j for j in range(len(shared)) if j != k]:
            t = similarities[j] - similarities[k]
            hits += min(relevance[j], relevance[k]) if t >= 0 else 0
            if shared[j] >= shared[k]:
                rank = rank + float(t >= 0)
            elif t > c.delta:
                rank = rank + c.rho * (t - c.delta) + c.offset
            else:
                rank = rank + 1 / (1 + torch.exp(-t / c.temperature)) + (c.start if t > 0 else 0)
        total = total + hits / rank
    return total / sum(relevance) if sum(relevance) else None


def happier(levels):
    def loss(c, x, r, pairs, context):
        labels, reference_labels, _ = context
        terms = []
        for a, rows in enumerate(ps + ns for ps, ns in zip(*pairs, strict=True)):
            shared = [int((levels[labels[a]] == levels[reference_labels[j]]).sum()) for j in rows]
            terms.append(soft_h_ap(c, [x[a] @ r[j] for j in rows], shared, levels.shape[1]))
        ranking = mean([1 - term for term in terms if term is not None])
        return (1 - c.weight) * ranking + c.weight * softmax(c.cluster, x, labels)

    loss.levels = levels
    return loss


# --- the batch as a whole
def contextual(c, x, labels):
    n = len(x)
    rows = [c.projection.weight @ row if c.projection is not None else row for row in x]
    s = [[cosine(a, b) for b in rows] for a in rows]
    closeness = [[-(2 - 2 * value).clamp(min=0) for value in row] for row in s]

    def neighbours(size):
        """0 or 1; with a slope."""
        bounds = [sorted((value.item() for value in row), reverse=True)[size - 1] for row in closeness]
        step = lambda value, bound: float(value + c.eps >= bound) + SLOPE * (value - value.detach())  # noqa: E731
        return [[step(value, bound) for value in row] for row, bound in zip(closeness, bounds, strict=True)]

    near = neighbours(min(c.k, n))
    half = neighbours(max(min(c.k, n) // 2, 1))
    overlap = [[0] * n for _ in range(n)]
    for members in (near, [[1 - value for value in row] for row in near]):
        for i in range(n):
            size = sum(value.item() for value in members[i]) or 1
            for j in range(n):
                overlap[i][j] += sum(members[i][m] * members[j][m] for m in range(n)) / size / 2 * near[i][j]
    shared = []
    for i in range(n):
        mutual = [half[i][m] * half[m][i] for m in range(n)]
        shared.append([sum(mutual[m] * overlap[m][j] for m in range(n)) / sum(mutual) for j in range(n)])
    context = 0.0
    far = []
    close = []
    for i, j in [(i, j) for i in range(n) for j in range(n) if i != j]:
        value = (shared[i][j] + shared[j][i]) / 2
        if labels[i] == labels[j]:
            context = context + (1 - value) ** 2 / n**2
            far.append((c.pos_margin - s[i][j]).clamp(min=0))
        else:
            context = context + value**2 / n**2
            close.append((s[i][j] - c.neg_margin).clamp(min=0))
    average = sum(sum(row) for row in s) / n**2
    contrastive = mean_active(far) + mean_active(close)
    return c.context_weight * context + c.contrastive_weight * contrastive + c.mean_weight * (average - c.mean) ** 2


def hist(c, x, labels):
    labels = labels.tolist()
    first, second = c.layers
    gap = lambda u, w, rho: ((u / u.norm() - w / w.norm()) ** 2 / torch.exp(rho.clamp(0, 6))).sum()  # noqa: E731
    gaps = [[gap(row, w, rho) for w, rho in zip(c.proxies, c.log_variances, strict=True)] for row in x]
    edges = []
    for row, y in zip(gaps, labels, strict=True):
        edges.append(torch.stack([torch.exp(-c.alpha * row[k] * (k != y)) for k in sorted(set(labels))]))
    edges = torch.stack(edges)
    root = torch.diag(edges.sum(1) ** -0.5)
    graph = root @ edges @ torch.diag(1 / edges.sum(0)) @ edges.T @ root
    hidden = graph @ (x @ first.weight.T + first.bias)
    hidden = (hidden - hidden.mean(0)) / (hidden.var(0, correction=0) + 1e-5).sqrt() * c.norm.weight + c.norm.bias
    out = graph @ (torch.where(hidden > 0, hidden, 0.1 * hidden) @ second.weight.T + second.bias)
    terms = []
    for row, logits, y in zip(gaps, out, labels, strict=True):
        distributions = torch.stack([-c.tau * d for d in row])
        terms.append(cross_entropy_of(distributions, y) + c.weight * cross_entropy_of(logits, y))
    return mean(terms)


def vicreg(c, x, labels):
    views = [[], []]
    for label in dict.fromkeys(labels.tolist()):
        rows = [i for i, y in enumerate(labels) if y == label]
        for k, view in enumerate(views):
            view += rows[: len(rows) // 2 * 2][k::2]
    n = len(views[0])
    if not n:
        return 0.0
    dimensions = range(x.shape[1])
    total = c.invariance * mean([((x[i] - x[j]) ** 2).mean() for i, j in zip(*views, strict=True)])
    for view in views:
        centred = x[view] - x[view].mean(0)
        for k, m in [(k, m) for k in dimensions for m in dimensions]:
            entry = (centred[:, k] * centred[:, m]).sum() / max(n - 1, 1)
            variance_term = c.variance * (1 - (entry.clamp(min=0) + c.eps).sqrt()).clamp(min=0) / 2
            total = total + (variance_term if k == m else c.covariance * entry**2) / len(dimensions)
    return total


def cross_entropy_of(logits, y):
    return torch.logsumexp(logits, 0) - logits[y]


def cross_entropy(logits_of):
    """mean over samples of the cross-entropy of `logits_of(criterion, x, y)`, a list of scalars."""

    def loss(c, x, labels):
        rows = zip(x, labels.tolist(), strict=True)
        return mean([cross_entropy_of(torch.stack(logits_of(c, row, y)), y) for row, y in rows])

    return loss


softmax = cross_entropy(lambda c, x, y: [x @ w / w.norm() / c.temperature for w in c.proxies])
instance = cross_entropy(lambda c, x, y: [c.gamma * (x @ w) for w in c.proxies])


@cross_entropy
def cosface(c, x, y):
    return [c.scale * (cosine(x, w) - c.margin * (k == y)) for k, w in enumerate(c.proxies)]


def adaface(c, x, labels):
    lengths = [row.detach().norm().clamp(0.001, 100) for row in x]
    mean_length = c.momentum * mean(lengths) + (1 - c.momentum) * 20
    deviation = torch.tensor(100.0)
    if len(lengths) > 1:
        variance = sum((length - mean(lengths)) ** 2 for length in lengths) / (len(lengths) - 1)
        deviation = c.momentum * variance.sqrt() + (1 - c.momentum) * 100

    @cross_entropy
    def of_row(c, row, y):
        length = row.detach().norm().clamp(0.001, 100)
        z = (c.concentration * (length - mean_length) / (deviation + 0.001)).clamp(-1, 1)
        cosines = [cosine(row, w).clamp(-0.999, 0.999) for w in c.proxies]
        angle = (torch.acos(cosines[y]) - c.margin * z).clamp(0.001, math.pi - 0.001)
        cosines[y] = torch.cos(angle) - c.margin * (1 + z)
        return [c.scale * s for s in cosines]

    return of_row(c, x, labels)


def magface(c, x, labels):
    def length(row):
        return row.norm().clamp(c.shortest, c.longest)

    @cross_entropy
    def of_row(c, row, y):
        share = (length(row) - c.shortest) / (c.longest - c.shortest)
        cosines = [cosine(row, w) for w in c.proxies]
        if cosines[y] > 0:
            margin = c.lower_margin + share * (c.upper_margin - c.lower_margin)
            cosines[y] = torch.cos(torch.acos(cosines[y].clamp(-1 + 1e-7, 1 - 1e-7)) + margin)
        return [c.scale * s for s in cosines]

    favour = mean([length(row) / c.longest**2 + 1 / length(row) for row in x])
    return of_row(c, x, labels) + c.weight * favour


def curricularface(c, x, labels):
    progress = c.momentum * mean([cosine(row, c.proxies[y]).detach() for row, y in zip(x, labels, strict=True)])

    @cross_entropy
    def of_row(c, row, y):
        cosines = [cosine(row, w).clamp(-1 + 1e-7, 1 - 1e-7) for w in c.proxies]
        angle = torch.acos(cosines[y]) + c.margin
        logits = [s * (progress + s) if s > torch.cos(angle) else s for s in cosines]
        logits[y] = torch.cos(angle) if angle < math.pi else cosines[y] - c.margin * math.sin(c.margin)
        return [c.scale * s for s in logits]

    return of_row(c, x, labels)


@cross_entropy
def subcenter_arcface(c, x, y):
    per_class = len(c.proxies) // c.n_classes
    cosines = [max(cosine(x, w) for w in c.proxies[k * per_class : (k + 1) * per_class]) for k in range(c.n_classes)]
    angle = torch.acos(cosines[y].clamp(-1 + 1e-7, 1 - 1e-7)) + c.angular_margin
    linear = cosines[y] - c.angular_margin * math.sin(c.angular_margin)
    cosines[y] = torch.cos(angle) if angle <= math.pi else linear
    return [c.feature_scale * s for s in cosines]


arcface = subcenter_arcface


@cross_entropy
def circle_softmax(c, x, y):
    logits = []
    for k, w in enumerate(c.proxies):
        s = cosine(x, w)
        weight = 1 + c.margin - s if k == y else s + c.margin
        bound = 1 - c.margin if k == y else c.margin
        logits.append(c.scale * weight.detach().clamp(min=0) * (s - bound))
    return logits


def center(c, x, labels):
    """The embeddings' part with the weight, the centres' without: the second is subtracted again."""
    centres = [c.proxies[y] for y in labels.tolist()]
    embeddings = mean([(row - w.detach()).square().sum() for row, w in zip(x, centres, strict=True)])
    moved = mean([(row.detach() - w).square().sum() for row, w in zip(x, centres, strict=True)])
    return c.weight * embeddings + moved - moved.detach()


def multiplicative(lengths_count):
    def logits(c, x, y):
        cosines = [cosine(x, w) for w in c.proxies]
        lengths = [w.norm() if lengths_count else 1 for w in c.proxies]
        angle = torch.acos(cosines[y])
        k = math.floor(c.margin * float(angle.detach()) / math.pi)
        widened = (-1) ** k * torch.cos(c.margin * angle) - 2 * k
        cosines[y] = (widened + c.cosine_weight * cosines[y]) / (1 + c.cosine_weight)
        return [c.scale * x.norm() * length * s for length, s in zip(lengths, cosines, strict=True)]

    return cross_entropy(logits)


largemargin_softmax = multiplicative(True)
sphereface = multiplicative(False)


def proxy_nca(own_counts):
    def loss(c, x, labels):
        terms = []
        scale = c.scale if c.scale is not None else c.softmax_scale**0.5
        for row, y in zip(x, labels.tolist(), strict=True):
            squared = [scale**2 * (row / row.norm() - p / p.norm()).square().sum() for p in c.proxies]
            terms.append(squared[y] + log_sum_exp([-s for k, s in enumerate(squared) if own_counts or k != y]))
        return mean(terms)

    return loss


proxynca = proxy_nca(False)
proxynca_pp = proxy_nca(True)


def proxyanchor(c, x, labels):
    positive = []
    negative = 0.0
    for k, proxy in enumerate(c.proxies):
        near = [cosine(row, proxy) for row, y in zip(x, labels, strict=True) if y == k]
        far = [cosine(row, proxy) for row, y in zip(x, labels, strict=True) if y != k]
        if near:
            positive.append(log1p_sum([torch.exp(-c.alpha * (s - c.delta)) for s in near]))
        negative = negative + log1p_sum([torch.exp(c.alpha * (s + c.delta)) for s in far])
    return mean(positive) + negative / len(c.proxies)


def softtriplet(c, x, labels):
    size = len(c.proxies) // c.n_classes
    centres = [[w / w.norm() for w in c.proxies[k * size : (k + 1) * size]] for k in range(c.n_classes)]

    @cross_entropy
    def loss(c, row, y):
        logits = []
        for k, of_class in enumerate(centres):
            s = torch.stack([row @ w / row.norm() for w in of_class])
            logits.append(c.scale * ((torch.softmax(s / c.gamma, 0) * s).sum() - c.margin_delta * (k == y)))
        return logits

    if size == 1:
        return loss(c, x, labels)
    products = [of_class[t] @ of_class[u] for of_class in centres for t in range(size) for u in range(t + 1, size)]
    spread = sum(torch.sqrt(2 + 1e-5 - 2 * product) for product in products)
    return loss(c, x, labels) + c.reg_weight * spread / (c.n_classes * size * (size - 1))


def p2sgrad(c, x, labels):
    terms = []
    for row, y in zip(x, labels, strict=True):
        terms.append(sum((cosine(row, w) - float(k == y)) ** 2 for k, w in enumerate(c.proxies)) / 2)
    return mean(terms)


def manifold(c, x, labels):
    """The walk by its series F = (1 - alpha) sum_t (alpha S)^t."""
    n = len(x)
    nodes = unit(torch.cat([x, c.proxies]))
    edges = torch.exp((nodes @ nodes.T).clamp(min=0) / 0.5) * (1 - torch.eye(len(nodes), dtype=x.dtype))
    degrees = edges.sum(1)
    scaled = edges / (degrees[:, None] * degrees[None, :]).sqrt()
    term = walk = torch.eye(len(nodes), dtype=x.dtype)
    for _ in range(200):
        term = c.alpha * scaled @ term
        walk = walk + term
    total = 0.0
    for i, y in enumerate(labels):
        group = int(c.groups[y])
        context = [cosine(walk[i], walk[n + k]) for k in range(len(c.proxies))]
        for weight, row in ((1.0, (1 - c.alpha) * walk[i, n:]), (c.context_weight, context)):
            excesses = [row[k] - row[group] + c.margin for k in range(len(c.proxies)) if k != group]
            total = total + weight * log1p_sum([torch.exp(e) for e in excesses if e >= 0])
    return total / n


def meanfield(c, x, labels):
    """All classes' fields, those that are not in the batch too; a class without images has means of 0."""
    classes = range(c.n_classes)
    rows = [[] for _ in classes]
    for j, y in enumerate(labels.tolist()):
        rows[y].append(j)
    s = [[cosine(row, w) for w in c.proxies] for row in x]
    near = [mean([torch.exp(c.alpha * (c.margin - s[j][k])) for j in rows[k]]) for k in classes]
    far = [[mean([torch.exp(c.beta * (s[j][k] - c.margin)) for j in rows[i]]) for k in classes] for i in classes]
    n = len(set(labels.tolist()))
    own_fields = sum(torch.log(1 + torch.as_tensor(value)) for value in near) / (c.alpha * n)
    pair_fields = [torch.log(1 + torch.as_tensor(far[i][k] + far[k][i])) for i in classes for k in classes if i != k]
    return own_fields + sum(pair_fields) / (2 * c.beta * n)


def cases(flags_of):
    """(loss, formula, flags) for each dictionary of flags, whose names are without `loss_<loss>_`."""
    rows = []
    for name, all_flags in flags_of.items():
        for flags in all_flags:
            formula = flags.get("formula", globals()[name])
            rows.append((name, formula, {flag: value for flag, value in flags.items() if flag != "formula"}))
    return rows


# losses that compare samples: flags that give active and inactive terms, or terms that are off by default
COMPARING = cases(
    {
        "angle": [{}, {"scale": 4.0}],
        "angular": [{}, {"alpha": 36.0, "npair_ang_weight": 0.5}],
        "circle": [{}, {"m": 0.25, "gamma": 10}],
        "contrastive": [{}, {"pos_margin": 0.7, "neg_margin": 3.1}],
        "cosent": [{"scale": 1.0}, {}],
        "fastap": [{}, {"num_bins": 1}],
        "gpw": [
            *({"weights": name} for name in ("contrastive", "triplet", "binomial", "lifted", "multisimilarity")),
            {"pos_scale": 5.0, "neg_scale": 7.0, "threshold": 0.1},
        ],
        "happier": [
            {"formula": happier(LEVELS)},
            {"formula": happier(LEVELS), "temperature": 0.2, "weight": 0.4, "cluster_temperature": 0.3},
            {"formula": happier(LEVELS[:, :2]), "offset": 1.0, "start": 0.0, "rho": 3.0, "delta": 0.4},
            {"formula": happier(LEVELS[:, :1])},
        ],
        "histogram": [{"nbins": 9}],
        "hyperbolic": [{}, {"c": 1.0, "T": 0.5}],
        "intrapair_variance": [{}, {"pos_eps": 0.3, "neg_eps": 0.7}],
        "lifted": [{}, {"neg_margin": -2.5, "l2": 0.1}],
        "lifted_original": [{}, {"neg_margin": -0.5}],
        "margin": [{"nu": 0.2}],
        "multisimilarity": [{}, {"neg_weight": 7, "margin": 0.4}, {"margin": math.inf}],
        "nca": [{}, {"scale": 3}],
        "npair": [{"l2": 0.1}],
        "ntxent": [{}, {"temperature": 0.5}, {"temperature": 0.5, "decoupled": True}],
        "pml": [{"class": "ContrastiveLoss"}],
        "pnp": [*({"variant": name, "temperature": 0.1} for name in COSTS), {"alpha": 1.5, "temperature": 0.2}],
        "quadruplet": [{}],
        "rankedlist": [{}, {"alpha": 1.4, "neg_temperature": 3.0, "pos_temperature": 2.0}],
        "recallatk": [{"temperature": 0.2, "ks": [1, 2, 5]}],
        "roadmap": [{}, {"temperature": 0.2, "delta": 0.3, "rho": 2.0, "start": 0.0, "offset": 1.0, "weight": 0.5}],
        "smoothap": [{"temperature": 0.2}],
        "snr": [{"reg_lambda": 0.3}],
        "snr_contrastive": [{"regularizer_weight": 0.2}, {"pos_margin": 0.4, "neg_margin": 2.5}],
        "supcon": [{}, {"temperature": 0.4}],
        "threshold_consistent": [{}, {"pos_margin": 0.3, "neg_margin": -0.2}],
        "triplet": [{}],
        "tupletmargin": [{}, {"margin": 0.3, "scale": 9}],
    }
)
# likewise, of the batch as a whole
WHOLE = cases(
    {
        "adaface": [{}, {"momentum": 0.3, "margin": 1.5, "scale": 4.0}],
        # With a margin of 2.5 an angle may pass pi
        "arcface": [{}, {"angular_margin": 2.5}],
        "center": [{}, {"weight": 1.0}],
        "circle_softmax": [{}, {"margin": 0.1, "scale": 4.0}],
        "contextual": [{"mean": 0.1}, {"k": 2, "eps": 0.5}, {"pos_margin": 1.25}, {"k": 3, "projection": 7}],
        "cosface": [{}],
        "curricularface": [{}, {"margin": 0.8, "momentum": 0.5, "scale": 4.0}],
        "hist": [{"hidden": 4, "alpha": 1.1, "tau": 3.0, "weight": 0.7}],
        "instance": [{"gamma": 3}],
        "largemargin_softmax": [{}, {"margin": 3, "scale": 3.0}],
        "magface": [{}, {"shortest": 0.2, "longest": 1.5, "weight": 0.5, "scale": 4.0}],
        "manifold": [{"n_proxies": 3}],
        "meanfield": [{}, {"alpha": 2.0, "beta": 10.0, "margin": 0.3}],
        "p2sgrad": [{}],
        "proxyanchor": [{}, {"alpha": 5.0, "delta": 0.3}],
        "proxynca": [{}],
        "proxynca_pp": [{}, {"softmax_scale": 4.0}],
        "softmax": [{}],
        "softtriplet": [{}, {"n_centroids": 4}],
        "sphereface": [{}, {"margin": 3, "cosine_weight": 0.7}],
        "subcenter_arcface": [{}],
        "vicreg": [{}, {"invariance": 2.0, "variance": 3.0, "covariance": 0.7, "eps": 0.1}],
    }
)
RAW = distances.LpDistance(normalize_embeddings=False)
UNIT = distances.LpDistance(power=2)
SQUARED = distances.LpDistance(normalize_embeddings=False, power=2)
PRODUCT = distances.DotProductSimilarity(normalize_embeddings=False)


def peer(name, make, vectors=None, miner=None, **flags):
    return name, flags, make, vectors, miner


# the same loss in pytorch-metric-learning, given unit vectors; its class vectors; the miner of the tuples of both
PEERS = [
    peer("circle", losses.CircleLoss),
    peer(
        "contrastive",
        lambda: losses.ContrastiveLoss(0.5, 1.3, distance=RAW),
        **{"miner": "none", "pos_margin": 0.5, "neg_margin": 1.3, "reduction": "nonzero"},
    ),
    peer("fastap", losses.FastAPLoss),
    peer("intrapair_variance", losses.IntraPairVarianceLoss),
    peer("lifted_original", lambda: losses.LiftedStructureLoss(neg_margin=1, pos_margin=0, distance=RAW)),
    peer("margin", lambda: losses.MarginLoss(0.2, beta=1.2, distance=RAW), miner="all", beta_shared=True),
    peer("multisimilarity", lambda: losses.MultiSimilarityLoss(2, 40, 0.5), margin=math.inf),
    peer("nca", lambda: losses.NCALoss(softmax_scale=2, distance=SQUARED), scale=2.0),
    peer("ntxent", losses.NTXentLoss),
    peer("snr_contrastive", losses.SignalToNoiseRatioContrastiveLoss),
    peer("supcon", losses.SupConLoss),
    peer("threshold_consistent", losses.ThresholdConsistentMarginLoss),
    peer(
        "triplet",
        lambda: losses.TripletMarginLoss(0.2, swap=True, distance=RAW),
        **{"miner": "all", "distance": "euclidean", "swap": True, "reduction": "nonzero"},
    ),
    peer("triplet", lambda: losses.TripletMarginLoss(0.2, smooth_loss=True, distance=UNIT), miner="all", smooth=True),
    peer("tupletmargin", lambda: losses.TupletMarginLoss(margin=math.degrees(0.1))),
    peer("vicreg", lambda: lambda x, labels: losses.VICRegLoss()(x[::2], ref_emb=x[1::2])),
    peer("arcface", lambda: losses.ArcFaceLoss(5, 6, margin=math.degrees(0.5), scale=16), "W"),
    peer("cosface", lambda: losses.CosFaceLoss(5, 6), "W"),
    peer("largemargin_softmax", lambda: losses.LargeMarginSoftmaxLoss(5, 6, margin=4, scale=2), "W", scale=2),
    peer("proxyanchor", lambda: losses.ProxyAnchorLoss(5, 6, margin=0.1, alpha=32), "proxies"),
    peer("proxynca_pp", lambda: losses.ProxyNCALoss(5, 6, softmax_scale=9), "proxies"),
    peer("softmax", lambda: losses.NormalizedSoftmaxLoss(5, 6, temperature=0.05, distance=PRODUCT), "W"),
    peer(
        "softtriplet",
        lambda: losses.SoftTripleLoss(5, 6, centers_per_class=3, la=8, gamma=0.1, margin=0.01),
        **{"vectors": "fc", "n_centroids": 3, "reg_weight": 0.0},
    ),
    peer("sphereface", lambda: losses.SphereFaceLoss(5, 6, margin=4, scale=2), "W", scale=2),
    peer(
        "subcenter_arcface",
        lambda: losses.SubCenterArcFaceLoss(num_classes=5, embedding_size=6, margin=math.degrees(0.5), scale=64),
        "W",
    ),
]
# four unit embeddings with their labels and three class vectors: the authors' functions gave the pinned values on these
PINNED = torch.tensor([[1, 0, 0], [0.8, 0.6, 0], [0, 1, 0], [0, 0.6, 0.8]], dtype=torch.float64)
PINNED_LABELS = torch.tensor([0, 0, 1, 1])
VECTORS = torch.tensor([[1, 0.2, 0], [0, 1, 0.3], [0.1, 0, 1]], dtype=torch.float64)
PINNED_VECTORS = torch.nn.functional.normalize(VECTORS)
HIST_STATE = {"proxies": torch.eye(3), "log_variances": torch.tensor([[-1, 0, 0.5], [0.2, 0.2, 0.2], [7, 0, 0]])}
HIST_STATE |= {f"layers.{i}.weight": torch.eye(3) for i in (0, 1)}
HIST_STATE |= {f"layers.{i}.bias": torch.zeros(3) for i in (0, 1)}
HIST = {"alpha": 1.1, "hidden": 3}
MEANFIELD = {"alpha": 2.0, "beta": 10.0, "margin": 0.5}
K2 = {"k": 2, "eps": 0.05}
# loss, flags, its state, the value and statistics that the authors' code, FastReID's or Bag of Tricks' gives
PINS = [
    ("contextual", K2, {}, {"loss": 0.01948123, "context": 0.00629340, "contrastive": 0.15, "mean_cosine": 0.545}),
    ("contextual", {**K2, "eps": 0.5}, {}, {"context": 0.01350908}),
    ("contextual", {**K2, "pos_margin": 0.9}, {}, {"contrastive": 0.2}),
    ("hist", {**HIST, "tau": 32.0}, HIST_STATE, {"distribution_loss": 2.0400198, "hypergraph_loss": 0.8944482}),
    ("hist", {**HIST, "tau": 1.0}, HIST_STATE, {"distribution_loss": 0.6048190}),
    ("meanfield", MEANFIELD, {"proxies": PINNED_VECTORS}, {"loss": 0.3394990}),
    ("circle_softmax", {"scale": 1}, {"proxies": VECTORS}, {"loss": 1.0436040}),
    ("circle_softmax", {"scale": 64}, {"proxies": VECTORS}, {"loss": 8.3478990}),
    ("center", {"weight": 1.0}, {"proxies": torch.eye(3)}, {"loss": 0.3}),
]
