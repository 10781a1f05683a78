// A package on a device, with its weights bound.
#pragma once
#include <functional>
#include <memory>
#include <mutex>

#include "cuda_program.h"

namespace tw::cuda {

// A check inside of a kernel failed; `is_late` when that was in an earlier call.
struct AssertFailure {
  int64_t step;
  int32_t status;
  bool is_prepack, is_late;
};

// The caller gave something that cannot be used.
struct ArgumentFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Calls may come from any thread; they follow one another, on the device too, as they share an arena.
class Executable {
 public:
  Executable(std::shared_ptr<Device> device, bool is_synchronous, bool overlaps)
      : device_(std::move(device)), driver_(device_->driver), is_synchronous_(is_synchronous),
        overlap_{overlaps && !is_synchronous} {}
  ~Executable();
  Executable(const Executable &) = delete;
  Executable &operator=(const Executable &) = delete;

  void load(const tw_cuda_package &package);
  // Weights on the device are used in place; what `stream` still does to them comes first.
  void bind(const tw_cuda_weight *weights, Stream stream);
  // Launches main on the caller's stream and returns at once.
  void run(void *const *inputs, void *const *outputs, Stream stream, tw_cuda_graph_mode mode);
  // Copies from and to host memory around main, and waits.
  void run_host(void *const *inputs, void *const *outputs, tw_cuda_graph_mode mode);
  // Waits for all calls so far; throws AssertFailure when a check failed in one.
  void synchronize();
  // Microseconds of every step in each of `repeats` calls on host inputs, as the device's own clock has them.
  void profile(void *const *inputs, int64_t repeats, double *us);
  // Microseconds of one launch of main in each of `rounds` rounds of `launches` that follow one another without a gap
  // of the host's, on `set_count` sets of inputs in turn.
  void time(void *const *inputs, int64_t set_count, void *const *outputs, int64_t launches, int64_t rounds, double *us);

  // Which program the last failing step was of.
  bool in_prepack() const { return in_prepack_; }
  // Why calls that were left to choose go through no graph; empty when nothing went wrong.
  const std::string &graph_error() const { return graph_error_; }
  // Why kernels that could start before the one before them has ended do not; empty when nothing went wrong.
  const std::string &overlap_error() const { return overlap_.error; }
  Stream own_stream() const { return stream_; }
  tw_cuda_resources resources(int64_t kernel) const { return kernels_.at(size_t(kernel)).resources(); }

 private:
  void require_bound() const;
  void check_call(void *const *inputs, int64_t set_count, void *const *outputs) const;
  void prepare_workspaces(const tw_cuda_package &package);
  void load_constants(const tw_package &tables);
  void place_weights(const tw_cuda_weight *weights, Stream stream);
  void launch(Stream stream, tw_cuda_graph_mode mode, const LaunchOptions &options);
  bool has_graph(bool is_asked);
  void capture();
  void capture(const std::function<void(Overlap *)> &launches);
  void capture_once(const std::function<void(Overlap *)> &launches, Overlap *overlap);
  LaunchOptions options() { return {is_synchronous_, nullptr, nullptr, &overlap_}; }
  void drop_graph();
  void stage(void *const *inputs);
  void throw_failed_assert(bool is_late);

  std::shared_ptr<Device> device_;
  const Driver &driver_;
  const bool is_synchronous_;
  Overlap overlap_;
  std::mutex lock_;
  Stream stream_ = nullptr;
  Event done_ = nullptr;  // follows the last call
  bool has_run_ = false, is_bound_ = false, in_prepack_ = false;
  BufferSizes sizes_;
  // What lies on the device; freed in the device's context.
  struct Held {
    DeviceBlock constants, workspaces, weights, packed, arena, staging;
    StatusWords main_status, prepack_status;
  };
  std::unique_ptr<Held> held_;
  std::vector<Kernel> kernels_;
  Program main_, prepack_;
  std::vector<Address> constants_, weights_, workspaces_;
  std::vector<void *> staged_inputs_, staged_outputs_;
  Graph graph_ = nullptr;
  GraphExec graph_exec_ = nullptr;
  std::vector<GraphNode> nodes_;
  int64_t plain_calls_ = 0;
  std::string graph_error_;
};

}  // namespace tw::cuda
