// RUN: tilewright-opt %s --pass-pipeline='builtin.module(assign-layouts)' | filecheck %s

// CHECK-LABEL: func.func @plain
// CHECK: linalg.conv_2d_nchw_fchw
// CHECK-SAME: tilewright.layouts = ["reorder([0, 2, 3, 1])", "reorder([2, 3, 1, 0])", "reorder([0, 2, 3, 1])"]
func.func @plain(%x: tensor<1x3x8x8xf32>, %w: tensor<4x3x3x3xf32>, %i: tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> {
  %r = linalg.conv_2d_nchw_fchw ins(%x, %w : tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>)
      outs(%i : tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32>
  return %r : tensor<1x4x6x6xf32>
}

// CHECK-LABEL: func.func @grouped
// CHECK: linalg.conv_2d_ngchw_gfchw
// CHECK-SAME: ["reorder([0, 3, 4, 1, 2])", "reorder([0, 3, 4, 2, 1])", "reorder([0, 3, 4, 1, 2])"]
func.func @grouped(%x: tensor<1x2x3x8x8xf32>, %w: tensor<2x4x3x3x3xf32>, %i: tensor<1x2x4x6x6xf32>) -> tensor<1x2x4x6x6xf32> {
  %r = linalg.conv_2d_ngchw_gfchw ins(%x, %w : tensor<1x2x3x8x8xf32>, tensor<2x4x3x3x3xf32>)
      outs(%i : tensor<1x2x4x6x6xf32>) -> tensor<1x2x4x6x6xf32>
  return %r : tensor<1x2x4x6x6xf32>
}

// CHECK-LABEL: func.func @depthwise
// CHECK: linalg.depthwise_conv_2d_nchw_chw
// CHECK-SAME: ["reorder([0, 2, 3, 1])", "reorder([1, 2, 0])", "reorder([0, 2, 3, 1])"]
func.func @depthwise(%x: tensor<1x4x8x8xf32>, %w: tensor<4x3x3xf32>, %i: tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> {
  %r = linalg.depthwise_conv_2d_nchw_chw ins(%x, %w : tensor<1x4x8x8xf32>, tensor<4x3x3xf32>)
      outs(%i : tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32>
  return %r : tensor<1x4x6x6xf32>
}

// Three channels make no vector: rows do, and operands that are stored so already are left alone.
// CHECK-LABEL: func.func @depthwise_narrow
// CHECK-NOT: tilewright.layouts
// CHECK: return
func.func @depthwise_narrow(%x: tensor<1x3x8x8xf32>, %w: tensor<3x3x3xf32>, %i: tensor<1x3x6x6xf32>) -> tensor<1x3x6x6xf32> {
  %r = linalg.depthwise_conv_2d_nchw_chw ins(%x, %w : tensor<1x3x8x8xf32>, tensor<3x3x3xf32>)
      outs(%i : tensor<1x3x6x6xf32>) -> tensor<1x3x6x6xf32>
  return %r : tensor<1x3x6x6xf32>
}

// CHECK-LABEL: func.func @depthwise_narrow_channels_last
// CHECK: linalg.depthwise_conv_2d_nhwc_hwc
// CHECK-SAME: ["reorder([0, 3, 1, 2])", "reorder([2, 0, 1])", "reorder([0, 3, 1, 2])"]
func.func @depthwise_narrow_channels_last(%x: tensor<1x8x8x3xf32>, %w: tensor<3x3x3xf32>, %i: tensor<1x6x6x3xf32>) -> tensor<1x6x6x3xf32> {
  %r = linalg.depthwise_conv_2d_nhwc_hwc ins(%x, %w : tensor<1x8x8x3xf32>, tensor<3x3x3xf32>)
      outs(%i : tensor<1x6x6x3xf32>) -> tensor<1x6x6x3xf32>
  return %r : tensor<1x6x6x3xf32>
}

// Rows of three results are no vector either.
// CHECK-LABEL: func.func @depthwise_of_short_rows
// CHECK: linalg.depthwise_conv_2d_nchw_chw
// CHECK-SAME: ["reorder([0, 2, 3, 1])", "reorder([1, 2, 0])", "reorder([0, 2, 3, 1])"]
func.func @depthwise_of_short_rows(%x: tensor<1x3x8x5xf32>, %w: tensor<3x3x3xf32>, %i: tensor<1x3x6x3xf32>) -> tensor<1x3x6x3xf32> {
  %r = linalg.depthwise_conv_2d_nchw_chw ins(%x, %w : tensor<1x3x8x5xf32>, tensor<3x3x3xf32>)
      outs(%i : tensor<1x3x6x3xf32>) -> tensor<1x3x6x3xf32>
  return %r : tensor<1x3x6x3xf32>
}

// CHECK-LABEL: func.func @one_dimension
// CHECK: linalg.conv_1d_ncw_fcw
// CHECK-SAME: ["reorder([0, 2, 1])", "reorder([2, 1, 0])", "reorder([0, 2, 1])"]
func.func @one_dimension(%x: tensor<1x3x8xf32>, %w: tensor<4x3x3xf32>, %i: tensor<1x4x6xf32>) -> tensor<1x4x6xf32> {
  %r = linalg.conv_1d_ncw_fcw ins(%x, %w : tensor<1x3x8xf32>, tensor<4x3x3xf32>)
      outs(%i : tensor<1x4x6xf32>) -> tensor<1x4x6xf32>
  return %r : tensor<1x4x6xf32>
}

#gx = affine_map<(n, g, o, y, x, c, r, s) -> (n, g, c, y * 2 + r, x * 2 + s)>
#gw = affine_map<(n, g, o, y, x, c, r, s) -> (g, o, c, r, s)>
#go = affine_map<(n, g, o, y, x, c, r, s) -> (n, g, o, y, x)>
// CHECK-LABEL: func.func @generic
// CHECK: linalg.generic
// CHECK-SAME: tilewright.layouts = ["reorder([0, 3, 4, 1, 2])", "reorder([0, 3, 4, 2, 1])", "reorder([0, 3, 4, 1, 2])"]
func.func @generic(%x: tensor<1x2x3x9x9xf32>, %w: tensor<2x4x3x3x3xf32>, %i: tensor<1x2x4x4x4xf32>) -> tensor<1x2x4x4x4xf32> {
  %r = linalg.generic {indexing_maps = [#gx, #gw, #go], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x2x3x9x9xf32>, tensor<2x4x3x3x3xf32>) outs(%i : tensor<1x2x4x4x4xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %p, %c : f32
    linalg.yield %s : f32
  } -> tensor<1x2x4x4x4xf32>
  return %r : tensor<1x2x4x4x4xf32>
}

// The gradient of a kernel: images and gradients of a batch, both with batch and channels exchanged.
// CHECK-LABEL: func.func @kernel_gradient
// CHECK: linalg.conv_2d_nchw_fchw
// CHECK-SAME: ["reorder([1, 2, 3, 0])", "reorder([1, 2, 3, 0])", "reorder([0, 2, 3, 1])"]
func.func @kernel_gradient(%x: tensor<2x3x8x8xf32>, %g: tensor<2x4x6x6xf32>, %z: f32, %t: tensor<3x2x8x8xf32>,
                           %s: tensor<4x2x6x6xf32>, %i: tensor<3x4x5x5xf32>) -> tensor<3x4x5x5xf32> {
  %a = linalg.transpose ins(%x : tensor<2x3x8x8xf32>) outs(%t : tensor<3x2x8x8xf32>) permutation = [1, 0, 2, 3]
  %b = linalg.transpose ins(%g : tensor<2x4x6x6xf32>) outs(%s : tensor<4x2x6x6xf32>) permutation = [1, 0, 2, 3]
  %p = tensor.pad %a low[0, 0, 1, 1] high[0, 0, 1, 1] {
  ^bb0(%n: index, %c: index, %y: index, %k: index):
    tensor.yield %z : f32
  } : tensor<3x2x8x8xf32> to tensor<3x2x10x10xf32>
  %r = linalg.conv_2d_nchw_fchw ins(%p, %b : tensor<3x2x10x10xf32>, tensor<4x2x6x6xf32>)
      outs(%i : tensor<3x4x5x5xf32>) -> tensor<3x4x5x5xf32>
  return %r : tensor<3x4x5x5xf32>
}

// The same of images that were saved channels last: one transposition says all.
// CHECK-LABEL: func.func @of_what_was_saved
// CHECK: linalg.conv_2d_nchw_fchw
// CHECK-SAME: ["reorder([1, 2, 3, 0])", "reorder([1, 2, 3, 0])", "reorder([0, 2, 3, 1])"]
func.func @of_what_was_saved(%x: tensor<2x8x8x3xf32>, %g: tensor<4x2x4x4xf32>, %t: tensor<3x2x8x8xf32>,
                             %i: tensor<3x4x5x5xf32>) -> tensor<3x4x5x5xf32> {
  %a = linalg.transpose ins(%x : tensor<2x8x8x3xf32>) outs(%t : tensor<3x2x8x8xf32>) permutation = [3, 0, 1, 2]
  %r = linalg.conv_2d_nchw_fchw ins(%a, %g : tensor<3x2x8x8xf32>, tensor<4x2x4x4xf32>)
      outs(%i : tensor<3x4x5x5xf32>) -> tensor<3x4x5x5xf32>
  return %r : tensor<3x4x5x5xf32>
}

// Images that were channels last are images of the same batch.
// CHECK-LABEL: func.func @not_exchanged
// CHECK: linalg.conv_2d_nchw_fchw
// CHECK-SAME: ["reorder([0, 2, 3, 1])", "reorder([2, 3, 1, 0])", "reorder([0, 2, 3, 1])"]
func.func @not_exchanged(%x: tensor<2x8x8x3xf32>, %w: tensor<4x3x3x3xf32>, %t: tensor<2x3x8x8xf32>,
                         %i: tensor<2x4x6x6xf32>) -> tensor<2x4x6x6xf32> {
  %a = linalg.transpose ins(%x : tensor<2x8x8x3xf32>) outs(%t : tensor<2x3x8x8xf32>) permutation = [0, 3, 1, 2]
  %r = linalg.conv_2d_nchw_fchw ins(%a, %w : tensor<2x3x8x8xf32>, tensor<4x3x3x3xf32>)
      outs(%i : tensor<2x4x6x6xf32>) -> tensor<2x4x6x6xf32>
  return %r : tensor<2x4x6x6xf32>
}

// A hand-written choice stays.
// CHECK-LABEL: func.func @chosen_already
// CHECK: tilewright.layouts = ["", "", ""]
func.func @chosen_already(%x: tensor<1x3x8x8xf32>, %w: tensor<4x3x3x3xf32>, %i: tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> {
  %r = linalg.conv_2d_nchw_fchw {tilewright.layouts = ["", "", ""]} ins(%x, %w : tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>)
      outs(%i : tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32>
  return %r : tensor<1x4x6x6xf32>
}

// Channels last already, poolings, matmuls and dynamic shapes ask for nothing.
// CHECK-NOT: tilewright.layouts
func.func @channels_last(%x: tensor<1x8x8x3xf32>, %w: tensor<3x3x3x4xf32>, %i: tensor<1x6x6x4xf32>) -> tensor<1x6x6x4xf32> {
  %r = linalg.conv_2d_nhwc_hwcf ins(%x, %w : tensor<1x8x8x3xf32>, tensor<3x3x3x4xf32>)
      outs(%i : tensor<1x6x6x4xf32>) -> tensor<1x6x6x4xf32>
  return %r : tensor<1x6x6x4xf32>
}

func.func @pooling(%x: tensor<1x4x8x8xf32>, %w: tensor<3x3xf32>, %i: tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> {
  %r = linalg.pooling_nchw_max ins(%x, %w : tensor<1x4x8x8xf32>, tensor<3x3xf32>)
      outs(%i : tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32>
  return %r : tensor<1x4x6x6xf32>
}

func.func @matmul(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>, %i: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %r = linalg.matmul ins(%x, %w : tensor<4x8xf32>, tensor<8x6xf32>) outs(%i : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %r : tensor<4x6xf32>
}

func.func @dynamic(%x: tensor<?x3x8x8xf32>, %w: tensor<4x3x3x3xf32>, %i: tensor<?x4x6x6xf32>) -> tensor<?x4x6x6xf32> {
  %r = linalg.conv_2d_nchw_fchw ins(%x, %w : tensor<?x3x8x8xf32>, tensor<4x3x3x3xf32>)
      outs(%i : tensor<?x4x6x6xf32>) -> tensor<?x4x6x6xf32>
  return %r : tensor<?x4x6x6xf32>
}
