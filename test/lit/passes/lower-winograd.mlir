// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(lower-winograd{vector-bits=512}),canonicalize,cse)' | filecheck %s

#data = affine_map<(n, h, w, f, r, s, c) -> (n, h + r, w + s, c)>
#packed = affine_map<(n, h, w, f, r, s, c) -> (f floordiv 32, 0, r, s, c, f mod 32)>
#plain = affine_map<(n, h, w, f, r, s, c) -> (0, r, s, c, f)>
#result = affine_map<(n, h, w, f, r, s, c) -> (n, h, w, f)>
#id = affine_map<(n, h, w, f) -> (n, h, w, f)>
#bias = affine_map<(n, h, w, f) -> (f)>
#first = affine_map<(n, f, h, w) -> (n, f, h, w)>
#turned = affine_map<(n, f, h, w) -> (n, h, w, f)>

// CHECK-DAG: #[[LAST:.+]] = affine_map<(d0) -> (6, d0 * 4)>
// CHECK-DAG: #[[PANEL:.+]] = affine_map<(d0) -> (d0 * 23040 + 4608)>

// Nine tiles of an image of 10x10, the last of each row and column moved back to start at 6; the transforms of the
// filter stand behind its nine planes; what follows the convolution is computed where its outputs are made.
// CHECK-LABEL: func.func @fused
// CHECK: %[[V:.+]] = memref.alloc() : memref<36x9x16xf32>
// CHECK: %[[M:.+]] = memref.alloc() : memref<36x9x32xf32>
// CHECK-NOT: memref.alloc
// CHECK: scf.for
// CHECK: scf.for
// CHECK: affine.min #[[LAST]]
// CHECK-COUNT-36: vector.load %arg0
// CHECK: vector.fma
// CHECK-COUNT-36: vector.store %{{.+}}, %[[V]]
// CHECK: scf.for %[[F:.+]] = %{{.+}} to %c2
// CHECK: %[[START:.+]] = affine.apply #[[PANEL]](%[[F]])
// CHECK: %[[U:.+]] = memref.reinterpret_cast %{{.+}} to offset: [%[[START]]], sizes: [36, 16, 32]
// CHECK: linalg.fill {{.*}} outs(%[[M]]
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "reduction"]
// CHECK-SAME: ins(%[[V]], %[[U]] : {{.*}}) outs(%[[M]]
// CHECK-COUNT-36: vector.load %[[M]]
// CHECK: %[[B:.+]] = vector.load %arg2
// CHECK: arith.addf %{{.+}}, %[[B]] {{.*}} : vector<16xf32>
// CHECK: vector.store %{{.+}}, %arg3
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @fused(%x: memref<1x12x12x16xf32>, %p: memref<2x5x3x3x16x32xf32>, %b: memref<64xf32>, %y: memref<1x10x10x64xf32>) {
  %zero = arith.constant 0.0 : f32
  %t = memref.alloc() : memref<1x10x10x64xf32>
  linalg.fill ins(%zero : f32) outs(%t : memref<1x10x10x64xf32>)
  linalg.generic {indexing_maps = [#data, #packed, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %p : memref<1x12x12x16xf32>, memref<2x5x3x3x16x32xf32>) outs(%t : memref<1x10x10x64xf32>) attrs = {tilewright.loops = {winograd = [6, 32]}, tilewright.winograd = 4 : i64} {
  ^bb0(%a: f32, %w: f32, %o: f32):
    %m = arith.mulf %a, %w : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  }
  linalg.generic {indexing_maps = [#id, #bias, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%t, %b : memref<1x10x10x64xf32>, memref<64xf32>) outs(%y : memref<1x10x10x64xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %s = arith.addf %a, %c : f32
    %m = arith.maximumf %s, %zero : f32
    linalg.yield %m : f32
  }
  return
}

// F(2, 3) on 20 channels: one full vector and one of four. A reader that turns the result stays behind it.
// CHECK-LABEL: func.func @turned
// CHECK: memref.alloc() : memref<16x4x20xf32>
// CHECK: vector.load %arg0{{.*}} vector<16xf32>
// CHECK: vector.load %arg0{{.*}} vector<4xf32>
// CHECK: linalg.generic {{.*}} "reduction"]
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "parallel"]
func.func @turned(%x: memref<1x6x6x20xf32>, %p: memref<3x3x3x20x16xf32>, %y: memref<1x16x4x4xf32>) {
  %zero = arith.constant 0.0 : f32
  %t = memref.alloc() : memref<1x4x4x16xf32>
  linalg.fill ins(%zero : f32) outs(%t : memref<1x4x4x16xf32>)
  linalg.generic {indexing_maps = [#data, #plain, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %p : memref<1x6x6x20xf32>, memref<3x3x3x20x16xf32>) outs(%t : memref<1x4x4x16xf32>) attrs = {tilewright.loops = {winograd = [4, 16]}, tilewright.winograd = 2 : i64} {
  ^bb0(%a: f32, %w: f32, %o: f32):
    %m = arith.mulf %a, %w : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  }
  linalg.generic {indexing_maps = [#turned, #first], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%t : memref<1x4x4x16xf32>) outs(%y : memref<1x16x4x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  }
  return
}

// Blocks of channels are those of the products, whose sums wait in scratch for the next block.
// CHECK-LABEL: func.func @blocks
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "reduction"]
// CHECK-SAME: tilewright.loops = {depth = 32 : i64, products = [9, 16]}
func.func @blocks(%x: memref<1x12x12x64xf32>, %p: memref<5x3x3x64x16xf32>, %y: memref<1x10x10x16xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%y : memref<1x10x10x16xf32>)
  linalg.generic {indexing_maps = [#data, #plain, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %p : memref<1x12x12x64xf32>, memref<5x3x3x64x16xf32>) outs(%y : memref<1x10x10x16xf32>) attrs = {tilewright.loops = {winograd = [9, 16], depth = 32 : i64}, tilewright.winograd = 4 : i64} {
  ^bb0(%a: f32, %w: f32, %o: f32):
    %m = arith.mulf %a, %w : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  }
  return
}

// Direct convolutions, on the filter itself, as they are marked.
// CHECK-LABEL: func.func @direct
// CHECK-NOT: vector.fma
// CHECK-COUNT-2: tilewright.winograd
// CHECK-NOT: vector.fma
// CHECK: return
func.func @direct(%x: memref<1x5x12x16xf32>, %z: memref<1x12x12x16xf32>, %p: memref<5x3x3x16x16xf32>, %y: memref<1x3x10x16xf32>, %v: memref<1x10x10x16xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%y : memref<1x3x10x16xf32>)
  linalg.generic {indexing_maps = [#data, #plain, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %p : memref<1x5x12x16xf32>, memref<5x3x3x16x16xf32>) outs(%y : memref<1x3x10x16xf32>) attrs = {tilewright.loops = {products = [10, 16]}, tilewright.winograd = 4 : i64} {
  ^bb0(%a: f32, %w: f32, %o: f32):
    %m = arith.mulf %a, %w : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  }
  linalg.generic {indexing_maps = [#data, #plain, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%z, %p : memref<1x12x12x16xf32>, memref<5x3x3x16x16xf32>) outs(%v : memref<1x10x10x16xf32>) attrs = {tilewright.loops = {products = [10, 16]}, tilewright.winograd = 4 : i64} {
  ^bb0(%a: f32, %w: f32, %o: f32):
    %m = arith.mulf %a, %w : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  }
  return
}

// Not marked at all.
// CHECK-LABEL: func.func @strided
// CHECK-NOT: vector.load
// CHECK: tilewright.winograd
// CHECK: return
func.func @strided(%x: memref<1x12x12x16xf32, strided<[4608, 384, 32, 2]>>, %p: memref<5x3x3x16x16xf32>, %y: memref<1x10x10x16xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%y : memref<1x10x10x16xf32>)
  linalg.generic {indexing_maps = [#data, #plain, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %p : memref<1x12x12x16xf32, strided<[4608, 384, 32, 2]>>, memref<5x3x3x16x16xf32>) outs(%y : memref<1x10x10x16xf32>) attrs = {tilewright.winograd = 4 : i64} {
  ^bb0(%a: f32, %w: f32, %o: f32):
    %m = arith.mulf %a, %w : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  }
  return
}
