// Loading, binding and running of a package on a device.
#include "cuda_executable.h"

#include <algorithm>

namespace tw::cuda {

namespace {

// Left to itself, a model goes through a graph from its third call on, when it has at least so many steps: capturing
// costs some milliseconds, and of a few launches the host is as quick as a graph.
constexpr int64_t kPlainCalls = 2;
constexpr size_t kWorthGraph = 4;
constexpr uint64_t kCallerAlignment = 16;  // kernels load vectors of so many bytes
constexpr int kOverlapInGraphs = 12030;    // the driver from which on edges of a graph let a kernel start early

// Bytes of blocks laid one after another, and where each begins.
uint64_t lay_out(const std::vector<int64_t> &sizes, std::vector<Address> &offsets) {
  uint64_t total = 0;
  offsets.clear();
  for (int64_t bytes : sizes) {
    offsets.push_back(total);
    total += round_up(uint64_t(bytes), kBlockAlignment);
  }
  return total;
}

}  // namespace

Executable::~Executable() {
  // After a fork or a fault there is nothing left that could be freed.
  if (is_forked() || driver_.context_push(device_->context) != kSuccess) {
    held_.release();
    new std::vector<Kernel>(std::move(kernels_));
    return;
  }
  if (has_run_) driver_.event_synchronize(done_);
  if (stream_) driver_.stream_synchronize(stream_);
  drop_graph();
  kernels_.clear();
  held_.reset();
  if (done_) driver_.event_destroy(done_);
  if (stream_) driver_.stream_destroy(stream_);
  Context popped;
  driver_.context_pop(&popped);
}

void Executable::load(const tw_cuda_package &package) {
  const tw_package &tables = *package.tables;
  sizes_.of[TW_INPUT].assign(tables.input_bytes, tables.input_bytes + tables.input_count);
  sizes_.of[TW_OUTPUT].assign(tables.output_bytes, tables.output_bytes + tables.output_count);
  sizes_.of[TW_WEIGHT].assign(tables.weight_bytes, tables.weight_bytes + tables.weight_count);
  sizes_.of[TW_CONSTANT].assign(tables.constant_bytes, tables.constant_bytes + tables.constant_count);
  sizes_.of[TW_PACKED] = {tables.packed_bytes};
  if (tables.packed_bytes < 0 || tables.main.arena_bytes < 0 || tables.prepack.arena_bytes < 0)
    throw TableError("negative block size");
  Current current(driver_, device_->context);
  driver_.check(driver_.stream_create(&stream_, kNonBlocking), "making a stream");
  driver_.check(driver_.event_create(&done_, kNoTiming), "making an event");
  held_ = std::make_unique<Held>();
  for (int64_t i = 0; i < tables.object_count; ++i) kernels_.emplace_back(*device_, package.kernels[i]);
  for (bool is_prepack : {false, true}) {
    const tw_program &table = is_prepack ? tables.prepack : tables.main;
    const char *name = is_prepack ? "prepack" : "main";
    sizes_.of[TW_ARENA] = {table.arena_bytes};
    check_program(table, name, is_prepack, tables.object_count, sizes_);
    (is_prepack ? prepack_ : main_).read(table, package, kernels_, sizes_, name);
    (is_prepack ? held_->prepack_status : held_->main_status) = StatusWords(driver_, table.step_count);
  }
  prepare_workspaces(package);
  load_constants(tables);
  driver_.check(driver_.stream_synchronize(stream_), "loading constants");
}

// Kernels that keep counters have workspaces of their own; the others share one, as only one kernel runs at a time.
void Executable::prepare_workspaces(const tw_cuda_package &package) {
  const tw_cuda_kernel *kernels = package.kernels;
  const int64_t count = package.tables->object_count;
  int64_t shared_bytes = 0;
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < count; ++i) {
    if (!kernels[i].zeroed_bytes) shared_bytes = std::max(shared_bytes, kernels[i].workspace_bytes);
    sizes.push_back(kernels[i].zeroed_bytes ? kernels[i].workspace_bytes : 0);
  }
  sizes.push_back(shared_bytes);
  const uint64_t total = lay_out(sizes, workspaces_);
  if (!total) return;
  held_->workspaces = DeviceBlock(*device_, total);
  const Address shared = workspaces_.back();
  for (int64_t i = 0; i < count; ++i) {
    workspaces_[i] = held_->workspaces.address() + (kernels[i].zeroed_bytes ? workspaces_[i] : shared);
    if (kernels[i].zeroed_bytes)
      driver_.check(driver_.fill(workspaces_[i], 0, kernels[i].zeroed_bytes, stream_), "zeroing a workspace");
  }
}

