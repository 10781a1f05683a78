// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(map-tasks))' | filecheck %s

// The last loop of the grid runs fastest; a ragged loop counts its last, partial tile.
// CHECK: #[[COLUMN:.+]] = affine_map<(d0) -> ((d0 mod 2) * 64)>
// CHECK: #[[ROW:.+]] = affine_map<(d0) -> (((d0 floordiv 2) mod 4) * 32)>
// CHECK: #[[SHIFTED:.+]] = affine_map<(d0) -> ((d0 mod 3) * 4 + 2)>

// CHECK-LABEL: func.func @grid(%arg0: index
// CHECK-SAME: tilewright.tasks = 8 : i64
// CHECK-NOT: scf.forall
// CHECK-DAG: %[[J:.+]] = affine.apply #[[COLUMN]](%arg0)
// CHECK-DAG: %[[I:.+]] = affine.apply #[[ROW]](%arg0)
// CHECK: memref.store %{{.+}}, %{{.+}}[%[[I]], %[[J]]]
func.func @grid(%task: index, %out: memref<128x100xf32>) {
  %cst = arith.constant 1.0 : f32
  scf.forall (%i, %j) = (0, 0) to (128, 100) step (32, 64) {
    memref.store %cst, %out[%i, %j] : memref<128x100xf32>
  }
  return
}

// CHECK-LABEL: func.func @from_two
// CHECK-SAME: tilewright.tasks = 3 : i64
// CHECK: affine.apply #[[SHIFTED]](%arg0)
func.func @from_two(%task: index, %out: memref<14xf32>) {
  %cst = arith.constant 1.0 : f32
  scf.forall (%i) = (2) to (14) step (4) {
    memref.store %cst, %out[%i] : memref<14xf32>
  }
  return
}

// CHECK-LABEL: func.func @one_task
// CHECK-SAME: tilewright.tasks = 1 : i64
// CHECK: %[[ZERO:.+]] = arith.constant 0 : index
// CHECK-NEXT: memref.store %{{.+}}, %{{.+}}[%[[ZERO]]]
func.func @one_task(%task: index, %out: memref<8xf32>) {
  %cst = arith.constant 1.0 : f32
  scf.forall (%i) = (0) to (8) step (8) {
    memref.store %cst, %out[%i] : memref<8xf32>
  }
  return
}

// Without a grid everything is one task, writes and all.
// CHECK-LABEL: func.func @no_grid
// CHECK-SAME: tilewright.tasks = 1 : i64
// CHECK: linalg.fill
func.func @no_grid(%task: index, %out: memref<8xf32>) {
  %cst = arith.constant 1.0 : f32
  linalg.fill ins(%cst : f32) outs(%out : memref<8xf32>)
  return
}

// What is written over is read where the result lies.
// CHECK-LABEL: func.func @replaces
// CHECK-SAME: %[[X:[a-z0-9]+]]: memref<8xf32>, %[[OUT:[a-z0-9]+]]: memref<8xf32>, %{{[a-z0-9]+}}: memref<1xi32>
// CHECK: %[[V:.+]] = memref.load %[[OUT]]
// CHECK: memref.store %[[V]], %[[OUT]]
func.func @replaces(%task: index, %x: memref<8xf32>, %out: memref<8xf32>, %status: memref<1xi32>, %scratch: memref<1xi8>) attributes {tilewright.overwrites = 0 : i64, tilewright.replaces} {
  scf.forall (%i) = (0) to (8) step (1) {
    %v = memref.load %x[%i] : memref<8xf32>
    memref.store %v, %out[%i] : memref<8xf32>
  }
  return
}
