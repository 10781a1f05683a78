// RUN: %translate %s --arch gfx90a | filecheck %s

// The same kernel for AMD: shuffles of 32 threads permute within half a wavefront of 64, shared memory is LDS, and erf is
// this compiler's own formula.
// CHECK: .amdgcn_target "amdgcn-amd-amdhsa--gfx90a"
// CHECK: rows:
// CHECK: global_load_dword
// CHECK: v_fmac_f32_e32
// CHECK: ds_bpermute_b32
// CHECK: ds_write_b32
// CHECK: s_barrier
// CHECK: ds_read_b32
// CHECK: global_store_dword
// CHECK: .amdhsa_kernel rows
// CHECK: .private_segment_fixed_size: 0
// CHECK: .reqd_workgroup_size:
module attributes {gpu.container_module} { gpu.module @kernels {
  gpu.func @rows(%a: memref<9x128xf32> {llvm.noalias}, %b: memref<9xf32> {llvm.noalias}) kernel
      attributes {known_block_size = array<i32: 128, 1, 1>} {
    %thread = gpu.thread_id x
    %block = gpu.block_id x
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %one = arith.constant 1 : i32
    %width = arith.constant 32 : i32
    %shared = memref.alloc() : memref<4xf32, #gpu.address_space<workgroup>>
    %x = memref.load %a[%block, %thread] : memref<9x128xf32>
    %e = math.erf %x : f32
    %y, %0 = gpu.shuffle xor %e, %one, %width : f32
    %s = arith.addf %e, %y : f32
    %warp = arith.divui %thread, %c32 : index
    memref.store %s, %shared[%warp] : memref<4xf32, #gpu.address_space<workgroup>>
    gpu.barrier
    %r = memref.load %shared[%c0] : memref<4xf32, #gpu.address_space<workgroup>>
    memref.store %r, %b[%block] : memref<9xf32>
    gpu.return
  }
} }
