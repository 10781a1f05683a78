// RUN: tilewright-opt %s --pass-pipeline='builtin.module(choose-packing{target=x86-64-v4},pack-contractions{vector-bits=512 registers=32})' | filecheck %s
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(choose-packing{target=x86-64-v4 least-passes=3 kept-bytes=1023},pack-contractions{vector-bits=512 registers=32})' | filecheck %s --check-prefix=CALL

#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
#turned = affine_map<(d0, d1, d2) -> (d1, d2)>
#image = affine_map<(n, h, w, o, kh, kw, i) -> (n, h + kh, w + kw, i)>
#filter = affine_map<(n, h, w, o, kh, kw, i) -> (o, i, kh, kw)>
#result = affine_map<(n, h, w, o, kh, kw, i) -> (n, h, w, o)>

// CHECK-DAG: #[[PACKED:.+]] = affine_map<(d0, d1, d2) -> (d1 floordiv [[BLOCK:[0-9]+]], d2, d1 mod [[BLOCK]])>

// The weight is split into blocks of columns, each contiguous over the whole reduction; the matmul keeps its loops.
// CHECK-LABEL: func.func @weight
// CHECK: %[[SPLIT:.+]] = tensor.expand_shape %arg1 {{\[\[}}0], [1, 2]] output_shape [256, [[BLOCKS:[0-9]+]], [[BLOCK]]]
// CHECK: %[[PACKED_W:.+]] = linalg.generic {{.*}} ins(%[[SPLIT]] {{.*}} outs(%{{.+}} : tensor<[[BLOCKS]]x256x[[BLOCK]]xf32>)
// CHECK: linalg.generic {indexing_maps = [#{{.+}}, #[[PACKED]], #{{.+}}], iterator_types = ["parallel", "parallel", "reduction"]}
// CHECK-SAME: ins(%arg0, %[[PACKED_W]]
func.func @weight(%a: tensor<64x256xf32>, %w: tensor<256x512xf32> {tilewright.role = "weight"}, %i: tensor<64x512xf32>) -> tensor<64x512xf32> {
  %r = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<64x256xf32>, tensor<256x512xf32>) outs(%i : tensor<64x512xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x512xf32>
  return %r : tensor<64x512xf32>
}

// Packing an input would cost at every call.
// CHECK-LABEL: func.func @input
// CHECK-NOT: tensor.expand_shape
// CHECK: return
func.func @input(%a: tensor<64x256xf32>, %w: tensor<256x512xf32> {tilewright.role = "input"}, %i: tensor<64x512xf32>) -> tensor<64x512xf32> {
  %r = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<64x256xf32>, tensor<256x512xf32>) outs(%i : tensor<64x512xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x512xf32>
  return %r : tensor<64x512xf32>
}

