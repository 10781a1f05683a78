// RUN: tilewright-opt %s --pass-pipeline='builtin.module(apply-schedule)' | filecheck %s

// Scans, sorts and scatters are cut between their lines.
// CHECK-LABEL: func.func private @scan(
// CHECK: %[[R:.+]]:2 = scf.forall (%[[I:.+]], %{{.+}}) = (0, 0) to (50, 30) step (16, 30) shared_outs(%[[Y:.+]] = %{{.+}}, %[[ENDS:.+]] = %{{.+}})
// CHECK: %[[START:.+]] = affine.min #{{.+}}(%[[I]])
// CHECK: %[[X:.+]] = tensor.extract_slice %arg0[%[[START]], 0] [16, 30] [1, 1]
// CHECK: %[[OWN:.+]] = tensor.extract_slice %[[Y]][%[[START]], 0] [16, 30] [1, 1]
// CHECK: %[[FILLED:.+]] = linalg.fill {{.*}} outs(%[[OWN]]
// CHECK: tm_tensor.scan dimension(1) inclusive(true) ins(%[[X]] : tensor<16x30xf32>) outs(%[[FILLED]], %{{.+}} : tensor<16x30xf32>, tensor<16xf32>)
// CHECK-DAG: tensor.parallel_insert_slice %{{.+}} into %[[Y]][%[[START]], 0] [16, 30]
// CHECK-DAG: tensor.parallel_insert_slice %{{.+}} into %[[ENDS]][%[[START]]] [16]
// CHECK: return %[[R]]#0, %[[R]]#1
func.func private @scan(%x: tensor<50x30xf32>) -> (tensor<50x30xf32>, tensor<50xf32>)
    attributes {tilewright.schedule = {tile = [16, 0], unroll = 0, vector = 0}} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<50x30xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<50x30xf32>) -> tensor<50x30xf32>
  %g = tensor.empty() : tensor<50xf32>
  %r:2 = tm_tensor.scan dimension(1) inclusive(true) ins(%x : tensor<50x30xf32>) outs(%f, %g : tensor<50x30xf32>, tensor<50xf32>) {
  ^bb0(%before: f32, %new: f32):
    %s = arith.addf %before, %new : f32
    tm_tensor.yield %s : f32
  } -> tensor<50x30xf32>, tensor<50xf32>
  return %r#0, %r#1 : tensor<50x30xf32>, tensor<50xf32>
}

// A sort begins with what it sorts: where rTasks overlap, each sorts in memory of its own.
// CHECK-LABEL: func.func private @sort(
// CHECK: scf.forall
// CHECK: %[[EMPTY:.+]] = tensor.empty() : tensor<30x16xf32>
// CHECK: %[[COPY:.+]] = linalg.copy {{.*}} outs(%[[EMPTY]] : tensor<30x16xf32>)
// CHECK: %[[SORTED:.+]] = tm_tensor.sort dimension(0) outs(%[[COPY]] : tensor<30x16xf32>)
// CHECK: linalg.copy {{.*}} ins(%[[SORTED]] : tensor<30x16xf32>)
func.func private @sort(%x: tensor<30x50xf32>) -> tensor<30x50xf32>
    attributes {tilewright.schedule = {tile = [0, 16], unroll = 0, vector = 0}} {
  %r = tm_tensor.sort dimension(0) outs(%x : tensor<30x50xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.cmpf ole, %a, %b : f32
    tm_tensor.yield %c : i1
  } -> tensor<30x50xf32>
  return %r : tensor<30x50xf32>
}

