// Programs on a device: parameters, tensor maps, launches, and the graph's nodes.
#include "cuda_program.h"

#include <algorithm>

namespace tw::cuda {

namespace {

// Tensor maps start at multiples of it; kernels load vectors as wide.
constexpr int64_t kMapAlignment = 16;
// Tensor maps kept per parameter: PyTorch hands the same few addresses round.
constexpr size_t kMostKnownMaps = 32;
// Spaces that only the runtime knows.
constexpr int32_t kWorkspace = TW_SPACE_COUNT, kStatus = TW_SPACE_COUNT + 1;

// The node that the last captured launch became.
GraphNode last_node(const Driver &driver, Stream stream) {
  int status = 0;
  uint64_t id = 0;
  Graph graph = nullptr;
  const GraphNode *last = nullptr;
  size_t count = 0;
  driver.check(driver.capture_info(stream, &status, &id, &graph, &last, &count), "asking for the graph's last node");
  if (count != 1) throw Error(kInvalidValue, "a captured launch became " + std::to_string(count) + " nodes");
  return last[0];
}

void check_maps(const tw_cuda_kernel &kernel, const tw_step &step, const tw_buffer_ref *refs, const BufferSizes &sizes,
                const std::string &who) {
  for (int64_t m = 0; m < kernel.map_count; ++m) {
    const tw_cuda_tensor_map &map = kernel.maps[m];
    const std::string which = who + ": tensor map " + std::to_string(m);
    if (map.buffer >= step.buffer_count)
      throw TableError(which + " lies over buffer " + std::to_string(map.buffer) + " of " +
                       std::to_string(step.buffer_count));
    const tw_buffer_ref &ref = refs[step.first_buffer + map.buffer];
    if (ref.offset % kMapAlignment)
      throw TableError(which + " starts at offset " + std::to_string(ref.offset) + ", not a multiple of 16 B");
    constexpr int kTypeBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4};
    unsigned __int128 span = (unsigned __int128)(map.shape[0]) * kTypeBytes[map.type];
    for (int d = 1; d < map.rank; ++d) span += (unsigned __int128)(map.shape[d] - 1) * map.strides_bytes[d - 1];
    const int64_t has = sizes.of[ref.space][ref.index] - ref.offset;
    if (span > (unsigned __int128)(has))
      throw TableError(which + " reaches beyond the " + std::to_string(has) + " B of its buffer");
  }
}

}  // namespace

void Program::read(const tw_program &table, const tw_cuda_package &package, const std::vector<Kernel> &kernels,
                   const BufferSizes &sizes, const char *name) {
  arena_bytes_ = table.arena_bytes;
  for (int64_t i = 0; i < table.step_count; ++i) {
    const tw_step &from = table.steps[i];
    const tw_cuda_kernel &kernel = package.kernels[from.kernel];
    const std::string who = std::string(name) + " step " + std::to_string(i) + ", kernel `" + kernel.name + "`";
    if (from.tasks != kernel.rtasks)
      throw TableError(who + ": " + std::to_string(from.tasks) + " rTasks of a kernel that has " +
                       std::to_string(kernel.rtasks));
    check_maps(kernel, from, table.buffers, sizes, who);
    steps_.push_back({&kernels[from.kernel], kernel.grid == 0, 0, maps_.size(), size_t(kernel.map_count), false});
    add_step(from, int32_t(i), table, kernel);
  }
  encoded_ = std::make_unique<TensorMap[]>(maps_.size());
  // Nothing grows any more: what parameters point to stays where it is.
  auto value = values_.begin();
  for (size_t i = 0; i < steps_.size(); ++i) {
    Step &step = steps_[i];
    step.first_param = params_.size();
    for (; value != values_.end() && value->step == i; ++value) params_.push_back(&value->address);
    for (size_t m = 0; m < step.map_count; ++m) params_.push_back(&encoded_[step.first_map + m]);
  }
}

void Program::add_step(const tw_step &from, int32_t number, const tw_program &table, const tw_cuda_kernel &kernel) {
  const size_t first = values_.size();
  for (int64_t b = 0; b < from.buffer_count; ++b) {
    const tw_buffer_ref &ref = table.buffers[from.first_buffer + b];
    const Patch patch{values_.size(), size_t(number), ref.index, ref.offset};
    if (ref.space == TW_INPUT) inputs_.push_back(patch);
    if (ref.space == TW_OUTPUT) outputs_.push_back(patch);
    values_.push_back({ref, size_t(number), 0});
  }
  if (kernel.workspace_bytes > 0) values_.push_back({{kWorkspace, from.kernel, 0}, size_t(number), 0});
  if (kernel.assert_count > 0) values_.push_back({{kStatus, number, 0}, size_t(number), 0});
  for (int64_t m = 0; m < kernel.map_count; ++m)
    maps_.push_back({kernel.maps[m], first + size_t(kernel.maps[m].buffer), {}});
}

