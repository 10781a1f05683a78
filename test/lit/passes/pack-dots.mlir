// RUN: tilewright-opt %s --pass-pipeline='builtin.module(pack-dots{bf16=true int8=true},canonicalize)' | filecheck %s
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(pack-dots)' | filecheck %s --check-prefix=OFF

// OFF-NOT: floordiv

#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
#x = affine_map<(n, h, w, o, r, s, i) -> (n, h + r, w * 2 + s, i)>
#k = affine_map<(n, h, w, o, r, s, i) -> (r, s, i, o)>
#y = affine_map<(n, h, w, o, r, s, i) -> (n, h, w, o)>

// CHECK: #[[ODD:.+]] = affine_map<(d0, d1, d2) -> (d1 floordiv 64, d2 floordiv 2, d1 mod 64, d2 mod 2)>
// CHECK: #[[CONV:.+]] = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3 floordiv 32, d4, d5, d6 floordiv 2, d3 mod 32, d6 mod 2)>
// CHECK: #[[QUADS:.+]] = affine_map<(d0, d1, d2) -> (d1 floordiv 16, d2 floordiv 4, d1 mod 16, d2 mod 4)>

// An odd depth is filled up with a zero.
// CHECK-LABEL: func.func @odd_depth
// CHECK: tensor.pad %arg0 low[0, 0] high[1, 0]
// CHECK: tensor.expand_shape {{.*}} tensor<38x128xbf16> into tensor<19x2x2x64xbf16>
// CHECK: %[[P:.+]] = linalg.generic {{.*}} outs({{.*}} : tensor<2x19x64x2xbf16>)
// CHECK: linalg.generic {indexing_maps = [{{.*}}, #[[ODD]], {{.*}}]{{.*}} ins(%arg1, %[[P]] : tensor<50x37xbf16>, tensor<2x19x64x2xbf16>)
func.func @odd_depth(%w: tensor<37x128xbf16> {tilewright.role = "weight"}, %a: tensor<50x37xbf16> {tilewright.role = "input"},
                     %c: tensor<50x128xf32> {tilewright.role = "input"}) -> tensor<50x128xf32> {
  %r = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<50x37xbf16>, tensor<37x128xbf16>) outs(%c : tensor<50x128xf32>) {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %x1 = arith.extf %x : bf16 to f32
    %y1 = arith.extf %y : bf16 to f32
    %p = arith.mulf %x1, %y1 : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<50x128xf32>
  return %r : tensor<50x128xf32>
}

// CHECK-LABEL: func.func @convolution
// CHECK: tensor.expand_shape %arg0 {{.*}} tensor<3x3x8x32xbf16> into tensor<3x3x4x2x1x32xbf16>
// CHECK: linalg.generic {indexing_maps = [{{.*}}, #[[CONV]], {{.*}}]{{.*}} tensor<1x3x3x4x32x2xbf16>)
func.func @convolution(%w: tensor<3x3x8x32xbf16> {tilewright.role = "weight"}, %a: tensor<1x10x29x8xbf16> {tilewright.role = "input"},
                       %c: tensor<1x8x14x32xf32> {tilewright.role = "input"}) -> tensor<1x8x14x32xf32> {
  %r = linalg.generic {indexing_maps = [#x, #k, #y],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%a, %w : tensor<1x10x29x8xbf16>, tensor<3x3x8x32xbf16>) outs(%c : tensor<1x8x14x32xf32>) {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %x1 = arith.extf %x : bf16 to f32
    %y1 = arith.extf %y : bf16 to f32
    %p = arith.mulf %x1, %y1 : f32
    %s = arith.addf %p, %o : f32
    linalg.yield %s : f32
  } -> tensor<1x8x14x32xf32>
  return %r : tensor<1x8x14x32xf32>
}

// CHECK-LABEL: func.func @bytes
// CHECK: linalg.generic {indexing_maps = [{{.*}}, #[[QUADS]], {{.*}}]{{.*}} tensor<1x2x16x4xi8>)
func.func @bytes(%w: tensor<8x16xi8> {tilewright.role = "weight"}, %a: tensor<5x8xi8> {tilewright.role = "input"},
                 %c: tensor<5x16xi32> {tilewright.role = "input"}) -> tensor<5x16xi32> {
  %r = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<5x8xi8>, tensor<8x16xi8>) outs(%c : tensor<5x16xi32>) {
  ^bb0(%x: i8, %y: i8, %o: i32):
    %x1 = arith.extui %x : i8 to i32
    %y1 = arith.extsi %y : i8 to i32
    %p = arith.muli %x1, %y1 : i32
    %s = arith.addi %o, %p : i32
    linalg.yield %s : i32
  } -> tensor<5x16xi32>
  return %r : tensor<5x16xi32>
}

