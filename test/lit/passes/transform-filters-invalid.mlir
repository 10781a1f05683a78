// RUN: tilewright-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(transform-filters)'

#data = affine_map<(n, h, w, f, r, s, c) -> (n, h * 2 + r, w * 2 + s, c)>
#filter = affine_map<(n, h, w, f, r, s, c) -> (r, s, c, f)>
#result = affine_map<(n, h, w, f, r, s, c) -> (n, h, w, f)>

func.func @strided(%x: tensor<1x17x17x8xf32>, %w: tensor<3x3x8x24xf32> {tilewright.role = "weight"}, %i: tensor<1x8x8x24xf32>) -> tensor<1x8x8x24xf32> {
  // expected-error@+1 {{conv2d_0.algorithm = winograd2: its stride or its dilation is not 1; choose direct}}
  %r = linalg.generic {indexing_maps = [#data, #filter, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x17x17x8xf32>, tensor<3x3x8x24xf32>) outs(%i : tensor<1x8x8x24xf32>) attrs = {tilewright.choice = {algorithm = "winograd2", name = "conv2d_0"}} {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x8x8x24xf32>
  return %r : tensor<1x8x8x24xf32>
}

// -----

#data = affine_map<(n, h, w, f, r, s, c) -> (n, h + r, w + s, c)>
#filter = affine_map<(n, h, w, f, r, s, c) -> (r, s, c, f)>
#result = affine_map<(n, h, w, f, r, s, c) -> (n, h, w, f)>

func.func @input(%x: tensor<1x10x10x8xf32>, %w: tensor<3x3x8x24xf32> {tilewright.role = "input"}, %i: tensor<1x8x8x24xf32>) -> tensor<1x8x8x24xf32> {
  // expected-error@+1 {{linalg.generic.algorithm = winograd2: its filter is no weight, and would be transformed at every call}}
  %r = linalg.generic {indexing_maps = [#data, #filter, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x10x10x8xf32>, tensor<3x3x8x24xf32>) outs(%i : tensor<1x8x8x24xf32>) attrs = {tilewright.choice = {algorithm = "winograd2"}} {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x8x8x24xf32>
  return %r : tensor<1x8x8x24xf32>
}

// -----

#data = affine_map<(n, h, w, f, r, s, c) -> (n, h + r, w + s, c)>
#filter = affine_map<(n, h, w, f, r, s, c) -> (r, s, c, f)>
#result = affine_map<(n, h, w, f, r, s, c) -> (n, h, w, f)>

func.func @wide(%x: tensor<1x10x10x8xf64>, %w: tensor<3x3x8x24xf64> {tilewright.role = "weight"}, %i: tensor<1x8x8x24xf64>) -> tensor<1x8x8x24xf64> {
  // expected-error@+1 {{the transforms are of f32, and it computes in f64}}
  %r = linalg.generic {indexing_maps = [#data, #filter, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x10x10x8xf64>, tensor<3x3x8x24xf64>) outs(%i : tensor<1x8x8x24xf64>) attrs = {tilewright.choice = {algorithm = "winograd2"}} {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %p = arith.mulf %a, %b : f64
    %s = arith.addf %o, %p : f64
    linalg.yield %s : f64
  } -> tensor<1x8x8x24xf64>
  return %r : tensor<1x8x8x24xf64>
}

// -----

#data = affine_map<(n, h, w, f, r, s, c) -> (n, h + r, w + s, c)>
#filter = affine_map<(n, h, w, f, r, s, c) -> (r, s, c, f)>
#result = affine_map<(n, h, w, f, r, s, c) -> (n, h, w, f)>

func.func @narrow(%x: tensor<1x5x10x8xf32>, %w: tensor<3x3x8x24xf32> {tilewright.role = "weight"}, %i: tensor<1x3x8x24xf32>) -> tensor<1x3x8x24xf32> {
  // expected-error@+1 {{its image of 3 x 8 holds no tile of 4 x 4}}
  %r = linalg.generic {indexing_maps = [#data, #filter, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x5x10x8xf32>, tensor<3x3x8x24xf32>) outs(%i : tensor<1x3x8x24xf32>) attrs = {tilewright.choice = {algorithm = "winograd4"}} {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x3x8x24xf32>
  return %r : tensor<1x3x8x24xf32>
}

// -----

#data = affine_map<(n, h, w, f, r, s, c) -> (n, h + r, w + s, c)>
#filter = affine_map<(n, h, w, f, r, s, c) -> (r, s, c, f)>
#result = affine_map<(n, h, w, f, r, s, c) -> (n, h, w, f)>

func.func @unequal(%x: tensor<1x10x10x8xf32>, %w: tensor<3x1x8x24xf32> {tilewright.role = "weight"}, %i: tensor<1x8x10x24xf32>) -> tensor<1x8x10x24xf32> {
  // expected-error@+1 {{F(2, r) is not known for a filter of 3 x 1}}
  %r = linalg.generic {indexing_maps = [#data, #filter, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x10x10x8xf32>, tensor<3x1x8x24xf32>) outs(%i : tensor<1x8x10x24xf32>) attrs = {tilewright.choice = {algorithm = "winograd2"}} {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x8x10x24xf32>
  return %r : tensor<1x8x10x24xf32>
}

// -----

#data = affine_map<(n, h, w, f, r, s, c) -> (n, h + r, w + s, c)>
#filter = affine_map<(n, h, w, f, r, s, c) -> (r, s, c, f)>
#result = affine_map<(n, h, w, f, r, s, c) -> (n, h, w, f)>

func.func @unknown(%x: tensor<1x20x20x8xf32>, %w: tensor<3x3x8x24xf32> {tilewright.role = "weight"}, %i: tensor<1x18x18x24xf32>) -> tensor<1x18x18x24xf32> {
  // expected-error@+1 {{F(9, r) is not known for a filter of 3 x 3}}
  %r = linalg.generic {indexing_maps = [#data, #filter, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x20x20x8xf32>, tensor<3x3x8x24xf32>) outs(%i : tensor<1x18x18x24xf32>) attrs = {tilewright.choice = {algorithm = "winograd9"}} {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x18x18x24xf32>
  return %r : tensor<1x18x18x24xf32>
}

// -----

#data = affine_map<(n, h, w, f, r, s, c) -> (n, h + r, w + s, c)>
#filter = affine_map<(n, h, w, f, r, s, c) -> (r, s, c, f)>
#result = affine_map<(n, h, w, f, r, s, c) -> (n, h, w, f)>

func.func @strange(%x: tensor<1x10x10x8xf32>, %w: tensor<3x3x8x24xf32> {tilewright.role = "weight"}, %i: tensor<1x8x8x24xf32>) -> tensor<1x8x8x24xf32> {
  // expected-error@+1 {{`tilewright.choice`: algorithm: expected "direct", or "winograd" with the outputs of a tile, found "fft"}}
  %r = linalg.generic {indexing_maps = [#data, #filter, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x10x10x8xf32>, tensor<3x3x8x24xf32>) outs(%i : tensor<1x8x8x24xf32>) attrs = {tilewright.choice = {algorithm = "fft"}} {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x8x8x24xf32>
  return %r : tensor<1x8x8x24xf32>
}

// -----

#data = affine_map<(n, h, w, f, r, s, c) -> (n, h + r, w + s, c)>
#filter = affine_map<(n, h, w, f, r, s, c) -> (r, s, c, f)>
#result = affine_map<(n, h, w, f, r, s, c) -> (n, h, w, f)>

func.func @misspelt(%x: tensor<1x10x10x8xf32>, %w: tensor<3x3x8x24xf32> {tilewright.role = "weight"}, %i: tensor<1x8x8x24xf32>) -> tensor<1x8x8x24xf32> {
  // expected-error@+1 {{`tilewright.choice`: unknown field `algoritm`; did you mean `algorithm`?}}
  %r = linalg.generic {indexing_maps = [#data, #filter, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x10x10x8xf32>, tensor<3x3x8x24xf32>) outs(%i : tensor<1x8x8x24xf32>) attrs = {tilewright.choice = {algoritm = "direct"}} {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x8x8x24xf32>
  return %r : tensor<1x8x8x24xf32>
}

// -----

#data = affine_map<(n, h, w, f, r, s, c) -> (n, h + r, w + s, c)>
#filter = affine_map<(n, h, w, f, r, s, c) -> (r, s, c, f)>
#result = affine_map<(n, h, w, f, r, s, c) -> (n, h, w, f)>

func.func @no_dictionary(%x: tensor<1x10x10x8xf32>, %w: tensor<3x3x8x24xf32> {tilewright.role = "weight"}, %i: tensor<1x8x8x24xf32>) -> tensor<1x8x8x24xf32> {
  // expected-error@+1 {{`tilewright.choice`: expected a dictionary, found "direct"}}
  %r = linalg.generic {indexing_maps = [#data, #filter, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x10x10x8xf32>, tensor<3x3x8x24xf32>) outs(%i : tensor<1x8x8x24xf32>) attrs = {tilewright.choice = "direct"} {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x8x8x24xf32>
  return %r : tensor<1x8x8x24xf32>
}

// -----

func.func @sum(%x: tensor<8x8xf32>, %i: tensor<8xf32>) -> tensor<8xf32> {
  // expected-error@+1 {{sum_3.algorithm = winograd4: it is no convolution; choose direct}}
  %r = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a)>], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<8x8xf32>) outs(%i : tensor<8xf32>) attrs = {tilewright.choice = {algorithm = "winograd4", name = "sum_3"}} {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}