// However the weight lies, a block is contiguous over the reduction.
// CHECK-LABEL: func.func @turned
// CHECK: tensor.expand_shape %arg1 {{\[\[}}0, 1], [2]] output_shape [8, 64, 256]
// CHECK: linalg.generic {{.*}} outs(%{{.+}} : tensor<8x256x64xf32>)
// CHECK: linalg.generic {{.*}} ins(%arg0, %{{.+}} : tensor<64x256xf32>, tensor<8x256x64xf32>)
func.func @turned(%a: tensor<64x256xf32>, %w: tensor<512x256xf32> {tilewright.role = "weight"}, %i: tensor<64x512xf32>) -> tensor<64x512xf32> {
  %r = linalg.generic {indexing_maps = [#left, #turned, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<64x256xf32>, tensor<512x256xf32>) outs(%i : tensor<64x512xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x512xf32>
  return %r : tensor<64x512xf32>
}

// A filter's window and input channels follow the number of the block: [O/o][KH][KW][I][o].
// CHECK-LABEL: func.func @convolution
// CHECK: linalg.generic {indexing_maps = [#[[WINDOW:.+]], #[[FILTER:.+]], #{{.+}}], {{.*}} ins(%arg0, %{{.+}} : tensor<1x10x10x16xf32>, tensor<1x3x3x16x64xf32>)
func.func @convolution(%x: tensor<1x10x10x16xf32>, %w: tensor<64x16x3x3xf32> {tilewright.role = "weight"}, %i: tensor<1x8x8x64xf32>) -> tensor<1x8x8x64xf32> {
  %r = linalg.generic {indexing_maps = [#image, #filter, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x10x10x16xf32>, tensor<64x16x3x3xf32>) outs(%i : tensor<1x8x8x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x8x8x64xf32>
  return %r : tensor<1x8x8x64xf32>
}

// 509 is a prime: every block would leave lanes idle.
// CHECK-LABEL: func.func @prime
// CHECK-NOT: tensor.expand_shape
// CHECK: return
func.func @prime(%a: tensor<64x256xf32>, %w: tensor<509x256xf32> {tilewright.role = "weight"}, %i: tensor<64x509xf32>) -> tensor<64x509xf32> {
  %r = linalg.generic {indexing_maps = [#left, #turned, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<64x256xf32>, tensor<509x256xf32>) outs(%i : tensor<64x509xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x509xf32>
  return %r : tensor<64x509xf32>
}

// Steps of a recurrent network read the same weight: it is packed once.
// CHECK-LABEL: func.func @steps
// CHECK-COUNT-1: tensor.expand_shape
// CHECK-NOT: tensor.expand_shape
// CHECK: return
func.func @steps(%a: tensor<64x512xf32>, %w: tensor<512x512xf32> {tilewright.role = "weight"}, %i: tensor<64x512xf32>) -> tensor<64x512xf32> {
  %h = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<64x512xf32>, tensor<512x512xf32>) outs(%i : tensor<64x512xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x512xf32>
  %r = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%h, %w : tensor<64x512xf32>, tensor<512x512xf32>) outs(%i : tensor<64x512xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x512xf32>
  return %r : tensor<64x512xf32>
}

#wide = affine_map<(h, w, g, o, k, c) -> (h, w + k, g, c)>
#grouped = affine_map<(h, w, g, o, k, c) -> (g, k, c, o)>
#groups = affine_map<(h, w, g, o, k, c) -> (h, w, g, o)>

// Four results per group: the weights of four groups lie side by side, as wide as a vector.
// CHECK-LABEL: func.func @few_channels_per_group
// CHECK: tensor.expand_shape %arg1 {{.*}} output_shape [2, 4, 3, 4, 4]
// CHECK: %[[GROUPS:.+]] = linalg.generic {{.*}} outs(%{{.+}} : tensor<2x3x4x4x4xf32>)
// CHECK: linalg.generic {{.*}} ins(%arg0, %[[GROUPS]]
func.func @few_channels_per_group(%x: tensor<5x12x8x4xf32>, %w: tensor<8x3x4x4xf32> {tilewright.role = "weight"}, %i: tensor<5x10x8x4xf32>) -> tensor<5x10x8x4xf32> {
  %r = linalg.generic {indexing_maps = [#wide, #grouped, #groups], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %w : tensor<5x12x8x4xf32>, tensor<8x3x4x4xf32>) outs(%i : tensor<5x10x8x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<5x10x8x4xf32>
  return %r : tensor<5x10x8x4xf32>
}

// Six groups do not fill vectors of four.
// CHECK-LABEL: func.func @groups_that_do_not_divide
// CHECK-NOT: tensor.expand_shape
// CHECK: return
func.func @groups_that_do_not_divide(%x: tensor<5x12x6x4xf32>, %w: tensor<6x3x4x4xf32> {tilewright.role = "weight"}, %i: tensor<5x10x6x4xf32>) -> tensor<5x10x6x4xf32> {
  %r = linalg.generic {indexing_maps = [#wide, #grouped, #groups], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %w : tensor<5x12x6x4xf32>, tensor<6x3x4x4xf32>) outs(%i : tensor<5x10x6x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<5x10x6x4xf32>
  return %r : tensor<5x10x6x4xf32>
}

// Steps of the reduction 4 KiB apart share a set of the cache: an input that is read often is copied into blocks first.
// CHECK-LABEL: func.func @rows_a_page_apart
// CHECK-NOT: tensor.expand_shape
// CHECK: return
// CALL-LABEL: func.func @rows_a_page_apart
// CALL: tensor.expand_shape %arg1
// CALL-LABEL: func.func @rows_spread_over_the_cache
// CALL-NOT: tensor.expand_shape
// CALL: return
// CALL-LABEL: func.func @few_rows
// CALL-NOT: tensor.expand_shape
// CALL: return
func.func @rows_a_page_apart(%a: tensor<64x256xf32>, %b: tensor<256x1024xf32>, %i: tensor<64x1024xf32>) -> tensor<64x1024xf32> {
  %r = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<64x256xf32>, tensor<256x1024xf32>) outs(%i : tensor<64x1024xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x1024xf32>
  return %r : tensor<64x1024xf32>
}

func.func @rows_spread_over_the_cache(%a: tensor<64x256xf32>, %b: tensor<256x1040xf32>, %i: tensor<64x1040xf32>) -> tensor<64x1040xf32> {
  %r = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<64x256xf32>, tensor<256x1040xf32>) outs(%i : tensor<64x1040xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x1040xf32>
  return %r : tensor<64x1040xf32>
}

func.func @few_rows(%a: tensor<32x256xf32>, %b: tensor<256x1024xf32>, %i: tensor<32x1024xf32>) -> tensor<32x1024xf32> {
  %r = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<32x256xf32>, tensor<256x1024xf32>) outs(%i : tensor<32x1024xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<32x1024xf32>
  return %r : tensor<32x1024xf32>
}

#outer = affine_map<(d0, d1, d2, d3) -> (d3, d2, d0, d1)>
#plain = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#inner = affine_map<(n, h, w, o, kh, kw, i) -> (kh, kw, i, o)>

// A filter that is transposed at every call is packed by that transposition.
// CHECK-LABEL: func.func @filter_of_training
// CHECK: tensor.expand_shape %arg1 {{\[\[}}0, 1], [2], [3], [4]] output_shape [2, 64, 16, 3, 3]
// CHECK: linalg.generic {{.*}} ins(%expanded {{.*}} outs(%{{.+}} : tensor<2x3x3x16x64xf32>)
// CHECK-NEXT: ^bb0
// CHECK-NEXT: linalg.yield
// CHECK-NEXT: tensor<2x3x3x16x64xf32>
// CHECK-NEXT: linalg.generic {{.*}} ins(%arg0, %{{.+}} : tensor<1x10x10x16xf32>, tensor<2x3x3x16x64xf32>)
// CHECK-LABEL: func.func @filter_read_twice
// CHECK-NOT: tensor.expand_shape
// CHECK-LABEL: func.func @filters_a_page_apart
func.func @filter_of_training(%x: tensor<1x10x10x16xf32>, %w: tensor<128x16x3x3xf32>, %i: tensor<1x8x8x128xf32>) -> tensor<1x8x8x128xf32> {
  %e = tensor.empty() : tensor<3x3x16x128xf32>
  %t = linalg.generic {indexing_maps = [#outer, #plain], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%w : tensor<128x16x3x3xf32>) outs(%e : tensor<3x3x16x128xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<3x3x16x128xf32>
  %r = linalg.generic {indexing_maps = [#image, #inner, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %t : tensor<1x10x10x16xf32>, tensor<3x3x16x128xf32>) outs(%i : tensor<1x8x8x128xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x8x8x128xf32>
  return %r : tensor<1x8x8x128xf32>
}

func.func @filter_read_twice(%x: tensor<1x10x10x16xf32>, %w: tensor<128x16x3x3xf32>, %i: tensor<1x8x8x128xf32>) -> (tensor<1x8x8x128xf32>, tensor<3x3x16x128xf32>) {
  %e = tensor.empty() : tensor<3x3x16x128xf32>
  %t = linalg.generic {indexing_maps = [#outer, #plain], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%w : tensor<128x16x3x3xf32>) outs(%e : tensor<3x3x16x128xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<3x3x16x128xf32>
  %r = linalg.generic {indexing_maps = [#image, #inner, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %t : tensor<1x10x10x16xf32>, tensor<3x3x16x128xf32>) outs(%i : tensor<1x8x8x128xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x8x8x128xf32>
  return %r, %t : tensor<1x8x8x128xf32>, tensor<3x3x16x128xf32>
}

// Windows stream a filter anew for every row: it is copied where its channels are half a page apart, and not otherwise.
// CHECK: tensor.expand_shape %arg1
// CHECK-LABEL: func.func @filters_spread_over_the_cache
// CHECK-NOT: tensor.expand_shape
// CHECK-LABEL: func.func @filters_of_few_rows
// CHECK-NOT: tensor.expand_shape
func.func @filters_a_page_apart(%x: tensor<2x10x10x16xf32>, %w: tensor<3x3x16x512xf32>, %i: tensor<2x8x8x512xf32>) -> tensor<2x8x8x512xf32> {
  %r = linalg.generic {indexing_maps = [#image, #inner, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<2x10x10x16xf32>, tensor<3x3x16x512xf32>) outs(%i : tensor<2x8x8x512xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<2x8x8x512xf32>
  return %r : tensor<2x8x8x512xf32>
}

func.func @filters_spread_over_the_cache(%x: tensor<2x10x10x16xf32>, %w: tensor<3x3x16x576xf32>, %i: tensor<2x8x8x576xf32>) -> tensor<2x8x8x576xf32> {
  %r = linalg.generic {indexing_maps = [#image, #inner, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<2x10x10x16xf32>, tensor<3x3x16x576xf32>) outs(%i : tensor<2x8x8x576xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<2x8x8x576xf32>
  return %r : tensor<2x8x8x576xf32>
}

func.func @filters_of_few_rows(%x: tensor<1x10x10x16xf32>, %w: tensor<3x3x16x512xf32>, %i: tensor<1x8x8x512xf32>) -> tensor<1x8x8x512xf32> {
  %r = linalg.generic {indexing_maps = [#image, #inner, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x10x10x16xf32>, tensor<3x3x16x512xf32>) outs(%i : tensor<1x8x8x512xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x8x8x512xf32>
  return %r : tensor<1x8x8x512xf32>
}
