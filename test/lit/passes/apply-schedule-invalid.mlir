// RUN: tilewright-opt %s --apply-schedule --split-input-file --verify-diagnostics

// expected-error @below {{dispatch @not_a_dictionary: `tilewright.schedule` must be a dictionary, found [16]}}
func.func private @not_a_dictionary(%x: tensor<8xf32>) -> tensor<8xf32> attributes {tilewright.schedule = [16]} {
  return %x : tensor<8xf32>
}

// -----

// expected-error @below {{dispatch @unknown_field: unknown field `tiles`; a schedule has tile, unroll, vector, levels, gpu, reductions, stream and prefetch}}
func.func private @unknown_field(%x: tensor<8xf32>) -> tensor<8xf32> attributes {tilewright.schedule = {tiles = [16]}} {
  return %x : tensor<8xf32>
}

// -----

// expected-error @below {{dispatch @negative: tile is a list of integers >= 0, found [-4]}}
func.func private @negative(%x: tensor<8xf32>) -> tensor<8xf32> attributes {tilewright.schedule = {tile = [-4]}} {
  return %x : tensor<8xf32>
}

// -----

// expected-error @below {{dispatch @no_list: tile is a list of integers >= 0, found 4}}
func.func private @no_list(%x: tensor<8xf32>) -> tensor<8xf32> attributes {tilewright.schedule = {tile = 4}} {
  return %x : tensor<8xf32>
}

// -----

// expected-error @below {{dispatch @negative_vector: vector is an integer >= 0, found -8}}
func.func private @negative_vector(%x: tensor<8xf32>) -> tensor<8xf32> attributes {tilewright.schedule = {tile = [4], vector = -8}} {
  return %x : tensor<8xf32>
}

// -----

