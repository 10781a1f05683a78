// RUN: tilewright-opt %s --pass-pipeline='builtin.module(erase-unread-generics)' | filecheck %s

#id = affine_map<(d0) -> (d0)>

// A check keeps nothing alive that is not read, nor does a reader that is not read itself.
// CHECK-LABEL: func.func @unread
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @unread(%x: tensor<8xf32>, %ok: i1) {
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<8xf32>) outs(%x : tensor<8xf32>) {
  ^bb0(%in: f32, %o: f32):
    cf.assert %ok, "checked elsewhere"
    linalg.yield %in : f32
  } -> tensor<8xf32>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%a : tensor<8xf32>) outs(%x : tensor<8xf32>) {
  ^bb0(%in: f32, %o: f32):
    linalg.yield %in : f32
  } -> tensor<8xf32>
  return
}

// What is computed of numbers alone may have lost its results and its operands.
// CHECK-LABEL: func.func @no_results
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @no_results(%ok: i1) {
  "linalg.generic"() <{indexing_maps = [], iterator_types = [], operandSegmentSizes = array<i32: 0, 0>}> ({
    cf.assert %ok, "checked elsewhere"
    linalg.yield
  }) : () -> ()
  return
}

// CHECK-LABEL: func.func @read
// CHECK: linalg.generic
// CHECK: cf.assert
func.func @read(%x: tensor<8xf32>, %ok: i1) -> tensor<8xf32> {
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<8xf32>) outs(%x : tensor<8xf32>) {
  ^bb0(%in: f32, %o: f32):
    cf.assert %ok, "checked here"
    linalg.yield %in : f32
  } -> tensor<8xf32>
  return %a : tensor<8xf32>
}

// On buffers there are no results, and the write itself is the point.
// CHECK-LABEL: func.func @buffers
// CHECK: linalg.generic
func.func @buffers(%x: memref<8xf32>, %y: memref<8xf32>) {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : memref<8xf32>) outs(%y : memref<8xf32>) {
  ^bb0(%in: f32, %o: f32):
    linalg.yield %in : f32
  }
  return
}
