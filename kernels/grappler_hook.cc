// The optimizer "tf_stitch": a Grappler pass that infers shapes and hands the graph to Python.
//
// Enabled by name through RewriterConfig, per thread or per call. The pass does nothing until Python has set a
// callback. Whatever goes wrong, the graph is left as it was: an optimizer must never break a model.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/grappler/costs/graph_properties.h"
#include "tensorflow/core/grappler/grappler_item.h"
#include "tensorflow/core/grappler/optimizers/custom_graph_optimizer.h"
#include "tensorflow/core/grappler/optimizers/custom_graph_optimizer_registry.h"

extern "C" {

// Gets a graph, and returns 0 to leave it, 1 to replace it by `*out`, or a negative number on an error.
//
// `shapes` describes the nodes in the order of the graph: the number of outputs (0 when nothing is known), then
// for each output its DataType, its rank (-1 when unknown) and its dims. A dim below zero is a symbol: equal
// numbers are equal dims. `preserve` holds the names of nodes that must survive, one a line. `*out` must come
// from tf_stitch_malloc.
typedef int (*TfStitchOptimize)(const char* graph, int64_t graph_size, const int64_t* shapes, int64_t shapes_size,
                                const char* preserve, const char* item_id, const char* params, char** out,
                                int64_t* out_size);

void tf_stitch_set_optimizer_callback(TfStitchOptimize callback);
void* tf_stitch_malloc(int64_t size);
}

namespace tf_stitch {
namespace {

using tensorflow::GraphDef;
using tensorflow::NodeDef;
using tensorflow::grappler::GraphProperties;
using tensorflow::grappler::GrapplerItem;

std::atomic<TfStitchOptimize> optimize_callback{nullptr};

// True while this thread is in the callback. A function that is traced and run there is optimized on the same
// thread, and must not come back to the callback.
thread_local bool in_callback = false;

class ScopedCallback {
 public:
  ScopedCallback() { in_callback = true; }
  ~ScopedCallback() { in_callback = false; }
};

// How an optimizer says that it left the graph alone.
absl::Status Unchanged() { return absl::AbortedError("Nothing to do."); }

absl::Status Failed(const GrapplerItem& item, const std::string& what) {
  LOG(ERROR) << "tf_stitch leaves the graph '" << item.id << "' as it is: " << what;
  return Unchanged();
}

// Appends one node's part of the flat description of shapes.
void DescribeNode(const NodeDef& node, const GraphProperties& properties, std::vector<int64_t>* flat) {
  if (!properties.HasOutputProperties(node.name())) {
    flat->push_back(0);
    return;
  }
  const auto& outputs = properties.GetOutputProperties(node.name());
  flat->push_back(outputs.size());
  for (const auto& output : outputs) {
    flat->push_back(output.dtype());
    if (output.shape().unknown_rank()) {
      flat->push_back(-1);
      continue;
    }
    flat->push_back(output.shape().dim_size());
    for (const auto& dim : output.shape().dim()) flat->push_back(dim.size());
  }
}

absl::Status DescribeShapes(const GrapplerItem& item, std::vector<int64_t>* flat) {
  GraphProperties properties(item);
  TF_RETURN_IF_ERROR(properties.InferStatically(/*assume_valid_feeds=*/true,
                                                /*aggressive_shape_inference=*/false,
                                                /*include_tensor_values=*/false));
  flat->reserve(item.graph.node_size() * 6);
  for (const NodeDef& node : item.graph.node()) DescribeNode(node, properties, flat);
  return absl::OkStatus();
}

std::string JoinPreserved(const GrapplerItem& item) {
  const auto preserved = item.NodesToPreserve();
  std::vector<std::string> names(preserved.begin(), preserved.end());
  std::sort(names.begin(), names.end());  // the same graph must look the same each time
  std::string joined;
  for (const std::string& name : names) joined += (joined.empty() ? "" : "\n") + name;
  return joined;
}

class StitchOptimizer : public tensorflow::grappler::CustomGraphOptimizer {
 public:
  absl::Status Init(const tensorflow::RewriterConfig_CustomGraphOptimizer* config) override {
    if (config != nullptr) {
      auto params = config->parameter_map().find("params");
      if (params != config->parameter_map().end()) params_ = params->second.s();
    }
    return absl::OkStatus();
  }

  std::string name() const override { return "tf_stitch"; }
  bool UsesFunctionLibrary() const override { return true; }

  absl::Status Optimize(tensorflow::grappler::Cluster* /*cluster*/, const GrapplerItem& item,
                        GraphDef* optimized) override {
    TfStitchOptimize callback = optimize_callback.load();
    if (callback == nullptr || in_callback) return Unchanged();
    std::vector<int64_t> shapes;
    if (absl::Status status = DescribeShapes(item, &shapes); !status.ok()) {
      return Failed(item, "shape inference: " + status.ToString());
    }
    std::string graph;
    if (!item.graph.SerializeToString(&graph)) return Failed(item, "the graph does not serialize");
    const std::string preserve = JoinPreserved(item);

    ScopedCallback scope;
    char* out = nullptr;
    int64_t out_size = 0;
    const int outcome = callback(graph.data(), graph.size(), shapes.data(), shapes.size(), preserve.c_str(),
                                 item.id.c_str(), params_.c_str(), &out, &out_size);
    const bool parsed = outcome == 1 && optimized->ParseFromArray(out, out_size);
    free(out);
    if (outcome < 0) return Failed(item, "the optimizer raised an exception");
    if (outcome == 0) return Unchanged();
    if (!parsed) return Failed(item, "the optimizer returned bytes that are no graph");
    return absl::OkStatus();
  }

 private:
  std::string params_;
};

REGISTER_GRAPH_OPTIMIZER_AS(StitchOptimizer, "tf_stitch");

}  // namespace
}  // namespace tf_stitch

extern "C" {

void tf_stitch_set_optimizer_callback(TfStitchOptimize callback) { tf_stitch::optimize_callback = callback; }

void* tf_stitch_malloc(int64_t size) { return malloc(size); }

}  // extern "C"
