// RUN: tilewright-opt %s --pass-pipeline='builtin.module(outline-dispatches{under-windows=true})' | filecheck %s
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(outline-dispatches{under-windows=true kept-bytes=4096})' | filecheck %s --check-prefix=KEPT
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(outline-dispatches)' | filecheck %s --check-prefix=APART
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(outline-dispatches{under-windows=true},fuse-elementwise)' | filecheck %s --check-prefix=FUSED

#image = affine_map<(h, c, r) -> (h + r, c)>
#taps = affine_map<(h, c, r) -> (r, c)>
#sums = affine_map<(h, c, r) -> (h, c)>
#point = affine_map<(h, c) -> (h, c)>
#rows = affine_map<(h, f, c) -> (h, c)>
#columns = affine_map<(h, f, c) -> (c, f)>
#products = affine_map<(h, f, c) -> (h, f)>

// A depthwise convolution and what is computed from it alone are computed where the product reads them.
// CHECK-LABEL: func.func @main(
// CHECK-NEXT: call @matmul
// CHECK-NEXT: return
// A result of 32 x 32 numbers is 4,096 bytes, which the cores keep.
// KEPT-LABEL: func.func @main(
// KEPT-NEXT: call @conv
// KEPT-NEXT: call @matmul
// KEPT: the cores' own caches keep it
// Kernels of GPUs take one of them.
// APART-LABEL: func.func @main(
// APART-NEXT: call @conv
// APART-NEXT: call @matmul
// APART: a contraction would recompute it
// What the product reads is computed once, not for every column.
// FUSED: func.func private @matmul
// FUSED: %[[W:.+]] = linalg.generic
// FUSED: %[[M:.+]] = linalg.generic {{.*}} ins(%[[W]] :
// FUSED-NEXT: ^bb0
// FUSED-NEXT: arith.maximumf
// FUSED: linalg.generic {{.*}} ins(%[[M]], %{{.+}} :
// FUSED-NEXT: ^bb0
// FUSED-NEXT: arith.mulf
func.func @main(%x: tensor<34x32xf32>, %w: tensor<3x32xf32>, %v: tensor<32x8xf32>) -> tensor<32x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<32x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<32x32xf32>) -> tensor<32x32xf32>
  %d = linalg.generic {indexing_maps = [#image, #taps, #sums], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<34x32xf32>, tensor<3x32xf32>) outs(%f : tensor<32x32xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %out, %m : f32
    linalg.yield %s : f32
  } -> tensor<32x32xf32>
  %y = linalg.generic {indexing_maps = [#point, #point], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<32x32xf32>) outs(%e : tensor<32x32xf32>) {
  ^bb0(%a: f32, %out: f32):
    %m = arith.maximumf %a, %zero : f32
    linalg.yield %m : f32
  } -> tensor<32x32xf32>
  %o = tensor.empty() : tensor<32x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%o : tensor<32x8xf32>) -> tensor<32x8xf32>
  %p = linalg.generic {indexing_maps = [#rows, #columns, #products], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%y, %v : tensor<32x32xf32>, tensor<32x8xf32>) outs(%g : tensor<32x8xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %out, %m : f32
    linalg.yield %s : f32
  } -> tensor<32x8xf32>
  return %p : tensor<32x8xf32>
}

// Almost: two read what the windows give.
// CHECK-LABEL: func.func @two_readers(
// CHECK-NEXT: call @conv
// CHECK-NEXT: call @matmul
func.func @two_readers(%x: tensor<34x32xf32>, %w: tensor<3x32xf32>, %v: tensor<32x8xf32>) -> (tensor<32x8xf32>, tensor<32x32xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<32x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<32x32xf32>) -> tensor<32x32xf32>
  %d = linalg.generic {indexing_maps = [#image, #taps, #sums], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<34x32xf32>, tensor<3x32xf32>) outs(%f : tensor<32x32xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %out, %m : f32
    linalg.yield %s : f32
  } -> tensor<32x32xf32>
  %o = tensor.empty() : tensor<32x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%o : tensor<32x8xf32>) -> tensor<32x8xf32>
  %p = linalg.generic {indexing_maps = [#rows, #columns, #products], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%d, %v : tensor<32x32xf32>, tensor<32x8xf32>) outs(%g : tensor<32x8xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %out, %m : f32
    linalg.yield %s : f32
  } -> tensor<32x8xf32>
  return %p, %d : tensor<32x8xf32>, tensor<32x32xf32>
}

// A filter of full convolutions reads each element of the image for every channel: it is no windows in this sense.
// CHECK-LABEL: func.func @convolution(
// CHECK-NEXT: call @conv
// CHECK-NEXT: call @matmul
func.func @convolution(%x: tensor<34x32xf32>, %w: tensor<3x32x32xf32>, %v: tensor<32x8xf32>) -> tensor<32x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<32x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<32x32xf32>) -> tensor<32x32xf32>
  %d = linalg.generic {indexing_maps = [affine_map<(h, f, r, c) -> (h + r, c)>, affine_map<(h, f, r, c) -> (r, c, f)>, affine_map<(h, f, r, c) -> (h, f)>],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %w : tensor<34x32xf32>, tensor<3x32x32xf32>) outs(%f : tensor<32x32xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %out, %m : f32
    linalg.yield %s : f32
  } -> tensor<32x32xf32>
  %o = tensor.empty() : tensor<32x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%o : tensor<32x8xf32>) -> tensor<32x8xf32>
  %p = linalg.generic {indexing_maps = [#rows, #columns, #products], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%d, %v : tensor<32x32xf32>, tensor<32x8xf32>) outs(%g : tensor<32x8xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %out, %m : f32
    linalg.yield %s : f32
  } -> tensor<32x8xf32>
  return %p : tensor<32x8xf32>
}

// CHECK: func.func private @matmul_32x8x32
// CHECK: arith.mulf
// CHECK: arith.maximumf
// CHECK: arith.mulf
// CHECK: func.func private @matmul{{.*}}"conv: a contraction would recompute it", "conv: its result is used elsewhere"
