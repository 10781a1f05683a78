// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=x86-64-v4})' | filecheck %s --check-prefixes=CHECK,CPU
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=v100})' | filecheck %s --check-prefixes=CHECK,V100
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=cuda:sm_90a})' | filecheck %s --check-prefixes=CHECK,HOPPER
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=mi50})' | filecheck %s --check-prefixes=CHECK,MI50
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=graphcore-ipu})' | filecheck %s --check-prefixes=CHECK,IPU
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=x86-64-v4 candidate=1})' | filecheck %s --check-prefix=SECOND
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=x86-64-v4 cores=1})' | filecheck %s --check-prefix=SINGLE
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=x86-64-v4 execution-unit=false})' | filecheck %s --check-prefix=SCALAR
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=x86-64-v4},apply-schedule)' | filecheck %s --check-prefix=APPLIED
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=x86-64-v4 proposer=roller})' | filecheck %s --check-prefix=ROLLER
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=x86-64-v4 proposer=aligned})' | filecheck %s --check-prefix=ALIGNED
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=x86-64-v4 proposer=default})' | filecheck %s --check-prefix=WHOLE
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=cuda:sm_70 proposer=roller})' | filecheck %s --check-prefix=BLOCKS
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=cuda:sm_80 proposer=roller})' | filecheck %s --check-prefix=BLOCKS
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=cuda:sm_90a proposer=roller})' | filecheck %s --check-prefix=BLOCKS

#id = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
#columns = affine_map<(d0, d1) -> (d1)>
#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#packed = affine_map<(d0, d1, d2) -> (d1 floordiv 64, d2, d1 mod 64)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
#image = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0 + d3, d1 + d4, d5)>
#filter = affine_map<(d0, d1, d2, d3, d4, d5) -> (d2 floordiv 64, d3, d4, d5, d2 mod 64)>
#result = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2)>
#window = affine_map<(d0, d1, d2, d3, d4) -> (d0 + d3, d1 + d4, d2)>
#taps = affine_map<(d0, d1, d2, d3, d4) -> (d3, d4, d2)>
#channels = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2)>

// Whole blocks of packed columns, the reduction inside: registers hold 6 rows of a block, and the tasks share the rows.
// CHECK-LABEL: func.func private @matmul
// CPU-SAME: tilewright.predicted = {bound = "compute", us = {{[0-9.e+]+}} : f64}
// ROLLER-LABEL: func.func private @matmul
// ROLLER-SAME: tilewright.proposer = "roller"
// ROLLER-SAME: reductions = [{products = [6, 64]}], tile = [256, 64]
// ALIGNED-LABEL: func.func private @matmul
// ALIGNED-SAME: tilewright.proposer = "aligned"
// ALIGNED-SAME: reductions = [{products = [6, 64]}], tile = [171, 128]
// BLOCKS-LABEL: func.func private @matmul
// BLOCKS-SAME: tilewright.proposer = "roller"
// BLOCKS-SAME: gpu = {block = [{{[0-9]+, [0-9]+, [0-9]+}}], {{.*}}kernel = "simt"
// WHOLE-LABEL: func.func private @matmul
// WHOLE-SAME: reductions = [{products = [6, 64]}], tile = []
// CPU-SAME: levels = {L1 = [6, 64, 1], L2 = [6, 64, 512], L3 = [256, 64, 512], registers = [6, 64, 1]}, reductions = [{products = [6, 64]}], tile = [256, 64]
// V100-SAME: gpu = {block = [64, 64, {{[0-9]+}}], {{.*}}kernel = "simt", {{.*}}thread = [4, 8], threads = 128 : i64}, levels = {registers = [1, 4, 8, 1], shared = [1, 64, 64, {{[0-9]+}}]}, tile = []
// HOPPER-SAME: gpu = {block = [{{[0-9]+, [0-9]+, [0-9]+}}], {{.*}}kernel = "simt"
// MI50-SAME: levels = {registers = [{{[0-9, ]+}}], shared = [{{[0-9, ]+}}]}, tile = []
// IPU-SAME: levels = {local = [14, 8, 512], registers = [2, 1, 1]}, tile = []
// SECOND-LABEL: func.func private @matmul
// SECOND-SAME: reductions = [{products = [6, 64]}], tile = [256, 128]
// SINGLE-LABEL: func.func private @matmul
// SCALAR-LABEL: func.func private @matmul
// SCALAR-SAME: registers = [1, 16, 1]
// SCALAR-SAME: reductions = [{products = [1, 16]}]
// APPLIED-LABEL: func.func private @matmul
// APPLIED: scf.forall
// APPLIED: linalg.generic {{.*}} "reduction"]
// APPLIED: arith.maximumf
// APPLIED: scf.forall.in_parallel
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
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<512x512xf32>) outs(%e : tensor<512x512xf32>) {
  ^bb0(%in: f32, %o: f32):
    %a = arith.maximumf %in, %z : f32
    linalg.yield %a : f32
  } -> tensor<512x512xf32>
  return %r : tensor<512x512xf32>
}

