"""Rules for ensembles of decision trees: all trees of all rows walk down at once, one level per step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto, helper

from tilewright.compiler.importers.onnx import forms
from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.classical import (
    ML,
    labelled,
    labels_of,
    of_two_classes,
    rows,
    transformed,
)
from tilewright.compiler.importers.onnx.rules import rule
from tilewright.compiler.importers.onnx.values import Node, Refused, Value

DEEPEST = 128
"""Most levels of a tree; each is a step of every tree."""

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
"""By the numbers that `TreeEnsemble` gives them, the modes without `BRANCH_`."""

NAN_ABOVE, NAN_BELOW, IS_NAN = range(3)
"""Readings of a feature: infinity in place of NaN, its negative, or 1 where it is NaN and 0 elsewhere."""


@dataclass(frozen=True)
class Condition:
    """`low <= x <= high` of one reading of a feature leads to the first of two branches or leaves."""

    feature: int
    reading: int
    low: float
    high: float
    children: tuple[int, int]


def condition_of(
    mode: str, feature: int, split: float, tracks: bool, children: tuple[int, int], dtype: np.dtype
) -> Condition:
    """Any test as one of an interval; NaN holds it where `tracks` says so, and differs from every number."""
    infinity = float("inf")
    if mode in ("GT", "GTE", "NEQ"):  # the others' opposites
        opposite = {"GT": "LEQ", "GTE": "LT", "NEQ": "EQ"}[mode]
        return condition_of(
            opposite, feature, split, mode != "NEQ" and not tracks, (children[1], children[0]), dtype
        )
    if mode not in MODES[:5] or np.isnan(split) or (mode, tracks) == ("EQ", True):
        raise Refused(f"a node tests for {mode} of {split:g}{' or NaN' * tracks}")
    low, high = split if mode == "EQ" else -infinity, split
    if mode == "LT":
        high = float(np.nextafter(dtype.type(split), dtype.type(-infinity)))
        low = infinity if split == -infinity else low
    if tracks:
        return Condition(feature, NAN_BELOW, low, high, children)
    if high == infinity and low != high:
        return Condition(feature, IS_NAN, low, 0.5, children)
    return Condition(feature, NAN_ABOVE, low, high, children)


@dataclass(frozen=True)
class Ensemble:
    """Branches by number, leaves as all other numbers with what each adds to targets, the root of every tree."""

    tests: dict[int, Condition]
    leaves: dict[int, list[tuple[int, float]]]
    roots: list[int]
    targets: int


@dataclass(frozen=True)
class Table:
    """Trees as arrays over slots: roots first, then pairs of children. A leaf's test holds and leads to itself."""

    feature: np.ndarray
    low: np.ndarray
    high: np.ndarray
    first: np.ndarray
    scores: np.ndarray
    depth: int


def depth_of(ensemble: Ensemble) -> int:
    """The length of the longest way from a root to a leaf."""
    depth, level = 0, set(ensemble.roots) & set(ensemble.tests)
    while level:
        depth += 1
        if depth > DEEPEST:
            raise Refused(f"its trees have more than {DEEPEST} levels")
        level = {child for number in level for child in ensemble.tests[number].children} & set(ensemble.tests)
    return depth


def table_of(ensemble: Ensemble, width: int, dtype: np.dtype) -> Table:
    """The slots of all trees, level by level; a feature's number counts through its readings of `width` each."""
    depth, slots = depth_of(ensemble), list(ensemble.roots)
    pairs: dict[
        int, int
    ] = {}  # where a branch's children are; LightGBM's converter shares some among branches
    first: list[int] = []
    for slot, number in enumerate(slots):  # which grow meanwhile
        if number in ensemble.tests and number not in pairs:
            pairs[number] = len(slots)
            slots += ensemble.tests[number].children
        first.append(pairs.get(number, slot))
    feature = np.zeros(len(slots), np.int64)
    low, high = np.full(len(slots), -np.inf, dtype), np.full(len(slots), np.inf, dtype)
    scores = np.zeros((len(slots), ensemble.targets), dtype)
    for slot, number in enumerate(slots):
        test = ensemble.tests.get(number)
        if test is None:
            for target, weight in ensemble.leaves.get(number, ()):
                scores[slot, target] += weight
            continue
        if not 0 <= test.feature < width:
            raise Refused(f"a node reads feature {test.feature} of {width}")
        feature[slot] = test.reading * width + test.feature
        low[slot], high[slot] = test.low, test.high
    return Table(feature, low, high, np.array(first, np.int64), scores, depth)


