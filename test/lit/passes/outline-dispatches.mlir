// RUN: tilewright-opt %s --pass-pipeline='builtin.module(outline-dispatches)' --split-input-file | filecheck %s

#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#columns = affine_map<(d0, d1) -> (d1)>

// A contraction takes its fill and its element-wise epilogue along.
// CHECK-LABEL: func.func @epilogue
// CHECK-NEXT: %[[R:.+]] = call @[[MATMUL:matmul[a-z0-9_]*]](
// CHECK-NEXT: return %[[R]]
// CHECK: func.func private @[[MATMUL]](
// CHECK-SAME: tilewright.operator = "matmul"
// CHECK: linalg.fill
// CHECK: arith.mulf
// CHECK: arith.maximumf
func.func @epilogue(%x: tensor<64x8xf32>, %w: tensor<8x32xf32>, %b: tensor<32xf32>) -> tensor<64x32xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x32xf32>
  %i = linalg.fill ins(%z : f32) outs(%e : tensor<64x32xf32>) -> tensor<64x32xf32>
  %m = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<64x8xf32>, tensor<8x32xf32>) outs(%i : tensor<64x32xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %p = arith.mulf %a, %c : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x32xf32>
  %r = linalg.generic {indexing_maps = [#id, #columns, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m, %b : tensor<64x32xf32>, tensor<32xf32>) outs(%e : tensor<64x32xf32>) {
  ^bb0(%in: f32, %bias: f32, %o: f32):
    %s = arith.addf %in, %bias : f32
    %a = arith.maximumf %s, %z : f32
    linalg.yield %a : f32
  } -> tensor<64x32xf32>
  return %r : tensor<64x32xf32>
}

// -----

#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>

// What a contraction reads many times is computed before it, and the reason is kept.
// CHECK-LABEL: func.func @prologue
// CHECK-NEXT: %[[EXP:.+]] = call @[[FIRST:elementwise[a-z0-9_]*]](%arg0)
// CHECK-NEXT: %[[R:.+]] = call @[[SECOND:matmul[a-z0-9_]*]](%[[EXP]]
// CHECK-NEXT: return %[[R]]
// CHECK-DAG: func.func private @[[FIRST]]
// CHECK-DAG: func.func private @[[SECOND]]{{.*}}tilewright.unfused = ["elementwise: a contraction would recompute it"]
func.func @prologue(%x: tensor<64x8xf32>, %w: tensor<8x32xf32>) -> tensor<64x32xf32> {
  %z = arith.constant 0.0 : f32
  %ex = tensor.empty() : tensor<64x8xf32>
  %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x8xf32>) outs(%ex : tensor<64x8xf32>) {
  ^bb0(%in: f32, %o: f32):
    %a = math.exp %in : f32
    linalg.yield %a : f32
  } -> tensor<64x8xf32>
  %e = tensor.empty() : tensor<64x32xf32>
  %i = linalg.fill ins(%z : f32) outs(%e : tensor<64x32xf32>) -> tensor<64x32xf32>
  %m = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%p, %w : tensor<64x8xf32>, tensor<8x32xf32>) outs(%i : tensor<64x32xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %q = arith.mulf %a, %c : f32
    %s = arith.addf %o, %q : f32
    linalg.yield %s : f32
  } -> tensor<64x32xf32>
  return %m : tensor<64x32xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>

