// Computes the bytes and operations of a test from the model's shape and files; see BenchWork in bench_run.h.
#include <algorithm>
#include <cmath>

#include "bench_run.h"
#include "formats/format.h"
#include "kv/kv_formats.h"
#include "models/arch.h"
#include "models/layer_mixers.h"
#include "models/weight_loader.h"

namespace millrace {
namespace {

// A model's matrices by role.
struct Matrices {
  double dense_bytes = 0, expert_bytes = 0, head_bytes = 0;
  EnumTable<Activation, double> share;  // fraction of the layers' values
  Activation head = Activation::f32;
};

bool is_expert(std::string_view name) {
  if (name.find("_exps.") != std::string_view::npos || name.find(".experts.") != std::string_view::npos) return true;
  for (std::string_view part :
       {".ffn_gate.", ".ffn_up.", ".ffn_down."}) {  // older GGUF files have one tensor per expert
    const size_t at = name.find(part);
    if (at != std::string_view::npos && name.substr(at + part.size(), 1).find_first_of("0123456789") == 0) return true;
  }
  return false;
}

Matrices list_matrices(const ModelFiles& files) {
  const WeightLoader loader(files, *find_arch(files));
  const StoredTensor* embedding = loader.find("token_embd.weight");
  const StoredTensor* head = loader.find("output.weight");
  if (!head) head = embedding;
  const StoredTensor* positions = loader.find("position_embd.weight");
  Matrices out;
  double values = 0;
  for (const StoredTensor& stored : files.tensors) {
    const Tensor& tensor = stored.tensor;
    const bool looked_up = &stored == positions || (&stored == embedding && head != embedding);
    const Format* indices = nullptr;
    const auto weights = static_cast<double>(stored_weights(files, stored, &indices));
    if (weights == 0 || tensor.rows() <= 1 || looked_up || is_side_part(files, stored.name)) continue;
    const auto bytes =
        static_cast<double>(indices ? multiplied_bytes(files, stored) : tensor.format->row_bytes(tensor.values()));
    const Activation activation = (indices ? indices : tensor.format)->activation;
    if (&stored == head) {
      out.head_bytes = bytes;
      out.head = activation;
      continue;
    }
    (is_expert(stored.name) ? out.expert_bytes : out.dense_bytes) += bytes;
    out.share[activation] += weights;
    values += weights;
  }
  if (values == 0) return out;
  for (double& share : out.share) share /= values;
  return out;
}

// Number of matrix values in the layers that each token is multiplied with. In the last layer that stores keys, a token
// without logits needs only its key and value, and behind it nothing.
struct ActiveValues {
  double always = 0;
  double for_output = 0;
};

// The mixer of a layer with latent attention; the queries are computed for every token.
ActiveValues latent_values(const ArchSpec& spec, const LayerSpec& layer) {
  const LatentSpec& sizes = layer.latent;
  const int64_t queries = layer.heads * sizes.query();
  const int64_t q = sizes.query_rank > 0 ? sizes.query_rank * (spec.width + queries) : spec.width * queries;
  const int64_t in = q + spec.width * layer.head_dim + layer.heads * sizes.unrotated * sizes.rank;
  return {static_cast<double>(in), static_cast<double>(layer.heads * sizes.value * (sizes.rank + spec.width))};
}

// The state space of a layer; with heads it is Mamba-2.
ActiveValues ssm_values(const ArchSpec& spec, const SsmSpec& ssm) {
  const int64_t in = ssm.heads > 0 ? spec.width * (2 * ssm.inner + 2 * ssm.groups * ssm.state + ssm.heads)
                                   : ssm.inner * (2 * spec.width + 2 * (ssm.rank + ssm.state));
  return {static_cast<double>(in), static_cast<double>(ssm.inner * spec.width)};
}

ActiveValues active_values(const ArchSpec& spec) {
  const int64_t matrices = spec.gated ? 3 : 2;
  // The layers from here on run for tokens with logits: they store nothing, apart from the first of them.
  const LayerSpec* last = spec.layers.data();
  for (const LayerSpec& layer : spec.layers)
    if (layer.kv_from < 0) last = &layer;
  ActiveValues active;
  for (const LayerSpec& layer : spec.layers) {
    double& rest = &layer >= last ? active.for_output : active.always;
    const auto add = [&](const ActiveValues& values) {
      active.always += values.always;
      rest += values.for_output;
    };
    if (keeps(layer, StateKind::recurrent)) add(ssm_values(spec, layer.ssm));
    if (keeps(layer, StateKind::latent)) add(latent_values(spec, layer));
    const int64_t head = spec.width * layer.head_dim * 2;  // key and value, or query and output
    if (keeps(layer, StateKind::keys))
      add({static_cast<double>(layer.kv_from < 0 ? head * layer.kv_heads : 0),
           static_cast<double>(head * layer.heads)});
    const MoeSpec& moe = layer.experts;
    int64_t mlp = layer.has_dense_mlp() ? matrices * layer.hidden : 0;
    if (layer.moe) mlp += moe.experts + matrices * (moe.used * moe.hidden + moe.shared_hidden);
    rest += static_cast<double>(spec.width * (mlp + 2 * spec.layer_input + 2 * spec.laurel_rank));
  }
  return active;
}

class WorkCounter {
 public:
  WorkCounter(const LanguageModel& model, const BenchTest& test)
      : spec_(model.parts().model->spec()),
        matrices_(list_matrices(*model.parts().files)),
        active_(active_values(spec_)),
        alike_(test.alike),
        shared_(static_cast<double>(test.shared / test.block_tokens * test.block_tokens)) {
    kv_activation_ = test.kv_format == "f32" ? Activation::f32 : Activation::bf16;
    const auto formats = find_kv_formats(test.kv_format, model.parts().kernels);  // checked: it has run already
    if (!formats.ok()) return;
    const bool latent = keeps(spec_.layers.front(), StateKind::latent);  // a value is a part of its key
    const KvLayout layout = formats->layout(
        test.block_tokens, {{.kv_heads = spec_.kv_heads, .head_dim = spec_.head_dim, .values_in_keys = latent}});
    key_bytes_ = window_key_bytes_ =
        static_cast<double>(layout.block_bytes()) / static_cast<double>(layout.block_tokens);
    KvLayout windows = layout;
    windows.window = 1;
    if (formats->set_window_formats(windows).ok())
      window_key_bytes_ = static_cast<double>(windows.block_bytes()) / static_cast<double>(windows.block_tokens);
  }

