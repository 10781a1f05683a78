"""The ONNX importer: what becomes an argument, what a constant, and what is refused with which words."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from models import info, model, random
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.compiler.errors import ModelImportError, UnsupportedError
from tilewright.compiler.importers.onnx import emit
from tilewright.compiler.importers.onnx.model import OpenShapeError, import_onnx
from tilewright.compiler.ir import functions, ir, parse


def arguments(imported) -> list[tuple[str, str]]:
    entry = next(functions(imported.module))
    return [
        (ir.StringAttr(a["tilewright.role"]).value, ir.StringAttr(a["tilewright.name"]).value)
        for a in entry.attributes["arg_attrs"]
    ]


def conv_model(**fields) -> onnx.ModelProto:
    weights = {
        "w": random(32, 3, 3, 3),
        "gamma": random(32, seed=1),
        "beta": random(32, seed=2),
        "mean": random(32, seed=3),
        "var": np.abs(random(32, seed=4)),
        "shape": np.array([1, -1], np.int64),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "gamma", "beta", "mean", "var"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Reshape", ["r", "shape"], ["y"]),
    ]
    return model(nodes, [info("x", ["batch", 3, 8, 8])], [info("y", None)], weights, **fields)


def reference(made: onnx.ModelProto, *inputs: np.ndarray) -> list[np.ndarray]:
    from onnx.reference import ReferenceEvaluator

    names = [i.name for i in made.graph.input if i.name not in {w.name for w in made.graph.initializer}]
    return ReferenceEvaluator(made).run(None, dict(zip(names, inputs)))


def test_weights_are_arguments_and_shapes_are_constants():
    made = conv_model()
    imported = import_onnx(made, (random(1, 3, 8, 8),))
    roles = arguments(imported)
    assert roles[0] == ("input", "x")
    assert {name for role, name in roles if role == "weight"} == {"w", "gamma", "beta", "mean", "var"}
    assert len(imported.weights) == 5
    text = str(imported.module)
    assert "dense_resource" not in text and "dense<[" not in text


def test_weights_are_not_copied():
    made = conv_model()
    imported = import_onnx(made, (random(1, 3, 8, 8),))
    given = {t.name: t for t in made.graph.initializer}
    weight = next(w for w in imported.weights if w.shape == (32, 3, 3, 3))
    np.testing.assert_array_equal(weight, numpy_helper.to_array(given["w"]))


def test_batch_norm_is_scale_and_shift_of_weights():
    imported = import_onnx(conv_model(), (random(1, 3, 8, 8),))
    text = str(imported.module)
    # Square root and division act on the channels alone; the image is multiplied and added to.
    generics = text.split("linalg.generic")
    costly = [part for part in generics if "math.sqrt" in part or "arith.divf" in part]
    assert costly and all("8x8xf32" not in part.split("} -> ")[0] for part in costly)
    assert sum("arith.mulf" in part and "1x32x8x8xf32" in part.split("} -> ")[0] for part in generics) == 1


def test_dynamic_dimensions_are_bound_by_examples():
    made = conv_model()
    x = random(1, 3, 8, 8)
    (result,) = tilewright.compile(made, (x,))(x)
    np.testing.assert_allclose(result, reference(made, x)[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(OpenShapeError, match="input `x` has a shape that is open"):
        import_onnx(made)


def test_extents_below_zero_are_open():
    made = model([helper.make_node("Relu", ["x"], ["y"])], [info("x", [-1, 3])], [info("y", [-1, 3])])
    x = random(2, 3)
    (result,) = tilewright.compile(made, (x,))(x)
    np.testing.assert_array_equal(result, np.maximum(x, 0))
    with pytest.raises(OpenShapeError, match="input `x` has a shape that is open"):
        import_onnx(made)
    with pytest.raises(ModelImportError, match="has shape \\?x3, the example \\(2, 4\\)"):
        import_onnx(made, (random(2, 4),))


def test_outputs_may_have_no_types():
    """As those that are made of inner values by name, and those of branches."""
    branches = [
        helper.make_graph([helper.make_node(op, ["x"], ["b"])], op, [], [onnx.ValueInfoProto(name="b")])
        for op in ("Relu", "Neg")
    ]
    made = model(
        [
            helper.make_node("ArgMax", ["x"], ["a"], keepdims=0),
            helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1]),
        ],
        [info("x", [2, 3]), info("c", [], TensorProto.BOOL)],
        [onnx.ValueInfoProto(name="a"), onnx.ValueInfoProto(name="y")],
    )
    x = random(2, 3)
    a, y = tilewright.compile(made, (x, np.array(False)))(x, np.array(False))
    np.testing.assert_array_equal(a, np.argmax(x, 0))
    np.testing.assert_array_equal(y, -x)
    made.graph.input[0].ClearField("type")
    with pytest.raises(ModelImportError, match="malformed"):
        import_onnx(made, (x, np.array(False)))


def test_examples_by_name_and_their_errors():
    made = conv_model()
    assert import_onnx(made, {"x": random(2, 3, 8, 8)}).signature.inputs[0].shape == (2, 3, 8, 8)
    with pytest.raises(ModelImportError, match=r"\['z'\] are not inputs of the model"):
        import_onnx(made, {"z": random(1)})
    with pytest.raises(ModelImportError, match="has shape \\?x3x8x8, the example \\(1, 4, 8, 8\\)"):
        import_onnx(made, (random(1, 4, 8, 8),))
    with pytest.raises(ModelImportError, match="holds float32, the example given for it float64"):
        import_onnx(made, (random(1, 3, 8, 8).astype(np.float64),))
    with pytest.raises(ModelImportError, match="2 example inputs given"):
        import_onnx(model([helper.make_node("Relu", ["x"], ["y"])], [info("x", [2])], [info("y", [2])]),
                    (random(2), random(2)))  # fmt: skip


def test_external_data_is_mapped_not_read(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save_model(conv_model(), path, save_as_external_data=True, location="weights.bin", size_threshold=16)
    imported = import_onnx(str(path), (random(1, 3, 8, 8),))
    assert any(isinstance(w, np.memmap) for w in imported.weights)
    x = random(1, 3, 8, 8)
    (result,) = tilewright.compile(str(path), (x,))(x)
    np.testing.assert_allclose(result, reference(conv_model(), x)[0], rtol=1e-4, atol=1e-5)


def test_external_data_that_is_missing_or_short(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save_model(conv_model(), path, save_as_external_data=True, location="weights.bin", size_threshold=16)
    data = (tmp_path / "weights.bin").read_bytes()
    (tmp_path / "weights.bin").write_bytes(data[:100])
    with pytest.raises(ModelImportError, match=r"holds 100 bytes|malformed"):
        import_onnx(path, (random(1, 3, 8, 8),))
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelImportError, match=r"does not exist|malformed"):
        import_onnx(path, (random(1, 3, 8, 8),))


def test_initializer_that_is_also_an_input_may_be_overridden():
    nodes = [helper.make_node("Add", ["x", "bias"], ["y"])]
    bias = random(4)
    made = model(nodes, [info("x", [4]), info("bias", [4])], [info("y", [4])], {"bias": bias})
    assert [s.name for s in import_onnx(made).signature.inputs] == ["x"]
    x, other = random(4, seed=1), random(4, seed=2)
    (kept,) = tilewright.compile(made, (x,))(x)
    np.testing.assert_array_equal(kept, x + bias)
    (changed,) = tilewright.compile(made, (x, other))(x, other)
    np.testing.assert_array_equal(changed, x + other)


def test_every_unsupported_node_is_listed_with_its_place():
    nodes = [
        helper.make_node("NonZero", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["x"], ["b"]),
        helper.make_node("Unique", ["b"], ["c"], name="third"),
    ]
    made = model(nodes, [info("x", [4])], [info("a", None, TensorProto.INT64), info("c", None)])
    with pytest.raises(UnsupportedError) as refused:
        import_onnx(made)
    listed = [(op.operator, op.location) for op in refused.value.operators]
    assert listed == [("NonZero", 'node 0 "first"'), ("Unique", 'node 2 "third"')]


def test_every_unsupported_node_is_listed_after_others_and_inside_of_them():
    """Those that read the result of one that is refused too, and those of a branch and of a function of the model."""
    made = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17, "local": 1, "com.microsoft.nchwc": 1]>
        g (float[1,8,4,4] x, bool c) => (float[1,8,4,4] y, int64[?, ?] z) {
            a = com.microsoft.nchwc.Conv(x)
            b = com.microsoft.nchwc.Conv(a)
            r = Relu(b)
            d = com.microsoft.nchwc.ReorderOutput(r)
            e = If(c) <then_branch = t () => (float[1,8,4,4] p) { o = com.microsoft.nchwc.Mystery(d) p = com.microsoft.nchwc.Mystery(o) },
                       else_branch = f () => (float[1,8,4,4] q) { q = Bernoulli(x) }>
            y = local.Poly(e)
            z = NonZero(y)
        }
        <domain: "local", opset_import: ["": 17, "com.microsoft.nchwc": 1]>
        Poly (v) => (w) { u = com.microsoft.nchwc.Conv(v) w = com.microsoft.nchwc.Pool(u) }""")
    made.graph.value_info.clear()
    with pytest.raises(UnsupportedError) as refused:
        import_onnx(made, {"x": random(1, 8, 4, 4), "c": np.array(True)})
    assert [(op.operator, op.location) for op in refused.value.operators] == [
        ("Conv", 'node 0 "a"'),
        ("Conv", 'node 1 "b"'),
        ("ReorderOutput", 'node 3 "d"'),
        ("Mystery", 'node 4 "e", node 0 "o"'),
        ("Mystery", 'node 4 "e", node 1 "p"'),
        ("Bernoulli", 'node 4 "e", node 0 "q"'),
        ("Conv", 'node 5 "y", node 0 "u"'),
        ("Pool", 'node 5 "y", node 1 "w"'),
        ("NonZero", 'node 6 "z"'),
    ]