// A row-wise sum and what is done with it are cut along the rows together.
// CHECK-LABEL: func.func @rows
// CHECK-NEXT: call @[[ONE:.+]](%arg0)
// CHECK-NEXT: return
// CHECK: func.func private @[[ONE]](
// CHECK-SAME: tilewright.operator = "reduction"
// CHECK-COUNT-2: linalg.generic
func.func @rows(%x: tensor<512x64xf32>) -> tensor<512x64xf32> {
  %z = arith.constant 0.0 : f32
  %es = tensor.empty() : tensor<512xf32>
  %i = linalg.fill ins(%z : f32) outs(%es : tensor<512xf32>) -> tensor<512xf32>
  %s = linalg.generic {indexing_maps = [#id, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<512x64xf32>) outs(%i : tensor<512xf32>) {
  ^bb0(%in: f32, %o: f32):
    %a = arith.addf %o, %in : f32
    linalg.yield %a : f32
  } -> tensor<512xf32>
  %e = tensor.empty() : tensor<512x64xf32>
  %r = linalg.generic {indexing_maps = [#id, #rows, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : tensor<512x64xf32>, tensor<512xf32>) outs(%e : tensor<512x64xf32>) {
  ^bb0(%in: f32, %sum: f32, %o: f32):
    %a = arith.divf %in, %sum : f32
    linalg.yield %a : f32
  } -> tensor<512x64xf32>
  return %r : tensor<512x64xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>

// A value that is used elsewhere too is computed once; equal dispatches are one function.
// CHECK-LABEL: func.func @shared
// CHECK-NEXT: %[[A:.+]] = call @[[F:.+]](%arg0)
// CHECK-NEXT: %[[B:.+]] = call @[[F]](%[[A]])
// CHECK-NEXT: return %[[A]], %[[B]]
// CHECK: func.func private @[[F]](
// CHECK-NOT: func.func
func.func @shared(%x: tensor<512x64xf32>) -> (tensor<512x64xf32>, tensor<512x64xf32>) {
  %e = tensor.empty() : tensor<512x64xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<512x64xf32>) outs(%e : tensor<512x64xf32>) {
  ^bb0(%in: f32, %o: f32):
    %q = math.exp %in : f32
    linalg.yield %q : f32
  } -> tensor<512x64xf32>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a : tensor<512x64xf32>) outs(%e : tensor<512x64xf32>) {
  ^bb0(%in: f32, %o: f32):
    %q = math.exp %in : f32
    linalg.yield %q : f32
  } -> tensor<512x64xf32>
  return %a, %b : tensor<512x64xf32>, tensor<512x64xf32>
}

// -----

#id = affine_map<(d0) -> (d0)>

// Reshapes move no data and stay outside, as views of buffers.
// CHECK-LABEL: func.func @views
// CHECK-NEXT: %[[FLAT:.+]] = tensor.collapse_shape %arg0
// CHECK-NEXT: %[[R:.+]] = call @{{.+}}(%[[FLAT]])
// CHECK-NEXT: %[[BACK:.+]] = tensor.expand_shape %[[R]]
// CHECK-NEXT: return %[[BACK]]
func.func @views(%x: tensor<4x32xf32>) -> tensor<4x32xf32> {
  %v = tensor.collapse_shape %x [[0, 1]] : tensor<4x32xf32> into tensor<128xf32>
  %e = tensor.empty() : tensor<128xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%v : tensor<128xf32>) outs(%e : tensor<128xf32>) {
  ^bb0(%in: f32, %o: f32):
    %q = math.exp %in : f32
    linalg.yield %q : f32
  } -> tensor<128xf32>
  %r = tensor.expand_shape %a [[0, 1]] output_shape [4, 32] : tensor<128xf32> into tensor<4x32xf32>
  return %r : tensor<4x32xf32>
}

// -----

#id = affine_map<(d0) -> (d0)>
#window = affine_map<(d0, d1) -> (d0 + d1)>
#shape = affine_map<(d0, d1) -> (d1)>
#out = affine_map<(d0, d1) -> (d0)>