  // One forward pass: `count` new tokens of each of `spans` streams after `depth` earlier ones.
  void pass(double spans, double count, double depth, double outputs) {
    const double tokens = spans * count;
    // Expected fraction of a mixture's experts that this many tokens choose, if all are equally likely.
    double chosen = 1;
    if (spec_.moe.experts > 0) {
      const double used = static_cast<double>(spec_.moe.used) / static_cast<double>(spec_.moe.experts);
      chosen = alike_ ? used : 1 - std::pow(1 - used, tokens);
    }
    work_.bytes += matrices_.dense_bytes + chosen * matrices_.expert_bytes;
    for (Activation kind : kAllOf<Activation>)
      work_.operations[kind] += 2 * (tokens * active_.always + outputs * active_.for_output) * matrices_.share[kind];
    work_.bytes += std::min(1.0, outputs) * matrices_.head_bytes;
    operations(matrices_.head) += 2 * outputs * static_cast<double>(spec_.width * spec_.vocab);
    for (const LayerSpec& layer : spec_.layers) {
      if (keeps(layer, StateKind::recurrent))  // its state is read and written
        work_.bytes += 2 * 4 * spans * static_cast<double>(layer_state(layer).state_values);
      if (!keeps(layer, StateKind::keys) && !keeps(layer, StateKind::latent)) continue;
      const double most = layer.window > 0 ? static_cast<double>(layer.window) : depth + count;
      work_.bytes +=
          spans * std::min(depth + count, most + count - 1) * (layer.window > 0 ? window_key_bytes_ : key_bytes_);
      if (layer.window == 0) work_.bytes -= (spans - 1) * std::min(shared_, depth) * key_bytes_;
      double seen = count * (depth + (count + 1) / 2);  // every token attends to itself and all before it
      if (layer.window > 0) {
        seen = 0;
        for (double i = 0; i < count; ++i) seen += std::min(depth + i + 1, most);
      }
      if (&layer == &spec_.layers.back()) seen = outputs / spans * std::min(depth + count, most);
      operations(kv_activation_) +=
          2 * spans * seen * static_cast<double>(layer.heads * (layer.head_dim + layer.value_dim));
    }
  }

