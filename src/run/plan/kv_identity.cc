#include "run/plan/kv_identity.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "base/philox.h"
#include "models/neurons/neuron_mlp.h"
#include "run/language_model.h"

namespace millrace {
namespace {

// Raise it when keys and values change for some prompts, but not for the few tokens that are probed here.
constexpr int kArithmetic = 1;
constexpr int64_t kProbeTokens = 16;
constexpr size_t kBytesOfFile = 1 << 20;

// A slot of states for the probe. Where streams hold all of them, that of one stream, which gets its bytes back.
class ProbeState {
 public:
  explicit ProbeState(StatePool& states) : states_(states) {
    if (!states.any()) return;
    auto own = states.allocate();
    if (own.ok())
      slot_ = *own;
    else
      kept_.assign(begin(), begin() + states.slot_bytes());
    own_ = own.ok();
  }
  ~ProbeState() {
    if (own_) states_.release(slot_);
    std::copy(kept_.begin(), kept_.end(), begin());
  }
  ProbeState(const ProbeState&) = delete;
  StateId slot() const { return slot_; }

 private:
  uint8_t* begin() { return states_.any() ? reinterpret_cast<uint8_t*>(states_.values(0, slot_)) : nullptr; }

  StatePool& states_;
  StateId slot_ = 0;
  bool own_ = false;
  std::vector<uint8_t> kept_;
};

// Computes `tokens` tokens of a stream with one block, in as many passes as it takes. Returns a hash of the recurrent
// state behind them; 0: there is none.
uint64_t run_probe(ModelRunner& runner, BlockId block, int64_t tokens) {
  const ProbeState state(runner.kv().states());
  const int64_t vocab = runner.model().spec().vocab, most = runner.limits().tokens;
  for (int64_t first = 0; first < tokens; first += most) {
    runner.start();
    runner.begin({&block, 1}, first, nullptr, state.slot());
    for (int64_t i = first; i < std::min(tokens, first + most); ++i) {
      const double draw = philox_uniform(1, 0, static_cast<uint64_t>(i));
      runner.add(static_cast<TokenId>(draw * static_cast<double>(vocab)), i);
    }
    runner.forward();
  }
  StatePool& states = runner.kv().states();
  if (!runner.kv().layout().recurrent()) return 0;
  return XXH3_64bits(states.values(0, state.slot()), static_cast<size_t>(states.slot_bytes()));
}

}  // namespace

Result<std::string> kv_identity(const LanguageModel& model, ModelRunner& runner) {
  const LanguageModel::Parts& parts = model.parts();
  KvPool& pool = runner.kv();
  MILLRACE_TRY(const BlockId block, pool.allocate());
  const KvLayout& layout = pool.layout();  // a codec encodes whole blocks only
  const int64_t tokens =
      layout.codec ? std::min(layout.block_tokens, runner.limits().context)
                   : std::min({kProbeTokens, layout.block_tokens, runner.limits().tokens, runner.limits().context});
  uint64_t probe = run_probe(runner, block, tokens);
  if (auto read = runner.take_failure(); !read.ok()) {
    pool.release(block);
    return read.error();
  }
  const int64_t begin = runner.context().first_kv_layer;  // the pool may have layers of another model, too
  for (int64_t layer = begin; layer < begin + runner.model().spec().layer_count(); ++layer) {
    if (layout.codec && tokens < layout.block_tokens) break;
    const auto bytes = static_cast<size_t>(layout.codec ? pool.tile_bytes(layer) : tokens * pool.row_bytes(layer));
    const auto value_bytes =
        static_cast<size_t>(layout.codec ? pool.value_tile_bytes(layer) : tokens * pool.value_row_bytes(layer));
    for (int64_t head = 0; head < pool.layout().layers[static_cast<size_t>(layer)].kv_heads; ++head) {
      probe = XXH3_64bits_withSeed(pool.keys(layer, block, head), bytes, probe);
      probe = XXH3_64bits_withSeed(pool.values(layer, block, head), value_bytes, probe);
    }
  }
  pool.release(block);
  std::string text = fmt::format("model {}\narithmetic {}, {} tokens give {:016x}\ncontext {}\n", model.info().name,
                                 kArithmetic, tokens, probe, parts.model->context());
  if (const AttentionPattern* pattern = runner.limits().switches.attention.pattern)
    text += fmt::format("attention {}\n", pattern->text());  // the probe is within one block
  if (layout.has_residuals())
    text += fmt::format("KV format {}\n", layout.format_name());  // the probe has no residuals
  const WeightSource* const source = parts.model->source();
  if (const NeuronMlp* neurons = source ? source->neurons() : nullptr; neurons && neurons->predicts())
    text += fmt::format("predicted neurons {:016x}\n", neurons->file().tables_hash());
  if (source && !source->policy().lossy.empty())
    text += fmt::format("cold experts {:016x}\n", source->policy().lossy_hash);
  for (const auto& file : parts.files->files) {
    const std::span<const uint8_t> bytes = file->bytes();
    const XXH128_hash_t hash = XXH3_128bits(bytes.data(), std::min(bytes.size(), kBytesOfFile));
    text += fmt::format("file of {} bytes, begins {:016x}{:016x}\n", bytes.size(), hash.high64, hash.low64);
  }
  return text;
}

}  // namespace millrace
