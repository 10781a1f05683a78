// RUN: tilewright-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(pack-contractions{vector-bits=512 registers=32})'

func.func @no_vectors(%a: tensor<32x64xf32>, %w: tensor<64x480xf32> {tilewright.role = "weight"}, %i: tensor<32x480xf32>) -> tensor<32x480xf32> {
  // expected-error@+1 {{matmul_2.block = 20: blocks fill vectors of 512 bits and divide the loop of 480; choose of 0, 16, 24, 32, 40, 48, 60, 80, 96, 120}}
  %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<32x64xf32>, tensor<64x480xf32>) outs(%i : tensor<32x480xf32>) attrs = {tilewright.choice = {block = 20, name = "matmul_2"}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<32x480xf32>
  return %r : tensor<32x480xf32>
}

// -----

func.func @no_divisor(%a: tensor<32x64xf32>, %w: tensor<64x480xf32> {tilewright.role = "weight"}, %i: tensor<32x480xf32>) -> tensor<32x480xf32> {
  // expected-error@+1 {{matmul_2.block = 64: blocks fill vectors of 512 bits and divide the loop of 480}}
  %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<32x64xf32>, tensor<64x480xf32>) outs(%i : tensor<32x480xf32>) attrs = {tilewright.choice = {block = 64, name = "matmul_2"}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<32x480xf32>
  return %r : tensor<32x480xf32>
}

// -----

func.func @no_blocks(%a: tensor<32x64xf32>, %w: tensor<64x10xf32> {tilewright.role = "weight"}, %i: tensor<32x10xf32>) -> tensor<32x10xf32> {
  // expected-error@+1 {{linalg.generic.block = 16: blocks fill vectors of 512 bits and divide the loop of 10; choose of 0}}
  %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<32x64xf32>, tensor<64x10xf32>) outs(%i : tensor<32x10xf32>) attrs = {tilewright.choice = {block = 16}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<32x10xf32>
  return %r : tensor<32x10xf32>
}

// -----

func.func @weight(%a: tensor<32x64xf32>, %w: tensor<64x480xf32> {tilewright.role = "weight"}, %i: tensor<32x480xf32>) -> tensor<32x480xf32> {
  // expected-error@+1 {{linalg.generic.copy = true: a weight is stored once, when it is bound, never copied at a call; leave it out}}
  %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<32x64xf32>, tensor<64x480xf32>) outs(%i : tensor<32x480xf32>) attrs = {tilewright.choice = {block = 32, copy = true}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<32x480xf32>
  return %r : tensor<32x480xf32>
}

// -----

func.func @uncopied(%a: tensor<32x64xf32>, %w: tensor<64x480xf32> {tilewright.role = "input"}, %i: tensor<32x480xf32>) -> tensor<32x480xf32> {
  // expected-error@+1 {{linalg.generic.block = 32: an operand that is no weight has blocks if it is copied, and only then; give both or none}}
  %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<32x64xf32>, tensor<64x480xf32>) outs(%i : tensor<32x480xf32>) attrs = {tilewright.choice = {block = 32}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<32x480xf32>
  return %r : tensor<32x480xf32>
}

// -----

func.func @unblocked(%a: tensor<32x64xf32>, %w: tensor<64x480xf32> {tilewright.role = "input"}, %i: tensor<32x480xf32>) -> tensor<32x480xf32> {
  // expected-error@+1 {{linalg.generic.copy = true: an operand that is no weight has blocks if it is copied, and only then; give both or none}}
  %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<32x64xf32>, tensor<64x480xf32>) outs(%i : tensor<32x480xf32>) attrs = {tilewright.choice = {copy = true}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<32x480xf32>
  return %r : tensor<32x480xf32>
}

// -----

func.func @negative(%a: tensor<32x64xf32>, %w: tensor<64x480xf32> {tilewright.role = "weight"}, %i: tensor<32x480xf32>) -> tensor<32x480xf32> {
  // expected-error@+1 {{`tilewright.choice`: block: expected an integer of at least 0, found -1}}
  %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<32x64xf32>, tensor<64x480xf32>) outs(%i : tensor<32x480xf32>) attrs = {tilewright.choice = {block = -1}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<32x480xf32>
  return %r : tensor<32x480xf32>
}

// -----

func.func @sum(%x: tensor<8x8xf32>, %i: tensor<8xf32>) -> tensor<8xf32> {
  // expected-error@+1 {{sum_3.block = 16: only operands of contractions are stored in blocks; leave it out}}
  %r = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a)>], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<8x8xf32>) outs(%i : tensor<8xf32>) attrs = {tilewright.choice = {block = 16, name = "sum_3"}} {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}
