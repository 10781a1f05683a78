// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(choose-winograd{target=x86-64-v4})' | filecheck %s
// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(choose-winograd{target=x86-64-v4},pack-contractions,transform-filters)' | filecheck %s --check-prefix=DONE

#data = affine_map<(n, h, w, f, r, s, c) -> (n, h + r, w + s, c)>
#strided = affine_map<(n, h, w, f, r, s, c) -> (n, h * 2 + r, w * 2 + s, c)>
#plain = affine_map<(n, h, w, f, r, s, c) -> (r, s, c, f)>
#turned = affine_map<(n, h, w, f, r, s, c) -> (f, c, r, s)>
#result = affine_map<(n, h, w, f, r, s, c) -> (n, h, w, f)>

// The transforms pay; the filter will be packed in blocks of 32, in whatever order it is stored now.
// CHECK-LABEL: func.func @pays
// CHECK: attrs = {tilewright.choice = {algorithm = "winograd4", block = 32 : i64}}
func.func @pays(%x: tensor<1x58x58x64xf32>, %w: tensor<64x64x3x3xf32> {tilewright.role = "weight"}, %i: tensor<1x56x56x64xf32>) -> tensor<1x56x56x64xf32> {
  %r = linalg.generic {indexing_maps = [#data, #turned, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x58x58x64xf32>, tensor<64x64x3x3xf32>) outs(%i : tensor<1x56x56x64xf32>) attrs = {tilewright.choice = {block = 32}} {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x56x56x64xf32>
  return %r : tensor<1x56x56x64xf32>
}

// -----

#data = affine_map<(n, h, w, f, r, s, c) -> (n, h + r, w + s, c)>
#plain = affine_map<(n, h, w, f, r, s, c) -> (r, s, c, f)>
#result = affine_map<(n, h, w, f, r, s, c) -> (n, h, w, f)>

// One channel is multiplied faster than it is transformed; what is written already is kept and done.
// CHECK-LABEL: func.func @kept
// CHECK: attrs = {tilewright.choice = {algorithm = "direct"}}
// CHECK: attrs = {tilewright.choice = {algorithm = "winograd2"}}
// DONE-LABEL: func.func @kept
// DONE-NOT: tilewright.choice
// DONE: attrs = {tilewright.winograd = 2 : i64}
// DONE-NOT: tilewright.choice
func.func @kept(%x: tensor<1x10x10x1xf32>, %w: tensor<3x3x1x24xf32> {tilewright.role = "weight"}, %i: tensor<1x8x8x24xf32>) -> (tensor<1x8x8x24xf32>, tensor<1x8x8x24xf32>) {
  %r = linalg.generic {indexing_maps = [#data, #plain, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x10x10x1xf32>, tensor<3x3x1x24xf32>) outs(%i : tensor<1x8x8x24xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x8x8x24xf32>
  %q = linalg.generic {indexing_maps = [#data, #plain, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x10x10x1xf32>, tensor<3x3x1x24xf32>) outs(%i : tensor<1x8x8x24xf32>) attrs = {tilewright.choice = {algorithm = "winograd2"}} {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x8x8x24xf32>
  return %r, %q : tensor<1x8x8x24xf32>, tensor<1x8x8x24xf32>
}

// -----

#strided = affine_map<(n, h, w, f, r, s, c) -> (n, h * 2 + r, w * 2 + s, c)>
#plain = affine_map<(n, h, w, f, r, s, c) -> (r, s, c, f)>
#result = affine_map<(n, h, w, f, r, s, c) -> (n, h, w, f)>

// There is nothing to choose for a convolution of stride 2.
// CHECK-LABEL: func.func @strided
// CHECK-NOT: tilewright.choice
func.func @strided(%x: tensor<1x17x17x64xf32>, %w: tensor<3x3x64x64xf32> {tilewright.role = "weight"}, %i: tensor<1x8x8x64xf32>) -> tensor<1x8x8x64xf32> {
  %r = linalg.generic {indexing_maps = [#strided, #plain, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x17x17x64xf32>, tensor<3x3x64x64xf32>) outs(%i : tensor<1x8x8x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x8x8x64xf32>
  return %r : tensor<1x8x8x64xf32>
}