def test_strings_and_unknown_operators_are_refused():
    made = model(
        [helper.make_node("Identity", ["s"], ["y"])],
        [info("s", [2], TensorProto.STRING)],
        [info("y", [2], TensorProto.STRING)],
    )
    with pytest.raises(UnsupportedError, match="input `s` holds strings"):
        import_onnx(made)
    strange = helper.make_node("Mystery", ["x"], ["y"], domain="example.org")
    made = model([strange], [info("x", [2])], [info("y", [2])])
    made.opset_import.append(helper.make_opsetid("example.org", 1))
    with pytest.raises(UnsupportedError, match=r"Mystery.*domain `example.org`"):
        import_onnx(made)


def test_malformed_models(tmp_path):
    broken = model([helper.make_node("Relu", ["nowhere"], ["y"])], [info("x", [2])], [info("y", [2])])
    with pytest.raises(ModelImportError, match=r"malformed.*nowhere"):
        import_onnx(broken)
    path = tmp_path / "noise.onnx"
    path.write_bytes(b"this is no model")
    with pytest.raises(ModelImportError, match=r"not an ONNX model|malformed"):
        import_onnx(path)
    with pytest.raises(ModelImportError, match="no such file"):
        import_onnx(tmp_path / "absent.onnx")
    future = model([helper.make_node("Relu", ["x"], ["y"])], [info("x", [2])], [info("y", [2])])
    future.opset_import[0].version = 9999
    with pytest.raises(ModelImportError, match=r"opset 9999.*newer onnx|malformed"):
        import_onnx(future)


