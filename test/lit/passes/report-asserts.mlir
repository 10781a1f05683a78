// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(report-asserts))' | filecheck %s

// Every message has one number, whatever place checks it; the last two arguments are status and scratch.
// CHECK-LABEL: func.func @checks
// CHECK-SAME: %[[OK:[a-z0-9]+]]: i1, %[[OTHER:[a-z0-9]+]]: i1, %[[STATUS:[a-z0-9]+]]: memref<1xi32>, %{{[a-z0-9]+}}: memref<?xi8>)
// CHECK-SAME: tilewright.asserts = ["index out of range", "empty"]
// CHECK-NOT: cf.assert
// CHECK: %[[FAILED:.+]] = arith.xori %[[OK]], %true
// CHECK-NEXT: scf.if %[[FAILED]] {
// CHECK-NEXT: %[[ONE:.+]] = arith.constant 1 : i32
// CHECK: memref.store %[[ONE]], %[[STATUS]]
// CHECK: scf.if %[[OTHER]]
// CHECK: %[[TWO:.+]] = arith.constant 2 : i32
// CHECK: memref.store %[[TWO]], %[[STATUS]]
// CHECK: %[[AGAIN:.+]] = arith.constant 1 : i32
// CHECK: memref.store %[[AGAIN]], %[[STATUS]]
func.func @checks(%task: index, %ok: i1, %other: i1, %status: memref<1xi32>, %scratch: memref<?xi8>) {
  cf.assert %ok, "index out of range"
  scf.if %other {
    cf.assert %other, "empty"
    cf.assert %ok, "index out of range"
  }
  return
}

// CHECK-LABEL: func.func @sure
// CHECK-SAME: tilewright.asserts = []
// CHECK-NEXT: return
func.func @sure(%task: index, %status: memref<1xi32>, %scratch: memref<?xi8>) {
  return
}

// An index that was read from memory stays inside, since a failed check does not stop the kernel.
// CHECK-LABEL: func.func @gather
// CHECK: %[[READ:.+]] = memref.load %{{.+}}[%{{.+}}] : memref<2xi64>
// CHECK: %[[INDEX:.+]] = arith.index_cast %[[READ]]
// CHECK-DAG: %[[LOW:.+]] = arith.constant 0 : index
// CHECK-DAG: %[[HIGH:.+]] = arith.constant 9 : index
// CHECK: %[[BELOW:.+]] = arith.minsi %[[INDEX]], %[[HIGH]]
// CHECK: %[[INSIDE:.+]] = arith.maxsi %[[LOW]], %[[BELOW]]
// CHECK: memref.load %{{.+}}[%[[INSIDE]], %{{.+}}] : memref<10x4xf32>
// CHECK-NOT: arith.minsi
// CHECK: return
func.func @gather(%i: index, %j: index, %ids: memref<2xi64>, %table: memref<10x4xf32>, %out: memref<2x4xf32>,
                  %status: memref<1xi32>, %scratch: memref<?xi8>) {
  %id = memref.load %ids[%i] : memref<2xi64>
  %row = arith.index_cast %id : i64 to index
  %v = memref.load %table[%row, %j] : memref<10x4xf32>
  memref.store %v, %out[%i, %j] : memref<2x4xf32>
  return
}

// A scatter's place is clamped too, after arithmetic on what was read.
// CHECK-LABEL: func.func @scatter
// CHECK: arith.addi
// CHECK: %[[INSIDE:.+]] = arith.maxsi
// CHECK: memref.store %{{.+}}, %{{.+}}[%[[INSIDE]]] : memref<10xf32>
func.func @scatter(%i: index, %v: f32, %ids: memref<2xi64>, %out: memref<10xf32>, %status: memref<1xi32>,
                   %scratch: memref<?xi8>) {
  %id = memref.load %ids[%i] : memref<2xi64>
  %cast = arith.index_cast %id : i64 to index
  %place = arith.addi %cast, %i : index
  memref.store %v, %out[%place] : memref<10xf32>
  return
}

// Loop counters are inside by construction.
// CHECK-LABEL: func.func @counted
// CHECK-NOT: arith.minsi
// CHECK: return
func.func @counted(%task: index, %x: memref<8xf32>, %status: memref<1xi32>, %scratch: memref<?xi8>) {
  affine.for %i = 0 to 7 {
    %one = arith.constant 1 : index
    %next = arith.addi %i, %one : index
    %v = memref.load %x[%next] : memref<8xf32>
    memref.store %v, %x[%i] : memref<8xf32>
  }
  return
}
