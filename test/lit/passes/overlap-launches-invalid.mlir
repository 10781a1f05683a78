// RUN: tilewright-opt %s --pass-pipeline='builtin.module(gpu.module(gpu.func(overlap-launches)))' --split-input-file --verify-diagnostics

gpu.module @kernels {
  gpu.func @some_threads(%b: i1) kernel attributes {tilewright.launch = {grid = 2 : i64}} {
    scf.if %b {
      // expected-error @+1 {{`overlap-launches`: `tilewright.grid_dependency_wait` must be reached by all threads; write it outside of any branch}}
      "tilewright.grid_dependency_wait"() : () -> ()
    }
    gpu.return
  }
}
