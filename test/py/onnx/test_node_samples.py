"""One of ONNX's own node tests per operator, through the backend; the whole suite is bench/onnx_conformance.py."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from tilewright import onnx_backend
from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.importers.onnx import model as onnx_model
from tilewright.compiler.importers.onnx.rules import RULES

REFUSED = {
    "Adagrad", "Adam", "Momentum", "Bernoulli", "ImageDecoder", "LabelEncoder", "NonMaxSuppression", "NonZero",
    "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer", "Unique",
}  # fmt: skip
"""Strings, training, random numbers, image files, and results whose shape depends on data."""

SAMPLE = {
    "Dropout": "test_dropout_default",
    "BatchNormalization": "test_batchnorm_epsilon",
    "Scan": "test_scan9_sum",
    "TreeEnsemble": "test_ai_onnx_ml_tree_ensemble_single_tree",
}
"""Where the first test of an operator is one that is refused."""

WITHOUT_NODE_TEST = {"ConcatFromSequence", "GlobalLpPool", "Optional", "SequenceAt", "SequenceConstruct", "SequenceEmpty",
                     "SequenceErase", "SequenceLength", "SimplifiedLayerNormalization", "Imputer", "LinearClassifier",
                     "LinearRegressor", "Normalizer", "SVMClassifier", "SVMRegressor", "Scaler", "TreeEnsembleClassifier",
                     "TreeEnsembleRegressor", "ZipMap"}  # fmt: skip
"""Rules that no single-node test reaches; tested in test_rules.py, those of ONNX Runtime in test_contrib.py, and of
classical machine learning in test_classical.py and test_support_vectors.py."""


@cache
def samples() -> dict:
    """The test case that stands for each operator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    found: dict = {}
    for case in cases:
        nodes = case.model.graph.node
        if len(nodes) == 1:
            op = nodes[0].op_type
            if op not in found or SAMPLE.get(op) == case.name:
                found[op] = case
    return found


def plain(value):
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


@pytest.mark.parametrize("op", sorted(samples()))
def test_operator(op: str):
    case = samples()[op]
    inputs, expected = case.data_sets[0]
    if op in REFUSED:
        with pytest.raises(UnsupportedError, match="operator"):
            onnx_backend.run_model(case.model, [plain(v) for v in inputs])
        return
    outputs = onnx_backend.run_model(case.model, [plain(v) for v in inputs])
    with np.errstate(all="ignore"):
        Runner.assert_similar_outputs([plain(v) for v in expected], list(outputs), case.rtol, case.atol)


def test_every_rule_has_a_test():
    assert onnx_model.RULE_FILES
    ruled = {op for domain, op in RULES if domain in ("", "ai.onnx.ml")}
    untested = ruled - set(samples()) - WITHOUT_NODE_TEST
    assert not untested