// A scatter into rows is cut along them, and begins with zeros or what was there.
// CHECK-LABEL: func.func private @scatter(
// CHECK: scf.forall (%{{.+}}, %[[J:.+]]) = (0, 0) to (5, 40) step (5, 20) shared_outs(%[[OUT:.+]] = %{{.+}})
// CHECK: %[[U:.+]] = tensor.extract_slice %arg0[0, 0, %[[J]]] [9, 1, 20] [1, 1, 1]
// CHECK: %[[ZEROS:.+]] = linalg.fill {{.*}} outs(%{{.+}} : tensor<5x20xf32>)
// CHECK: tm_tensor.scatter {{.*}} ins(%[[U]], %arg1 : tensor<9x1x20xf32>, tensor<9x1xi64>) outs(%[[ZEROS]] : tensor<5x20xf32>)
func.func private @scatter(%u: tensor<9x1x40xf32>, %at: tensor<9x1xi64>) -> tensor<5x40xf32>
    attributes {tilewright.schedule = {tile = [0, 20], unroll = 0, vector = 0}} {
  %zeros = arith.constant dense<0.0> : tensor<5x40xf32>
  %r = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false) ins(%u, %at : tensor<9x1x40xf32>, tensor<9x1xi64>) outs(%zeros : tensor<5x40xf32>) {
  ^bb0(%new: f32, %old: f32):
    %s = arith.addf %old, %new : f32
    tm_tensor.yield %s : f32
  } -> tensor<5x40xf32>
  return %r : tensor<5x40xf32>
}

// So does a scan that reads its results back: one that is exclusive has no loops that carry them.
// CHECK-LABEL: func.func private @exclusive(
// CHECK: scf.forall
// CHECK: %[[SUMS:.+]]:2 = tm_tensor.scan
// CHECK-DAG: linalg.copy {{.*}} ins(%[[SUMS]]#0 : tensor<16x30xf32>)
// CHECK-DAG: linalg.copy {{.*}} ins(%[[SUMS]]#1 : tensor<16xf32>)
func.func private @exclusive(%x: tensor<50x30xf32>) -> (tensor<50x30xf32>, tensor<50xf32>)
    attributes {tilewright.schedule = {tile = [16, 0], unroll = 0, vector = 0}} {
  %e = tensor.empty() : tensor<50x30xf32>
  %g = tensor.empty() : tensor<50xf32>
  %r:2 = tm_tensor.scan dimension(1) inclusive(false) ins(%x : tensor<50x30xf32>) outs(%e, %g : tensor<50x30xf32>, tensor<50xf32>) {
  ^bb0(%before: f32, %new: f32):
    %s = arith.addf %before, %new : f32
    tm_tensor.yield %s : f32
  } -> tensor<50x30xf32>, tensor<50xf32>
  return %r#0, %r#1 : tensor<50x30xf32>, tensor<50xf32>
}

// A scatter into several lines is cut between these too: parts of its one dimension.
// CHECK-LABEL: func.func private @lines(
// CHECK: scf.forall (%[[L:.+]], %{{.+}}) = (0, 0) to (8, 256) step (3, 256) shared_outs(%[[OUT:.+]] = %{{.+}})
// CHECK: %[[FIRST:.+]] = affine.min #{{.+}}(%[[L]])
// CHECK: %[[U:.+]] = tensor.extract_slice %arg0[%{{.+}}] [9] [1] : tensor<24xf32> to tensor<9xf32>
// CHECK: %[[AT:.+]] = tensor.extract_slice %arg1[%{{.+}}, 0] [9, 1] [1, 1]
// CHECK: linalg.copy {{.*}} outs(%{{.+}} : tensor<768xf32>)
// CHECK: tm_tensor.scatter {dimension_map = array<i64: 0>, tilewright.lines = 3 : i64} {{.*}} ins(%[[U]], %[[AT]] :
// CHECK: tensor.parallel_insert_slice %{{.+}} into %[[OUT]][%{{.+}}] [768] [1]
func.func private @lines(%u: tensor<24xf32>, %at: tensor<24x1xi64>, %x: tensor<2048xf32>) -> tensor<2048xf32>
    attributes {tilewright.schedule = {tile = [3, 0], unroll = 0, vector = 0}} {
  %r = tm_tensor.scatter {dimension_map = array<i64: 0>, tilewright.lines = 8 : i64} unique_indices(false) ins(%u, %at : tensor<24xf32>, tensor<24x1xi64>) outs(%x : tensor<2048xf32>) {
  ^bb0(%new: f32, %old: f32):
    %s = arith.addf %old, %new : f32
    tm_tensor.yield %s : f32
  } -> tensor<2048xf32>
  return %r : tensor<2048xf32>
}
