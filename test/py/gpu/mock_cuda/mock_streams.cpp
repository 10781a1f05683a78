// Entry points of the mock driver: streams, events, captures and graphs.
#include "mock_state.h"

using namespace mock;
using namespace tw::cuda;

#define ENTER(name)                          \
  std::lock_guard guard(state().lock);       \
  if (int code = enter(name)) return code

namespace {

int event_problem(EventState *event) {
  if (state().events.count(event)) return 0;
  problem("an event that is none or was destroyed");
  return kInvalidHandle;
}

int capture_problem(const char *what) {
  problem(std::string(what) + " on a stream that is being captured");
  return kCaptureUnsupported;
}

}  // namespace

MOCK_API cuStreamCreate(StreamState **stream, unsigned flags) {
  ENTER("cuStreamCreate");
  if (flags != kNonBlocking) problem("a stream that waits for the default stream");
  *stream = new StreamState;
  state().streams.insert(*stream);
  return 0;
}

MOCK_API cuStreamDestroy_v2(StreamState *stream) {
  std::lock_guard guard(state().lock);
  leave("cuStreamDestroy");
  if (!state().streams.count(stream)) {
    problem("a stream destroyed twice");
    return kInvalidHandle;
  }
  drain(*stream);
  state().streams.erase(stream);
  return 0;
}

MOCK_API cuStreamSynchronize(StreamState *handle) {
  ENTER("cuStreamSynchronize");
  StreamState *stream = stream_of(handle);
  if (!stream) return kInvalidHandle;
  if (stream->capture) return capture_problem("waiting");
  drain(*stream);
  return state().sticky;
}

MOCK_API cuStreamWaitEvent(StreamState *handle, EventState *event, unsigned flags) {
  ENTER("cuStreamWaitEvent");
  if (int code = event_problem(event)) return code;
  StreamState *stream = stream_of(handle);
  if (flags || !stream) return kInvalidValue;
  note("wait for an event");
  // An event that was never recorded holds nobody up.
  return submit(stream, {nullptr, event->submitted ? event : nullptr, nullptr, event->submitted});
}

MOCK_API cuStreamIsCapturing(StreamState *handle, int *status) {
  ENTER("cuStreamIsCapturing");
  StreamState *stream = stream_of(handle);
  if (!stream) return kInvalidHandle;
  *status = stream->capture ? 1 : 0;
  return 0;
}

MOCK_API cuStreamBeginCapture_v2(StreamState *stream, int mode) {
  ENTER("cuStreamBeginCapture");
  if (!stream || stream->capture || mode != kThreadLocal) return capture_problem("beginning a capture");
  stream->capture = new GraphState;
  stream->last = nullptr;
  set_thread_capturing(true);
  note("begin capture");
  return 0;
}

MOCK_API cuStreamEndCapture(StreamState *stream, GraphState **graph) {
  std::lock_guard guard(state().lock);
  if (int code = enter("cuStreamEndCapture")) {
    // It ends all the same, as an invalidated capture does.
    delete stream->capture;
    stream->capture = nullptr;
    set_thread_capturing(false);
    return code;
  }
  if (!stream->capture) {
    problem("a capture ended that was not begun");
    return kInvalidValue;
  }
  set_thread_capturing(false);
  if (stream->capture->is_spoilt) {
    delete std::exchange(stream->capture, nullptr);
    *graph = nullptr;
    return kCaptureInvalidated;
  }
  *graph = stream->capture;
  state().graphs.insert(*graph);
  stream->capture = nullptr;
  note("captured ", (*graph)->nodes.size(), " nodes");
  return 0;
}

MOCK_API cuStreamGetCaptureInfo_v2(StreamState *stream, int *status, uint64_t *id, GraphState **graph,
                                   NodeState *const **last, size_t *count) {
  ENTER("cuStreamGetCaptureInfo");
  *status = stream->capture ? 1 : 0;
  *id = 1;
  *graph = stream->capture;
  *last = &stream->last;
  *count = stream->last ? 1 : 0;
  return 0;
}

MOCK_API cuEventCreate(EventState **event, unsigned flags) {
  ENTER("cuEventCreate");
  *event = new EventState;
  (*event)->has_timing = !(flags & kNoTiming);
  state().events.insert(*event);
  return 0;
}

