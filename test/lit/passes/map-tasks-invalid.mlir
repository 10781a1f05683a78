// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(map-tasks))' --split-input-file --verify-diagnostics

func.func @two_grids(%task: index, %out: memref<8xf32>) {
  %cst = arith.constant 1.0 : f32
  scf.forall (%i) = (0) to (8) step (1) {
    memref.store %cst, %out[%i] : memref<8xf32>
  }
  // expected-error @below {{`map-tasks`: expected one top-level scf.forall, found 2; fuse them into one grid}}
  scf.forall (%i) = (0) to (8) step (1) {
    memref.store %cst, %out[%i] : memref<8xf32>
  }
  return
}

// -----

func.func @write_beside_the_grid(%task: index, %out: memref<8xf32>) {
  %cst = arith.constant 1.0 : f32
  // expected-error @below {{`map-tasks`: `linalg.fill` stands outside of the grid of rTasks; the schedule has to leave the dispatch whole}}
  linalg.fill ins(%cst : f32) outs(%out : memref<8xf32>)
  scf.forall (%i) = (0) to (8) step (1) {
    memref.store %cst, %out[%i] : memref<8xf32>
  }
  return
}

// -----

// expected-error @below {{`map-tasks`: expected an rTask index as first argument; run `form-kernels` first}}
func.func @no_kernel(%out: memref<8xf32>) {
  return
}

// -----

// expected-error @below {{`map-tasks`: `tilewright.overwrites`: expected the number of an argument of the result's type, found 0}}
func.func @replaces(%task: index, %x: memref<4xf32>, %out: memref<8xf32>, %status: memref<1xi32>, %scratch: memref<1xi8>) attributes {tilewright.overwrites = 0 : i64, tilewright.replaces} {
  return
}
