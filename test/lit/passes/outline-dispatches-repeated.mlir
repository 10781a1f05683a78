// RUN: tilewright-opt %s --pass-pipeline='builtin.module(outline-dispatches)' --split-input-file | filecheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>
#columns = affine_map<(d0, d1) -> (d1)>

// A product by a row's number, of what lies in memory anyway, is computed in both sums: nothing is written in between.
// CHECK-LABEL: func.func @repeated
// CHECK-SAME: (%[[X:.+]]: tensor<512x64xf32>, %[[S:.+]]: tensor<512xf32>)
// CHECK-NEXT: %[[R:.+]] = call @[[ROWS:.+]](%[[X]], %[[S]])
// CHECK-NEXT: %[[C:.+]] = call @[[COLUMNS:.+]](%[[X]], %[[S]])
// CHECK-NEXT: return %[[R]], %[[C]]
// CHECK-COUNT-2: arith.mulf
func.func @repeated(%x: tensor<512x64xf32>, %s: tensor<512xf32>) -> (tensor<512xf32>, tensor<64xf32>) {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<512x64xf32>
  %scaled = linalg.generic {indexing_maps = [#id, #rows, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : tensor<512x64xf32>, tensor<512xf32>) outs(%e : tensor<512x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<512x64xf32>
  %er = tensor.empty() : tensor<512xf32>
  %ir = linalg.fill ins(%z : f32) outs(%er : tensor<512xf32>) -> tensor<512xf32>
  %r = linalg.generic {indexing_maps = [#id, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%scaled : tensor<512x64xf32>) outs(%ir : tensor<512xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.addf %o, %a : f32
    linalg.yield %p : f32
  } -> tensor<512xf32>
  %ec = tensor.empty() : tensor<64xf32>
  %ic = linalg.fill ins(%z : f32) outs(%ec : tensor<64xf32>) -> tensor<64xf32>
  %c = linalg.generic {indexing_maps = [#id, #columns], iterator_types = ["reduction", "parallel"]}
      ins(%scaled : tensor<512x64xf32>) outs(%ic : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.addf %o, %a : f32
    linalg.yield %p : f32
  } -> tensor<64xf32>
  return %r, %c : tensor<512xf32>, tensor<64xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>
#columns = affine_map<(d0, d1) -> (d1)>

// What is returned as well is written whatever the sums do, who then read it.
// CHECK-LABEL: func.func @written_anyway
// CHECK-SAME: (%[[X:.+]]: tensor<512x64xf32>, %[[S:.+]]: tensor<512xf32>)
// CHECK-NEXT: %[[P:.+]] = call @[[PRODUCT:.+]](%[[X]], %[[S]])
// CHECK-NEXT: %[[R:.+]] = call @[[ROWS:.+]](%[[P]])
// CHECK-NEXT: %[[C:.+]] = call @[[COLUMNS:.+]](%[[P]])
// CHECK-NEXT: return %[[P]], %[[R]], %[[C]]
func.func @written_anyway(%x: tensor<512x64xf32>, %s: tensor<512xf32>) -> (tensor<512x64xf32>, tensor<512xf32>, tensor<64xf32>) {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<512x64xf32>
  %scaled = linalg.generic {indexing_maps = [#id, #rows, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : tensor<512x64xf32>, tensor<512xf32>) outs(%e : tensor<512x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<512x64xf32>
  %er = tensor.empty() : tensor<512xf32>
  %ir = linalg.fill ins(%z : f32) outs(%er : tensor<512xf32>) -> tensor<512xf32>
  %r = linalg.generic {indexing_maps = [#id, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%scaled : tensor<512x64xf32>) outs(%ir : tensor<512xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.addf %o, %a : f32
    linalg.yield %p : f32
  } -> tensor<512xf32>
  %ec = tensor.empty() : tensor<64xf32>
  %ic = linalg.fill ins(%z : f32) outs(%ec : tensor<64xf32>) -> tensor<64xf32>
  %c = linalg.generic {indexing_maps = [#id, #columns], iterator_types = ["reduction", "parallel"]}
      ins(%scaled : tensor<512x64xf32>) outs(%ic : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.addf %o, %a : f32
    linalg.yield %p : f32
  } -> tensor<64xf32>
  return %scaled, %r, %c : tensor<512x64xf32>, tensor<512xf32>, tensor<64xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>
#columns = affine_map<(d0, d1) -> (d1)>

// An exponential costs more than a number that is read, and two tensors that are added more than their sum.
// CHECK-LABEL: func.func @dear
// CHECK-SAME: (%[[X:.+]]: tensor<512x64xf32>, %[[Y:.+]]: tensor<512x64xf32>)
// CHECK-NEXT: %[[EXP:.+]] = call @[[FIRST:.+]](%[[X]])
// CHECK-NEXT: %[[SUM:.+]] = call @[[SECOND:.+]](%[[X]], %[[Y]])
// CHECK-NEXT: call @{{.+}}(%[[EXP]], %[[SUM]])
// CHECK-NEXT: call @{{.+}}(%[[EXP]], %[[SUM]])
// CHECK-NEXT: return
func.func @dear(%x: tensor<512x64xf32>, %y: tensor<512x64xf32>) -> (tensor<512xf32>, tensor<64xf32>) {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<512x64xf32>
  %exp = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<512x64xf32>) outs(%e : tensor<512x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = math.exp %a : f32
    linalg.yield %p : f32
  } -> tensor<512x64xf32>
  %sum = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : tensor<512x64xf32>, tensor<512x64xf32>) outs(%e : tensor<512x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.addf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<512x64xf32>
  %er = tensor.empty() : tensor<512xf32>
  %ir = linalg.fill ins(%z : f32) outs(%er : tensor<512xf32>) -> tensor<512xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%exp, %sum : tensor<512x64xf32>, tensor<512x64xf32>) outs(%ir : tensor<512xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %q = arith.addf %o, %p : f32
    linalg.yield %q : f32
  } -> tensor<512xf32>
  %ec = tensor.empty() : tensor<64xf32>
  %ic = linalg.fill ins(%z : f32) outs(%ec : tensor<64xf32>) -> tensor<64xf32>
  %c = linalg.generic {indexing_maps = [#id, #id, #columns], iterator_types = ["reduction", "parallel"]}
      ins(%exp, %sum : tensor<512x64xf32>, tensor<512x64xf32>) outs(%ic : tensor<64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %q = arith.addf %o, %p : f32
    linalg.yield %q : f32
  } -> tensor<64xf32>
  return %r, %c : tensor<512xf32>, tensor<64xf32>
}