void Executable::load_constants(const tw_package &tables) {
  const uint64_t total = lay_out(sizes_.of[TW_CONSTANT], constants_);
  if (!tables.constant_count) return;
  held_->constants = DeviceBlock(*device_, total);
  for (int64_t i = 0; i < tables.constant_count; ++i) {
    constants_[i] += held_->constants.address();
    if (tables.constant_bytes[i])
      driver_.check(driver_.copy_to_device(constants_[i], tables.constants[i], tables.constant_bytes[i], stream_),
                    "copying a constant to the device");
  }
}

void Executable::bind(const tw_cuda_weight *weights, Stream stream) {
  std::lock_guard guard(lock_);
  Current current(driver_, device_->context);
  is_bound_ = false;
  // On the host: the last call's graph goes now, and the memory of its weights may go back to the pool below.
  if (has_run_) driver_.check(driver_.event_synchronize(done_), "waiting for the last call");
  drop_graph();
  in_prepack_ = true;
  if (!held_->packed.bytes()) held_->packed = DeviceBlock(*device_, std::max<int64_t>(sizes_.of[TW_PACKED][0], 1));
  if (!held_->arena.bytes()) held_->arena = DeviceBlock(*device_, std::max<uint64_t>(main_.arena_bytes(), 1));
  DeviceBlock arena(*device_, std::max<uint64_t>(prepack_.arena_bytes(), 1));
  try {
    place_weights(weights, stream);
    Places places{weights_.data(), constants_.data(), held_->packed.address(), arena.address(), workspaces_.data(),
                  &held_->prepack_status};
    prepack_.resolve(driver_, places);
    prepack_.launch(driver_, stream, {is_synchronous_});
    driver_.check(driver_.stream_synchronize(stream), "running prepack");
    places.arena = held_->arena.address();
    places.statuses = &held_->main_status;
    main_.resolve(driver_, places);
  } catch (...) {
    driver_.stream_synchronize(stream);  // before its arena goes
    throw;
  }
  const auto [step, status] = held_->prepack_status.take();
  if (status) throw AssertFailure{step, status, true, false};
  in_prepack_ = false;
  is_bound_ = true;
}

void Executable::place_weights(const tw_cuda_weight *weights, Stream stream) {
  std::vector<int64_t> sizes = sizes_.of[TW_WEIGHT];
  for (size_t i = 0; i < sizes.size(); ++i)
    if (weights[i].is_on_device) sizes[i] = 0;
  const uint64_t total = lay_out(sizes, weights_);
  if (total > held_->weights.bytes()) held_->weights = DeviceBlock(*device_, total);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (weights[i].is_on_device) {
      weights_[i] = reinterpret_cast<Address>(weights[i].address);
      if (weights_[i] % kCallerAlignment && sizes_.of[TW_WEIGHT][i])
        throw ArgumentFailure("weight " + std::to_string(i) + " lies at an address that is no multiple of 16 B");
      continue;
    }
    weights_[i] += held_->weights.address();
    if (sizes[i])
      driver_.check(driver_.copy_to_device(weights_[i], weights[i].address, sizes[i], stream),
                    "copying a weight to the device");
  }
}

void Executable::require_bound() const {
  if (!is_bound_) throw ArgumentFailure("no weights are bound: the last prepack failed");
}

void Executable::check_call(void *const *inputs, int64_t set_count, void *const *outputs) const {
  require_bound();
  auto check = [](void *const *addresses, const std::vector<int64_t> &sizes, int64_t count, const char *what) {
    for (size_t i = 0; i < sizes.size() * size_t(count); ++i)
      if (reinterpret_cast<Address>(addresses[i]) % kCallerAlignment && sizes[i % sizes.size()])
        throw ArgumentFailure(std::string(what) + " " + std::to_string(i % sizes.size()) +
                              " lies at an address that is no multiple of 16 B; copy it to memory of its own");
  };
  check(inputs, sizes_.of[TW_INPUT], set_count, "input");
  check(outputs, sizes_.of[TW_OUTPUT], 1, "output");
}

void Executable::run(void *const *inputs, void *const *outputs, Stream stream, tw_cuda_graph_mode mode) {
  std::lock_guard guard(lock_);
  Current current(driver_, device_->context);
  check_call(inputs, 1, outputs);
  throw_failed_assert(true);
  main_.set_caller(driver_, inputs, outputs);
  int capturing = kNotCapturing;
  driver_.check(driver_.stream_is_capturing(stream, &capturing), "asking whether the stream is being captured");
  if (capturing != kNotCapturing) {
    // The caller's own graph: it orders its replays itself. A launch that the driver refused would spoil it.
    LaunchOptions options;
    if (driver_.version >= kOverlapInGraphs) options.overlap = &overlap_;
    main_.launch(driver_, stream, options);
    return;
  }
  launch(stream, mode, options());
  if (is_synchronous_) throw_failed_assert(false);
}