// An operand that changes from call to call would be packed in each of them, for few rows.
// CHECK-LABEL: func.func @dont_pack_inputs
// CHECK-NOT: expand_shape
func.func @dont_pack_inputs(%w: tensor<8x16xbf16> {tilewright.role = "input"}, %a: tensor<5x8xbf16> {tilewright.role = "input"},
                            %c: tensor<5x16xf32> {tilewright.role = "input"}) -> tensor<5x16xf32> {
  %r = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<5x8xbf16>, tensor<8x16xbf16>) outs(%c : tensor<5x16xf32>) {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %x1 = arith.extf %x : bf16 to f32
    %y1 = arith.extf %y : bf16 to f32
    %p = arith.mulf %x1, %y1 : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<5x16xf32>
  return %r : tensor<5x16xf32>
}

// f32 operands are `pack-contractions`'.
// CHECK-LABEL: func.func @dont_pack_f32
// CHECK-NOT: expand_shape
func.func @dont_pack_f32(%w: tensor<8x16xf32> {tilewright.role = "weight"}, %a: tensor<5x8xf32> {tilewright.role = "input"},
                         %c: tensor<5x16xf32> {tilewright.role = "input"}) -> tensor<5x16xf32> {
  %r = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<5x8xf32>, tensor<8x16xf32>) outs(%c : tensor<5x16xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<5x16xf32>
  return %r : tensor<5x16xf32>
}

#across = affine_map<(d0, d1, d2) -> (d1, d2)>

// Of columns along the reduction there is no other way to read groups.
// CHECK-LABEL: func.func @columns_along_the_reduction
// CHECK: tensor.expand_shape %arg0 {{.*}} tensor<64x8xbf16> into tensor<1x64x4x2xbf16>
// CHECK: linalg.generic {{.*}} ins(%arg1, {{.*}} : tensor<32x8xbf16>, tensor<1x4x64x2xbf16>)
func.func @columns_along_the_reduction(%w: tensor<64x8xbf16> {tilewright.role = "input"}, %a: tensor<32x8xbf16> {tilewright.role = "input"},
                                       %c: tensor<32x64xf32> {tilewright.role = "input"}) -> tensor<32x64xf32> {
  %r = linalg.generic {indexing_maps = [#left, #across, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<32x8xbf16>, tensor<64x8xbf16>) outs(%c : tensor<32x64xf32>) {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %x1 = arith.extf %x : bf16 to f32
    %y1 = arith.extf %y : bf16 to f32
    %p = arith.mulf %x1, %y1 : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<32x64xf32>
  return %r : tensor<32x64xf32>
}

// Pairs of zeros would have to be copied behind an odd depth first.
// CHECK-LABEL: func.func @dont_pack_inputs_of_odd_depth
// CHECK-NOT: expand_shape
func.func @dont_pack_inputs_of_odd_depth(%w: tensor<64x9xbf16> {tilewright.role = "input"}, %a: tensor<32x9xbf16> {tilewright.role = "input"},
                                         %c: tensor<32x64xf32> {tilewright.role = "input"}) -> tensor<32x64xf32> {
  %r = linalg.generic {indexing_maps = [#left, #across, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<32x9xbf16>, tensor<64x9xbf16>) outs(%c : tensor<32x64xf32>) {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %x1 = arith.extf %x : bf16 to f32
    %y1 = arith.extf %y : bf16 to f32
    %p = arith.mulf %x1, %y1 : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<32x64xf32>
  return %r : tensor<32x64xf32>
}