def test_shapes_that_depend_on_values_are_specialised_and_checked():
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    made = model(nodes, [info("x", [6]), info("shape", [2], TensorProto.INT64)], [info("y", None)])
    with pytest.raises(OpenShapeError, match=r"values of the inputs \['shape'\]"):
        import_onnx(made)
    x, shape = random(6), np.array([2, 3], np.int64)
    compiled = tilewright.compile(made, (x, shape))
    np.testing.assert_array_equal(compiled(x, shape)[0], x.reshape(2, 3))
    with pytest.raises(ValueError, match="compile again"):
        compiled(x, np.array([3, 2], np.int64))


def test_shape_computations_are_folded():
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]),
        helper.make_node("Concat", ["n1", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    weights = {
        "zero": np.array(0, np.int64),
        "axes": np.array([0], np.int64),
        "rest": np.array([-1], np.int64),
    }
    made = model(nodes, [info("x", ["n", 2, 3])], [info("y", None)], weights)
    imported = import_onnx(made, (random(5, 2, 3),))
    assert imported.signature.results[0].shape == (5, 6)
    assert imported.weights == []


def test_model_functions_are_expanded():
    body = [helper.make_node("Mul", ["a", "a"], ["b"]), helper.make_node("Add", ["b", "a"], ["c"])]
    function = helper.make_function("local", "Poly", ["a"], ["c"], body, [helper.make_opsetid("", 21)])
    call = helper.make_node("Poly", ["x"], ["y"], domain="local")
    made = model([call], [info("x", [4])], [info("y", [4])], functions=[function])
    made.opset_import.append(helper.make_opsetid("local", 1))
    x = random(4)
    np.testing.assert_allclose(tilewright.compile(made, (x,))(x)[0], x * x + x, rtol=1e-6)


def test_control_flow_on_data():
    then = helper.make_graph([helper.make_node("Neg", ["x"], ["t"])], "then", [], [info("t", [3])])
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["e"])], "else", [], [info("e", [3])])
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Less", ["s", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    made = model(nodes, [info("x", [3])], [info("y", [3])], {"zero": np.array(0, np.float32)})
    compiled = tilewright.compile(made, (np.ones(3, np.float32),))
    for sign in (1, -1):
        x = sign * np.array([1, 2, 3], np.float32)
        np.testing.assert_array_equal(compiled(x)[0], sign * x)