def _readings(b: Builder, x: Value, feature: np.ndarray) -> tuple[Value, np.ndarray]:
    """The readings [N, K * F] that are asked for, and the features by their place among those."""
    width, nan = x.shape[1], b.op("IsNaN", x)
    asked = sorted({int(r) for r in feature // width})
    infinity = float("inf")
    made = {
        NAN_ABOVE: lambda: b.op("Where", nan, b.scalar(infinity, x), x),
        NAN_BELOW: lambda: b.op("Where", nan, b.scalar(-infinity, x), x),
        IS_NAN: lambda: forms.cast(b, nan, x.dtype),
    }
    return (
        forms.concat(b, [made[r]() for r in asked], 1),
        np.searchsorted(asked, feature // width) * width + feature % width,
    )


def leaf_scores(b: Builder, x: Value, ensemble: Ensemble) -> Value:
    """What the leaf that a row ends in gives, for every row and tree: [N, T, targets]."""
    dtype = helper.tensor_dtype_to_np_dtype(x.dtype)
    table = table_of(ensemble, x.shape[1], dtype)
    x, feature = _readings(b, x, table.feature)
    exact = bool((table.low > -np.inf).any())
    features, lows, highs, firsts = (b.const(a) for a in (feature, table.low, table.high, table.first))
    at = b.const(np.tile(np.arange(len(ensemble.roots), dtype=np.int64), (x.shape[0], 1)))
    for _ in range(table.depth):
        read = b.op("GatherElements", x, b.op("Gather", features, at, axis=0), axis=1)
        outside = b.op("Greater", read, b.op("Gather", highs, at, axis=0))
        if exact:
            outside = b.op("Or", outside, b.op("Less", read, b.op("Gather", lows, at, axis=0)))
        at = forms.add(b, b.op("Gather", firsts, at, axis=0), forms.cast(b, outside, TensorProto.INT64))
    return b.op("Gather", b.const(table.scores), at, axis=0)


def _aggregated(b: Builder, x: Value, ensemble: Ensemble, name: str) -> Value:
    """Scores [N, targets] over all trees."""
    scores = leaf_scores(b, x, ensemble)
    operators = {"SUM": "ReduceSum", "AVERAGE": "ReduceSum", "MIN": "ReduceMin", "MAX": "ReduceMax"}
    if name not in operators or (name in ("MIN", "MAX") and ensemble.targets > 1):
        raise Refused(f"its aggregate_function `{name}` of {ensemble.targets} targets is not taken")
    total = forms.reduce(b, operators[name], scores, [1], keep=False)
    return forms.div(b, total, len(ensemble.roots)) if name == "AVERAGE" else total


def _numbers(node: Node, name: str) -> list[float]:
    tensor = node.attrs.get(f"{name}_as_tensor")
    return list(node.attrs.get(name) or ()) if tensor is None else tensor.reshape(-1).tolist()


def _listed_ensemble(node: Node, kind: str, targets: int, dtype: np.dtype) -> Ensemble:
    """Of the operators that list nodes by tree and number; `kind` is what they call the weights of leaves."""
    attrs = node.attrs
    names = list(zip(attrs["nodes_treeids"], attrs["nodes_nodeids"]))
    numbers = {name: i for i, name in enumerate(names)}
    if len(numbers) < len(names):
        raise Refused("two of its nodes have the same number")
    roots = {tree: i for i, (tree, _) in reversed(list(enumerate(names)))}
    splits, tracks = _numbers(node, "nodes_values"), attrs.get("nodes_missing_value_tracks_true")
    tests: dict[int, Condition] = {}
    for i, ((tree, _), mode) in enumerate(zip(names, attrs["nodes_modes"])):
        if mode != "LEAF":
            ways = (attrs["nodes_truenodeids"][i], attrs["nodes_falsenodeids"][i])
            children = (numbers[tree, ways[0]], numbers[tree, ways[1]])
            feature, tracked = attrs["nodes_featureids"][i], bool(tracks and tracks[i])
            tests[i] = condition_of(
                mode.removeprefix("BRANCH_"), feature, splits[i], tracked, children, dtype
            )
    leaves: dict[int, list[tuple[int, float]]] = {}
    lists = (attrs[f"{kind}_{name}"] for name in ("treeids", "nodeids", "ids"))
    for tree, number, target, weight in zip(*lists, _numbers(node, f"{kind}_weights")):
        leaves.setdefault(numbers[tree, number], []).append((target, weight))
    return Ensemble(tests, leaves, [roots[tree] for tree in sorted(roots)], targets)


def _with_base(b: Builder, scores: Value, base: Sequence[float]) -> Value:
    return forms.add(b, scores, b.const(np.array(base), scores.dtype)) if base else scores


@rule("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(b: Builder, node: Node):
    x = rows(b, node)
    dtype = helper.tensor_dtype_to_np_dtype(x.dtype)
    ensemble = _listed_ensemble(node, "target", node.attrs.get("n_targets", 1), dtype)
    scores = _aggregated(b, x, ensemble, node.attrs.get("aggregate_function", "SUM"))
    scores = _with_base(b, scores, _numbers(node, "base_values"))
    y = transformed(b, scores, node.attrs.get("post_transform", "NONE"))
    return forms.cast(b, y, TensorProto.FLOAT)


@rule("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(b: Builder, node: Node):
    """Labels and scores [N, classes]. Leaves that score only the first of two classes mean the second.

    Then scores are chances where no weight is below 0, and else distances from the border.
    """
    x = rows(b, node)
    labels = labels_of(node, "classlabels_int64s", "classlabels_strings")
    ids, base = set(node.attrs["class_ids"]), _numbers(node, "base_values")
    one, both = (len(labels) == 2 and ids == of and len(base) < most for of, most in (({0}, 2), ({0, 1}, 1)))
    if len(labels) == 2 and not one and not both:
        raise Refused(f"its leaves score classes {sorted(ids)} of 2, with {len(base)} base values")
    dtype = helper.tensor_dtype_to_np_dtype(x.dtype)
    ensemble = _listed_ensemble(node, "class", 1 if one else len(labels), dtype)
    scores = _with_base(b, _aggregated(b, x, ensemble, "SUM"), base)
    name = node.attrs.get("post_transform", "NONE")
    if one:
        chances = min(_numbers(node, "class_weights")) >= 0
        rest = forms.sub(b, 1, scores) if chances else b.op("Neg", scores)
        label, y = of_two_classes(b, scores, labels, name, 0.5 if chances else 0, rest)
    else:
        label, y = labelled(b, scores, labels), transformed(b, scores, name)
    return [label, forms.cast(b, y, TensorProto.FLOAT)]


@rule("TreeEnsemble", domain=ML)
def tree_ensemble(b: Builder, node: Node):
    """Nodes and leaves are lists of their own; leaf i has the number that follows those of all nodes by i."""
    x, attrs = rows(b, node), node.attrs
    dtype = helper.tensor_dtype_to_np_dtype(x.dtype)
    splits = np.asarray(attrs["nodes_splits"]).reshape(-1).tolist()
    tracks = attrs.get("nodes_missing_value_tracks_true")

    def child(way: str, i: int) -> int:
        return attrs[f"nodes_{way}nodeids"][i] + len(splits) * bool(attrs[f"nodes_{way}leafs"][i])

    tests: dict[int, Condition] = {}
    for i, (mode, split) in enumerate(zip(np.asarray(attrs["nodes_modes"]).tolist(), splits)):
        children = (child("true", i), child("false", i))
        tracked = bool(tracks and tracks[i])
        tests[i] = condition_of(MODES[mode], attrs["nodes_featureids"][i], split, tracked, children, dtype)
    weights = np.asarray(attrs["leaf_weights"]).reshape(-1).tolist()
    targets = attrs["leaf_targetids"]
    leaves = {len(splits) + i: [pair] for i, pair in enumerate(zip(targets, weights))}
    ensemble = Ensemble(tests, leaves, list(attrs["tree_roots"]), attrs.get("n_targets", 1))
    aggregate = AGGREGATES[attrs.get("aggregate_function", 1)]
    name = TRANSFORMS[attrs.get("post_transform", 0)]
    return transformed(b, _aggregated(b, x, ensemble, aggregate), name)