// expected-error @below {{the schedule tiles, but the dispatch has no sink that can be tiled; use tile = []}}
func.func private @no_sink(%x: tensor<8xf32>) -> tensor<8xf32> attributes {tilewright.schedule = {tile = [4]}} {
  return %x : tensor<8xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
// expected-error @below {{dispatch @too_many: illegal schedule {'tile': [4, 4, 4], 'unroll': 0, 'vector': 0}: it tiles 3 loops, the sink has 2}}
func.func private @too_many(%x: tensor<8x4xf32>) -> tensor<8x4xf32> attributes {tilewright.schedule = {tile = [4, 4, 4]}} {
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x4xf32>) outs(%x : tensor<8x4xf32>) {
  ^bb0(%in: f32, %o: f32):
    linalg.yield %in : f32
  } -> tensor<8x4xf32>
  return %r : tensor<8x4xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
// expected-error @below {{tile 16 of loop 0 exceeds its extent 8}}
func.func private @too_large(%x: tensor<8x4xf32>) -> tensor<8x4xf32> attributes {tilewright.schedule = {tile = [16, 0]}} {
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x4xf32>) outs(%x : tensor<8x4xf32>) {
  ^bb0(%in: f32, %o: f32):
    linalg.yield %in : f32
  } -> tensor<8x4xf32>
  return %r : tensor<8x4xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>
// expected-error @below {{loop 1 is a reduction, only parallel loops are cut into rTasks; use 0}}
func.func private @reduction(%x: tensor<8x4xf32>, %s: tensor<8xf32>) -> tensor<8xf32> attributes {tilewright.schedule = {tile = [4, 2]}} {
  %r = linalg.generic {indexing_maps = [#id, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<8x4xf32>) outs(%s : tensor<8xf32>) {
  ^bb0(%in: f32, %o: f32):
    %a = arith.addf %in, %o : f32
    linalg.yield %a : f32
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>
// An overlapping last tile would add its shared rows twice, and two results cannot become one copy.
// expected-error @below {{tile [3, 0] does not divide loop 0 of extent 8, and the sink accumulates into its result; use a divisor or 0}}
func.func private @ragged_accumulation(%x: tensor<8x4xf32>, %s: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) attributes {tilewright.schedule = {tile = [3, 0]}} {
  %r:2 = linalg.generic {indexing_maps = [#id, #rows, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<8x4xf32>) outs(%s, %s : tensor<8xf32>, tensor<8xf32>) {
  ^bb0(%in: f32, %o: f32, %p: f32):
    %a = arith.addf %in, %o : f32
    %b = arith.mulf %in, %p : f32
    linalg.yield %a, %b : f32, f32
  } -> (tensor<8xf32>, tensor<8xf32>)
  return %r#0, %r#1 : tensor<8xf32>, tensor<8xf32>
}

// -----

#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#packed = affine_map<(d0, d1, d2) -> (d1 floordiv 8, d2, d1 mod 8)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
// expected-error @below {{dispatch @across_blocks: illegal schedule: tile 12 of loop 1 crosses the blocks of 8 that an operand is packed in; use a divisor or a multiple}}
func.func private @across_blocks(%x: tensor<4x16xf32>, %w: tensor<3x16x8xf32>, %c: tensor<4x24xf32>) -> tensor<4x24xf32> attributes {tilewright.schedule = {tile = [0, 12]}} {
  %r = linalg.generic {indexing_maps = [#left, #packed, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<4x16xf32>, tensor<3x16x8xf32>) outs(%c : tensor<4x24xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<4x24xf32>
  return %r : tensor<4x24xf32>
}

// -----

// expected-error @below {{dispatch @two_for_one: illegal schedule: reductions has 2 entries, the dispatch has 1 reductions; write one for each, or leave all out}}
func.func @two_for_one(%a: tensor<8x16xf32>, %o: tensor<8xf32>) -> tensor<8xf32> attributes {
    tilewright.schedule = {tile = [4], reductions = [{along = [4, 1, 1]}, {scalar = []}]}} {
  %0 = linalg.generic {indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m)>], iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<8x16xf32>) outs(%o : tensor<8xf32>) {
  ^bb0(%x: f32, %s: f32):
    %r = arith.addf %x, %s : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
// expected-error @below {{dispatch @registers: illegal schedule: stream is true, but reductions[0] says `groups 4`, which stores its results from registers; name other loops, or leave stream out}}
func.func private @registers(%x: tensor<8x4xf32>) -> tensor<8xf32> attributes {
    tilewright.schedule = {reductions = [{groups = [4]}], stream = true}} {
  %zero = arith.constant dense<0.0> : tensor<8xf32>
  %r = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<8x4xf32>) outs(%zero : tensor<8xf32>) {
  ^bb0(%in: f32, %o: f32):
    %s = arith.addf %in, %o : f32
    linalg.yield %s : f32
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// -----

#left = affine_map<(m, n, k) -> (m, k)>
#right = affine_map<(m, n, k) -> (k, n)>
#out = affine_map<(m, n, k) -> (m, n)>
// expected-error @below {{dispatch @rows: illegal schedule: prefetch is 4096, but no reduction multiplies by an operand that is packed, by products, dots or winograd, or walks rows, of which rTasks take some, for the second time along memory; leave prefetch out}}
func.func private @rows(%a: tensor<8x16xf32>, %b: tensor<16x32xf32>) -> tensor<8x32xf32> attributes {
    tilewright.schedule = {reductions = [{products = [8, 32]}], prefetch = 4096}} {
  %zero = arith.constant dense<0.0> : tensor<8x32xf32>
  %r = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<8x16xf32>, tensor<16x32xf32>) outs(%zero : tensor<8x32xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<8x32xf32>
  return %r : tensor<8x32xf32>
}

// -----

// Every element of the result is another one: it cannot be written over what is read.
// expected-error @below {{`apply-schedule`: `tilewright.overwrites`: expected the number of an argument that is the result but for a part, found 0}}
func.func private @negated(%a: tensor<8xf32>) -> tensor<8xf32> attributes {tilewright.overwrites = 0 : i64} {
  %e = tensor.empty() : tensor<8xf32>
  %r = linalg.negf ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// -----

// expected-error @below {{dispatch @doubled: illegal schedule: tile [48] does not divide loop 0 of a result that is written over what it is computed from, which must not be computed twice; use a divisor or 0}}
func.func private @doubled(%a: tensor<64xf32>) -> tensor<64xf32> attributes {tilewright.overwrites = 0 : i64, tilewright.replaces, tilewright.schedule = {tile = [48]}} {
  %e = tensor.empty() : tensor<64xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]} ins(%a : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%x: f32, %y: f32):
    %s = arith.addf %x, %x : f32
    linalg.yield %s : f32
  } -> tensor<64xf32>
  return %r : tensor<64xf32>
}

// -----

// expected-error @below {{dispatch @doubled: illegal schedule: stream is true, and the result is written over what it is computed from, which must not be computed twice; leave stream out}}
func.func private @doubled(%a: tensor<4096xf32>) -> tensor<4096xf32> attributes {tilewright.overwrites = 0 : i64, tilewright.replaces, tilewright.schedule = {stream = true}} {
  %e = tensor.empty() : tensor<4096xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]} ins(%a : tensor<4096xf32>) outs(%e : tensor<4096xf32>) {
  ^bb0(%x: f32, %y: f32):
    %s = arith.addf %x, %x : f32
    linalg.yield %s : f32
  } -> tensor<4096xf32>
  return %r : tensor<4096xf32>
}

// -----

// Rows are read transposed: another rTask may have written them.
// expected-error @below {{`apply-schedule`: `tilewright.overwrites`: expected the number of an argument that every element of the result is computed from, found 0}}
func.func private @turned(%a: tensor<8x8xf32>) -> tensor<8x8xf32> attributes {tilewright.overwrites = 0 : i64, tilewright.replaces} {
  %e = tensor.empty() : tensor<8x8xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %x : f32
  } -> tensor<8x8xf32>
  return %r : tensor<8x8xf32>
}

// -----

// expected-error @below {{dispatch @along_the_line: illegal schedule {'tile': [0, 10], 'unroll': 0, 'vector': 0}: loop 1 is a sequential, only parallel loops are cut into rTasks; use 0}}
func.func private @along_the_line(%x: tensor<50x30xf32>) -> (tensor<50x30xf32>, tensor<50xf32>)
    attributes {tilewright.schedule = {tile = [0, 10]}} {
  %e = tensor.empty() : tensor<50x30xf32>
  %g = tensor.empty() : tensor<50xf32>
  %r:2 = tm_tensor.scan dimension(1) inclusive(true) ins(%x : tensor<50x30xf32>) outs(%e, %g : tensor<50x30xf32>, tensor<50xf32>) {
  ^bb0(%before: f32, %new: f32):
    %s = arith.addf %before, %new : f32
    tm_tensor.yield %s : f32
  } -> tensor<50x30xf32>, tensor<50xf32>
  return %r#0, %r#1 : tensor<50x30xf32>, tensor<50xf32>
}

// -----

// expected-error @below {{dispatch @streamed_lines: illegal schedule: stream is true, but it goes along lines one step after the other; leave stream out}}
func.func private @streamed_lines(%x: tensor<50x30xf32>) -> (tensor<50x30xf32>, tensor<50xf32>)
    attributes {tilewright.schedule = {tile = [10], stream = true}} {
  %e = tensor.empty() : tensor<50x30xf32>
  %g = tensor.empty() : tensor<50xf32>
  %r:2 = tm_tensor.scan dimension(1) inclusive(true) ins(%x : tensor<50x30xf32>) outs(%e, %g : tensor<50x30xf32>, tensor<50xf32>) {
  ^bb0(%before: f32, %new: f32):
    %s = arith.addf %before, %new : f32
    tm_tensor.yield %s : f32
  } -> tensor<50x30xf32>, tensor<50xf32>
  return %r#0, %r#1 : tensor<50x30xf32>, tensor<50xf32>
}

// -----

// expected-error @below {{dispatch @changed_twice: illegal schedule: tile 16 does not divide loop 1 of extent 40 of what is changed where it lies, which must not be changed twice; use a divisor or 0}}
func.func private @changed_twice(%u: tensor<9x1x40xf32>, %at: tensor<9x1xi64>, %x: tensor<5x40xf32>) -> tensor<5x40xf32>
    attributes {tilewright.overwrites = 2, tilewright.schedule = {tile = [0, 16]}} {
  %r = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false) ins(%u, %at : tensor<9x1x40xf32>, tensor<9x1xi64>) outs(%x : tensor<5x40xf32>) {
  ^bb0(%new: f32, %old: f32):
    %s = arith.addf %old, %new : f32
    tm_tensor.yield %s : f32
  } -> tensor<5x40xf32>
  return %r : tensor<5x40xf32>
}

// -----

// expected-error @below {{dispatch @no_reduction: illegal schedule: reductions has 1 entries, the dispatch has 0 reductions; write one for each, or leave all out}}
func.func private @no_reduction(%x: tensor<50x30xf32>) -> (tensor<50x30xf32>, tensor<50xf32>)
    attributes {tilewright.schedule = {tile = [10], reductions = [{scalar = []}]}} {
  %e = tensor.empty() : tensor<50x30xf32>
  %g = tensor.empty() : tensor<50xf32>
  %r:2 = tm_tensor.scan dimension(1) inclusive(true) ins(%x : tensor<50x30xf32>) outs(%e, %g : tensor<50x30xf32>, tensor<50xf32>) {
  ^bb0(%before: f32, %new: f32):
    %s = arith.addf %before, %new : f32
    tm_tensor.yield %s : f32
  } -> tensor<50x30xf32>, tensor<50xf32>
  return %r#0, %r#1 : tensor<50x30xf32>, tensor<50xf32>
}
