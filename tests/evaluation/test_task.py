"""The record of retrieval, `Rows` and `Task`, on points of a line: parts, places, and what is relevant."""

import numpy as np
import pytest

import metrics
from evaluation.averages import divided, over_draws
from evaluation.task import Rows, Task, joined, measure

LINE = np.array([[0.0, 1.0], [1.0, 1.0], [3.0, 1.0], [7.0, 1.0], [15.0, 1.0], [31.0, 1.0]])
NEAREST = [[1], [0], [1], [2], [3], [4]]
FARTHEST = [[5], [5], [5], [5], [5], [0]]
LABELS = np.array([0, 0, 1, 1, 2, 2])
ALL = np.arange(6)


def positives_of(task):
    return [rows.tolist() for rows in task.lists.each("positive")]


def test_rows_that_are_taken_twice_know_which_they_are():
    rows = Rows(LINE, LABELS, parents=np.array([0, 0, 0, 1, 1, 1]))
    part = rows.take(np.array([1, 3, 4])).take(np.array([0, 2]))
    assert part.ids.tolist() == [1, 4] and part.features[:, 0].tolist() == [1.0, 15.0]
    assert part.labels.tolist() == [0, 2] and part.parents.tolist() == [0, 1] and part.sequences is None
    assert part.take(None) is part and rows.ids is None and rows.positions.tolist() == ALL.tolist()


def test_joined_rows_stand_one_part_after_the_other():
    first = Rows(LINE[:2], LABELS[:2], groups=np.array([5, 6]), domains=None)
    second = Rows(LINE, LABELS, groups=ALL + 10, domains=ALL.astype(str)).take(np.array([4]))
    rows = joined([first, second])
    assert rows.features[:, 0].tolist() == [0.0, 1.0, 15.0] and rows.labels.tolist() == [0, 0, 2]
    assert rows.groups.tolist() == [5, 6, 14] and rows.ids is None and rows.domains is None
    assert joined([first]) is first


def test_a_class_in_two_super_classes_is_two():
    rows = Rows(LINE, np.array([0, 0, 0, 0, 1, 1]), parents=np.array([0, 0, 1, 1, 1, 0]))
    relevant, ranked = Task(rows).findable()
    assert relevant.tolist() == [1, 1, 1, 1, 0, 0] and ranked.tolist() == [2] * 6


def test_further_classes_are_relevant_once():
    # Sample 0 names its own class again, sample 4 a class of no image
    task = Task(Rows(LINE, LABELS), further_labels={0: [0, 1], 4: [1, 9]})
    assert task.findable()[0].tolist() == [3, 1, 1, 1, 3, 1]
    assert positives_of(task.part(ALL, ALL)) == [[1, 2, 3], [0], [3], [2], [2, 3, 5], [4]]
    part = task.part(np.array([1, 4]), ALL)
    assert positives_of(part) == [[0], [2, 3, 5]] and part.gallery is task.searched and part.exclude.tolist() == [1, 4]


def test_a_part_of_the_queries_in_a_part_of_the_gallery():
    task = Task(Rows(LINE, LABELS))
    part = task.part(np.array([0, 1]), np.array([1, 2]))
    assert part.queries.ids.tolist() == [0, 1] and part.gallery.ids.tolist() == [1, 2]
    assert part.exclude.tolist() == part.places.tolist() == [-1, 0]
    itself = task.part(np.array([1, 2]), np.array([1, 2]))
    assert itself.gallery is None and itself.exclude is None and itself.places.tolist() == [0, 1]
    task = Task(Rows(LINE[:3], LABELS[:3]), Rows(LINE, LABELS), exclude=np.array([2, -1, 0]))
    assert task.part(np.array([0, 2]), np.array([0, 1])).exclude.tolist() == [-1, 0]
    assert Task(task.queries, task.gallery).places.tolist() == [-1, -1, -1]


def test_lists_go_with_their_queries():
    task = Task(Rows(LINE, LABELS), relevance={"": metrics.Lists.of(NEAREST, FARTHEST)})
    part = task.part(np.array([2, 5]), ALL)
    assert positives_of(part) == [[1], [4]] and [rows.tolist() for rows in part.lists.each("junk")] == [[5], [0]]


def test_protocols_are_measured_each_and_class_wise_numbers_once():
    rows = Rows(LINE, LABELS)
    easy = metrics.Lists.of(NEAREST)
    hard = metrics.Lists.of(FARTHEST)
    names = ["e_recall@1", "dists@intra", "ap"]
    expected = metrics.compute(["dists@intra"], LINE, LABELS)
    for relevance, of_lists in (
        ({"easy": easy, "hard": hard}, {"easy/e_recall@1": 1, "easy/ap": 1, "hard/e_recall@1": 0, "hard/ap": 0.2}),
        ({"": easy}, {"e_recall@1": 1, "ap": 1}),
    ):
        assert measure(Task(rows, relevance=relevance), names) == pytest.approx({**of_lists, **expected})
    values = measure(Task(rows.take(ALL[:0]), rows, pool=rows), names)
    assert np.isnan([values["e_recall@1"], values["ap"]]).all() and values["dists@intra"] == expected["dists@intra"]


def test_a_task_is_divided_with_its_pool():
    parents = np.array([0, 1, 0, 1, 0, 0])
    rows = Rows(LINE, LABELS, parents=parents, domains=None)
    for part, parent in zip(divided(Task(rows.take(ALL[:4]), rows, ALL[:4], pool=rows)), (0, 1), strict=True):
        assert (
            set(parents[part.queries.ids]) == set(parents[part.gallery.ids]) == set(parents[part.pool.ids]) == {parent}
        )
        assert len(part.gallery) == len(part.pool) == (parents == parent).sum() and part.name is None
        assert (part.gallery.ids[part.exclude] == part.queries.ids).all()
    rows = Rows(LINE, LABELS, domains=np.array(["birds", "cars"])[parents])
    for part, parent in zip(divided(Task(rows, pool=rows)), (0, 1), strict=True):
        assert part.name == ("birds", "cars")[parent] and part.gallery is rows, "all images are searched"
        assert part.queries.ids.tolist() == part.pool.ids.tolist() == np.flatnonzero(parents == parent).tolist()


def test_class_wise_numbers_are_those_of_the_first_draw():
    draws = [[Task(Rows(LINE, LABELS))], [Task(Rows(LINE[[0, 2, 1, 3, 4, 5]], LABELS))]]
    results = over_draws(iter(draws), ["ap", "dists@inter"], {})
    values = [measure(*tasks, ["ap", "dists@inter"]) for tasks in draws]
    assert results["dists@inter"] == values[0]["dists@inter"] and values[0]["ap"] != values[1]["ap"]
    assert results["ap"] == pytest.approx(np.mean([of_draw["ap"] for of_draw in values]))
