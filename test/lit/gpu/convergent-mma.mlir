// RUN: %translate %s --arch sm_80 | filecheck %s

// Threads 0 to 7 store before and after a product of the whole warp, which stays where all of them meet.
// CHECK: bra{{.*}}L__[[MEET:BB[0-9_]+]];
// CHECK: L__[[MEET]]:
// CHECK: mma.sync.aligned.m16n8k16
module attributes {gpu.container_module} { gpu.module @kernels {
  gpu.func @product(%a: memref<32x8xf16>, %o: memref<32xf32>) kernel
      attributes {known_block_size = array<i32: 32, 1, 1>} {
    %thread = gpu.thread_id x
    %c0 = arith.constant 0 : index
    %c8 = arith.constant 8 : index
    %one = arith.constant 1.0 : f32
    %A = vector.load %a[%thread, %c0] {alignment = 16 : i64} : memref<32x8xf16>, vector<8xf16>
    %a4 = vector.shape_cast %A : vector<8xf16> to vector<4x2xf16>
    %b2 = vector.extract_strided_slice %a4 {offsets = [0], sizes = [2], strides = [1]} : vector<4x2xf16> to vector<2x2xf16>
    %is_first = arith.cmpi ult, %thread, %c8 : index
    scf.if %is_first {
      memref.store %one, %o[%c0] : memref<32xf32>
    }
    %C = arith.constant dense<0.0> : vector<2x2xf32>
    %D = nvgpu.mma.sync(%a4, %b2, %C) {mmaShape = [16, 8, 16]} : (vector<4x2xf16>, vector<2x2xf16>, vector<2x2xf32>) -> vector<2x2xf32>
    scf.if %is_first {
      %d = vector.extract %D[0, 0] : f32 from vector<2x2xf32>
      memref.store %d, %o[%thread] : memref<32xf32>
    }
    gpu.return
  }
} }
