// RUN: tilewright-opt %s --pass-pipeline='builtin.module(propagate-layouts)' | filecheck %s

// CHECK-DAG: #[[CX:.+]] = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d1 + d4, d2 + d5, d6)>
// CHECK-DAG: #[[CW:.+]] = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d4, d5, d6, d3)>
// CHECK-DAG: #[[CO:.+]] = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d1, d2, d3)>
// CHECK-DAG: #[[ID:.+]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
// CHECK-DAG: #[[LAST:.+]] = affine_map<(d0, d1, d2, d3) -> (d3)>
// CHECK-DAG: #[[ACROSS:.+]] = affine_map<(d0, d1, d2, d3) -> (d3, d1, 0)>
// CHECK-DAG: #[[MEAN:.+]] = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, d1)>
// CHECK-DAG: #[[FLAT:.+]] = affine_map<(d0, d1, d2, d3) -> (d0, d1)>
// CHECK-DAG: #[[PX:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1 * 2 + d4, d2 * 2 + d5, d3)>
// CHECK-DAG: #[[PK:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d4, d5)>
// CHECK-DAG: #[[PO:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3)>

// CHECK-LABEL: func.func @convolution
// CHECK: %[[X:.+]] = linalg.transpose ins(%arg0 {{.*}} permutation = [0, 2, 3, 1]
// CHECK: %[[W:.+]] = linalg.transpose ins(%arg1 {{.*}} permutation = [2, 3, 1, 0]
// CHECK: %[[I:.+]] = linalg.transpose ins(%arg2 {{.*}} permutation = [0, 2, 3, 1]
// CHECK: %[[C:.+]] = linalg.generic {indexing_maps = [#[[CX]], #[[CW]], #[[CO]]], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
// CHECK-SAME: ins(%[[X]], %[[W]] : tensor<2x8x8x3xf32>, tensor<1x1x3x4xf32>) outs(%[[I]] : tensor<2x8x8x4xf32>)
// CHECK: arith.mulf
// CHECK: arith.addf
// CHECK: %[[R:.+]] = linalg.transpose ins(%[[C]] {{.*}} permutation = [0, 3, 1, 2]
// CHECK: return %[[R]]
func.func @convolution(%x: tensor<2x3x8x8xf32>, %w: tensor<4x3x1x1xf32>, %i: tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32> {
  %c = linalg.conv_2d_nchw_fchw {tilewright.layouts = ["reorder([0, 2, 3, 1])", "reorder([2, 3, 1, 0])", "reorder([0, 2, 3, 1])"]}
      ins(%x, %w : tensor<2x3x8x8xf32>, tensor<4x3x1x1xf32>) outs(%i : tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  return %c : tensor<2x4x8x8xf32>
}

#id = affine_map<(n, c, y, x) -> (n, c, y, x)>
#bias = affine_map<(n, c, y, x) -> (c)>
#mean = affine_map<(n, c, y, x) -> (n, c, 0, 0)>
#flat = affine_map<(n, c, y, x) -> (n, c)>
#small = affine_map<(n, c, y, x) -> (c, y, 0)>
#swap = affine_map<(n, c, y, x) -> (n, y, x, c)>

// CHECK-LABEL: func.func @elementwise
// CHECK: linalg.generic {indexing_maps = [#[[CX]]
// CHECK: %[[R:.+]] = linalg.generic {indexing_maps = [#[[ID]], #[[LAST]], #[[ID]]]
// CHECK-SAME: ins(%{{.+}}, %arg3 : tensor<2x8x8x4xf32>, tensor<4xf32>)
// CHECK: linalg.index 3
// CHECK: linalg.transpose ins(%[[R]]
func.func @elementwise(%x: tensor<2x3x8x8xf32>, %w: tensor<4x3x1x1xf32>, %i: tensor<2x4x8x8xf32>, %b: tensor<4xf32>) -> tensor<2x4x8x8xf32> {
  %c = linalg.conv_2d_nchw_fchw {tilewright.layouts = ["reorder([0, 2, 3, 1])", "reorder([2, 3, 1, 0])", "reorder([0, 2, 3, 1])"]}
      ins(%x, %w : tensor<2x3x8x8xf32>, tensor<4x3x1x1xf32>) outs(%i : tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %e = tensor.empty() : tensor<2x4x8x8xf32>
  %r = linalg.generic {indexing_maps = [#id, #bias, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%c, %b : tensor<2x4x8x8xf32>, tensor<4xf32>) outs(%e : tensor<2x4x8x8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %k = linalg.index 1 : index
    %j = arith.index_cast %k : index to i32
    %v = arith.sitofp %j : i32 to f32
    %s = arith.addf %p, %q : f32
    %t = arith.addf %s, %v : f32
    linalg.yield %t : f32
  } -> tensor<2x4x8x8xf32>
  return %r : tensor<2x4x8x8xf32>
}

// CHECK-LABEL: func.func @smaller_operand_is_read_across
// CHECK: linalg.generic {indexing_maps = [#[[CX]]
// CHECK: linalg.generic {indexing_maps = [#[[ID]], #[[ACROSS]], #[[ID]]]
// CHECK-SAME: ins(%{{.+}}, %arg3 : tensor<2x8x8x4xf32>, tensor<4x8x1xf32>)
func.func @smaller_operand_is_read_across(%x: tensor<2x3x8x8xf32>, %w: tensor<4x3x1x1xf32>, %i: tensor<2x4x8x8xf32>, %b: tensor<4x8x1xf32>) -> tensor<2x4x8x8xf32> {
  %c = linalg.conv_2d_nchw_fchw {tilewright.layouts = ["reorder([0, 2, 3, 1])", "reorder([2, 3, 1, 0])", "reorder([0, 2, 3, 1])"]}
      ins(%x, %w : tensor<2x3x8x8xf32>, tensor<4x3x1x1xf32>) outs(%i : tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %e = tensor.empty() : tensor<2x4x8x8xf32>
  %r = linalg.generic {indexing_maps = [#id, #small, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%c, %b : tensor<2x4x8x8xf32>, tensor<4x8x1xf32>) outs(%e : tensor<2x4x8x8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<2x4x8x8xf32>
  return %r : tensor<2x4x8x8xf32>
}

// CHECK-LABEL: func.func @full_operand_is_transposed
// The sum is returned: one transpose in front of it is cheaper than one of %b and one behind.
// CHECK: %[[C:.+]] = linalg.generic {indexing_maps = [#[[CX]]
// CHECK: %[[T:.+]] = linalg.transpose ins(%[[C]]
// CHECK: %[[R:.+]] = linalg.generic {{.*}} ins(%[[T]], %arg3
// CHECK: return %[[R]]
func.func @full_operand_is_transposed(%x: tensor<2x3x8x8xf32>, %w: tensor<4x3x1x1xf32>, %i: tensor<2x4x8x8xf32>, %b: tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32> {
  %c = linalg.conv_2d_nchw_fchw {tilewright.layouts = ["reorder([0, 2, 3, 1])", "reorder([2, 3, 1, 0])", "reorder([0, 2, 3, 1])"]}
      ins(%x, %w : tensor<2x3x8x8xf32>, tensor<4x3x1x1xf32>) outs(%i : tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %e = tensor.empty() : tensor<2x4x8x8xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%c, %b : tensor<2x4x8x8xf32>, tensor<2x4x8x8xf32>) outs(%e : tensor<2x4x8x8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<2x4x8x8xf32>
  return %r : tensor<2x4x8x8xf32>
}

// CHECK-LABEL: func.func @reduction
// CHECK: %[[C:.+]] = linalg.generic {indexing_maps = [#[[CX]]
// CHECK-NOT: linalg.transpose
// CHECK: linalg.generic {indexing_maps = [#[[MEAN]], #[[FLAT]]], iterator_types = ["parallel", "parallel", "reduction", "reduction"]} ins(%[[C]]
// CHECK-NOT: linalg.transpose
// CHECK: return
func.func @reduction(%x: tensor<2x3x8x8xf32>, %w: tensor<4x3x1x1xf32>, %i: tensor<2x4x8x8xf32>) -> tensor<2x4xf32> {
  %c = linalg.conv_2d_nchw_fchw {tilewright.layouts = ["reorder([0, 2, 3, 1])", "reorder([2, 3, 1, 0])", "reorder([0, 2, 3, 1])"]}
      ins(%x, %w : tensor<2x3x8x8xf32>, tensor<4x3x1x1xf32>) outs(%i : tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x4xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<2x4xf32>) -> tensor<2x4xf32>
  %r = linalg.generic {indexing_maps = [#id, #flat], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%c : tensor<2x4x8x8xf32>) outs(%f : tensor<2x4xf32>) {
  ^bb0(%p: f32, %o: f32):
    %s = arith.addf %p, %o : f32
    linalg.yield %s : f32
  } -> tensor<2x4xf32>
  return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @mean_and_flatten
// CHECK: linalg.generic {indexing_maps = [#[[CX]]
// CHECK: %[[M:.+]] = linalg.generic {{.*}} outs(%{{.+}} : tensor<2x1x1x4xf32>)
// CHECK: %[[R:.+]] = tensor.collapse_shape %[[M]] {{\[\[}}0], [1, 2, 3]] : tensor<2x1x1x4xf32> into tensor<2x4xf32>
// CHECK-NEXT: return %[[R]]
func.func @mean_and_flatten(%x: tensor<2x3x8x8xf32>, %w: tensor<4x3x1x1xf32>, %i: tensor<2x4x8x8xf32>) -> tensor<2x4xf32> {
  %c = linalg.conv_2d_nchw_fchw {tilewright.layouts = ["reorder([0, 2, 3, 1])", "reorder([2, 3, 1, 0])", "reorder([0, 2, 3, 1])"]}
      ins(%x, %w : tensor<2x3x8x8xf32>, tensor<4x3x1x1xf32>) outs(%i : tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x4x1x1xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<2x4x1x1xf32>) -> tensor<2x4x1x1xf32>
  %m = linalg.generic {indexing_maps = [#id, #mean], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%c : tensor<2x4x8x8xf32>) outs(%f : tensor<2x4x1x1xf32>) {
  ^bb0(%p: f32, %o: f32):
    %s = arith.addf %p, %o : f32
    linalg.yield %s : f32
  } -> tensor<2x4x1x1xf32>
  %r = tensor.collapse_shape %m [[0], [1, 2, 3]] : tensor<2x4x1x1xf32> into tensor<2x4xf32>
  return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @pooling
// CHECK: linalg.generic {indexing_maps = [#[[CX]]
// CHECK: linalg.generic {indexing_maps = [#[[PX]], #[[PK]], #[[PO]]], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction"]}
// CHECK: arith.maximumf
func.func @pooling(%x: tensor<2x3x8x8xf32>, %w: tensor<4x3x1x1xf32>, %i: tensor<2x4x8x8xf32>) -> tensor<2x4x4x4xf32> {
  %c = linalg.conv_2d_nchw_fchw {tilewright.layouts = ["reorder([0, 2, 3, 1])", "reorder([2, 3, 1, 0])", "reorder([0, 2, 3, 1])"]}
      ins(%x, %w : tensor<2x3x8x8xf32>, tensor<4x3x1x1xf32>) outs(%i : tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %z = arith.constant 0.0 : f32
  %k = tensor.empty() : tensor<2x2xf32>
  %e = tensor.empty() : tensor<2x4x4x4xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<2x4x4x4xf32>) -> tensor<2x4x4x4xf32>
  %r = linalg.pooling_nchw_max {strides = dense<2> : vector<2xi64>} ins(%c, %k : tensor<2x4x8x8xf32>, tensor<2x2xf32>)
      outs(%f : tensor<2x4x4x4xf32>) -> tensor<2x4x4x4xf32>
  return %r : tensor<2x4x4x4xf32>
}

// CHECK-LABEL: func.func @pad
// CHECK: linalg.generic {indexing_maps = [#[[CX]]
// CHECK: tensor.pad %{{.+}} low[0, 1, 2, 0] high[0, 3, 4, 0]
// CHECK: : tensor<2x8x8x4xf32> to tensor<2x12x14x4xf32>
func.func @pad(%x: tensor<2x3x8x8xf32>, %w: tensor<4x3x1x1xf32>, %i: tensor<2x4x8x8xf32>) -> tensor<2x4xf32> {
  %c = linalg.conv_2d_nchw_fchw {tilewright.layouts = ["reorder([0, 2, 3, 1])", "reorder([2, 3, 1, 0])", "reorder([0, 2, 3, 1])"]}
      ins(%x, %w : tensor<2x3x8x8xf32>, tensor<4x3x1x1xf32>) outs(%i : tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %z = arith.constant 0.0 : f32
  %r = tensor.pad %c low[0, 0, 1, 2] high[0, 0, 3, 4] {
  ^bb0(%a0: index, %a1: index, %a2: index, %a3: index):
    tensor.yield %z : f32
  } : tensor<2x4x8x8xf32> to tensor<2x4x12x14xf32>
  %e = tensor.empty() : tensor<2x4xf32>
  %m = linalg.generic {indexing_maps = [#id, #flat], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%r : tensor<2x4x12x14xf32>) outs(%e : tensor<2x4xf32>) {
  ^bb0(%p: f32, %o: f32):
    %s = arith.maximumf %p, %o : f32
    linalg.yield %s : f32
  } -> tensor<2x4xf32>
  return %m : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @concat
// CHECK: tensor.concat dim(3) %[[C:.+]], %[[C]] : (tensor<2x8x8x4xf32>, tensor<2x8x8x4xf32>)
func.func @concat(%x: tensor<2x3x8x8xf32>, %w: tensor<4x3x1x1xf32>, %i: tensor<2x4x8x8xf32>) -> tensor<2x8x8x8xf32> {
  %c = linalg.conv_2d_nchw_fchw {tilewright.layouts = ["reorder([0, 2, 3, 1])", "reorder([2, 3, 1, 0])", "reorder([0, 2, 3, 1])"]}
      ins(%x, %w : tensor<2x3x8x8xf32>, tensor<4x3x1x1xf32>) outs(%i : tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %r = tensor.concat dim(1) %c, %c : (tensor<2x4x8x8xf32>, tensor<2x4x8x8xf32>) -> tensor<2x8x8x8xf32>
  return %r : tensor<2x8x8x8xf32>
}

// CHECK-LABEL: func.func @slices
// CHECK: %[[C:.+]] = linalg.generic
// CHECK: %[[S:.+]] = tensor.extract_slice %[[C]][0, 0, %arg3, 1] [2, 8, 4, 1] [1, 1, 2, 1] : tensor<2x8x8x4xf32> to tensor<2x8x4xf32>
// CHECK: tensor.insert_slice %[[S]] into %[[C]][0, 0, 1, 2] [2, 8, 4, 1] [1, 1, 1, 1]
func.func @slices(%x: tensor<2x3x8x8xf32>, %w: tensor<4x3x1x1xf32>, %i: tensor<2x4x8x8xf32>, %o: index) -> tensor<2x4x8x8xf32> {
  %c = linalg.conv_2d_nchw_fchw {tilewright.layouts = ["reorder([0, 2, 3, 1])", "reorder([2, 3, 1, 0])", "reorder([0, 2, 3, 1])"]}
      ins(%x, %w : tensor<2x3x8x8xf32>, tensor<4x3x1x1xf32>) outs(%i : tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %s = tensor.extract_slice %c[0, 1, 0, %o] [2, 1, 8, 4] [1, 1, 1, 2] : tensor<2x4x8x8xf32> to tensor<2x8x4xf32>
  %r = tensor.insert_slice %s into %c[0, 2, 0, 1] [2, 1, 8, 4] [1, 1, 1, 1] : tensor<2x8x4xf32> into tensor<2x4x8x8xf32>
  return %r : tensor<2x4x8x8xf32>
}

// CHECK-LABEL: func.func @groups
// CHECK: %[[G:.+]] = tensor.expand_shape %{{.+}} {{\[\[}}0], [1], [2], [3, 4]]
// CHECK: tensor.collapse_shape %[[G]] {{\[\[}}0], [1, 2], [3, 4]] : tensor<2x8x8x2x2xf32> into tensor<2x64x4xf32>
func.func @groups(%x: tensor<2x3x8x8xf32>, %w: tensor<4x3x1x1xf32>, %i: tensor<2x4x8x8xf32>) -> tensor<2x4x64xf32> {
  %c = linalg.conv_2d_nchw_fchw {tilewright.layouts = ["reorder([0, 2, 3, 1])", "reorder([2, 3, 1, 0])", "reorder([0, 2, 3, 1])"]}
      ins(%x, %w : tensor<2x3x8x8xf32>, tensor<4x3x1x1xf32>) outs(%i : tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %g = tensor.expand_shape %c [[0], [1, 2], [3], [4]] output_shape [2, 2, 2, 8, 8] : tensor<2x4x8x8xf32> into tensor<2x2x2x8x8xf32>
  %t = tensor.collapse_shape %g [[0], [1, 2], [3, 4]] : tensor<2x2x2x8x8xf32> into tensor<2x4x64xf32>
  return %t : tensor<2x4x64xf32>
}

// CHECK-LABEL: func.func @flatten
// CHECK: linalg.generic {indexing_maps = [#[[CX]]
// CHECK: %[[T:.+]] = linalg.transpose {{.*}} permutation = [0, 3, 1, 2]
// CHECK: tensor.collapse_shape %[[T]]
func.func @flatten(%x: tensor<2x3x8x8xf32>, %w: tensor<4x3x1x1xf32>, %i: tensor<2x4x8x8xf32>) -> tensor<2x256xf32> {
  %c = linalg.conv_2d_nchw_fchw {tilewright.layouts = ["reorder([0, 2, 3, 1])", "reorder([2, 3, 1, 0])", "reorder([0, 2, 3, 1])"]}
      ins(%x, %w : tensor<2x3x8x8xf32>, tensor<4x3x1x1xf32>) outs(%i : tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %r = tensor.collapse_shape %c [[0], [1, 2, 3]] : tensor<2x4x8x8xf32> into tensor<2x256xf32>
  return %r : tensor<2x256xf32>
}

// CHECK-LABEL: func.func @transpose_is_another_reading
// CHECK: %[[C:.+]] = linalg.generic
// CHECK-NOT: linalg.transpose
// CHECK: return %[[C]]
func.func @transpose_is_another_reading(%x: tensor<2x3x8x8xf32>, %w: tensor<4x3x1x1xf32>, %i: tensor<2x4x8x8xf32>) -> tensor<2x8x8x4xf32> {
  %c = linalg.conv_2d_nchw_fchw {tilewright.layouts = ["reorder([0, 2, 3, 1])", "reorder([2, 3, 1, 0])", "reorder([0, 2, 3, 1])"]}
      ins(%x, %w : tensor<2x3x8x8xf32>, tensor<4x3x1x1xf32>) outs(%i : tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %e = tensor.empty() : tensor<2x8x8x4xf32>
  %r = linalg.transpose ins(%c : tensor<2x4x8x8xf32>) outs(%e : tensor<2x8x8x4xf32>) permutation = [0, 2, 3, 1]
  return %r : tensor<2x8x8x4xf32>
}

// CHECK-LABEL: func.func @transposing_generic
// CHECK: %[[C:.+]] = linalg.generic
// CHECK-NOT: linalg.generic
// CHECK: return %[[C]]
func.func @transposing_generic(%x: tensor<2x3x8x8xf32>, %w: tensor<4x3x1x1xf32>, %i: tensor<2x4x8x8xf32>) -> tensor<2x8x8x4xf32> {
  %c = linalg.conv_2d_nchw_fchw {tilewright.layouts = ["reorder([0, 2, 3, 1])", "reorder([2, 3, 1, 0])", "reorder([0, 2, 3, 1])"]}
      ins(%x, %w : tensor<2x3x8x8xf32>, tensor<4x3x1x1xf32>) outs(%i : tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %e = tensor.empty() : tensor<2x8x8x4xf32>
  %r = linalg.generic {indexing_maps = [#id, #swap], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%c : tensor<2x4x8x8xf32>) outs(%e : tensor<2x8x8x4xf32>) {
  ^bb0(%p: f32, %o: f32):
    linalg.yield %p : f32
  } -> tensor<2x8x8x4xf32>
  return %r : tensor<2x8x8x4xf32>
}

// CHECK-LABEL: func.func @gather
// CHECK: %[[C:.+]] = linalg.generic {indexing_maps = [#[[CX]]
// CHECK: linalg.generic {{.*}} outs(%{{.+}} : tensor<2x16x16x4xf32>)
// CHECK-DAG: %[[N:.+]] = linalg.index 0
// CHECK-DAG: %[[K:.+]] = linalg.index 3
// CHECK-DAG: linalg.index 1
// CHECK-DAG: linalg.index 2
// CHECK: tensor.extract %[[C]][%[[N]], %{{.+}}, %{{.+}}, %[[K]]] : tensor<2x8x8x4xf32>
func.func @gather(%x: tensor<2x3x8x8xf32>, %w: tensor<4x3x1x1xf32>, %i: tensor<2x4x8x8xf32>, %v: tensor<4x4x1x1xf32>, %j: tensor<2x4x16x16xf32>) -> tensor<2x4x16x16xf32> {
  %c = linalg.conv_2d_nchw_fchw {tilewright.layouts = ["reorder([0, 2, 3, 1])", "reorder([2, 3, 1, 0])", "reorder([0, 2, 3, 1])"]}
      ins(%x, %w : tensor<2x3x8x8xf32>, tensor<4x3x1x1xf32>) outs(%i : tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %e = tensor.empty() : tensor<2x4x16x16xf32>
  %r = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%e : tensor<2x4x16x16xf32>) {
  ^bb0(%o: f32):
    %i0 = linalg.index 0 : index
    %i1 = linalg.index 1 : index
    %i2 = linalg.index 2 : index
    %i3 = linalg.index 3 : index
    %two = arith.constant 2 : index
    %h = arith.divui %i2, %two : index
    %u = arith.divui %i3, %two : index
    %p = tensor.extract %c[%i0, %i1, %h, %u] : tensor<2x4x8x8xf32>
    linalg.yield %p : f32
  } -> tensor<2x4x16x16xf32>
  %q = linalg.conv_2d_nchw_fchw {tilewright.layouts = ["reorder([0, 2, 3, 1])", "reorder([2, 3, 1, 0])", "reorder([0, 2, 3, 1])"]}
      ins(%r, %v : tensor<2x4x16x16xf32>, tensor<4x4x1x1xf32>) outs(%j : tensor<2x4x16x16xf32>) -> tensor<2x4x16x16xf32>
  return %q : tensor<2x4x16x16xf32>
}

// CHECK-LABEL: func.func @one_transpose_for_all_readers
// CHECK: tensor.collapse_shape
// CHECK: %[[T:.+]] = linalg.transpose
// CHECK-NOT: linalg.transpose
// CHECK: linalg.batch_matmul ins(%[[T]]
// CHECK: linalg.batch_matmul ins(%[[T]]
func.func @one_transpose_for_all_readers(%x: tensor<2x3x8x8xf32>, %w: tensor<4x3x1x1xf32>, %i: tensor<2x4x8x8xf32>, %b: tensor<2x64x4xf32>) -> tensor<2x4x4xf32> {
  %c = linalg.conv_2d_nchw_fchw {tilewright.layouts = ["reorder([0, 2, 3, 1])", "reorder([2, 3, 1, 0])", "reorder([0, 2, 3, 1])"]}
      ins(%x, %w : tensor<2x3x8x8xf32>, tensor<4x3x1x1xf32>) outs(%i : tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %d = tensor.collapse_shape %c [[0], [1], [2, 3]] : tensor<2x4x8x8xf32> into tensor<2x4x64xf32>
  %e = tensor.empty() : tensor<2x4x4xf32>
  %m = linalg.batch_matmul ins(%d, %b : tensor<2x4x64xf32>, tensor<2x64x4xf32>) outs(%e : tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %n = linalg.batch_matmul ins(%d, %b : tensor<2x4x64xf32>, tensor<2x64x4xf32>) outs(%m : tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  return %n : tensor<2x4x4xf32>
}

// CHECK-LABEL: func.func @nested_region
// CHECK: %[[T:.+]] = linalg.transpose {{.*}} permutation = [0, 3, 1, 2]
// CHECK: scf.if
// CHECK: tensor.extract %[[T]]
// CHECK: tensor.extract %arg2
func.func @nested_region(%x: tensor<2x3x8x8xf32>, %w: tensor<4x3x1x1xf32>, %i: tensor<2x4x8x8xf32>, %p: i1) -> f32 {
  %c = linalg.conv_2d_nchw_fchw {tilewright.layouts = ["reorder([0, 2, 3, 1])", "reorder([2, 3, 1, 0])", "reorder([0, 2, 3, 1])"]}
      ins(%x, %w : tensor<2x3x8x8xf32>, tensor<4x3x1x1xf32>) outs(%i : tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %z = arith.constant 0 : index
  %r = scf.if %p -> f32 {
    %v = tensor.extract %c[%z, %z, %z, %z] : tensor<2x4x8x8xf32>
    scf.yield %v : f32
  } else {
    %v = tensor.extract %i[%z, %z, %z, %z] : tensor<2x4x8x8xf32>
    scf.yield %v : f32
  }
  return %r : f32
}

// Nothing asks for a layout here: all stays, poolings and transposes included.
// CHECK-LABEL: func.func @nothing_asked
// CHECK: linalg.pooling_nchw_max
// CHECK: linalg.transpose
func.func @nothing_asked(%x: tensor<2x4x8x8xf32>, %k: tensor<2x2xf32>, %i: tensor<2x4x7x7xf32>, %e: tensor<2x7x7x4xf32>) -> tensor<2x7x7x4xf32> {
  %p = linalg.pooling_nchw_max ins(%x, %k : tensor<2x4x8x8xf32>, tensor<2x2xf32>) outs(%i : tensor<2x4x7x7xf32>) -> tensor<2x4x7x7xf32>
  %r = linalg.transpose ins(%p : tensor<2x4x7x7xf32>) outs(%e : tensor<2x7x7x4xf32>) permutation = [0, 2, 3, 1]
  return %r : tensor<2x7x7x4xf32>
}
