// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(multiply-by-reciprocals))' | filecheck %s

#rows = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>

// CHECK-LABEL: func.func @softmax(
// CHECK: math.exp
// CHECK: ^bb0(%[[E:.+]]: f32, %[[S:.+]]: f32, %{{.+}}: f32):
// CHECK-NEXT: %[[ONE:.+]] = arith.constant 1.0
// CHECK-NEXT: %[[R:.+]] = arith.divf %[[ONE]], %[[S]] : f32
// CHECK-NEXT: %[[P:.+]] = arith.mulf %[[E]], %[[R]] : f32
// CHECK-NEXT: linalg.yield %[[P]]
func.func @softmax(%x: tensor<8x100xf32>) -> tensor<8x100xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %a = tensor.empty() : tensor<8xf32>
  %b = tensor.empty() : tensor<8x100xf32>
  %f = linalg.fill ins(%low : f32) outs(%a : tensor<8xf32>) -> tensor<8xf32>
  %t = linalg.generic {indexing_maps = [#rows, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<8x100xf32>) outs(%f : tensor<8xf32>) {
  ^bb0(%i: f32, %o: f32):
    %r = arith.maximumf %i, %o : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  %e = linalg.generic {indexing_maps = [#rows, #row, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%x, %t : tensor<8x100xf32>, tensor<8xf32>) outs(%b : tensor<8x100xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %d = arith.subf %i, %j : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<8x100xf32>
  %g = linalg.fill ins(%zero : f32) outs(%a : tensor<8xf32>) -> tensor<8xf32>
  %s = linalg.generic {indexing_maps = [#rows, #row], iterator_types = ["parallel", "reduction"]}
      ins(%e : tensor<8x100xf32>) outs(%g : tensor<8xf32>) {
  ^bb0(%i: f32, %o: f32):
    %r = arith.addf %i, %o : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  %y = linalg.generic {indexing_maps = [#rows, #row, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%e, %s : tensor<8x100xf32>, tensor<8xf32>) outs(%b : tensor<8x100xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %r = arith.divf %i, %j : f32
    linalg.yield %r : f32
  } -> tensor<8x100xf32>
  return %y : tensor<8x100xf32>
}

// Left alone: nothing was subtracted from what the powers are of, so that their sum may be anything.
// CHECK-LABEL: func.func @powers(
// CHECK-NOT: arith.mulf
// CHECK: arith.divf
// CHECK-NOT: arith.mulf
// CHECK: return
func.func @powers(%x: tensor<8x100xf32>, %t: tensor<8xf32>) -> tensor<8x100xf32> {
  %zero = arith.constant 0.0 : f32
  %a = tensor.empty() : tensor<8xf32>
  %b = tensor.empty() : tensor<8x100xf32>
  %e = linalg.generic {indexing_maps = [#rows, #row, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%x, %t : tensor<8x100xf32>, tensor<8xf32>) outs(%b : tensor<8x100xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %d = arith.subf %i, %j : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<8x100xf32>
  %g = linalg.fill ins(%zero : f32) outs(%a : tensor<8xf32>) -> tensor<8xf32>
  %s = linalg.generic {indexing_maps = [#rows, #row], iterator_types = ["parallel", "reduction"]}
      ins(%e : tensor<8x100xf32>) outs(%g : tensor<8xf32>) {
  ^bb0(%i: f32, %o: f32):
    %r = arith.addf %i, %o : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  %y = linalg.generic {indexing_maps = [#rows, #row, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%e, %s : tensor<8x100xf32>, tensor<8xf32>) outs(%b : tensor<8x100xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %r = arith.divf %i, %j : f32
    linalg.yield %r : f32
  } -> tensor<8x100xf32>
  return %y : tensor<8x100xf32>
}

// Left alone: a sum of what was only copied.
// CHECK-LABEL: func.func @copied(
// CHECK-NOT: arith.mulf
// CHECK: arith.divf
// CHECK-NOT: arith.mulf
// CHECK: return
func.func @copied(%x: tensor<8x100xf32>) -> tensor<8x100xf32> {
  %zero = arith.constant 0.0 : f32
  %a = tensor.empty() : tensor<8xf32>
  %b = tensor.empty() : tensor<8x100xf32>
  %e = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x100xf32>) outs(%b : tensor<8x100xf32>) {
  ^bb0(%i: f32, %o: f32):
    linalg.yield %i : f32
  } -> tensor<8x100xf32>
  %g = linalg.fill ins(%zero : f32) outs(%a : tensor<8xf32>) -> tensor<8xf32>
  %s = linalg.generic {indexing_maps = [#rows, #row], iterator_types = ["parallel", "reduction"]}
      ins(%e : tensor<8x100xf32>) outs(%g : tensor<8xf32>) {
  ^bb0(%i: f32, %o: f32):
    %r = arith.addf %i, %o : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  %y = linalg.generic {indexing_maps = [#rows, #row, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%e, %s : tensor<8x100xf32>, tensor<8xf32>) outs(%b : tensor<8x100xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %r = arith.divf %i, %j : f32
    linalg.yield %r : f32
  } -> tensor<8x100xf32>
  return %y : tensor<8x100xf32>
}
