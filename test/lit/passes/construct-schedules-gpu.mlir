// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=cuda:sm_70 proposer=roller})' | filecheck %s --check-prefixes=CHECK,ROLLER
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=cuda:sm_80 proposer=roller})' | filecheck %s --check-prefixes=CHECK,ROLLER
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=cuda:sm_90a proposer=roller})' | filecheck %s --check-prefixes=CHECK,ROLLER
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=cuda:sm_80 proposer=modelled})' | filecheck %s --check-prefixes=CHECK,MODELLED
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=cuda:sm_80 proposer=default})' | filecheck %s --check-prefixes=CHECK,DEFAULT
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(construct-schedules{target=cuda:sm_80 proposer=random})' | filecheck %s --check-prefixes=CHECK,RANDOM

#id = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>
#turned = affine_map<(d0, d1) -> (d1, d0)>

// Whichever proposer is named, it says what the kernel is made of, and by the model what it takes.
// CHECK-LABEL: func.func private @sums
// CHECK-SAME: tilewright.predicted = {bound = "{{[A-Za-z0-9]+}}", us = {{[0-9.e+]+}} : f64}
// ROLLER-SAME: tilewright.proposer = "roller"
// MODELLED-SAME: tilewright.proposer = "modelled"
// DEFAULT-SAME: tilewright.proposer = "default"
// RANDOM-SAME: tilewright.proposer = "random"
// Rows lie side by side: whole ones, in accesses of 16 bytes, on a warp for every scheduler or more.
// ROLLER-SAME: gpu = {block = [{{[0-9]+}}, 512], kernel = "rows", split_k = 1 : i64, threads = {{128|256|512|1024}} : i64, vector = 4 : i64}
// DEFAULT-SAME: gpu = {block = [4, 512], kernel = "rows", split_k = 1 : i64, threads = 128 : i64, vector = 4 : i64}
// RANDOM-SAME: kernel = "{{rows|elementwise}}"
func.func private @sums(%x: tensor<8192x512xf32>) -> tensor<8192xf32> attributes {tilewright.operator = "reduction"} {
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

// Boxes are read and written in whole transactions of eight elements.
// CHECK-LABEL: func.func private @turned
// ROLLER-SAME: gpu = {block = [{{(8|16|24|32|48|64|128|256), (8|16|24|32|48|64|128|256)}}], kernel = "transpose"
// DEFAULT-SAME: kernel = "transpose"
func.func private @turned(%x: tensor<1024x2048xf32>) -> tensor<2048x1024xf32> attributes {tilewright.operator = "elementwise"} {
  %e = tensor.empty() : tensor<2048x1024xf32>
  %r = linalg.generic {indexing_maps = [#turned, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<1024x2048xf32>) outs(%e : tensor<2048x1024xf32>) {
  ^bb0(%in: f32, %o: f32):
    linalg.yield %in : f32
  } -> tensor<2048x1024xf32>
  return %r : tensor<2048x1024xf32>
}