// Windows overlap: a pooling would compute what it reads once per window.
// CHECK-LABEL: func.func @pooling
// CHECK-NEXT: %[[EXP:.+]] = call @elementwise_100_{{[0-9]+}}(%arg0)
// CHECK-NEXT: %[[R:.+]] = call @[[POOL:reduction_98x3_[0-9]+]](%[[EXP]])
// CHECK-NEXT: return %[[R]]
// CHECK: func.func private @[[POOL]]{{.*}}tilewright.unfused = ["elementwise: a windowed reduction would recompute it"]
func.func @pooling(%x: tensor<100xf32>) -> tensor<98xf32> {
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<100xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<100xf32>) outs(%e : tensor<100xf32>) {
  ^bb0(%in: f32, %o: f32):
    %q = math.exp %in : f32
    linalg.yield %q : f32
  } -> tensor<100xf32>
  %w = tensor.empty() : tensor<3xf32>
  %p = tensor.empty() : tensor<98xf32>
  %i = linalg.fill ins(%low : f32) outs(%p : tensor<98xf32>) -> tensor<98xf32>
  %r = linalg.generic {indexing_maps = [#window, #shape, #out], iterator_types = ["parallel", "reduction"]}
      ins(%a, %w : tensor<100xf32>, tensor<3xf32>) outs(%i : tensor<98xf32>) {
  ^bb0(%in: f32, %size: f32, %o: f32):
    %q = arith.maximumf %in, %o : f32
    linalg.yield %q : f32
  } -> tensor<98xf32>
  return %r : tensor<98xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#columns = affine_map<(d0, d1) -> (d1)>

// A sum over all rows leaves too few of them to cut along: what follows is a dispatch of its own.
// CHECK-LABEL: func.func @too_few_rows
// CHECK-COUNT-2: call @
// CHECK: tilewright.unfused = ["reduction: only {{[0-9]+}} rows would remain to cut along"]
func.func @too_few_rows(%x: tensor<2048x4xf32>) -> tensor<2048x4xf32> {
  %z = arith.constant 0.0 : f32
  %es = tensor.empty() : tensor<4xf32>
  %i = linalg.fill ins(%z : f32) outs(%es : tensor<4xf32>) -> tensor<4xf32>
  %s = linalg.generic {indexing_maps = [#id, #columns], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<2048x4xf32>) outs(%i : tensor<4xf32>) {
  ^bb0(%in: f32, %o: f32):
    %a = arith.addf %o, %in : f32
    linalg.yield %a : f32
  } -> tensor<4xf32>
  %e = tensor.empty() : tensor<2048x4xf32>
  %r = linalg.generic {indexing_maps = [#id, #columns, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : tensor<2048x4xf32>, tensor<4xf32>) outs(%e : tensor<2048x4xf32>) {
  ^bb0(%in: f32, %sum: f32, %o: f32):
    %a = arith.divf %in, %sum : f32
    linalg.yield %a : f32
  } -> tensor<2048x4xf32>
  return %r : tensor<2048x4xf32>
}

// -----

// What is no generic is a dispatch as it is, and constants of many values stay outside, as buffers.
// CHECK-LABEL: func.func @whole
// CHECK-NEXT: %[[C:.+]] = arith.constant dense<[1.000000e+00, 2.000000e+00]>
// CHECK-NEXT: %[[R:.+]] = call @[[INSERT:insert_slice_[0-9]+]]({{.*}}%[[C]]{{.*}})
// CHECK: func.func private @[[INSERT]]
// CHECK: tensor.insert_slice
func.func @whole(%x: tensor<8xf32>) -> tensor<8xf32> {
  %c = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %r = tensor.insert_slice %c into %x[3] [2] [1] : tensor<2xf32> into tensor<8xf32>
  return %r : tensor<8xf32>
}

// -----

// An insertion in place moves nothing only where all of its destination is inserted or filled.
// CHECK-LABEL: func.func @main(
// CHECK: %[[S:.+]] = call @elementwise
// CHECK: call @insert_slice_{{[0-9]+}}(%{{.+}}, %[[S]])
// CHECK-NOT: tensor.insert_slice
// CHECK: return
// CHECK: func.func private @insert_slice
#id = affine_map<(d0) -> (d0)>
func.func @main(%x: tensor<8xf32>, %y: tensor<4xf32>) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<8xf32>
  %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%in: f32, %o: f32):
    %a = arith.mulf %in, %in : f32
    linalg.yield %a : f32
  } -> tensor<8xf32>
  %r = tensor.insert_slice %y into %s[2] [4] [1] {tilewright.in_place} : tensor<4xf32> into tensor<8xf32>
  return %r : tensor<8xf32>
}

// -----

#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>

// Of two products that could take the sum along, the recurrent one does: with the same weight as the one before, it
// waits for that anyway. The products with %w need nothing and can follow one another.
// CHECK-LABEL: func.func @main(
// CHECK: %[[H0:.+]] = call @[[ALONE:matmul[a-z0-9_]*]](%arg2, %arg4)
// CHECK: %[[H1:.+]] = call @[[SUM:matmul[a-z0-9_]*]](%arg0, %arg3, %[[H0]])
// CHECK: %[[X1:.+]] = call @[[ALONE]](%arg1, %arg3)
// CHECK: call @[[OTHER:matmul[a-z0-9_]*]](%[[H1]], %arg4, %[[X1]])
// CHECK: func.func private @[[OTHER]]{{.*}}"matmul: a recurrent product is fused instead"]
func.func @main(%x0: tensor<64x32xf32> {tilewright.name = "x0", tilewright.role = "input"}, %x1: tensor<64x32xf32> {tilewright.name = "x1", tilewright.role = "input"}, %h0: tensor<64x32xf32> {tilewright.name = "h0", tilewright.role = "input"}, %w: tensor<32x32xf32> {tilewright.name = "w", tilewright.role = "weight"}, %u: tensor<32x32xf32> {tilewright.name = "u", tilewright.role = "weight"}, %v: tensor<32x32xf32> {tilewright.name = "v", tilewright.role = "weight"}) -> tensor<64x32xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x32xf32>
  %i = linalg.fill ins(%z : f32) outs(%e : tensor<64x32xf32>) -> tensor<64x32xf32>
  %xw0 = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x0, %w : tensor<64x32xf32>, tensor<32x32xf32>) outs(%i : tensor<64x32xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %p = arith.mulf %a, %c : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x32xf32>
  %hu0 = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%h0, %u : tensor<64x32xf32>, tensor<32x32xf32>) outs(%i : tensor<64x32xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %p = arith.mulf %a, %c : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x32xf32>
  %h1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%xw0, %hu0 : tensor<64x32xf32>, tensor<64x32xf32>) outs(%e : tensor<64x32xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %s = arith.addf %a, %c : f32
    linalg.yield %s : f32
  } -> tensor<64x32xf32>
  %xw1 = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x1, %w : tensor<64x32xf32>, tensor<32x32xf32>) outs(%i : tensor<64x32xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %p = arith.mulf %a, %c : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x32xf32>
  %hu1 = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%h1, %u : tensor<64x32xf32>, tensor<32x32xf32>) outs(%i : tensor<64x32xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %p = arith.mulf %a, %c : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x32xf32>
  %h2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%xw1, %hu1 : tensor<64x32xf32>, tensor<64x32xf32>) outs(%e : tensor<64x32xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %s = arith.addf %a, %c : f32
    linalg.yield %s : f32
  } -> tensor<64x32xf32>
  return %h2 : tensor<64x32xf32>
}

