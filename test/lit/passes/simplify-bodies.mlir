// RUN: tilewright-opt %s --pass-pipeline='builtin.module(simplify-bodies)' | filecheck %s

#id1 = affine_map<(d0) -> (d0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>

// A reciprocal of zero is infinity in eager PyTorch: the check that torch-mlir adds goes away.
// CHECK-LABEL: func.func @foreign_assert
// CHECK-NOT: cf.assert
// CHECK-NOT: arith.cmpf
// CHECK: %[[R:.+]] = arith.divf
// CHECK-NEXT: linalg.yield %[[R]]
func.func @foreign_assert(%x: tensor<8xf32>) -> tensor<8xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<8xf32>
  %r = linalg.generic {indexing_maps = [#id1, #id1], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %ok = arith.cmpf one, %in, %zero : f32
    cf.assert %ok, "unimplemented: tensor with zero element"
    %d = arith.divf %one, %in : f32
    linalg.yield %d : f32
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// An index out of range is an error in eager PyTorch too: its check stays.
// CHECK-LABEL: func.func @eager_assert_stays
// CHECK: arith.cmpi slt
// CHECK-NEXT: cf.assert %{{.+}}, "index must be smaller than dim size"
func.func @eager_assert_stays(%table: tensor<4xf32>, %indices: tensor<8xi64>) -> tensor<8xf32> {
  %size = arith.constant 4 : i64
  %e = tensor.empty() : tensor<8xf32>
  %r = linalg.generic {indexing_maps = [#id1, #id1], iterator_types = ["parallel"]}
      ins(%indices : tensor<8xi64>) outs(%e : tensor<8xf32>) {
  ^bb0(%in: i64, %out: f32):
    %ok = arith.cmpi slt, %in, %size : i64
    cf.assert %ok, "index must be smaller than dim size"
    %i = arith.index_cast %in : i64 to index
    %v = tensor.extract %table[%i] : tensor<4xf32>
    linalg.yield %v : f32
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// Softmax reads the maximum only: its index is not computed.
// CHECK-LABEL: func.func @unread_index
// CHECK: %[[M:.+]] = linalg.generic {indexing_maps = [#{{.+}}, #{{.+}}], iterator_types = ["parallel", "reduction"]}
// CHECK-SAME: outs(%{{.+}} : tensor<4xf32>)
// CHECK-NEXT: ^bb0(%[[IN:.+]]: f32, %[[OUT:.+]]: f32):
// CHECK-NEXT: %[[MAX:.+]] = arith.maximumf %[[IN]], %[[OUT]] : f32
// CHECK-NEXT: linalg.yield %[[MAX]] : f32
// CHECK-NEXT: } -> tensor<4xf32>
// CHECK-NEXT: return %[[M]]
func.func @unread_index(%x: tensor<4x16xf32>, %lowest: tensor<4xf32>, %zeros: tensor<4xi64>) -> tensor<4xf32> {
  %m:2 = linalg.generic {indexing_maps = [#id2, #rows, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x16xf32>) outs(%lowest, %zeros : tensor<4xf32>, tensor<4xi64>) {
  ^bb0(%in: f32, %best: f32, %at: i64):
    %i = linalg.index 1 : index
    %j = arith.index_cast %i : index to i64
    %max = arith.maximumf %in, %best : f32
    %gt = arith.cmpf ogt, %in, %best : f32
    %k = arith.select %gt, %j, %at : i64
    linalg.yield %max, %k : f32, i64
  } -> (tensor<4xf32>, tensor<4xi64>)
  return %m#0 : tensor<4xf32>
}

// An argmax compares with the running maximum: that result has no reader outside, and still stays.
// CHECK-LABEL: func.func @maximum_feeds_index
// CHECK: linalg.yield %{{.+}}, %{{.+}} : f32, i64
func.func @maximum_feeds_index(%x: tensor<4x16xf32>, %lowest: tensor<4xf32>, %zeros: tensor<4xi64>) -> tensor<4xi64> {
  %m:2 = linalg.generic {indexing_maps = [#id2, #rows, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x16xf32>) outs(%lowest, %zeros : tensor<4xf32>, tensor<4xi64>) {
  ^bb0(%in: f32, %best: f32, %at: i64):
    %i = linalg.index 1 : index
    %j = arith.index_cast %i : index to i64
    %max = arith.maximumf %in, %best : f32
    %gt = arith.cmpf ogt, %in, %best : f32
    %k = arith.select %gt, %j, %at : i64
    linalg.yield %max, %k : f32, i64
  } -> (tensor<4xf32>, tensor<4xi64>)
  return %m#1 : tensor<4xi64>
}

// An input that only an unread result used goes with it; one that gives a loop its extent stays.
// CHECK-LABEL: func.func @inputs_of_unread
// CHECK: ins(%arg0 : tensor<4xf32>) outs(%arg3 : tensor<4xf32>)
// CHECK: ins(%arg2 : tensor<4x16xf32>) outs(%arg3 : tensor<4xf32>)
func.func @inputs_of_unread(%x: tensor<4xf32>, %y: tensor<4xf32>, %w: tensor<4x16xf32>, %e: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %one = arith.constant 1.0 : f32
  %r:2 = linalg.generic {indexing_maps = [#id1, #id1, #id1, #id1], iterator_types = ["parallel"]}
      ins(%x, %y : tensor<4xf32>, tensor<4xf32>) outs(%e, %e : tensor<4xf32>, tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32, %p: f32):
    %s = arith.addf %a, %a : f32
    %t = arith.addf %b, %b : f32
    linalg.yield %s, %t : f32, f32
  } -> (tensor<4xf32>, tensor<4xf32>)
  %c:2 = linalg.generic {indexing_maps = [#id2, #rows, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%w : tensor<4x16xf32>) outs(%e, %e : tensor<4xf32>, tensor<4xf32>) {
  ^bb0(%a: f32, %count: f32, %sum: f32):
    %n = arith.addf %count, %one : f32
    %s = arith.addf %sum, %a : f32
    linalg.yield %n, %s : f32, f32
  } -> (tensor<4xf32>, tensor<4xf32>)
  return %r#0, %c#0 : tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @scalar_casts_and_powers
// CHECK-DAG: %[[EPS:.+]] = arith.constant 9.99999974E-6 : f32
// CHECK: arith.addf %{{.+}}, %[[EPS]]
// CHECK-NEXT: arith.mulf
// CHECK-NEXT: math.sqrt
// CHECK-NEXT: linalg.yield
// CHECK-NOT: math.powf
func.func @scalar_casts_and_powers(%x: tensor<8xf32>) -> tensor<8xf32> {
  %eps = arith.constant 1.0e-5 : f64
  %two = arith.constant 2 : i64
  %half = arith.constant 0.5 : f64
  %e = tensor.empty() : tensor<8xf32>
  %r = linalg.generic {indexing_maps = [#id1, #id1], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %t = arith.truncf %eps : f64 to f32
    %a = arith.addf %in, %t : f32
    %s = math.fpowi %a, %two : f32, i64
    %h = arith.truncf %half : f64 to f32
    %q = math.powf %s, %h : f32
    linalg.yield %q : f32
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// CHECK-LABEL: func.func @other_powers_stay
// CHECK: math.powf %{{.+}}, %{{.+}} : f32
// CHECK-NEXT: math.fpowi
func.func @other_powers_stay(%x: tensor<8xf32>) -> tensor<8xf32> {
  %five = arith.constant 5 : i64
  %odd = arith.constant 3.7 : f32
  %e = tensor.empty() : tensor<8xf32>
  %r = linalg.generic {indexing_maps = [#id1, #id1], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %p = math.powf %in, %odd : f32
    %q = math.fpowi %p, %five : f32, i64
    linalg.yield %q : f32
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// CHECK-LABEL: func.func @named_elementwise
// CHECK-NOT: linalg.broadcast
// CHECK-NOT: linalg.transpose
// CHECK-COUNT-2: linalg.generic
// CHECK: linalg.matmul
func.func @named_elementwise(%b: tensor<4xf32>, %x: tensor<4x8xf32>) -> tensor<4x4xf32> {
  %e = tensor.empty() : tensor<4x4xf32>
  %et = tensor.empty() : tensor<8x4xf32>
  %t = linalg.transpose ins(%x : tensor<4x8xf32>) outs(%et : tensor<8x4xf32>) permutation = [1, 0]
  %i = linalg.broadcast ins(%b : tensor<4xf32>) outs(%e : tensor<4x4xf32>) dimensions = [0]
  %r = linalg.matmul ins(%x, %t : tensor<4x8xf32>, tensor<8x4xf32>) outs(%i : tensor<4x4xf32>) -> tensor<4x4xf32>
  return %r : tensor<4x4xf32>
}

// torch-mlir's factor in GELU is 0.797724; sqrt(2/π) is 0.797885. A division by sqrt(2) is a product in eager.
// CHECK-LABEL: func.func @gelu_factors
// CHECK: %[[T:.+]] = arith.constant 0.797884583 : f32
// CHECK-NEXT: %[[X:.+]] = arith.mulf %{{.+}}, %[[T]] : f32
// CHECK-NEXT: math.tanh %[[X]]
// CHECK: %[[E:.+]] = arith.constant 0.707106769 : f32
// CHECK-NEXT: %[[Y:.+]] = arith.mulf %{{.+}}, %[[E]] : f32
// CHECK-NEXT: math.erf %[[Y]]
// CHECK: arith.constant 0.79699999 : f32
// CHECK-NEXT: arith.mulf
// CHECK-NEXT: math.tanh
func.func @gelu_factors(%x: tensor<8xf32>) -> tensor<8xf32> {
  %t = arith.constant 0.797724 : f32
  %two = arith.constant 1.41421354 : f32
  %e = tensor.empty() : tensor<8xf32>
  %r = linalg.generic {indexing_maps = [#id1, #id1], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.mulf %in, %t : f32
    %b = math.tanh %a : f32
    %c = arith.divf %b, %two : f32
    %d = math.erf %c : f32
    %other = arith.constant 0.797 : f32
    %f = arith.mulf %d, %other : f32
    %g = math.tanh %f : f32
    linalg.yield %g : f32
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// CHECK-LABEL: func.func @constant_body
// CHECK: %[[Z:.+]] = linalg.fill ins(%{{.+}} : i64)
// CHECK-NEXT: return %[[Z]]
func.func @constant_body(%e: tensor<8xi64>) -> tensor<8xi64> {
  %zero = arith.constant 0 : i64
  %r = linalg.generic {indexing_maps = [#id1], iterator_types = ["parallel"]} outs(%e : tensor<8xi64>) {
  ^bb0(%out: i64):
    linalg.yield %zero : i64
  } -> tensor<8xi64>
  return %r : tensor<8xi64>
}

// A sum of a tensor of rank 0 is element-wise work: fusion may run it once per reader, so its start is an input.
// CHECK-LABEL: func.func @reduction_over_no_loop
// CHECK: %[[START:.+]] = linalg.fill
// CHECK: %[[S:.+]] = linalg.generic {{.*}} iterator_types = []{{.*}} ins(%{{.+}}, %[[START]] : tensor<f32>, tensor<f32>)
// CHECK-NEXT: ^bb0(%[[IN:.+]]: f32, %[[OLD:.+]]: f32, %{{.+}}: f32):
// CHECK-NEXT: arith.addf %[[IN]], %[[OLD]]
func.func @reduction_over_no_loop(%x: tensor<f32>) -> tensor<f32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<f32>
  %start = linalg.fill ins(%zero : f32) outs(%e : tensor<f32>) -> tensor<f32>
  %r = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []}
      ins(%x : tensor<f32>) outs(%start : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %s = arith.addf %in, %out : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  return %r : tensor<f32>
}

// A sum over a loop of one step stays a reduction.
// CHECK-LABEL: func.func @reduction_over_one_step
// CHECK: linalg.generic {{.*}} iterator_types = ["reduction"]{{.*}} ins(%{{[a-z0-9]+}} : tensor<1xf32>) outs
func.func @reduction_over_one_step(%x: tensor<1xf32>) -> tensor<f32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<f32>
  %start = linalg.fill ins(%zero : f32) outs(%e : tensor<f32>) -> tensor<f32>
  %r = linalg.generic {indexing_maps = [#id1, affine_map<(d0) -> ()>], iterator_types = ["reduction"]}
      ins(%x : tensor<1xf32>) outs(%start : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %s = arith.addf %in, %out : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  return %r : tensor<f32>
}

// The index of a maximum is that of the first NaN, as the maximum is NaN.
// CHECK-LABEL: func.func @index_of_nan
// CHECK: ^bb0(%[[IN:.+]]: f32, %[[BEST:.+]]: f32, %[[AT:.+]]: i64):
// CHECK: %[[MORE:.+]] = arith.cmpf ogt, %[[IN]], %[[BEST]]
// CHECK: %[[NAN:.+]] = arith.cmpf uno, %[[IN]], %[[IN]]
// CHECK: %[[NONE:.+]] = arith.cmpf ord, %[[BEST]], %[[BEST]]
// CHECK: %[[FIRST:.+]] = arith.andi %[[NAN]], %[[NONE]]
// CHECK: %[[WINS:.+]] = arith.ori %[[MORE]], %[[FIRST]]
// CHECK: arith.select %[[WINS]]
func.func @index_of_nan(%x: tensor<4x16xf32>, %lowest: tensor<4xf32>, %zeros: tensor<4xi64>) -> (tensor<4xf32>, tensor<4xi64>) {
  %m:2 = linalg.generic {indexing_maps = [#id2, #rows, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x16xf32>) outs(%lowest, %zeros : tensor<4xf32>, tensor<4xi64>) {
  ^bb0(%in: f32, %best: f32, %at: i64):
    %i = linalg.index 1 : index
    %n = arith.index_cast %i : index to i64
    %max = arith.maximumf %in, %best : f32
    %more = arith.cmpf ogt, %in, %best : f32
    %new = arith.select %more, %n, %at : i64
    linalg.yield %max, %new : f32, i64
  } -> (tensor<4xf32>, tensor<4xi64>)
  return %m#0, %m#1 : tensor<4xf32>, tensor<4xi64>
}

// A comparison that is not beside an extreme of the same operands is left as it is.
// CHECK-LABEL: func.func @other_comparison
// CHECK: arith.cmpf ogt
// CHECK-NOT: arith.cmpf uno
// CHECK: return
func.func @other_comparison(%x: tensor<4x16xf32>, %starts: tensor<4xf32>) -> tensor<4xf32> {
  %m = linalg.generic {indexing_maps = [#id2, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x16xf32>) outs(%starts : tensor<4xf32>) {
  ^bb0(%in: f32, %best: f32):
    %more = arith.cmpf ogt, %in, %best : f32
    %new = arith.select %more, %in, %best : f32
    linalg.yield %new : f32
  } -> tensor<4xf32>
  return %m : tensor<4xf32>
}

// A byte is converted by way of 32 bits, of which it keeps the low ones: 200.0 does not become 127.
// CHECK-LABEL: func.func @bytes
// CHECK: %[[WORD:.+]] = arith.fptosi %{{.+}} : f32 to i32
// CHECK-NEXT: arith.trunci %[[WORD]] : i32 to i8
func.func @bytes(%x: tensor<8xf32>) -> tensor<8xi8> {
  %e = tensor.empty() : tensor<8xi8>
  %r = linalg.generic {indexing_maps = [#id1, #id1], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%e : tensor<8xi8>) {
  ^bb0(%in: f32, %out: i8):
    %b = arith.fptoui %in : f32 to i8
    linalg.yield %b : i8
  } -> tensor<8xi8>
  return %r : tensor<8xi8>
}

// Integers of 32 bits and more are converted at once.
// CHECK-LABEL: func.func @words
// CHECK: arith.fptosi %{{.+}} : f32 to i64
// CHECK-NOT: arith.trunci
func.func @words(%x: tensor<8xf32>) -> tensor<8xi64> {
  %e = tensor.empty() : tensor<8xi64>
  %r = linalg.generic {indexing_maps = [#id1, #id1], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%e : tensor<8xi64>) {
  ^bb0(%in: f32, %out: i64):
    %b = arith.fptosi %in : f32 to i64
    linalg.yield %b : i64
  } -> tensor<8xi64>
  return %r : tensor<8xi64>
}