  const BenchWork& work() const { return work_; }

 private:
  double& operations(Activation activation) { return work_.operations[activation]; }

  const ArchSpec& spec_;
  Matrices matrices_;
  ActiveValues active_;
  bool alike_;
  double shared_;  // first tokens of every stream, whose keys are read once
  Activation kv_activation_ = Activation::f32;
  double key_bytes_ = 0, window_key_bytes_ = 0;  // of a token, in a layer
  BenchWork work_;
};

}  // namespace

namespace {

// The prompt's passes where the evictor works on it: one stream's chunks end where it chooses.
void count_evicted_prompt(WorkCounter& counter, const BenchTest& test, const EvictionRule& rule, int64_t layers) {
  const int64_t end = test.prefilled();
  const int64_t first = rule.first_decision(end, layers);
  for (int64_t position = test.depth, count; position < end; position += count) {
    const int64_t stored = stored_tokens(&rule, end, position, layers);
    const int64_t before = position < first ? first - position : rule.slack - (position - first) % rule.slack;
    count = std::min({end - position, test.batch_tokens, before});
    counter.pass(static_cast<double>(test.streams), static_cast<double>(count), static_cast<double>(stored),
                 position + count == end ? static_cast<double>(test.streams) : 0);
  }
}

}  // namespace

BenchWork bench_work(const LanguageModel& model, const BenchTest& test, const EvictionRule* rule) {
  WorkCounter counter(model, test);
  const auto streams = static_cast<double>(test.streams), depth = static_cast<double>(test.depth);
  const Model& stored = *model.parts().model;
  const int64_t heads = rule && rule->by_head() ? stored.kv_layers().front().kv_heads : 1;
  const int64_t layers = rule && rule->by_layer() ? stored.spec().layer_count() * heads : 1;  // that store apart
  if (rule && !rule->whole_prompt) {
    count_evicted_prompt(counter, test, *rule, layers);
  } else if (test.prompt > 0) {
    // The same passes as BenchStreams::prefill(): whole streams if they fit, otherwise parts of one.
    const double batch = static_cast<double>(std::max(test.batch_tokens, test.streams));
    const double prompt = static_cast<double>(test.prompt);
    if (streams * prompt <= batch) {
      counter.pass(streams, prompt, depth, streams);
    } else {
      const double passes = std::ceil(streams * prompt / batch), tokens = streams * prompt / passes;
      for (double i = 0; i < passes; ++i) {
        const double spans = std::max(1.0, tokens / prompt), count = tokens / spans;
        const double before = tokens < prompt ? std::fmod(i * tokens, prompt) : 0;
        counter.pass(spans, count, depth + before, streams / passes);
      }
    }
  }
  for (int64_t i = 0; i < test.generate; ++i)
    counter.pass(streams, 1, static_cast<double>(stored_tokens(rule, test.prefilled(), test.prefilled() + i, layers)),
                 streams);
  return counter.work();
}

}  // namespace millrace
