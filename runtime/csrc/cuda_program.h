// A program whose every step can be launched at once: its parameters resolved to addresses on the device.
#pragma once
#include <memory>
#include <unordered_map>
#include <vector>

#include "cuda_kernel.h"

namespace tw::cuda {

// A failure in step number `step`.
struct StepError : Error {
  StepError(int64_t step, const Error &error) : Error(error.code, error.what()), step(step) {}
  int64_t step;
};

// Where the spaces of a package lie on the device, and what its kernels have for themselves.
struct Places {
  const Address *weights = nullptr, *constants = nullptr;
  Address packed = 0, arena = 0;
  const Address *workspaces = nullptr;  // per kernel
  const StatusWords *statuses = nullptr;
};

// Whether kernels are launched before the one before them has ended. A driver that refuses that, but takes the same
// launch without it, costs the overlap only.
struct Overlap {
  bool is_on = false, was_used = false;
  std::string error;  // why it is off although it was asked for
  void refuse(const std::string &why) {
    if (is_on) error = why;
    is_on = false;
  }
};

// `is_synchronous` waits for every step, so that a fault is its own. `events`, one more than there are steps, are
// recorded before each step and after the last. `nodes` receives each step's node of the graph that is being captured,
// null for a step of no blocks. `overlap`, where there is one, lets kernels start early.
struct LaunchOptions {
  bool is_synchronous = false;
  const Event *events = nullptr;
  std::vector<GraphNode> *nodes = nullptr;
  Overlap *overlap = nullptr;
};

class Program {
 public:
  // Throws TableError for tensor maps that reach beyond their buffers; the rest has been checked.
  void read(const tw_program &table, const tw_cuda_package &package, const std::vector<Kernel> &kernels,
            const BufferSizes &sizes, const char *name);
  void resolve(const Driver &driver, const Places &places);
  // Puts a caller's addresses in place; marks the steps that this changes.
  void set_caller(const Driver &driver, void *const *inputs, void *const *outputs);
  void launch(const Driver &driver, Stream stream, const LaunchOptions &options = {});
  // Gives a graph the parameters of the steps that changed.
  void patch(const Driver &driver, GraphExec graph, const std::vector<GraphNode> &nodes);
  // What a graph that was just captured knows already.
  void forget_changes();

  size_t step_count() const { return steps_.size(); }
  uint64_t arena_bytes() const { return arena_bytes_; }

 private:
  struct Step {
    const Kernel *kernel;
    bool is_empty;
    size_t first_param, first_map, map_count;
    bool has_changed;
  };
  // One parameter: a buffer, or the workspace of kernel `index`, or the status word of step `index`.
  struct Value {
    tw_buffer_ref ref;
    size_t step;
    Address address;
  };
  // A tensor map over parameter `value`, with those of other addresses that the caller may come back with.
  struct Map {
    tw_cuda_tensor_map table;
    size_t value;
    std::unordered_map<Address, TensorMap> known;
  };
  struct Patch {
    size_t value, step;
    int32_t index;
    int64_t offset;
  };
  void launch_step(const Driver &driver, Stream stream, const Step &step, Overlap *overlap);
  void encode_maps(const Driver &driver, size_t number);
  void add_step(const tw_step &from, int32_t number, const tw_program &table, const tw_cuda_kernel &kernel);
  void set(const Driver &driver, const std::vector<Patch> &patches, void *const *bases);

  std::vector<Step> steps_;
  std::vector<Value> values_;
  std::vector<Map> maps_;
  std::unique_ptr<TensorMap[]> encoded_;  // one per map: `params_` point here, and to `values_`
  std::vector<void *> params_;
  std::vector<Patch> inputs_, outputs_;
  uint64_t arena_bytes_ = 0;
};

}  // namespace tw::cuda
