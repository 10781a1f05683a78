// RUN: tilewright-opt %s --pass-pipeline='builtin.module(fuse-attention{target=cuda:sm_80})' | filecheck %s --check-prefix=GPU
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(fuse-attention)' | filecheck %s

#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#row = affine_map<(d0, d1, d2) -> (d0, d1)>

// CHECK-LABEL: func.func @short
// CHECK: "tilewright.attention"
// GPU-LABEL: func.func @short
// GPU: "tilewright.attention"
func.func @short(%q: tensor<2x16x64xf32>, %k: tensor<2x64x16xf32>, %v: tensor<2x16x64xf32>) -> tensor<2x16x64xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %se = tensor.empty() : tensor<2x16x16xf32>
  %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<2x16x16xf32>) -> tensor<2x16x16xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<2x16x64xf32>, tensor<2x64x16xf32>) outs(%sz : tensor<2x16x16xf32>) -> tensor<2x16x16xf32>
  %re = tensor.empty() : tensor<2x16xf32>
  %ri = linalg.fill ins(%low : f32) outs(%re : tensor<2x16xf32>) -> tensor<2x16xf32>
  %top = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%s : tensor<2x16x16xf32>) outs(%ri : tensor<2x16xf32>) {
  ^bb0(%in: f32, %o: f32):
    %r = arith.maximumf %in, %o : f32
    linalg.yield %r : f32
  } -> tensor<2x16xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %top : tensor<2x16x16xf32>, tensor<2x16xf32>) outs(%se : tensor<2x16x16xf32>) {
  ^bb0(%in: f32, %t: f32, %o: f32):
    %d = arith.subf %in, %t : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<2x16x16xf32>
  %zi = linalg.fill ins(%zero : f32) outs(%re : tensor<2x16xf32>) -> tensor<2x16xf32>
  %sum = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%p : tensor<2x16x16xf32>) outs(%zi : tensor<2x16xf32>) {
  ^bb0(%in: f32, %o: f32):
    %r = arith.addf %in, %o : f32
    linalg.yield %r : f32
  } -> tensor<2x16xf32>
  %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %sum : tensor<2x16x16xf32>, tensor<2x16xf32>) outs(%se : tensor<2x16x16xf32>) {
  ^bb0(%in: f32, %t: f32, %o: f32):
    %r = arith.divf %in, %t : f32
    linalg.yield %r : f32
  } -> tensor<2x16x16xf32>
  %oe = tensor.empty() : tensor<2x16x64xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<2x16x64xf32>) -> tensor<2x16x64xf32>
  %out = linalg.batch_matmul ins(%w, %v : tensor<2x16x16xf32>, tensor<2x16x64xf32>) outs(%oz : tensor<2x16x64xf32>) -> tensor<2x16x64xf32>
  return %out : tensor<2x16x64xf32>
}

// No block of this GPU holds sixteen queries, keys and values of 1,024.
// CHECK-LABEL: func.func @long
// CHECK: "tilewright.attention"
// GPU-LABEL: func.func @long
// GPU-NOT: "tilewright.attention"
// GPU-COUNT-2: linalg.batch_matmul
func.func @long(%q: tensor<2x16x1024xf32>, %k: tensor<2x1024x16xf32>, %v: tensor<2x16x1024xf32>) -> tensor<2x16x1024xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %se = tensor.empty() : tensor<2x16x16xf32>
  %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<2x16x16xf32>) -> tensor<2x16x16xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<2x16x1024xf32>, tensor<2x1024x16xf32>) outs(%sz : tensor<2x16x16xf32>) -> tensor<2x16x16xf32>
  %re = tensor.empty() : tensor<2x16xf32>
  %ri = linalg.fill ins(%low : f32) outs(%re : tensor<2x16xf32>) -> tensor<2x16xf32>
  %top = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%s : tensor<2x16x16xf32>) outs(%ri : tensor<2x16xf32>) {
  ^bb0(%in: f32, %o: f32):
    %r = arith.maximumf %in, %o : f32
    linalg.yield %r : f32
  } -> tensor<2x16xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %top : tensor<2x16x16xf32>, tensor<2x16xf32>) outs(%se : tensor<2x16x16xf32>) {
  ^bb0(%in: f32, %t: f32, %o: f32):
    %d = arith.subf %in, %t : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<2x16x16xf32>
  %zi = linalg.fill ins(%zero : f32) outs(%re : tensor<2x16xf32>) -> tensor<2x16xf32>
  %sum = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%p : tensor<2x16x16xf32>) outs(%zi : tensor<2x16xf32>) {
  ^bb0(%in: f32, %o: f32):
    %r = arith.addf %in, %o : f32
    linalg.yield %r : f32
  } -> tensor<2x16xf32>
  %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %sum : tensor<2x16x16xf32>, tensor<2x16xf32>) outs(%se : tensor<2x16x16xf32>) {
  ^bb0(%in: f32, %t: f32, %o: f32):
    %r = arith.divf %in, %t : f32
    linalg.yield %r : f32
  } -> tensor<2x16x16xf32>
  %oe = tensor.empty() : tensor<2x16x1024xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<2x16x1024xf32>) -> tensor<2x16x1024xf32>
  %out = linalg.batch_matmul ins(%w, %v : tensor<2x16x16xf32>, tensor<2x16x1024xf32>) outs(%oz : tensor<2x16x1024xf32>) -> tensor<2x16x1024xf32>
  return %out : tensor<2x16x1024xf32>
}
