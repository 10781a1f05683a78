// RUN: tilewright-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(func.func(stream-stores))'

func.func @transposed(%x: memref<512x512xf32>, %y: memref<512x512xf32>) {
  // expected-error @below {{dispatch @transposed: illegal schedule: stream is true, but an rTask's results are no dense rows}}
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>],
                  iterator_types = ["parallel", "parallel"]}
      ins(%x : memref<512x512xf32>) outs(%y : memref<512x512xf32>) attrs = {tilewright.stream} {
  ^bb0(%s: f32, %o: f32):
    linalg.yield %s : f32
  }
  return
}

// -----

func.func @short(%x: memref<512x255xf32>, %y: memref<512x255xf32>) {
  // expected-error @below {{dispatch @short: illegal schedule: stream is true, but an rTask's results are no dense rows}}
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                  iterator_types = ["parallel", "parallel"]}
      ins(%x : memref<512x255xf32>) outs(%y : memref<512x255xf32>) attrs = {tilewright.stream} {
  ^bb0(%s: f32, %o: f32):
    linalg.yield %s : f32
  }
  return
}
