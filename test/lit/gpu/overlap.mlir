// RUN: %translate %s --arch sm_90a | filecheck %s
// RUN: not %translate %s --arch sm_80 2>&1 | filecheck %s --check-prefix=OLD

// What the kernel reads may still be written when it starts: no load may be one of constant memory.
// CHECK: .visible .entry scale(
// CHECK-NOT: {{(ld|st)\.global}}
// CHECK: griddepcontrol.wait;
// CHECK: griddepcontrol.launch_dependents;
// CHECK-NOT: .nc
// CHECK: ld.global.v4.b32
// CHECK-NOT: .nc
// CHECK: st.global.v4.b32
// OLD: error: {{.*}}`tilewright.grid_dependency_wait` needs sm_90 or newer, the target is sm_80
gpu.module @kernels {
  gpu.func @scale(%a: memref<4096xf32> {llvm.noalias}, %b: memref<4096xf32> {llvm.noalias}) kernel attributes {
      known_block_size = array<i32: 128, 1, 1>, tilewright.launch = {grid = 8 : i64, block = 128 : i64, overlaps = true}} {
    "tilewright.grid_dependency_wait"() : () -> ()
    "tilewright.launch_dependents"() : () -> ()
    %c4 = arith.constant 4 : index
    %c128 = arith.constant 128 : index
    %block = gpu.block_id x
    %thread = gpu.thread_id x
    %first = arith.muli %block, %c128 : index
    %number = arith.addi %first, %thread : index
    %i = arith.muli %number, %c4 : index
    %v = vector.load %a[%i] {alignment = 16 : i64} : memref<4096xf32>, vector<4xf32>
    %w = arith.addf %v, %v : vector<4xf32>
    vector.store %w, %b[%i] {alignment = 16 : i64} : memref<4096xf32>, vector<4xf32>
    gpu.return
  }
}