// All calls share an arena: each follows the last one, on whatever stream that was.
void Executable::launch(Stream stream, tw_cuda_graph_mode mode, const LaunchOptions &options) {
  if (has_run_) driver_.check(driver_.stream_wait(stream, done_, 0), "waiting for the last call");
  struct Record {
    Executable &self;
    Stream stream;
    bool is_done = false;
    // Where a launch fails, what was launched before it still runs.
    ~Record() {
      if (is_done) return;
      if (self.driver_.event_record(self.done_, stream) == kSuccess)
        self.has_run_ = true;
      else
        self.driver_.stream_synchronize(stream);
    }
  } record{*this, stream};
  const bool is_worth_it = plain_calls_ >= kPlainCalls && main_.step_count() >= kWorthGraph;
  const bool is_plain = options.is_synchronous || options.events || main_.step_count() == 0;
  const bool is_asked = mode == TW_CUDA_GRAPH_ALWAYS;
  const bool is_tried = mode == TW_CUDA_GRAPH_AUTO && is_worth_it && graph_error_.empty();
  if (!is_plain && (is_asked || is_tried) && has_graph(is_asked)) {
    driver_.check(driver_.graph_launch(graph_exec_, stream), "launching the CUDA graph");
  } else {
    main_.launch(driver_, stream, options);
    ++plain_calls_;
  }
  driver_.check(driver_.event_record(done_, stream), "recording an event");
  record.is_done = has_run_ = true;
}

// Makes a graph for the addresses at hand, or changes the one there is. Where no one asked for a graph, a driver that
// refuses costs the graph only: calls stay plain.
bool Executable::has_graph(bool is_asked) {
  try {
    if (graph_exec_)
      main_.patch(driver_, graph_exec_, nodes_);
    else
      capture();
    return true;
  } catch (const Error &error) {
    drop_graph();
    if (is_asked || is_sticky(error.code)) throw;
    graph_error_ = error.what();
    return false;
  }
}

void Executable::capture() {
  capture([&](Overlap *overlap) {
    nodes_.clear();
    main_.launch(driver_, stream_, {false, nullptr, &nodes_, overlap});
  });
  main_.forget_changes();
}

// What `launches` launches becomes a graph. A launch that is refused spoils a capture as a whole: where it may have
// been for the overlap, there is another one without.
void Executable::capture(const std::function<void(Overlap *)> &launches) {
  Overlap tried{overlap_.is_on && driver_.version >= kOverlapInGraphs};
  try {
    capture_once(launches, &tried);
    if (!tried.error.empty()) overlap_.refuse(tried.error);
  } catch (const Error &error) {
    if (!tried.was_used || is_sticky(error.code)) throw;
    drop_graph();
    const std::string why = tried.error.empty() ? error.what() : tried.error;
    capture_once(launches, nullptr);
    overlap_.refuse(why);
  }
}

void Executable::capture_once(const std::function<void(Overlap *)> &launches, Overlap *overlap) {
  driver_.check(driver_.begin_capture(stream_, kThreadLocal), "beginning to capture a CUDA graph");
  try {
    launches(overlap);
  } catch (...) {
    driver_.end_capture(stream_, &graph_);
    throw;
  }
  driver_.check(driver_.end_capture(stream_, &graph_), "capturing a CUDA graph");
  driver_.check(driver_.graph_instantiate(&graph_exec_, graph_, 0), "instantiating a CUDA graph");
}

void Executable::drop_graph() {
  if (graph_exec_) driver_.graph_exec_destroy(std::exchange(graph_exec_, nullptr));
  if (graph_) driver_.graph_destroy(std::exchange(graph_, nullptr));
  nodes_.clear();
}

void Executable::throw_failed_assert(bool is_late) {
  const auto [step, status] = held_->main_status.take();
  if (status) throw AssertFailure{step, status, false, is_late};
}

// Host calls have memory of their own on the device, so that their addresses never change.
void Executable::stage(void *const *inputs) {
  if (!held_->staging.bytes()) {
    std::vector<int64_t> sizes = sizes_.of[TW_INPUT];
    sizes.insert(sizes.end(), sizes_.of[TW_OUTPUT].begin(), sizes_.of[TW_OUTPUT].end());
    std::vector<Address> places;
    held_->staging = DeviceBlock(*device_, std::max<uint64_t>(lay_out(sizes, places), 1));
    for (size_t i = 0; i < places.size(); ++i) {
      std::vector<void *> &staged = i < sizes_.of[TW_INPUT].size() ? staged_inputs_ : staged_outputs_;
      staged.push_back(reinterpret_cast<void *>(held_->staging.address() + places[i]));
    }
  }
  if (has_run_) driver_.check(driver_.stream_wait(stream_, done_, 0), "waiting for the last call");
  for (size_t i = 0; i < staged_inputs_.size(); ++i)
    if (const int64_t bytes = sizes_.of[TW_INPUT][i])
      driver_.check(driver_.copy_to_device(reinterpret_cast<Address>(staged_inputs_[i]), inputs[i], bytes, stream_),
                    "copying an input to the device");
  main_.set_caller(driver_, staged_inputs_.data(), staged_outputs_.data());
}