@pytest.mark.parametrize("inside", [True, False])
def test_a_loop_on_data_ends_where_its_counter_says_so(inside):
    """`while sum(x) < 100 and i < 5: x = x * 2`, as TorchScript writes it: without a count, `and` being a branch or not."""
    none = helper.make_graph(
        [helper.make_node("Identity", ["no"], ["f"])], "else", [], [info("f", [], TensorProto.BOOL)]
    )
    counted = helper.make_graph(
        [helper.make_node("Less", ["n", "five"], ["t"])], "then", [], [info("t", [], TensorProto.BOOL)]
    )
    both = [
        helper.make_node("Less", ["n", "five"], ["less"]),
        helper.make_node("And", ["less", "small"], ["go"]),
    ]
    chosen = [helper.make_node("If", ["small"], ["go"], then_branch=counted, else_branch=none)]
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "v"], ["w"]),
            helper.make_node("Add", ["k", "one"], ["n"]),
            helper.make_node("ReduceSum", ["w"], ["s"], keepdims=0),
            helper.make_node("Less", ["s", "hundred"], ["small"]),
            *(chosen if inside else both),
        ],
        "body",
        [
            info("i", [], TensorProto.INT64),
            info("c", [], TensorProto.BOOL),
            info("v", [3]),
            info("k", [], TensorProto.INT64),
        ],
        [info("go", [], TensorProto.BOOL), info("w", [3]), info("n", [], TensorProto.INT64)],
    )
    weights = {"many": np.array(np.iinfo(np.int64).max), "one": np.array(1), "five": np.array(5), "no": np.array(False),
               "yes": np.array(True), "hundred": np.array(100, np.float32)}  # fmt: skip
    made = model(
        [helper.make_node("Loop", ["many", "yes", "x", "none"], ["y", "count"], body=body)],
        [info("x", [3])],
        [info("y", [3]), info("count", [], TensorProto.INT64)],
        weights | {"none": np.array(0)},
    )
    compiled = tilewright.compile(made, (random(3),))
    for x, times in (([1, 2, 3], 5), ([-1, 2, 1], 5), ([9, 9, 9], 2)):
        y, count = compiled(np.array(x, np.float32))
        np.testing.assert_array_equal(y, np.array(x) * 2**times)
        assert count == times