// Rows of the image stay whole, so that tasks share their halo.
// CHECK-LABEL: func.func private @conv
// CPU-SAME: levels = {L1 = [1, 6, 64, 1, 1, 1], L2 = [7, 28, 64, 3, 3, 128], L3 = [7, 28, 64, 3, 3, 128], registers = [1, 6, 64, 1, 1, 1]}, reductions = [{products = [6, 64]}], tile = [7, 0, 64, 0, 0, 0]
// V100-SAME: gpu = {block = [{{[0-9]+, [0-9]+, [0-9]+}}], {{.*}}kernel = "simt", {{.*}}split_k = {{[2-9]}} : i64
// HOPPER-SAME: gpu = {block = [{{[0-9]+, [0-9]+, [0-9]+}}], {{.*}}kernel = "simt", {{.*}}split_k = {{[2-9]}} : i64
// IPU-SAME: levels = {local = [2, 14, 2, 3, 3, 16], registers = [1, 2, 1, 1, 1, 1]}, tile = []
// SINGLE-LABEL: func.func private @conv
func.func private @conv(%x: tensor<30x30x128xf32>, %w: tensor<2x3x3x128x64xf32>) -> tensor<28x28x128xf32> attributes {tilewright.operator = "conv"} {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<28x28x128xf32>
  %i = linalg.fill ins(%z : f32) outs(%e : tensor<28x28x128xf32>) -> tensor<28x28x128xf32>
  %c = linalg.generic {indexing_maps = [#image, #filter, #result], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<30x30x128xf32>, tensor<2x3x3x128x64xf32>) outs(%i : tensor<28x28x128xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<28x28x128xf32>
  return %c : tensor<28x28x128xf32>
}

// A reduction loop is never cut.
// CHECK-LABEL: func.func private @reduction
// CPU-SAME: levels = {L1 = [16, 1], L2 = [128, 512], L3 = [128, 512], registers = [16, 1]}, reductions = [{along = [4, 1, 2]}], tile = [128, 0]
// V100-SAME: gpu = {block = [1, 512], kernel = "rows", split_k = 1 : i64, threads = 128 : i64, vector = 4 : i64}, levels = {registers = [1, 4], shared = [1, 512]}, tile = []
// IPU-SAME: levels = {local = [2, 512], registers = [2, 2]}, tile = []
func.func private @reduction(%x: tensor<8192x512xf32>) -> tensor<8192xf32> attributes {tilewright.operator = "reduction"} {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8192xf32>
  %i = linalg.fill ins(%z : f32) outs(%e : tensor<8192xf32>) -> tensor<8192xf32>
  %r = linalg.generic {indexing_maps = [#id, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<8192x512xf32>) outs(%i : tensor<8192xf32>) {
  ^bb0(%in: f32, %o: f32):
    %a = arith.addf %in, %o : f32
    linalg.yield %a : f32
  } -> tensor<8192xf32>
  return %r : tensor<8192xf32>
}

// Outer loops are cut, so that every task walks memory in one piece; on one core there is nothing to share out.
// CHECK-LABEL: func.func private @elementwise
// CPU-SAME: levels = {L1 = [1, 1024], L2 = [1, 1024], L3 = [64, 1024], registers = [1, 16]}, tile = [64, 0]
// V100-SAME: gpu = {block = [8192], kernel = "elementwise", threads = 256 : i64, vector = 4 : i64}, levels = {registers = [1, 4], shared = [8, 1024]}, tile = []
// IPU-SAME: levels = {local = [64, 2], registers = [2, 2]}, tile = []
// SINGLE-LABEL: func.func private @elementwise
// SINGLE-SAME: tile = [0, 0]
func.func private @elementwise(%x: tensor<1024x1024xf32>, %b: tensor<1024xf32>) -> tensor<1024x1024xf32> attributes {tilewright.operator = "elementwise"} {
  %e = tensor.empty() : tensor<1024x1024xf32>
  %r = linalg.generic {indexing_maps = [#id, #columns, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %b : tensor<1024x1024xf32>, tensor<1024xf32>) outs(%e : tensor<1024x1024xf32>) {
  ^bb0(%in: f32, %bias: f32, %o: f32):
    %a = arith.addf %in, %bias : f32
    linalg.yield %a : f32
  } -> tensor<1024x1024xf32>
  return %r : tensor<1024x1024xf32>
}

// Registers hold several pixels of the same channels, which share their taps.
// CHECK-LABEL: func.func private @depthwise
// ROLLER-LABEL: func.func private @depthwise
// ROLLER-SAME: reductions = [{windows = [1, 8, 1]}], tile = [14, 8, 0, 0, 0]
// ALIGNED-LABEL: func.func private @depthwise
// ALIGNED-SAME: reductions = [{windows = [1, 14, 1]}], tile = [14, 28, 0, 0, 0]
// CPU-SAME: levels = {L1 = [1, 8, 64, 3, 3], L2 = [14, 8, 64, 3, 3], L3 = [14, 8, 64, 3, 3], registers = [1, 4, 64, 1, 1]}, reductions = [{windows = [1, 8, 1]}], tile = [14, 8, 0, 0, 0]
// V100-SAME: gpu = {block = [1024], kernel = "windows", thread = [2, 4], threads = 128 : i64, vector = 4 : i64}, levels = {registers = [1, 1, 4, 1, 1], shared = [1, {{[0-9]+}}, 64, 3, 3]}, tile = []
// IPU-SAME: levels = {local = [7, 14, 1, 3, 3], registers = [1, 2, 1, 1, 1]}, tile = []
func.func private @depthwise(%x: tensor<58x58x64xf32>, %w: tensor<3x3x64xf32>) -> tensor<56x56x64xf32> attributes {tilewright.operator = "conv"} {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<56x56x64xf32>
  %i = linalg.fill ins(%z : f32) outs(%e : tensor<56x56x64xf32>) -> tensor<56x56x64xf32>
  %c = linalg.generic {indexing_maps = [#window, #taps, #channels], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %w : tensor<58x58x64xf32>, tensor<3x3x64xf32>) outs(%i : tensor<56x56x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<56x56x64xf32>
  return %c : tensor<56x56x64xf32>
}

// A prime number of columns is cut all the same: the last rTask accumulates apart and overlaps its neighbour.
// CPU-LABEL: func.func private @prime_columns
// CPU-SAME: tile = [{{[1-9][0-9]*}}, 0]
func.func private @prime_columns(%x: tensor<64x10007xf32>) -> tensor<10007xf32> attributes {tilewright.operator = "reduction"} {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<10007xf32>
  %i = linalg.fill ins(%z : f32) outs(%e : tensor<10007xf32>) -> tensor<10007xf32>
  %r = linalg.generic {indexing_maps = [#turned, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<64x10007xf32>) outs(%i : tensor<10007xf32>) {
  ^bb0(%in: f32, %o: f32):
    %s = arith.addf %o, %in : f32
    linalg.yield %s : f32
  } -> tensor<10007xf32>
  return %r : tensor<10007xf32>
}

// Half precision takes the tensor cores: a warpgroup's instruction on Hopper, fed by TMA.
// HOPPER-LABEL: func.func private @half
// HOPPER-SAME: gpu = {block = [128, 256, 64], cluster = 2 : i64, instruction = "wgmma.m64n256k16", kernel = "wgmma", {{.*}}stages = 4 : i64, swizzle = 128 : i64, threads = 384 : i64, warp = [64, 256]}
func.func private @half(%x: tensor<4096x4096xf16>, %w: tensor<4096x4096xf16>) -> tensor<4096x4096xf16> attributes {tilewright.operator = "matmul"} {
  %z = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<4096x4096xf16>
  %i = linalg.fill ins(%z : f16) outs(%e : tensor<4096x4096xf16>) -> tensor<4096x4096xf16>
  %m = linalg.generic {indexing_maps = [#left, affine_map<(d0, d1, d2) -> (d2, d1)>, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<4096x4096xf16>, tensor<4096x4096xf16>) outs(%i : tensor<4096x4096xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %p = arith.mulf %a, %b : f16
    %s = arith.addf %o, %p : f16
    linalg.yield %s : f16
  } -> tensor<4096x4096xf16>
  return %m : tensor<4096x4096xf16>
}

// What somebody has written stays.
// CHECK-LABEL: func.func private @by_hand
// CHECK-SAME: tilewright.schedule = {tile = [2, 0], unroll = 0 : i64, vector = 0 : i64}
func.func private @by_hand(%x: tensor<64x32xf32>) -> tensor<64x32xf32>
    attributes {tilewright.operator = "elementwise", tilewright.schedule = {tile = [2, 0], unroll = 0, vector = 0}} {
  %e = tensor.empty() : tensor<64x32xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x32xf32>) outs(%e : tensor<64x32xf32>) {
  ^bb0(%in: f32, %o: f32):
    %a = arith.mulf %in, %in : f32
    linalg.yield %a : f32
  } -> tensor<64x32xf32>
  return %r : tensor<64x32xf32>
}

// What it leaves out of a CPU's kernel is filled in.
// CPU-LABEL: func.func private @half_by_hand
// CPU-SAME: tilewright.schedule = {reductions = [{products = [3, 64]}], tile = [16, 0]}
func.func private @half_by_hand(%a: tensor<64x32xf32>, %b: tensor<32x128xf32>) -> tensor<64x128xf32>
    attributes {tilewright.operator = "matmul", tilewright.schedule = {tile = [16, 0], unroll = 3}} {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x128xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<64x128xf32>) -> tensor<64x128xf32>
  %m = linalg.generic {indexing_maps = [#left, affine_map<(d0, d1, d2) -> (d2, d1)>, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<64x32xf32>, tensor<32x128xf32>) outs(%f : tensor<64x128xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x128xf32>
  return %m : tensor<64x128xf32>
}

// One without a sink gets an empty one and the reason, on GPUs the kernel that its family makes of it; only dispatches
// get any.
// CHECK-LABEL: func.func private @no_sink
// CPU-SAME: tilewright.schedule = {tile = [], unroll = 0 : i64, vector = 0 : i64}
// V100-SAME: tilewright.schedule = {gpu = {block = [256], kernel = "elementwise", threads = 64 : i64, vector = 4 : i64}, tile = [],
// CHECK-SAME: tilewright.unscheduled = "its results do not come from one operation"
func.func private @no_sink(%x: tensor<64x32xf32>) -> tensor<64x32xf32> attributes {tilewright.operator = "slice"} {
  return %x : tensor<64x32xf32>
}
// CHECK-LABEL: func.func @main
// CHECK-NOT: tilewright.schedule
// CHECK: return
func.func @main(%x: tensor<64x32xf32>) -> tensor<64x32xf32> {
  return %x : tensor<64x32xf32>
}
