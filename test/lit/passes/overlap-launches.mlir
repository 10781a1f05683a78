// RUN: tilewright-opt %s --pass-pipeline='builtin.module(gpu.module(gpu.func(overlap-launches)))' | filecheck %s

gpu.module @kernels {
  // CHECK-LABEL: gpu.func @plain
  // CHECK-SAME: tilewright.launch = {cooperative = false, grid = 2 : i64, overlaps = true}
  // CHECK-NEXT: "tilewright.grid_dependency_wait"()
  // CHECK-NEXT: "tilewright.launch_dependents"()
  // CHECK-NEXT: arith.constant
  gpu.func @plain(%x: memref<64xf32>) kernel attributes {tilewright.launch = {grid = 2 : i64, cooperative = false}} {
    %c0 = arith.constant 0 : index
    %v = memref.load %x[%c0] : memref<64xf32>
    memref.store %v, %x[%c0] : memref<64xf32>
    gpu.return
  }

  // A kernel that waits by itself does so once, where it wants to.
  // CHECK-LABEL: gpu.func @after_a_barrier
  // CHECK-SAME: overlaps = true
  // CHECK-NEXT: gpu.barrier
  // CHECK-NEXT: "tilewright.grid_dependency_wait"()
  // CHECK-NEXT: "tilewright.launch_dependents"()
  // CHECK-NEXT: gpu.return
  gpu.func @after_a_barrier() kernel attributes {tilewright.launch = {grid = 2 : i64}} {
    gpu.barrier
    "tilewright.grid_dependency_wait"() : () -> ()
    gpu.return
  }

  // CHECK-LABEL: gpu.func @cooperative
  // CHECK-NOT: overlaps
  // CHECK-NEXT: gpu.return
  gpu.func @cooperative() kernel attributes {tilewright.launch = {grid = 2 : i64, cooperative = true}} {
    gpu.return
  }
}
