// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(vectorize-windows{vector-bits=256 registers=16}))' --verify-diagnostics

func.func @more_columns(%x: memref<8x16xf32>, %w: memref<3x16xf32>, %y: memref<6x16xf32>) {
  // expected-error @below {{dispatch @more_columns: illegal schedule: reductions say `windows 1x7x1`: columns is 7, its loop has 6; use at most that}}
  linalg.generic {indexing_maps = [affine_map<(w, c, k) -> (w + k, c)>, affine_map<(w, c, k) -> (k, c)>,
                                   affine_map<(w, c, k) -> (w, c)>],
                  iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : memref<8x16xf32>, memref<3x16xf32>) outs(%y : memref<6x16xf32>) attrs = {tilewright.loops = {windows = [1, 7, 1]}} {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %m = arith.mulf %a, %b : f32
    %r = arith.addf %s, %m : f32
    linalg.yield %r : f32
  }
  return
}

// -----

func.func @no_rows(%x: memref<8x16xf32>, %w: memref<3x16xf32>, %y: memref<6x16xf32>) {
  // expected-error @below {{rows is 2, its loop has 1; use at most that}}
  linalg.generic {indexing_maps = [affine_map<(w, c, k) -> (w + k, c)>, affine_map<(w, c, k) -> (k, c)>,
                                   affine_map<(w, c, k) -> (w, c)>],
                  iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : memref<8x16xf32>, memref<3x16xf32>) outs(%y : memref<6x16xf32>) attrs = {tilewright.loops = {windows = [2, 6, 1]}} {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %m = arith.mulf %a, %b : f32
    %r = arith.addf %s, %m : f32
    linalg.yield %r : f32
  }
  return
}

// -----

func.func @no_third_vector(%x: memref<8x16xf32>, %w: memref<3x16xf32>, %y: memref<6x16xf32>) {
  // expected-error @below {{vectors is 3, its loop has 2; use at most that}}
  linalg.generic {indexing_maps = [affine_map<(w, c, k) -> (w + k, c)>, affine_map<(w, c, k) -> (k, c)>,
                                   affine_map<(w, c, k) -> (w, c)>],
                  iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : memref<8x16xf32>, memref<3x16xf32>) outs(%y : memref<6x16xf32>) attrs = {tilewright.loops = {windows = [1, 6, 3]}} {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %m = arith.mulf %a, %b : f32
    %r = arith.addf %s, %m : f32
    linalg.yield %r : f32
  }
  return
}

// -----

func.func @two_sizes(%x: memref<8x16xf32>, %w: memref<3x16xf32>, %y: memref<6x16xf32>) {
  // expected-error @below {{`tilewright.loops`: windows has the sizes [rows, columns, vectors], found [1, 6]}}
  linalg.generic {indexing_maps = [affine_map<(w, c, k) -> (w + k, c)>, affine_map<(w, c, k) -> (k, c)>,
                                   affine_map<(w, c, k) -> (w, c)>],
                  iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : memref<8x16xf32>, memref<3x16xf32>) outs(%y : memref<6x16xf32>) attrs = {tilewright.loops = {windows = [1, 6]}} {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %m = arith.mulf %a, %b : f32
    %r = arith.addf %s, %m : f32
    linalg.yield %r : f32
  }
  return
}

// -----

func.func @no_columns(%x: memref<8x16xf32>, %w: memref<3x16xf32>, %y: memref<6x16xf32>) {
  // expected-error @below {{the sizes of windows are integers >= 1, found [1, 0, 1]}}
  linalg.generic {indexing_maps = [affine_map<(w, c, k) -> (w + k, c)>, affine_map<(w, c, k) -> (k, c)>,
                                   affine_map<(w, c, k) -> (w, c)>],
                  iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : memref<8x16xf32>, memref<3x16xf32>) outs(%y : memref<6x16xf32>) attrs = {tilewright.loops = {windows = [1, 0, 1]}} {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %m = arith.mulf %a, %b : f32
    %r = arith.addf %s, %m : f32
    linalg.yield %r : f32
  }
  return
}

// -----

// No windows: a convolution reduces over channels too.
func.func @over_channels(%x: memref<8x16xf32>, %w: memref<3x16x8xf32>, %y: memref<6x8xf32>,
                  %w1: memref<1x16xf32>, %y1: memref<8x16xf32>, %xt: memref<16x8xf32>, %wt: memref<16x3xf32>, %yt: memref<16x6xf32>) {
  // expected-error @below {{this reduction has no such loops once it is cut; name other loops, or leave reductions out of the schedule}}
  linalg.generic {indexing_maps = [affine_map<(w, o, k, c) -> (w + k, c)>, affine_map<(w, o, k, c) -> (k, c, o)>,
                                   affine_map<(w, o, k, c) -> (w, o)>],
                  iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %w : memref<8x16xf32>, memref<3x16x8xf32>) outs(%y : memref<6x8xf32>) attrs = {tilewright.loops = {windows = [1, 1, 1]}} {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %m = arith.mulf %a, %b : f32
    %r = arith.addf %s, %m : f32
    linalg.yield %r : f32
  }
  return
}

// -----

// No windows: a window of one tap.
func.func @one_tap(%x: memref<8x16xf32>, %w: memref<3x16x8xf32>, %y: memref<6x8xf32>,
                  %w1: memref<1x16xf32>, %y1: memref<8x16xf32>, %xt: memref<16x8xf32>, %wt: memref<16x3xf32>, %yt: memref<16x6xf32>) {
  // expected-error @below {{this reduction has no such loops once it is cut; name other loops, or leave reductions out of the schedule}}
  linalg.generic {indexing_maps = [affine_map<(w, c, k) -> (w + k, c)>, affine_map<(w, c, k) -> (k, c)>,
                                   affine_map<(w, c, k) -> (w, c)>],
                  iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w1 : memref<8x16xf32>, memref<1x16xf32>) outs(%y1 : memref<8x16xf32>) attrs = {tilewright.loops = {windows = [1, 1, 1]}} {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %m = arith.mulf %a, %b : f32
    %r = arith.addf %s, %m : f32
    linalg.yield %r : f32
  }
  return
}

// -----

// No windows: neither channels nor windows run innermost in all operands.
func.func @transposed_result(%x: memref<8x16xf32>, %w: memref<3x16x8xf32>, %y: memref<6x8xf32>,
                  %w1: memref<1x16xf32>, %y1: memref<8x16xf32>, %xt: memref<16x8xf32>, %wt: memref<16x3xf32>, %yt: memref<16x6xf32>) {
  // expected-error @below {{this reduction has no such loops once it is cut; name other loops, or leave reductions out of the schedule}}
  linalg.generic {indexing_maps = [affine_map<(c, w, k) -> (w + k, c)>, affine_map<(c, w, k) -> (c, k)>,
                                   affine_map<(c, w, k) -> (c, w)>],
                  iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %wt : memref<8x16xf32>, memref<16x3xf32>) outs(%yt : memref<16x6xf32>) attrs = {tilewright.loops = {windows = [1, 1, 1]}} {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %m = arith.mulf %a, %b : f32
    %r = arith.addf %s, %m : f32
    linalg.yield %r : f32
  }
  return
}
