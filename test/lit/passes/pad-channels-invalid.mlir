// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(pad-channels{target=h999})' 2>&1 | filecheck %s

// CHECK: `pad-channels`: unknown target `h999`; the presets are: cpu,
func.func @main() {
  return
}