MOCK_API cuEventDestroy_v2(EventState *event) {
  std::lock_guard guard(state().lock);
  leave("cuEventDestroy");
  if (event_problem(event)) return kInvalidHandle;
  if (event->done < event->submitted) drain_until(*event, event->submitted);
  // A stream may still wait for it: nothing of it is given back, only its name.
  state().events.erase(event);
  return 0;
}

MOCK_API cuEventRecord(EventState *event, StreamState *handle) {
  ENTER("cuEventRecord");
  if (int code = event_problem(event)) return code;
  StreamState *stream = stream_of(handle);
  if (!stream) return kInvalidHandle;
  if (stream->capture) return capture_problem("recording an event");
  event->streams.push_back(stream);
  return submit(stream, {nullptr, nullptr, event, ++event->submitted});
}

MOCK_API cuEventSynchronize(EventState *event) {
  ENTER("cuEventSynchronize");
  if (int code = event_problem(event)) return code;
  if (event->submitted) drain_until(*event, event->submitted);
  return state().sticky;
}

MOCK_API cuEventElapsedTime(float *ms, EventState *from, EventState *to) {
  ENTER("cuEventElapsedTime");
  if (event_problem(from) || event_problem(to)) return kInvalidHandle;
  if (!from->has_timing || !to->has_timing || !from->submitted || to->done < to->submitted) {
    problem("a time between events that have none");
    return kInvalidValue;
  }
  *ms = float((to->time_us - from->time_us) / 1e3);
  return 0;
}

MOCK_API cuGraphInstantiateWithFlags(ExecState **exec, GraphState *graph, unsigned long long flags) {
  ENTER("cuGraphInstantiateWithFlags");
  if (!state().graphs.count(graph) || flags) return kInvalidValue;
  auto made = std::make_unique<ExecState>();
  made->graph = graph;
  for (const auto &node : graph->nodes) {
    made->nodes.push_back(node.get());
    made->params.push_back(node->params);
  }
  state().execs.insert(made.get());
  *exec = made.release();
  note("instantiated a graph");
  return 0;
}

MOCK_API cuGraphLaunch(ExecState *exec, StreamState *handle) {
  ENTER("cuGraphLaunch");
  if (!state().execs.count(exec)) {
    problem("a graph launched that was destroyed");
    return kInvalidHandle;
  }
  StreamState *stream = stream_of(handle);
  if (!stream) return kInvalidHandle;
  note("launched a graph of ", exec->nodes.size(), " nodes");
  auto run = [nodes = exec->nodes, params = exec->params, stream] {
    for (size_t i = 0; i < nodes.size(); ++i) execute(*nodes[i]->function, params[i], *stream);
  };
  return submit(stream, {run, nullptr, nullptr, 0});
}

MOCK_API cuGraphExecKernelNodeSetParams_v2(ExecState *exec, NodeState *node, const NodeParams *params) {
  ENTER("cuGraphExecKernelNodeSetParams");
  if (!state().execs.count(exec) || !state().graphs.count(exec->graph)) {
    problem("a node changed of a graph that was destroyed");
    return kInvalidHandle;
  }
  for (size_t i = 0; i < exec->nodes.size(); ++i)
    if (exec->nodes[i] == node) {
      if (reinterpret_cast<FunctionState *>(params->function) != node->function || params->extra || params->kernel)
        problem("a node changed to another kernel");
      exec->params[i] = read_params(*node->function, params->params);
      note("changed node ", i);
      return 0;
    }
  problem("a node changed that is not of this graph");
  return kInvalidValue;
}

MOCK_API cuGraphExecDestroy(ExecState *exec) {
  std::lock_guard guard(state().lock);
  leave("cuGraphExecDestroy");
  if (!state().execs.erase(exec)) problem("a graph destroyed twice");
  return 0;
}

MOCK_API cuGraphDestroy(GraphState *graph) {
  std::lock_guard guard(state().lock);
  leave("cuGraphDestroy");
  if (!state().graphs.erase(graph)) problem("a graph destroyed twice");
  return 0;
}
