// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=x86-64-v4 proposer=default},search-schedules{target=x86-64-v4 seed=1})' > %t.first
// RUN: filecheck %s --check-prefixes=CHECK,RANDOM --input-file %t.first
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=x86-64-v4 proposer=default},search-schedules{target=x86-64-v4 strategy=roller noise=0.0})' | filecheck %s --check-prefixes=CHECK,ROLLER
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=x86-64-v4 proposer=default},search-schedules{target=x86-64-v4 strategy=genetic noise=0.0 trials=128})' | filecheck %s --check-prefixes=CHECK,GENETIC
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=x86-64-v4 proposer=default},search-schedules{target=x86-64-v4 seed=1 trials=1000 patience=30 noise=0.0})' | filecheck %s --check-prefixes=CHECK,RANDOM
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=x86-64-v4},search-schedules{target=x86-64-v4 trials=8})' | filecheck %s --check-prefix=KEPT
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=x86-64-v4 proposer=default},search-schedules{target=x86-64-v4 seed=1})' | diff %t.first -

#id = affine_map<(d0, d1) -> (d0, d1)>
#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#packed = affine_map<(d0, d1, d2) -> (d1 floordiv 64, d2, d1 mod 64)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>

func.func @main(%x: tensor<512x512xf32>, %w: tensor<8x512x64xf32>) -> tensor<512x512xf32> {
  %r = call @matmul(%x, %w) : (tensor<512x512xf32>, tensor<8x512x64xf32>) -> tensor<512x512xf32>
  return %r : tensor<512x512xf32>
}

// The prediction was of the constructed schedule: it goes with it.
// CHECK-LABEL: func.func private @matmul
// RANDOM-SAME: tilewright.proposer = "random"
// ROLLER-SAME: tilewright.proposer = "roller"
// GENETIC-SAME: tilewright.proposer = "genetic"
// CHECK-SAME: tilewright.schedule = {{{.*}}reductions = [{{{.*}}products = [{{[0-9]+, [0-9]+}}]}]
// CHECK-NOT: tilewright.predicted
// Of eight that are drawn none is faster than what was constructed: it stays, with all that was said of it.
// KEPT-LABEL: func.func private @matmul
// KEPT-SAME: tilewright.predicted
// KEPT-SAME: tilewright.proposer = "roller"
func.func private @matmul(%x: tensor<512x512xf32>, %w: tensor<8x512x64xf32>) -> tensor<512x512xf32> attributes {tilewright.operator = "matmul"} {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<512x512xf32>
  %i = linalg.fill ins(%z : f32) outs(%e : tensor<512x512xf32>) -> tensor<512x512xf32>
  %m = linalg.generic {indexing_maps = [#left, #packed, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<512x512xf32>, tensor<8x512x64xf32>) outs(%i : tensor<512x512xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<512x512xf32>
  return %m : tensor<512x512xf32>
}

// Nobody calls it: it keeps what was constructed.
// CHECK-LABEL: func.func private @uncalled
// CHECK-SAME: tilewright.predicted
func.func private @uncalled(%x: tensor<512x512xf32>) -> tensor<512x512xf32> attributes {tilewright.operator = "relu"} {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<512x512xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<512x512xf32>) outs(%e : tensor<512x512xf32>) {
  ^bb0(%in: f32, %o: f32):
    %a = arith.maximumf %in, %z : f32
    linalg.yield %a : f32
  } -> tensor<512x512xf32>
  return %r : tensor<512x512xf32>
}