// -----

#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>

// With weights of their own, no product is recurrent: the first one takes the sum along.
// CHECK-LABEL: func.func @main(
// CHECK: %[[H0:.+]] = call @[[ALONE:matmul[a-z0-9_]*]](%arg2, %arg4)
// CHECK: %[[H1:.+]] = call @[[SUM:matmul[a-z0-9_]*]](%arg0, %arg3, %[[H0]])
// CHECK: %[[H2:.+]] = call @[[ALONE]](%[[H1]], %arg5)
// CHECK: call @[[SUM]](%arg1, %arg3, %[[H2]])
func.func @main(%x0: tensor<64x32xf32> {tilewright.name = "x0", tilewright.role = "input"}, %x1: tensor<64x32xf32> {tilewright.name = "x1", tilewright.role = "input"}, %h0: tensor<64x32xf32> {tilewright.name = "h0", tilewright.role = "input"}, %w: tensor<32x32xf32> {tilewright.name = "w", tilewright.role = "weight"}, %u: tensor<32x32xf32> {tilewright.name = "u", tilewright.role = "weight"}, %v: tensor<32x32xf32> {tilewright.name = "v", tilewright.role = "weight"}) -> tensor<64x32xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x32xf32>
  %i = linalg.fill ins(%z : f32) outs(%e : tensor<64x32xf32>) -> tensor<64x32xf32>
  %xw0 = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x0, %w : tensor<64x32xf32>, tensor<32x32xf32>) outs(%i : tensor<64x32xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %p = arith.mulf %a, %c : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x32xf32>
  %hu0 = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%h0, %u : tensor<64x32xf32>, tensor<32x32xf32>) outs(%i : tensor<64x32xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %p = arith.mulf %a, %c : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x32xf32>
  %h1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%xw0, %hu0 : tensor<64x32xf32>, tensor<64x32xf32>) outs(%e : tensor<64x32xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %s = arith.addf %a, %c : f32
    linalg.yield %s : f32
  } -> tensor<64x32xf32>
  %xw1 = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x1, %w : tensor<64x32xf32>, tensor<32x32xf32>) outs(%i : tensor<64x32xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %p = arith.mulf %a, %c : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x32xf32>
  %hu1 = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%h1, %v : tensor<64x32xf32>, tensor<32x32xf32>) outs(%i : tensor<64x32xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %p = arith.mulf %a, %c : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x32xf32>
  %h2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%xw1, %hu1 : tensor<64x32xf32>, tensor<64x32xf32>) outs(%e : tensor<64x32xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %s = arith.addf %a, %c : f32
    linalg.yield %s : f32
  } -> tensor<64x32xf32>
  return %h2 : tensor<64x32xf32>
}