void Executable::run_host(void *const *inputs, void *const *outputs, tw_cuda_graph_mode mode) {
  std::lock_guard guard(lock_);
  Current current(driver_, device_->context);
  require_bound();
  throw_failed_assert(true);
  try {
    stage(inputs);
    launch(stream_, mode, options());
    for (size_t i = 0; i < staged_outputs_.size(); ++i)
      if (const int64_t bytes = sizes_.of[TW_OUTPUT][i])
        driver_.check(driver_.copy_to_host(outputs[i], reinterpret_cast<Address>(staged_outputs_[i]), bytes, stream_),
                      "copying an output from the device");
    driver_.check(driver_.stream_synchronize(stream_), "waiting for the call");
  } catch (...) {
    driver_.stream_synchronize(stream_);  // nothing writes to the caller's memory after this
    throw;
  }
  throw_failed_assert(false);
}

void Executable::synchronize() {
  std::lock_guard guard(lock_);
  Current current(driver_, device_->context);
  if (has_run_) driver_.check(driver_.event_synchronize(done_), "waiting for the last call");
  throw_failed_assert(true);
}

namespace {

class Events {
 public:
  Events(const Driver &driver, size_t count) : driver_(driver) {
    try {
      while (events_.size() < count) {
        Event event = nullptr;
        driver.check(driver.event_create(&event, 0), "making an event");
        events_.push_back(event);
      }
    } catch (...) {
      clear();
      throw;
    }
  }
  ~Events() { clear(); }
  const Event *data() const { return events_.data(); }
  double us(size_t from, size_t to) const {
    float ms = 0;
    driver_.check(driver_.event_elapsed(&ms, events_[from], events_[to]), "reading a time");
    return double(ms) * 1e3;
  }

 private:
  void clear() {
    for (Event event : events_) driver_.event_destroy(event);
    events_.clear();
  }
  const Driver &driver_;
  std::vector<Event> events_;
};

}  // namespace

void Executable::profile(void *const *inputs, int64_t repeats, double *us) {
  std::lock_guard guard(lock_);
  Current current(driver_, device_->context);
  require_bound();
  throw_failed_assert(true);
  const size_t steps = main_.step_count();
  Events events(driver_, steps + 1);
  stage(inputs);
  for (int64_t r = 0; r < repeats; ++r) {
    // The first call keeps the device busy while the host gets ahead: times hold no launches.
    launch(stream_, TW_CUDA_GRAPH_NEVER, {});
    launch(stream_, TW_CUDA_GRAPH_NEVER, {false, events.data()});
    driver_.check(driver_.stream_synchronize(stream_), "waiting for the call");
    for (size_t i = 0; i < steps; ++i) us[r * steps + i] = events.us(i, i + 1);
  }
  throw_failed_assert(false);
}

void Executable::time(void *const *inputs, int64_t set_count, void *const *outputs, int64_t launches, int64_t rounds,
                      double *us) {
  std::lock_guard guard(lock_);
  Current current(driver_, device_->context);
  check_call(inputs, set_count, outputs);
  throw_failed_assert(true);
  Events events(driver_, 2);
  if (has_run_) driver_.check(driver_.event_synchronize(done_), "waiting for the last call");
  drop_graph();
  try {
    capture([&](Overlap *overlap) {
      for (int64_t i = 0; i < launches; ++i) {
        main_.set_caller(driver_, inputs + (i % set_count) * int64_t(sizes_.of[TW_INPUT].size()), outputs);
        main_.launch(driver_, stream_, {false, nullptr, nullptr, overlap});
      }
    });
    driver_.check(driver_.graph_launch(graph_exec_, stream_), "launching the CUDA graph");
    for (int64_t r = 0; r < rounds; ++r) {
      driver_.check(driver_.event_record(events.data()[0], stream_), "recording an event");
      driver_.check(driver_.graph_launch(graph_exec_, stream_), "launching the CUDA graph");
      driver_.check(driver_.event_record(events.data()[1], stream_), "recording an event");
      driver_.check(driver_.stream_synchronize(stream_), "waiting for the timed launches");
      us[r] = events.us(0, 1) / double(launches);
    }
  } catch (...) {
    driver_.stream_synchronize(stream_);
    drop_graph();
    throw;
  }
  drop_graph();
  throw_failed_assert(false);
}

}  // namespace tw::cuda
