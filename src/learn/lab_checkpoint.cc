#include "learn/lab_checkpoint.h"

#include <cstring>
#include <fstream>

#include "base/pending_file.h"
#include "learn/lab_trainer.h"

namespace millrace {
namespace {

constexpr char kMagic[8] = {'M', 'L', 'A', 'B', 'C', 'K', 'P', '1'};

// Frozen on disk. All layers are alike; `hidden` is the width of an MLP, or of one of the experts.
struct Head {
  char magic[8];
  int64_t vocab, context, width, layers, heads, kv_heads, hidden, relu, experts;
  double rope_base, epsilon;
  int64_t step, tokens, optimizer_steps;
  uint64_t next_example;
  double elapsed_s;
  int64_t weights;
};

ArchSpec spec_of(const Head& h) {
  ArchSpec spec;
  spec.vocab = h.vocab;
  spec.context = h.context;
  spec.width = h.width;
  spec.heads = h.heads;
  spec.kv_heads = h.kv_heads;
  (h.experts == 0 ? spec.hidden : spec.moe.hidden) = h.hidden;
  spec.moe.experts = h.experts;
  spec.activation = h.relu == 0 ? HiddenActivation::silu : HiddenActivation::relu;
  spec.norm_eps = static_cast<float>(h.epsilon);
  complete_llama(spec, h.layers, h.rope_base);
  return spec;
}

Result<Head> read_head(std::ifstream& in, const std::string& path) {
  if (!in) return Error::user("no checkpoint to resume from (omit --resume to start a new run): " + path);
  Head head;
  if (!in.read(reinterpret_cast<char*>(&head), sizeof head) || std::memcmp(head.magic, kMagic, sizeof kMagic) != 0 ||
      !trainable(spec_of(head)).ok() || head.weights != trained_parameters(spec_of(head)))
    return Error::corrupt("not a checkpoint of a lab model: " + path);
  return head;
}

bool read_floats(std::ifstream& in, std::vector<float>& to) {
  return static_cast<bool>(
      in.read(reinterpret_cast<char*>(to.data()), static_cast<std::streamsize>(to.size() * sizeof(float))));
}

}  // namespace

Result<void> save_lab_checkpoint(const std::string& path, const LabModel& model, const LabOptimizer& optimizer,
                                 const LabProgress& progress) {
  Head head;
  const ArchSpec& s = model.spec();
  const LayerSpec& layer = s.layers[0];
  head = {{},
          s.vocab,
          s.context,
          s.width,
          s.layer_count(),
          layer.heads,
          layer.kv_heads,
          mlp_width(layer),
          s.activation == HiddenActivation::silu ? 0 : 1,
          layer.experts.experts,
          s.ropes[0].theta,
          s.norm_eps,
          progress.step,
          progress.tokens,
          optimizer.steps,
          progress.next_example,
          progress.elapsed_s,
          std::ssize(model.weights())};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  PendingFile file(path);
  int64_t at = sizeof head;
  bool written = file.created() && file.write(&head, at, 0);
  for (const auto* values : {&model.weights(), &optimizer.first, &optimizer.second}) {
    const auto bytes = static_cast<int64_t>(values->size() * sizeof(float));
    written = written && file.write(values->data(), bytes, at);
    at += bytes;
  }
  if (!written || !file.commit()) return Error::resource("cannot write the checkpoint: " + path);
  return {};
}

Result<LabProgress> restore_lab_checkpoint(const std::string& path, LabModel& model, LabOptimizer& optimizer) {
  std::ifstream in(path, std::ios::binary);
  MILLRACE_TRY(const Head head, read_head(in, path));
  if (!same_model(spec_of(head), model.spec()))
    return Error::user("the checkpoint is of a model of another shape: " + path);
  if (!read_floats(in, model.weights()) || !read_floats(in, optimizer.first) || !read_floats(in, optimizer.second))
    return Error::corrupt("the checkpoint ends early: " + path);
  optimizer.steps = head.optimizer_steps;
  return LabProgress{head.step, head.tokens, head.next_example, head.elapsed_s};
}

Result<LabModel> load_lab_checkpoint(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Error::user("no such checkpoint: " + path);
  MILLRACE_TRY(const Head head, read_head(in, path));
  LabModel model(spec_of(head), 0);
  if (!read_floats(in, model.weights())) return Error::corrupt("the checkpoint ends early: " + path);
  return model;
}

}  // namespace millrace
