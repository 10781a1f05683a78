// RUN: tilewright-opt %s --pass-pipeline='builtin.module(form-gpu-kernels{threads=64 workspace-bytes=8192})' --split-input-file | filecheck %s

// A block does one rTask; there is no status word without checks, no workspace without temporaries in it.
// CHECK-LABEL: gpu.module @kernels
// CHECK: gpu.func @plain(%[[OUT:.+]]: memref<12xf32> {llvm.noalias}) kernel
// CHECK-SAME: known_block_size = array<i32: 64, 1, 1>
// CHECK-SAME: asserts = [], block = 64 : i64, cluster = 1 : i64, cooperative = false, grid = 12 : i64, rtasks = 12 : i64
// CHECK: %[[BLOCK:.+]] = gpu.block_id x
// CHECK: memref.store %{{.+}}, %[[OUT]][%[[BLOCK]]]
// CHECK: gpu.return
func.func @plain(%task: index, %out: memref<12xf32>, %status: memref<1xi32>, %scratch: memref<1099511627776xi8>)
    attributes {tilewright.tasks = 12 : i64, tilewright.asserts = [], tilewright.scratch_bytes = 0 : i64} {
  %cst = arith.constant 1.0 : f32
  memref.store %cst, %out[%task] : memref<12xf32>
  return
}

// -----

// Room for two blocks: each does every other rTask, with a barrier in between, since they use the same temporaries, in the
// block's part of the workspace.
// CHECK: gpu.func @several(%{{.+}}: memref<12xf32> {llvm.noalias}, %[[WORK:.+]]: memref<8192xi8>, %[[STATUS:.+]]: memref<1xi32>)
// CHECK-SAME: asserts = ["too large"]
// CHECK-SAME: grid = 2 : i64, rtasks = 12 : i64
// CHECK-SAME: workspace_bytes = 8192 : i64
// CHECK: %[[BLOCK:.+]] = gpu.block_id x
// CHECK: %[[START:.+]] = arith.muli %[[BLOCK]], %c4096
// CHECK: %[[SCRATCH:.+]] = memref.view %[[WORK]][%[[START]]][] : memref<8192xi8> to memref<4096xi8>
// CHECK: %[[TEMP:.+]] = memref.view %[[SCRATCH]][%c0{{.*}}][] : memref<4096xi8> to memref<1024xf32>
// CHECK: scf.for %[[TASK:.+]] = %[[BLOCK]] to %c12{{.*}} step %c2
// CHECK:   memref.store %{{.+}}, %[[TEMP]][%[[TASK]]]
// CHECK:   memref.store %{{.+}}, %[[STATUS]]
// CHECK:   gpu.barrier
// CHECK: gpu.return
func.func @several(%task: index, %out: memref<12xf32>, %status: memref<1xi32>, %scratch: memref<1099511627776xi8>)
    attributes {tilewright.tasks = 12 : i64, tilewright.asserts = ["too large"], tilewright.scratch_bytes = 4096 : i64} {
  %c0 = arith.constant 0 : index
  %code = arith.constant 1 : i32
  %cst = arith.constant 1.0 : f32
  %temp = memref.view %scratch[%c0][] : memref<1099511627776xi8> to memref<1024xf32>
  memref.store %cst, %temp[%task] : memref<1024xf32>
  memref.store %code, %status[%c0] : memref<1xi32>
  return
}

// -----

// Where temporaries lie in the scratch does not depend on the rTask: their views stand before the loop.
// CHECK: gpu.func @placed
// CHECK: memref.view {{.*}} to memref<64xf32>
// CHECK: memref.view {{.*}} to memref<1008xf32>
// CHECK: scf.for
// CHECK-NOT: memref.view
// CHECK: gpu.barrier
func.func @placed(%task: index, %out: memref<12xf32>, %status: memref<1xi32>, %scratch: memref<1099511627776xi8>)
    attributes {tilewright.tasks = 12 : i64, tilewright.asserts = [], tilewright.scratch_bytes = 4288 : i64} {
  %c0 = arith.constant 0 : index
  %c4032 = arith.constant 4032 : index
  %cst = arith.constant 1.0 : f32
  %u = memref.view %scratch[%c4032][] : memref<1099511627776xi8> to memref<64xf32>
  %t = memref.view %scratch[%c0][] : memref<1099511627776xi8> to memref<1008xf32>
  memref.store %cst, %t[%task] : memref<1008xf32>
  memref.store %cst, %u[%task] : memref<64xf32>
  return
}
