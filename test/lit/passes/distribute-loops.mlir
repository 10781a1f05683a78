// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(distribute-loops{threads=64}))' --split-input-file | filecheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>

// Points of the parallel loops in turns; a reduction keeps its value in a register. What one thread wrote, the
// same thread reads without a barrier: %t row by row. The sums are read by others.
// CHECK-LABEL: func.func @chain
// CHECK: %[[T:.+]] = gpu.thread_id x
// CHECK: scf.for %[[N:.+]] = %[[T]] to %{{.+}} step
// CHECK:   %[[J:.+]] = arith.remui %[[N]]
// CHECK:   %[[I:.+]] = arith.divui %[[N]]
// CHECK:   memref.load %arg1[%[[I]], %[[J]]]
// CHECK:   memref.store %{{.+}}, %[[TEMP:.+]][%[[I]], %[[J]]]
// CHECK-NOT: gpu.barrier
// CHECK: scf.for
// CHECK:   memref.load %[[TEMP]]
// CHECK:   memref.store %{{.+}}, %arg2
// CHECK: gpu.barrier
// CHECK: scf.if
// CHECK:   %[[S:.+]] = scf.for {{.+}} iter_args(
// CHECK:     memref.load %arg2
// CHECK:   memref.store %[[S]], %arg3
func.func @chain(%task: index, %a: memref<37x5xf32>, %b: memref<37x5xf32>, %c: memref<37xf32>, %status: memref<1xi32>, %scratch: memref<1024xi8>) {
  %t = memref.alloc() : memref<37x5xf32>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : memref<37x5xf32>) outs(%t : memref<37x5xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.mulf %in, %in : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%t : memref<37x5xf32>) outs(%b : memref<37x5xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %in : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #rows], iterator_types = ["parallel", "reduction"]} ins(%b : memref<37x5xf32>) outs(%c : memref<37xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %out : f32
    linalg.yield %0 : f32
  }
  return
}

// -----

// A loop around distributed operations is every thread's; a barrier ends each of its rounds. A single store is the first thread's.
#id = affine_map<(d0) -> (d0)>
// CHECK-LABEL: func.func @rounds
// CHECK: %[[FIRST:.+]] = arith.cmpi eq, %{{.+}}, %{{.+}} : index
// CHECK: scf.if %[[FIRST]]
// CHECK-NEXT: memref.store
// CHECK: gpu.barrier
// CHECK: scf.for
// CHECK-NOT: linalg
func.func @rounds(%task: index, %a: memref<8xf32>, %status: memref<1xi32>, %scratch: memref<1024xi8>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %cst = arith.constant 1.0 : f32
  memref.store %cst, %a[%c0] : memref<8xf32>
  scf.for %i = %c0 to %c3 step %c1 {
    linalg.generic {indexing_maps = [#id], iterator_types = ["parallel"]} outs(%a : memref<8xf32>) {
    ^bb0(%out: f32):
      %0 = arith.addf %out, %out : f32
      linalg.yield %0 : f32
    }
  }
  return
}

// -----

// A sort is a network of comparisons that all threads do, with a barrier after each layer; a scan goes row by row.
// CHECK-LABEL: func.func @sequences
// CHECK: memref.alloc() : memref<129xi32>
// CHECK: scf.for
// CHECK:   scf.for
// CHECK:     gpu.barrier
// CHECK:     scf.for
// CHECK:       gpu.barrier
// CHECK: gpu.barrier
// CHECK: scf.if
// CHECK:   scf.for {{.+}} iter_args(
// CHECK:     arith.addf
func.func @sequences(%task: index, %v: memref<5x129xf32>, %o: memref<5x129xf32>, %s: memref<5xf32>, %status: memref<1xi32>, %scratch: memref<1024xi8>) {
  tm_tensor.sort dimension(1) outs(%v : memref<5x129xf32>) {
  ^bb0(%a: f32, %b: f32):
    %1 = arith.cmpf ole, %a, %b : f32
    tm_tensor.yield %1 : i1
  }
  tm_tensor.scan dimension(1) inclusive(true) ins(%v : memref<5x129xf32>) outs(%o, %s : memref<5x129xf32>, memref<5xf32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.addf %a, %b : f32
    tm_tensor.yield %0 : f32
  }
  return
}

// -----

// One sum is every thread's: each adds up every 64th element, warps by shuffles, the first thread the warps' sums.
// CHECK-LABEL: func.func @one_sum
// CHECK: memref.alloc() : memref<2xf32>
// CHECK: %[[OWN:.+]] = scf.for %{{.+}} = %[[THREAD:.+]] to %c800{{.*}} step %c64
// CHECK: gpu.shuffle xor %[[OWN]]
// CHECK: gpu.barrier
// CHECK: arith.cmpi eq, %[[THREAD]]
// CHECK: memref.store %{{.+}}, %arg2[]
#vector = affine_map<(d0) -> (d0)>
#scalar = affine_map<(d0) -> ()>
func.func @one_sum(%task: index, %a: memref<800xf32>, %b: memref<f32>, %status: memref<1xi32>, %scratch: memref<1024xi8>) {
  linalg.generic {indexing_maps = [#vector, #scalar], iterator_types = ["reduction"]} ins(%a : memref<800xf32>) outs(%b : memref<f32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %out : f32
    linalg.yield %0 : f32
  }
  return
}
