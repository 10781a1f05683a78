// RUN: tilewright-opt %s --pass-pipeline='builtin.module(form-gpu-kernels{threads=64 workspace-bytes=8192})' --split-input-file | filecheck %s

// The rTask is the block; there is no status word without checks, no workspace without temporaries in it.
// CHECK-LABEL: gpu.module @kernels
// CHECK: gpu.func @plain(%[[OUT:.+]]: memref<12xf32> {llvm.noalias}) kernel
// CHECK-SAME: known_block_size = array<i32: 64, 1, 1>
// CHECK-SAME: asserts = [], block = 64 : i64, cluster = 1 : i64, cooperative = false, grid = 12 : i64
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

// Room for two blocks: each does every other rTask, with a barrier in between, since they use the same temporaries.
// CHECK: gpu.func @several(%{{.+}}: memref<12xf32> {llvm.noalias}, %[[WORK:.+]]: memref<8192xi8>, %[[STATUS:.+]]: memref<1xi32>)
// CHECK-SAME: asserts = ["too large"]
// CHECK-SAME: grid = 2 : i64
// CHECK-SAME: workspace_bytes = 8192 : i64
// CHECK: %[[BLOCK:.+]] = gpu.block_id x
// CHECK: %[[TEMP:.+]] = memref.view %[[WORK]]
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
