// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(fold-batch-norm)' | filecheck %s

#id = affine_map<(m, n) -> (m, n)>
#cols = affine_map<(m, n) -> (n)>
#rows = affine_map<(m, n) -> (m)>

// The product has another reader.
// CHECK-LABEL: func.func @other_reader
// CHECK: linalg.matmul ins(%arg2, %arg0
// CHECK: arith.mulf
func.func @other_reader(%w: tensor<8x4xf32> {tilewright.role = "weight"}, %s: tensor<4xf32> {tilewright.role = "weight"},
    %x: tensor<2x8xf32> {tilewright.role = "input"}) -> (tensor<2x4xf32>, tensor<2x4xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x4xf32>) -> tensor<2x4xf32>
  %c = linalg.matmul ins(%x, %w : tensor<2x8xf32>, tensor<8x4xf32>) outs(%z : tensor<2x4xf32>) -> tensor<2x4xf32>
  %f = linalg.generic {indexing_maps = [#id, #cols, #id], iterator_types = ["parallel", "parallel"]}
      ins(%c, %s : tensor<2x4xf32>, tensor<4xf32>) outs(%e : tensor<2x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.mulf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<2x4xf32>
  return %f, %c : tensor<2x4xf32>, tensor<2x4xf32>
}

// The scale comes from an input.
// CHECK-LABEL: func.func @input_scale
// CHECK: linalg.matmul ins(%arg2, %arg0
// CHECK: arith.mulf
func.func @input_scale(%w: tensor<8x4xf32> {tilewright.role = "weight"}, %s: tensor<4xf32> {tilewright.role = "input"},
    %x: tensor<2x8xf32> {tilewright.role = "input"}) -> tensor<2x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x4xf32>) -> tensor<2x4xf32>
  %c = linalg.matmul ins(%x, %w : tensor<2x8xf32>, tensor<8x4xf32>) outs(%z : tensor<2x4xf32>) -> tensor<2x4xf32>
  %f = linalg.generic {indexing_maps = [#id, #cols, #id], iterator_types = ["parallel", "parallel"]}
      ins(%c, %s : tensor<2x4xf32>, tensor<4xf32>) outs(%e : tensor<2x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.mulf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<2x4xf32>
  return %f : tensor<2x4xf32>
}

// The scale belongs to the rows, which the filter does not have.
// CHECK-LABEL: func.func @row_scale
// CHECK: linalg.matmul ins(%arg2, %arg0
// CHECK: arith.mulf
func.func @row_scale(%w: tensor<8x4xf32> {tilewright.role = "weight"}, %s: tensor<2xf32> {tilewright.role = "weight"},
    %x: tensor<2x8xf32> {tilewright.role = "input"}) -> tensor<2x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x4xf32>) -> tensor<2x4xf32>
  %c = linalg.matmul ins(%x, %w : tensor<2x8xf32>, tensor<8x4xf32>) outs(%z : tensor<2x4xf32>) -> tensor<2x4xf32>
  %f = linalg.generic {indexing_maps = [#id, #rows, #id], iterator_types = ["parallel", "parallel"]}
      ins(%c, %s : tensor<2x4xf32>, tensor<2xf32>) outs(%e : tensor<2x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.mulf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<2x4xf32>
  return %f : tensor<2x4xf32>
}

// A bias alone is the epilogue it was.
// CHECK-LABEL: func.func @bias_alone
// CHECK: linalg.matmul ins(%arg2, %arg0
// CHECK: linalg.generic {{.*}}ins(%{{.+}}, %arg1
func.func @bias_alone(%w: tensor<8x4xf32> {tilewright.role = "weight"}, %s: tensor<4xf32> {tilewright.role = "weight"},
    %x: tensor<2x8xf32> {tilewright.role = "input"}) -> tensor<2x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x4xf32>) -> tensor<2x4xf32>
  %c = linalg.matmul ins(%x, %w : tensor<2x8xf32>, tensor<8x4xf32>) outs(%z : tensor<2x4xf32>) -> tensor<2x4xf32>
  %f = linalg.generic {indexing_maps = [#id, #cols, #id], iterator_types = ["parallel", "parallel"]}
      ins(%c, %s : tensor<2x4xf32>, tensor<4xf32>) outs(%e : tensor<2x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<2x4xf32>
  return %f : tensor<2x4xf32>
}

// Integers wrap and divide: they are not folded.
// CHECK-LABEL: func.func @integers
// CHECK: linalg.matmul ins(%arg2, %arg0
// CHECK: arith.muli
func.func @integers(%w: tensor<8x4xi32> {tilewright.role = "weight"}, %s: tensor<4xi32> {tilewright.role = "weight"},
    %x: tensor<2x8xi32> {tilewright.role = "input"}) -> tensor<2x4xi32> {
  %zero = arith.constant 0 : i32
  %e = tensor.empty() : tensor<2x4xi32>
  %z = linalg.fill ins(%zero : i32) outs(%e : tensor<2x4xi32>) -> tensor<2x4xi32>
  %c = linalg.matmul ins(%x, %w : tensor<2x8xi32>, tensor<8x4xi32>) outs(%z : tensor<2x4xi32>) -> tensor<2x4xi32>
  %f = linalg.generic {indexing_maps = [#id, #cols, #id], iterator_types = ["parallel", "parallel"]}
      ins(%c, %s : tensor<2x4xi32>, tensor<4xi32>) outs(%e : tensor<2x4xi32>) {
  ^bb0(%a: i32, %b: i32, %o: i32):
    %r = arith.muli %a, %b : i32
    linalg.yield %r : i32
  } -> tensor<2x4xi32>
  return %f : tensor<2x4xi32>
}

// A square is not affine.
// CHECK-LABEL: func.func @square
// CHECK: linalg.matmul ins(%arg2, %arg0
func.func @square(%w: tensor<8x4xf32> {tilewright.role = "weight"}, %s: tensor<4xf32> {tilewright.role = "weight"},
    %x: tensor<2x8xf32> {tilewright.role = "input"}) -> tensor<2x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x4xf32>) -> tensor<2x4xf32>
  %c = linalg.matmul ins(%x, %w : tensor<2x8xf32>, tensor<8x4xf32>) outs(%z : tensor<2x4xf32>) -> tensor<2x4xf32>
  %f = linalg.generic {indexing_maps = [#id, #cols, #id], iterator_types = ["parallel", "parallel"]}
      ins(%c, %s : tensor<2x4xf32>, tensor<4xf32>) outs(%e : tensor<2x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %q = arith.mulf %a, %a : f32
    %r = arith.mulf %q, %b : f32
    linalg.yield %r : f32
  } -> tensor<2x4xf32>
  return %f : tensor<2x4xf32>
}
