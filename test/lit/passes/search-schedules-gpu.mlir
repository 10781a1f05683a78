// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=cuda:sm_80},search-schedules{target=cuda:sm_80 strategy=pruner seed=1 trials=48})' > %t.first
// RUN: filecheck %s --input-file %t.first
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=cuda:sm_80},search-schedules{target=cuda:sm_80 strategy=pruner seed=1 trials=48})' | diff %t.first -

// Nobody has the device: what the micro-performance model of GPUs says is what is searched.
#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>

func.func @main(%x: tensor<512x512xf16>, %w: tensor<512x512xf16>) -> tensor<512x512xf32> {
  %r = call @matmul(%x, %w) : (tensor<512x512xf16>, tensor<512x512xf16>) -> tensor<512x512xf32>
  return %r : tensor<512x512xf32>
}

// CHECK-LABEL: func.func private @matmul
// CHECK-SAME: tilewright.schedule = {gpu = {block = [{{[0-9]+, [0-9]+, [0-9]+}}], instruction = "mma.m16n8k16{{[^"]*}}", kernel = "mma"
func.func private @matmul(%x: tensor<512x512xf16>, %w: tensor<512x512xf16>) -> tensor<512x512xf32> attributes {tilewright.operator = "matmul"} {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<512x512xf32>
  %i = linalg.fill ins(%z : f32) outs(%e : tensor<512x512xf32>) -> tensor<512x512xf32>
  %m = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<512x512xf16>, tensor<512x512xf16>) outs(%i : tensor<512x512xf32>) {
  ^bb0(%a: f16, %b: f16, %o: f32):
    %a1 = arith.extf %a : f16 to f32
    %b1 = arith.extf %b : f16 to f32
    %p = arith.mulf %a1, %b1 : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<512x512xf32>
  return %m : tensor<512x512xf32>
}
