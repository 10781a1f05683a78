// RUN: tilewright-opt %s --pass-pipeline='builtin.module(pad-channels{target=h200},canonicalize,cse)' | filecheck %s
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(pad-channels{target=x86-64-v4})' | filecheck %s --check-prefix=OFF
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(pad-channels{target=mi50})' | filecheck %s --check-prefix=OFF

// OFF-NOT: tensor.extract

#nhwc = affine_map<(n, h, w, c) -> (n, c, h, w)>
#four = affine_map<(n, h, w, c) -> (n, h, w, c)>
#x = affine_map<(n, h, w, o, r, s, c) -> (n, h * 2 + r, w * 2 + s, c)>
#k = affine_map<(n, h, w, o, r, s, c) -> (r, s, c, o)>
#k_along = affine_map<(n, h, w, o, r, s, c) -> (o, r, s, c)>
#y = affine_map<(n, h, w, o, r, s, c) -> (n, h, w, o)>

// The transpose writes the fourth channel, the border is around it, and the weights have zeros there.
// CHECK-LABEL: func.func @stem
// CHECK-DAG: %[[ZERO:.+]] = arith.constant 0.000000e+00 : f16
// CHECK-DAG: %[[LAST:.+]] = arith.constant 2 : index
// CHECK: %[[DATA:.+]] = linalg.generic {{.*}} outs(%{{.+}} : tensor<32x224x224x4xf16>)
// CHECK: %[[N:.+]] = linalg.index 0
// CHECK: %[[H:.+]] = linalg.index 1
// CHECK: %[[W:.+]] = linalg.index 2
// CHECK: %[[C:.+]] = linalg.index 3
// CHECK: arith.minsi %[[C]], %[[LAST]]
// CHECK: %[[IN:.+]] = arith.cmpi eq
// CHECK: %[[V:.+]] = tensor.extract %arg0[%[[N]], %{{.+}}, %[[H]], %[[W]]] : tensor<32x3x224x224xf16>
// CHECK: arith.select %[[IN]], %[[V]], %[[ZERO]]
// CHECK: %[[PAD:.+]] = tensor.pad %[[DATA]] low[0, 3, 3, 0] high[0, 3, 3, 0]
// CHECK: tensor.yield %[[ZERO]]
// CHECK: tensor<32x224x224x4xf16> to tensor<32x230x230x4xf16>
// CHECK: %[[WEIGHT:.+]] = linalg.generic {{.*}} outs(%{{.+}} : tensor<7x7x4x64xf16>)
// CHECK: tensor.extract %arg1
// CHECK: linalg.generic {{.*}} ins(%[[PAD]], %[[WEIGHT]] : tensor<32x230x230x4xf16>, tensor<7x7x4x64xf16>) outs(%{{.+}} : tensor<32x112x112x64xf32>)
func.func @stem(%image: tensor<32x3x224x224xf16>, %w: tensor<7x7x3x64xf16> {tilewright.role = "weight"}) -> tensor<32x112x112x64xf32> {
  %zero = arith.constant 0.0 : f16
  %start = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<32x224x224x3xf16>
  %t = linalg.generic {indexing_maps = [#nhwc, #four], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%image : tensor<32x3x224x224xf16>) outs(%e : tensor<32x224x224x3xf16>) {
  ^bb0(%in: f16, %o: f16):
    linalg.yield %in : f16
  } -> tensor<32x224x224x3xf16>
  %p = tensor.pad %t low[0, 3, 3, 0] high[0, 3, 3, 0] {
  ^bb0(%i0: index, %i1: index, %i2: index, %i3: index):
    tensor.yield %zero : f16
  } : tensor<32x224x224x3xf16> to tensor<32x230x230x3xf16>
  %s = tensor.empty() : tensor<32x112x112x64xf32>
  %i = linalg.fill ins(%start : f32) outs(%s : tensor<32x112x112x64xf32>) -> tensor<32x112x112x64xf32>
  %r = linalg.generic {indexing_maps = [#x, #k, #y], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%p, %w : tensor<32x230x230x3xf16>, tensor<7x7x3x64xf16>) outs(%i : tensor<32x112x112x64xf32>) {
  ^bb0(%a: f16, %b: f16, %o: f32):
    %a32 = arith.extf %a : f16 to f32
    %b32 = arith.extf %b : f16 to f32
    %m = arith.mulf %a32, %b32 : f32
    %sum = arith.addf %o, %m : f32
    linalg.yield %sum : f32
  } -> tensor<32x112x112x64xf32>
  return %r : tensor<32x112x112x64xf32>
}

// A conversion on the way is made with the zeros.
// CHECK-LABEL: func.func @converted
// CHECK: %[[DATA:.+]] = linalg.generic {{.*}} outs(%{{.+}} : tensor<32x230x230x4xf32>)
// CHECK: tensor.extract %arg0
// CHECK: %[[CAST:.+]] = linalg.generic {{.*}} ins(%[[DATA]] : tensor<32x230x230x4xf32>) outs(%{{.+}} : tensor<32x230x230x4xbf16>)
// CHECK: arith.truncf %{{.+}} : f32 to bf16
// CHECK: linalg.generic {{.*}} ins(%[[CAST]], %{{.+}} : tensor<32x230x230x4xbf16>, tensor<7x7x4x64xbf16>)
func.func @converted(%image: tensor<32x230x230x3xf32>, %w: tensor<7x7x3x64xbf16> {tilewright.role = "weight"}) -> tensor<32x112x112x64xf32> {
  %start = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<32x230x230x3xbf16>
  %t = linalg.generic {indexing_maps = [#four, #four], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%image : tensor<32x230x230x3xf32>) outs(%e : tensor<32x230x230x3xbf16>) {
  ^bb0(%in: f32, %o: bf16):
    %n = arith.truncf %in : f32 to bf16
    linalg.yield %n : bf16
  } -> tensor<32x230x230x3xbf16>
  %s = tensor.empty() : tensor<32x112x112x64xf32>
  %i = linalg.fill ins(%start : f32) outs(%s : tensor<32x112x112x64xf32>) -> tensor<32x112x112x64xf32>
  %r = linalg.generic {indexing_maps = [#x, #k, #y], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%t, %w : tensor<32x230x230x3xbf16>, tensor<7x7x3x64xbf16>) outs(%i : tensor<32x112x112x64xf32>) {
  ^bb0(%a: bf16, %b: bf16, %o: f32):
    %a32 = arith.extf %a : bf16 to f32
    %b32 = arith.extf %b : bf16 to f32
    %m = arith.mulf %a32, %b32 : f32
    %sum = arith.addf %o, %m : f32
    linalg.yield %sum : f32
  } -> tensor<32x112x112x64xf32>
  return %r : tensor<32x112x112x64xf32>
}

// What is read twice is not what one reader wants it to be: it is copied for that one, where that pays.
// CHECK-LABEL: func.func @shared
// CHECK: linalg.generic {{.*}} outs(%{{.+}} : tensor<32x230x230x4xf16>)
// CHECK: tensor.extract %arg0[
// CHECK: linalg.generic {{.*}} ins(%{{.+}}, %{{.+}} : tensor<32x230x230x4xf16>, tensor<7x7x4x64xf16>)
// CHECK: return %{{.+}}, %arg0
func.func @shared(%p: tensor<32x230x230x3xf16>, %w: tensor<7x7x3x64xf16> {tilewright.role = "weight"}) -> (tensor<32x112x112x64xf32>, tensor<32x230x230x3xf16>) {
  %start = arith.constant 0.0 : f32
  %s = tensor.empty() : tensor<32x112x112x64xf32>
  %i = linalg.fill ins(%start : f32) outs(%s : tensor<32x112x112x64xf32>) -> tensor<32x112x112x64xf32>
  %r = linalg.generic {indexing_maps = [#x, #k, #y], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%p, %w : tensor<32x230x230x3xf16>, tensor<7x7x3x64xf16>) outs(%i : tensor<32x112x112x64xf32>) {
  ^bb0(%a: f16, %b: f16, %o: f32):
    %a32 = arith.extf %a : f16 to f32
    %b32 = arith.extf %b : f16 to f32
    %m = arith.mulf %a32, %b32 : f32
    %sum = arith.addf %o, %m : f32
    linalg.yield %sum : f32
  } -> tensor<32x112x112x64xf32>
  return %r, %p : tensor<32x112x112x64xf32>, tensor<32x230x230x3xf16>
}

// A single image is multiplied faster than it would be copied once more.
// CHECK-LABEL: func.func @dont_copy
// CHECK-NOT: tensor.extract
// CHECK: ins(%arg0, %arg1 : tensor<1x230x230x3xf16>, tensor<7x7x3x64xf16>)
func.func @dont_copy(%p: tensor<1x230x230x3xf16>, %w: tensor<7x7x3x64xf16> {tilewright.role = "weight"}) -> tensor<1x112x112x64xf32> {
  %start = arith.constant 0.0 : f32
  %s = tensor.empty() : tensor<1x112x112x64xf32>
  %i = linalg.fill ins(%start : f32) outs(%s : tensor<1x112x112x64xf32>) -> tensor<1x112x112x64xf32>
  %r = linalg.generic {indexing_maps = [#x, #k, #y], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%p, %w : tensor<1x230x230x3xf16>, tensor<7x7x3x64xf16>) outs(%i : tensor<1x112x112x64xf32>) {
  ^bb0(%a: f16, %b: f16, %o: f32):
    %a32 = arith.extf %a : f16 to f32
    %b32 = arith.extf %b : f16 to f32
    %m = arith.mulf %a32, %b32 : f32
    %sum = arith.addf %o, %m : f32
    linalg.yield %sum : f32
  } -> tensor<1x112x112x64xf32>
  return %r : tensor<1x112x112x64xf32>
}

// Single precision is copied in pieces of 4 bytes, and is multiplied by lanes, which more channels would keep busy.
// CHECK-LABEL: func.func @dont_pad_single
// CHECK-NOT: tensor.extract
// CHECK: ins(%arg0, %arg1 : tensor<32x230x230x3xf32>, tensor<7x7x3x64xf32>)
func.func @dont_pad_single(%p: tensor<32x230x230x3xf32>, %w: tensor<7x7x3x64xf32> {tilewright.role = "weight"}) -> tensor<32x112x112x64xf32> {
  %start = arith.constant 0.0 : f32
  %s = tensor.empty() : tensor<32x112x112x64xf32>
  %i = linalg.fill ins(%start : f32) outs(%s : tensor<32x112x112x64xf32>) -> tensor<32x112x112x64xf32>
  %r = linalg.generic {indexing_maps = [#x, #k, #y], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%p, %w : tensor<32x230x230x3xf32>, tensor<7x7x3x64xf32>) outs(%i : tensor<32x112x112x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %sum = arith.addf %o, %m : f32
    linalg.yield %sum : f32
  } -> tensor<32x112x112x64xf32>
  return %r : tensor<32x112x112x64xf32>
}

// Weights that are computed at every call would be copied at every call.
// CHECK-LABEL: func.func @dont_pad_computed_weights
// CHECK-NOT: tensor.extract
// CHECK: ins(%arg0, %arg1 : tensor<32x230x230x3xf16>, tensor<7x7x3x64xf16>)
func.func @dont_pad_computed_weights(%p: tensor<32x230x230x3xf16>, %w: tensor<7x7x3x64xf16>) -> tensor<32x112x112x64xf32> {
  %start = arith.constant 0.0 : f32
  %s = tensor.empty() : tensor<32x112x112x64xf32>
  %i = linalg.fill ins(%start : f32) outs(%s : tensor<32x112x112x64xf32>) -> tensor<32x112x112x64xf32>
  %r = linalg.generic {indexing_maps = [#x, #k, #y], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%p, %w : tensor<32x230x230x3xf16>, tensor<7x7x3x64xf16>) outs(%i : tensor<32x112x112x64xf32>) {
  ^bb0(%a: f16, %b: f16, %o: f32):
    %a32 = arith.extf %a : f16 to f32
    %b32 = arith.extf %b : f16 to f32
    %m = arith.mulf %a32, %b32 : f32
    %sum = arith.addf %o, %m : f32
    linalg.yield %sum : f32
  } -> tensor<32x112x112x64xf32>
  return %r : tensor<32x112x112x64xf32>
}

// Weights that lie along the channels too would be read in pieces as short.
// CHECK-LABEL: func.func @dont_pad_weights_along
// CHECK-NOT: tensor.extract
// CHECK: ins(%arg0, %arg1 : tensor<32x230x230x3xf16>, tensor<64x7x7x3xf16>)
func.func @dont_pad_weights_along(%p: tensor<32x230x230x3xf16>, %w: tensor<64x7x7x3xf16> {tilewright.role = "weight"}) -> tensor<32x112x112x64xf32> {
  %start = arith.constant 0.0 : f32
  %s = tensor.empty() : tensor<32x112x112x64xf32>
  %i = linalg.fill ins(%start : f32) outs(%s : tensor<32x112x112x64xf32>) -> tensor<32x112x112x64xf32>
  %r = linalg.generic {indexing_maps = [#x, #k_along, #y], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%p, %w : tensor<32x230x230x3xf16>, tensor<64x7x7x3xf16>) outs(%i : tensor<32x112x112x64xf32>) {
  ^bb0(%a: f16, %b: f16, %o: f32):
    %a32 = arith.extf %a : f16 to f32
    %b32 = arith.extf %b : f16 to f32
    %m = arith.mulf %a32, %b32 : f32
    %sum = arith.addf %o, %m : f32
    linalg.yield %sum : f32
  } -> tensor<32x112x112x64xf32>
  return %r : tensor<32x112x112x64xf32>
}

// A zero that something is taken off first is no zero of the sum.
// CHECK-LABEL: func.func @dont_pad_differences
// CHECK-NOT: tensor.extract
// CHECK: ins(%arg0, %arg1 : tensor<32x230x230x3xf16>, tensor<7x7x3x64xf16>)
func.func @dont_pad_differences(%p: tensor<32x230x230x3xf16>, %w: tensor<7x7x3x64xf16> {tilewright.role = "weight"}) -> tensor<32x112x112x64xf16> {
  %start = arith.constant 0.0 : f16
  %one = arith.constant 1.0 : f16
  %s = tensor.empty() : tensor<32x112x112x64xf16>
  %i = linalg.fill ins(%start : f16) outs(%s : tensor<32x112x112x64xf16>) -> tensor<32x112x112x64xf16>
  %r = linalg.generic {indexing_maps = [#x, #k, #y], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%p, %w : tensor<32x230x230x3xf16>, tensor<7x7x3x64xf16>) outs(%i : tensor<32x112x112x64xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %d = arith.subf %a, %one : f16
    %c = arith.subf %b, %one : f16
    %m = arith.mulf %d, %c : f16
    %sum = arith.addf %o, %m : f16
    linalg.yield %sum : f16
  } -> tensor<32x112x112x64xf16>
  return %r : tensor<32x112x112x64xf16>
}

// Nothing times zero is zero but numbers that are finite: a border of infinities keeps its channels, and is copied with
// the rest, where that pays.
// CHECK-LABEL: func.func @infinite
// CHECK: %[[P:.+]] = tensor.pad %arg0 low[0, 3, 3, 0] high[0, 3, 3, 0]
// CHECK: tensor<32x224x224x3xf16> to tensor<32x230x230x3xf16>
// CHECK: tensor.extract %[[P]]
// CHECK: ins(%{{.+}}, %{{.+}} : tensor<32x230x230x4xf16>, tensor<7x7x4x64xf16>)
func.func @infinite(%image: tensor<32x224x224x3xf16>, %w: tensor<7x7x3x64xf16> {tilewright.role = "weight"}) -> tensor<32x112x112x64xf32> {
  %infinity = arith.constant 0x7C00 : f16
  %start = arith.constant 0.0 : f32
  %p = tensor.pad %image low[0, 3, 3, 0] high[0, 3, 3, 0] {
  ^bb0(%i0: index, %i1: index, %i2: index, %i3: index):
    tensor.yield %infinity : f16
  } : tensor<32x224x224x3xf16> to tensor<32x230x230x3xf16>
  %s = tensor.empty() : tensor<32x112x112x64xf32>
  %i = linalg.fill ins(%start : f32) outs(%s : tensor<32x112x112x64xf32>) -> tensor<32x112x112x64xf32>
  %r = linalg.generic {indexing_maps = [#x, #k, #y], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%p, %w : tensor<32x230x230x3xf16>, tensor<7x7x3x64xf16>) outs(%i : tensor<32x112x112x64xf32>) {
  ^bb0(%a: f16, %b: f16, %o: f32):
    %a32 = arith.extf %a : f16 to f32
    %b32 = arith.extf %b : f16 to f32
    %m = arith.mulf %a32, %b32 : f32
    %sum = arith.addf %o, %m : f32
    linalg.yield %sum : f32
  } -> tensor<32x112x112x64xf32>
  return %r : tensor<32x112x112x64xf32>
}