void Program::resolve(const Driver &driver, const Places &places) {
  for (Value &value : values_) {
    const tw_buffer_ref &ref = value.ref;
    Address base = 0;
    switch (ref.space) {
      case TW_WEIGHT: base = places.weights[ref.index]; break;
      case TW_CONSTANT: base = places.constants[ref.index]; break;
      case TW_PACKED: base = places.packed; break;
      case TW_ARENA: base = places.arena; break;
      case kWorkspace: base = places.workspaces[ref.index]; break;
      case kStatus: base = places.statuses->address(ref.index); break;
      default: continue;  // the caller's
    }
    value.address = base + ref.offset;
  }
  for (size_t i = 0; i < steps_.size(); ++i) {
    steps_[i].has_changed = true;
    encode_maps(driver, i);
  }
}

void Program::encode_maps(const Driver &driver, size_t number) {
  const Step &step = steps_[number];
  for (size_t m = step.first_map; m < step.first_map + step.map_count; ++m) {
    Map &map = maps_[m];
    const Address address = values_[map.value].address;
    if (step.is_empty || !address) continue;
    auto known = map.known.find(address);
    if (known == map.known.end()) {
      if (map.known.size() >= kMostKnownMaps) map.known.clear();
      try {
        known = map.known.emplace(address, encode(driver, map.table, address)).first;
      } catch (const Error &error) {
        throw StepError(int64_t(number), error);
      }
    }
    encoded_[m] = known->second;
  }
}

void Program::set_caller(const Driver &driver, void *const *inputs, void *const *outputs) {
  set(driver, inputs_, inputs);
  set(driver, outputs_, outputs);
}

void Program::set(const Driver &driver, const std::vector<Patch> &patches, void *const *bases) {
  for (const Patch &patch : patches) {
    const Address address = reinterpret_cast<Address>(bases[patch.index]) + patch.offset;
    if (values_[patch.value].address == address) continue;
    values_[patch.value].address = address;
    steps_[patch.step].has_changed = true;
    try {
      if (steps_[patch.step].map_count) encode_maps(driver, patch.step);
    } catch (...) {
      values_[patch.value].address = 0;  // the next call encodes it again
      throw;
    }
  }
}

void Program::launch_step(const Driver &driver, Stream stream, const Step &step, Overlap *overlap) {
  void **params = params_.data() + step.first_param;
  if (overlap && overlap->is_on && step.kernel->overlaps()) {
    overlap->was_used = true;
    try {
      return step.kernel->launch(stream, params, true);
    } catch (const Error &error) {
      if (is_sticky(error.code)) throw;
      overlap->refuse(error.what());
    }
  }
  step.kernel->launch(stream, params);
}

void Program::launch(const Driver &driver, Stream stream, const LaunchOptions &options) {
  // What comes before the first kernel is not ours: it may end before what it follows has, or be no kernel at all.
  Overlap *overlap = nullptr;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step &step = steps_[i];
    try {
      if (options.events) driver.check(driver.event_record(options.events[i], stream), "recording an event");
      if (!step.is_empty) {
        launch_step(driver, stream, step, overlap);
        overlap = options.overlap;
      }
      if (options.is_synchronous) driver.check(driver.stream_synchronize(stream), "running it");
      if (options.nodes) options.nodes->push_back(step.is_empty ? nullptr : last_node(driver, stream));
    } catch (const Error &error) {
      throw StepError(int64_t(i), error);
    }
  }
  if (options.events) driver.check(driver.event_record(options.events[steps_.size()], stream), "recording an event");
}

void Program::patch(const Driver &driver, GraphExec graph, const std::vector<GraphNode> &nodes) {
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (!steps_[i].has_changed) continue;
    if (nodes[i]) {
      const NodeParams params = steps_[i].kernel->node(params_.data() + steps_[i].first_param);
      if (int code = driver.graph_set_node(graph, nodes[i], &params))
        throw StepError(int64_t(i), Error(code, "changing its addresses in the CUDA graph: " + driver.text(code)));
    }
    steps_[i].has_changed = false;
  }
}

void Program::forget_changes() {
  for (Step &step : steps_) step.has_changed = false;
}

}  // namespace tw::cuda
