// RUN: tilewright-opt %s --pass-pipeline='builtin.module(propagate-layouts)' --split-input-file --verify-diagnostics

func.func @no_reorder(%x: tensor<1x3x8x8xf32>, %w: tensor<4x3x1x1xf32>, %i: tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32> {
  // expected-error @below {{operand 0: `split(2, [2, 4])` is no reorder; only reorders propagate}}
  %r = linalg.conv_2d_nchw_fchw {tilewright.layouts = ["split(2, [2, 4])", "", ""]}
      ins(%x, %w : tensor<1x3x8x8xf32>, tensor<4x3x1x1xf32>) outs(%i : tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  return %r : tensor<1x4x8x8xf32>
}

// -----

func.func @no_permutation(%x: tensor<1x3x8x8xf32>, %w: tensor<4x3x1x1xf32>, %i: tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32> {
  // expected-error @below {{operand 1: reorder([0, 1, 1, 2]): not a permutation of the 4 dimensions}}
  %r = linalg.conv_2d_nchw_fchw {tilewright.layouts = ["", "reorder([0, 1, 1, 2])", ""]}
      ins(%x, %w : tensor<1x3x8x8xf32>, tensor<4x3x1x1xf32>) outs(%i : tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  return %r : tensor<1x4x8x8xf32>
}

// -----

func.func @bad_text(%x: tensor<1x3x8x8xf32>, %w: tensor<4x3x1x1xf32>, %i: tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32> {
  // expected-error @below {{operand 2: layout `nhwc`, column 1: expected one of}}
  %r = linalg.conv_2d_nchw_fchw {tilewright.layouts = ["", "", "nhwc"]}
      ins(%x, %w : tensor<1x3x8x8xf32>, tensor<4x3x1x1xf32>) outs(%i : tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  return %r : tensor<1x4x8x8xf32>
}

// -----

func.func @too_few(%x: tensor<1x3x8x8xf32>, %w: tensor<4x3x1x1xf32>, %i: tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32> {
  // expected-error @below {{2 layout(s) for 3 operands; give `tilewright.layouts` one text per operand}}
  %r = linalg.conv_2d_nchw_fchw {tilewright.layouts = ["", ""]}
      ins(%x, %w : tensor<1x3x8x8xf32>, tensor<4x3x1x1xf32>) outs(%i : tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  return %r : tensor<1x4x8x8xf32>
}

// -----

func.func @no_loops(%x: tensor<4x8xf32>) -> tensor<8x4xf32> {
  // expected-error @below {{`tensor.collapse_shape` cannot ask for layouts; only a linalg operation with one result can}}
  %r = tensor.collapse_shape %x [[0, 1]] {tilewright.layouts = [""]} : tensor<4x8xf32> into tensor<32xf32>
  %s = tensor.expand_shape %r [[0, 1]] output_shape [8, 4] : tensor<32xf32> into tensor<8x4xf32>
  return %s : tensor<8x4xf32>
}
