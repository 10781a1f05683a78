// RUN: tilewright-opt %s --pass-pipeline='builtin.module(gpu.module(convert-gpu-to-nvvm{index-bitwidth=32 use-bare-ptr-memref-call-conv=true},lower-primitives{arch=sm_90a},canonicalize,cse,reconcile-unrealized-casts))' | filecheck %s

!shared = memref<4096xi8, #gpu.address_space<workgroup>>
!counters = memref<64xi32, strided<[1], offset: 8>>

gpu.module @kernels {
  // A place in shared memory is a 32-bit address: the buffer's and the offset's sum.
  // CHECK-LABEL: llvm.func @barriers
  // CHECK: %[[ADDRESS:.+]] = llvm.ptrtoint %{{.+}} : !llvm.ptr<3> to i32
  // CHECK: %[[PLACE:.+]] = llvm.add %[[ADDRESS]], %{{.+}} : i32
  // CHECK: llvm.inline_asm has_side_effects "mbarrier.init.shared::cta.b64 [$0], $1;", "r,r,~{memory}" %[[PLACE]], %{{.+}} : (i32, i32) -> ()
  // CHECK: llvm.inline_asm has_side_effects "fence.mbarrier_init.release.cluster;", "~{memory}"
  // CHECK: mapa.shared::cluster.u32 remote, $0, $1; mbarrier.arrive.shared::cluster.b64 _, [remote]; }", "r,r,~{memory}"
  // CHECK: mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;
  // CHECK-SAME: @done bra READY;
  // CHECK: llvm.inline_asm has_side_effects "bar.sync $0, 128;", "r,~{memory}"
  // CHECK: llvm.inline_asm has_side_effects "setmaxnreg.inc.sync.aligned.u32 232;"
  gpu.func @barriers(%at: i32) kernel {
    %all = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
    %c0 = arith.constant 0 : index
    %one = arith.constant 1 : i32
    %s = memref.view %all[%c0][] : memref<?xi8, #gpu.address_space<workgroup>> to !shared
    "tilewright.mbarrier_init"(%s, %at, %one) : (!shared, i32, i32) -> ()
    "tilewright.fence_mbarrier_init"() : () -> ()
    "tilewright.mbarrier_arrive_cluster"(%s, %at, %one) : (!shared, i32, i32) -> ()
    "tilewright.mbarrier_wait"(%s, %at, %one) : (!shared, i32, i32) -> ()
    "tilewright.named_barrier"(%one) {threads = 128 : i64} : (i32) -> ()
    "tilewright.set_max_registers"() {count = 232 : i64, increase = true} : () -> ()
    gpu.return
  }

  // CHECK-LABEL: llvm.func @overlaps
  // CHECK: llvm.inline_asm has_side_effects "griddepcontrol.wait;", "~{memory}" : () -> ()
  // CHECK: llvm.inline_asm has_side_effects "griddepcontrol.launch_dependents;", "~{memory}" : () -> ()
  gpu.func @overlaps() kernel {
    "tilewright.grid_dependency_wait"() : () -> ()
    "tilewright.launch_dependents"() : () -> ()
    gpu.return
  }

  // Places in global memory are pointers; a strided buffer's offset counts.
  // CHECK-LABEL: llvm.func @counters
  // CHECK: %[[POSITION:.+]] = llvm.add %{{.+}}, %{{.+}} : i32
  // CHECK: %[[POINTER:.+]] = llvm.getelementptr %{{.+}}[%[[POSITION]]] : (!llvm.ptr, i32) -> !llvm.ptr, i32
  // CHECK: "ld.acquire.gpu.b32 $0, [$1];", "=r,l,~{memory}" %[[POINTER]] : (!llvm.ptr) -> i32
  // CHECK: "atom.acq_rel.gpu.add.u32 $0, [$1], $2;", "=r,l,r,~{memory}"
  gpu.func @counters(%g: !counters) kernel {
    %i = gpu.thread_id x
    %v = "tilewright.load_acquire"(%g, %i) : (!counters, index) -> i32
    %o = "tilewright.atomic_add"(%g, %i, %v) {order = "acq_rel"} : (!counters, index, i32) -> i32
    gpu.return
  }

  // Coordinates are innermost first; their number is the map's rank.
  // CHECK-LABEL: llvm.func @copies
  // CHECK: "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, {$3, $4, $5}], [$2];", "r,l,r,r,r,r,~{memory}"
  // CHECK: "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [$0], [$1, {$4}], [$2], $3;", "r,l,r,h,r,~{memory}"
  // CHECK: "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [$0, {$2, $3}], [$1];", "l,r,r,r,~{memory}"
  // CHECK: "cp.async.bulk.wait_group.read 1;"
  gpu.func @copies(%map: !llvm.ptr, %x: i32, %mask: i16) kernel {
    %all = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
    %c0 = arith.constant 0 : index
    %s = memref.view %all[%c0][] : memref<?xi8, #gpu.address_space<workgroup>> to !shared
    "tilewright.tma_load"(%s, %x, %map, %s, %x, %x, %x, %x) : (!shared, i32, !llvm.ptr, !shared, i32, i32, i32, i32) -> ()
    "tilewright.tma_load_multicast"(%s, %x, %map, %s, %x, %mask, %x) : (!shared, i32, !llvm.ptr, !shared, i32, i16, i32) -> ()
    "tilewright.tma_store"(%map, %s, %x, %x, %x) : (!llvm.ptr, !shared, i32, i32, i32) -> ()
    "tilewright.bulk_wait"() {groups = 1 : i64, read = true} : () -> ()
    gpu.return
  }

  // Descriptors: 128-byte swizzle (1 << 62), 1,024 bytes between groups of 8 rows (64 << 32), address / 16.
  // Accumulators change in place; no input shares a register with them.
  // CHECK-LABEL: llvm.func @products
  // CHECK-DAG: %[[BITS:.+]] = llvm.mlir.constant(4611686293305294848 : i64) : i64
  // CHECK: llvm.or %{{.+}}, %[[BITS]] : i64
  // CHECK: wgmma.fence.sync.aligned;
  // CHECK-SAME: wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1, $2, $3}, $8, $9, scaled, 1, 1, 0, 1;
  // CHECK-SAME: add.s64 a, $8, 2;
  // CHECK-SAME: add.s64 b, $9, 128;
  // CHECK-SAME: wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1, $2, $3}, a, b, 1, 1, 1, 0, 1;
  // CHECK-SAME: wgmma.commit_group.sync.aligned;
  // CHECK-SAME: "=&f,=&f,=&f,=&f,0,1,2,3,l,l,r,~{memory}"
  // CHECK: "wgmma.wait_group.sync.aligned 1;", "=f,=f,=f,=f,0,1,2,3,~{memory}"
  gpu.func @products(%f: f32, %x: i32, %out: memref<4xf32>) kernel {
    %all = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
    %c0 = arith.constant 0 : index
    %s = memref.view %all[%c0][] : memref<?xi8, #gpu.address_space<workgroup>> to !shared
    %0:4 = "tilewright.wgmma"(%f, %f, %f, %f, %s, %x, %s, %x, %x) {
      n = 8 : i64, k_steps = 2 : i64, type = "bf16",
      a_major = "k", a_swizzle_bytes = 128 : i64, a_leading_bytes = 0 : i64, a_stride_bytes = 1024 : i64, a_step_bytes = 32 : i64,
      b_major = "n", b_swizzle_bytes = 128 : i64, b_leading_bytes = 8192 : i64, b_stride_bytes = 1024 : i64, b_step_bytes = 2048 : i64
    } : (f32, f32, f32, f32, !shared, i32, !shared, i32, i32) -> (f32, f32, f32, f32)
    %1:4 = "tilewright.wgmma_wait"(%0#0, %0#1, %0#2, %0#3) {groups = 1 : i64} : (f32, f32, f32, f32) -> (f32, f32, f32, f32)
    memref.store %1#0, %out[%c0] : memref<4xf32>
    gpu.return
  }

  // CHECK-LABEL: llvm.func @fragments
  // CHECK: wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {$0, $1, $2, $3}, {$8, $9, $10, $11}, $12, scaled;
  // CHECK-SAME: "=&r,=&r,=&r,=&r,0,1,2,3,r,r,r,r,l,r,~{memory}"
  // CHECK: "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [$0], {$1, $2, $3, $4};", "r,r,r,r,r,~{memory}"
  // CHECK: "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {$0, $1, $2, $3, $4, $5, $6, $7}, {$8, $9}, {$10, $11}, {$12, $13, $14, $15, $16, $17, $18, $19};"
  // CHECK: llvm.inline_asm "ex2.approx.ftz.f32 $0, $1;", "=f,f"
  gpu.func @fragments(%x: i32, %a: vector<4xi32>, %h: vector<4xf16>, %c: vector<8xf32>, %out: memref<64xf32>, %ints: memref<4xi32>) kernel {
    %all = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
    %c0 = arith.constant 0 : index
    %s = memref.view %all[%c0][] : memref<?xi8, #gpu.address_space<workgroup>> to !shared
    %0:4 = "tilewright.wgmma_register"(%x, %x, %x, %x, %a, %s, %x, %x) {
      n = 8 : i64, k_steps = 1 : i64, type = "i8",
      b_major = "k", b_swizzle_bytes = 32 : i64, b_leading_bytes = 0 : i64, b_stride_bytes = 256 : i64, b_step_bytes = 32 : i64
    } : (i32, i32, i32, i32, vector<4xi32>, !shared, i32, i32) -> (i32, i32, i32, i32)
    memref.store %0#0, %ints[%c0] : memref<4xi32>
    "tilewright.stmatrix"(%s, %x, %x, %x, %x, %x) {transpose = true} : (!shared, i32, i32, i32, i32, i32) -> ()
    %d = "tilewright.mma_m8n8k4"(%h, %h, %c) {a_layout = "row", b_layout = "col"} : (vector<4xf16>, vector<4xf16>, vector<8xf32>) -> vector<8xf32>
    vector.store %d, %out[%c0] : memref<64xf32>, vector<8xf32>
    %e = memref.load %out[%c0] : memref<64xf32>
    %p = "tilewright.exp2_approximate"(%e) : (f32) -> f32
    memref.store %p, %out[%c0] : memref<64xf32>
    gpu.return
  }
}