def branches_on_rate(otherwise: onnx.NodeProto) -> onnx.ModelProto:
    """`x + x` where a rate is 16,000, and another node from `x` to `e` where it is not."""
    then = helper.make_graph([helper.make_node("Add", ["x", "x"], ["t"])], "then", [], [info("t", None)])
    other = helper.make_graph([otherwise], "else", [], [info("e", None)])
    nodes = [
        helper.make_node("Equal", ["rate", "wide"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    weights = {"wide": np.array(16000), "w": random(1, 3, 2), "r": random(1, 3, 1)}
    return model(nodes, [info("x", [3]), info("rate", [], TensorProto.INT64)], [info("y", None)], weights)


@pytest.mark.parametrize(("op", "operands"), [("GRU", ["x", "w", "r"]), ("NonZero", ["x"])])
def test_a_branch_that_these_inputs_do_not_fit_is_not_taken(op, operands):
    made = branches_on_rate(helper.make_node(op, operands, ["e"]))
    x = random(3)
    compiled = tilewright.compile(made, (x, np.array(16000)))
    np.testing.assert_array_equal(compiled(x, np.array(16000))[0], x + x)
    with pytest.raises(ValueError, match="rate"):
        compiled(x, np.array(8000))
    with pytest.raises((ModelImportError, UnsupportedError), match=op):
        tilewright.compile(made, (x, np.array(8000)))


def test_mlir_of_onnx_operators(tmp_path):
    path = tmp_path / "relu.mlir"
    path.write_text(
        "func.func @f(%a: !torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32>"
        " attributes {torch.onnx_meta.opset_version = 17 : si64} {\n"
        '  %0 = torch.operator "onnx.Relu"(%a) : (!torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32>\n'
        "  return %0 : !torch.vtensor<[2],f32>\n}\n"
    )
    result = tilewright.compile(str(path))(np.array([-1, 2], np.float32))
    np.testing.assert_array_equal(np.asarray(result).reshape(2), [0, 2])


def test_signatures_survive_json():
    nodes = [helper.make_node("Tile", ["x", "n"], ["y"])]
    made = model(nodes, [info("x", [2]), info("n", [1], TensorProto.INT64)], [info("y", None)])
    signature = import_onnx(made, (random(2), np.array([3], np.int64))).signature
    again = type(signature).from_json(signature.to_json())
    assert again == signature
    assert [spec.shape for spec in again.results] == [(6,)]


def test_repeated_initializers_stay_weights():
    zeros = np.zeros(40, np.float32)
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    imported = import_onnx(model(nodes, [info("x", [40])], [info("y", [40])], {"w": zeros}))
    assert arguments(imported)[1] == ("weight", "w")


def test_shapes_are_refined_only_where_one_is_open(monkeypatch):
    """torch-mlir inlines a function for the shape of each operator, which takes longer than all else of an import."""
    ran = []
    upstream = emit.modules.run_upstream
    monkeypatch.setattr(
        emit.modules,
        "run_upstream",
        lambda m, pipeline, *rest: ran.append(pipeline) or upstream(m, pipeline, *rest),
    )
    import_onnx(conv_model(), (random(1, 3, 8, 8),))
    assert ran == [emit.TO_TORCH, emit.WITHOUT_REFINING, emit.TO_LINALG]

    def is_refined(type_: str) -> bool:
        text = f"func.func @f(%x: {type_}) {{\n  %0 = torch.aten.relu %x : {type_} -> {type_}\n  return\n}}"
        return emit.is_refined(parse(text))

    assert is_refined("!torch.vtensor<[2,3],f32>") and is_refined("!torch.vtensor<[],si64>")
    assert not is_refined("!torch.vtensor<[2,?],f32>") and not is_refined("!torch.vtensor<[2,3],unk>")
    assert not is_refined("!torch.vtensor<*,f32>") and not is_refined("!torch.vtensor")
