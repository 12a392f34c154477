// ModelBuilder: charges the memory of weights, and places weights that a source reads from the packed cache.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "models/known_costs.h"
#include "models/model_builder.h"
#include "models/neurons/neuron_mlp.h"
#include "models/packed_cache.h"
#include "tensor/locked_memory.h"

namespace millrace {
namespace {

constexpr double kWeightShare = 0.75;  // of a budget that keys, values and activations share with the weights

// The bytes that weights may have: a share of what is left of the budget without `others`.
int64_t weight_limit(const std::shared_ptr<MemoryAccounts>& accounts, int64_t others) {
  if (!accounts || accounts->budget() == 0) return INT64_MAX;
  return static_cast<int64_t>(kWeightShare * static_cast<double>(std::max<int64_t>(0, accounts->left() - others)));
}

// Returns the smallest limit that the source accepts; 0: its options allow none.
int64_t least_limit(const ChosenMember<WeightSourceMember>& source, const WeightPlaces& places) {
  const auto most = source.member.memory(places, source.options, INT64_MAX);
  if (!most.ok()) return 0;
  int64_t refused = 0, enough = *most;
  while (enough - refused > 1) {
    const int64_t middle = refused + (enough - refused) / 2;
    (source.member.memory(places, source.options, middle).ok() ? enough : refused) = middle;
  }
  return enough;
}

// Returns "; --memory 366MB is enough for the weights", or "" where no budget is. `others`: as for weight_limit().
std::string least_budget_text(const std::shared_ptr<MemoryAccounts>& accounts, int64_t others, int64_t least) {
  if (!accounts || accounts->budget() == 0 || least == 0) return "";
  constexpr double kSpare = 1.01, kMegabyte = 1e6;  // the program takes a little more or less each time
  const double bytes =
      static_cast<double>(accounts->budget() - accounts->left() + others) + static_cast<double>(least) / kWeightShare;
  return fmt::format("; --memory {:.0f}MB is enough for the weights, and keys and values come in addition",
                     std::ceil(bytes * kSpare / kMegabyte));
}

}  // namespace

int64_t ModelBuilder::unpacked_bytes() const {
  int64_t bytes = 0;
  for (const auto& buffer : files_->buffers) bytes += buffer->bytes();
  return bytes;
}

// Embedding tables are read in place, a few pages around each row. All pages of an embedded model have been read.
int64_t ModelBuilder::table_bytes() const {
  int64_t in_place = kHugePageBytes;
  for (const auto& stored : files_->tensors)
    if (stored.tensor.format &&
        (files_->files.empty() || stored.tensor.data == model_->embedding_.data ||
         stored.tensor.data == model_->positions_.data || stored.tensor.data == model_->layer_inputs_.table.data))
      in_place += stored.tensor.format->row_bytes(stored.tensor.values());
  return in_place;
}

// Charges the weights, of which `resident` packed bytes are in memory, to the memory accounts. The returned hold
// charges the buffers for reading their files.
Result<MemoryHold> ModelBuilder::take_memory(const WeightPacker& packer, const ThreadPool& pool,
                                             const std::shared_ptr<MemoryAccounts>& accounts, int64_t resident,
                                             int64_t* window) {
  if (!accounts) return MemoryHold();
  const bool streamed = resident < packer.packed_bytes();  // weights are read as they are needed
  const std::string advice =
      std::string(streamed ? "choose a smaller model or format" : kWeightsAdvice) + ", or raise the budget (--memory)";
  const int64_t unpacked = unpacked_bytes();
  if (unpacked > 0) MILLRACE_TRY_VOID(accounts->take("unpacked tensors", unpacked, advice));
  MILLRACE_TRY_VOID(accounts->take("tables in files", table_bytes(), advice));
  MILLRACE_TRY_VOID(accounts->take("weights", resident + model_->part_bytes_, advice));
  if (files_->files.empty()) return MemoryHold();
  if (accounts->budget() > 0)
    *window = std::clamp(accounts->left(), WeightPacker::kNarrowestWindow, WeightPacker::kWidestWindow);
  int64_t tables = 0;  // that are packed with their matrices
  for (const auto& planned : packer.planned())
    if (planned.weight && planned.weight->codebook) tables += planned.weight->codebook->bytes();
  return MemoryHold::take(accounts, "loading", packer.most_in_memory(pool.threads(), *window) + tables, advice);
}

// Where the packed weights are in a file in which they begin at `payload`.
WeightPlaces ModelBuilder::places(const WeightPacker& packer, int64_t payload) {
  std::unordered_map<const Weight*, WeightRange> ranges;
  for (const auto& planned : packer.planned())
    if (planned.weight)
      ranges[planned.weight] = {payload + planned.offset, planned.bytes, std::string(planned.weight->name)};
  WeightPlaces out;
  std::unordered_set<const Weight*> placed;
  for (LayerWeights& layer : model_->layers_) {
    WeightPlaces::Layer& to = out.layers.emplace_back();
    const auto add_one = [&](std::vector<WeightRange>& list, const Weight& weight) {
      list.push_back(ranges.at(&weight));
      placed.insert(&weight);
    };
    const auto add = [&](std::vector<WeightRange>& list, const Weight& weight) {
      if (weight.present() && !is_factored(weight)) add_one(list, weight);
      if (weight.parts) weight.parts->each_matrix([&](Weight& one) { add_one(list, one); });
    };
    const auto add_mlp = [&](std::vector<WeightRange>& list, const MlpWeights& mlp) {
      for (const Weight* weight : {&mlp.gate, &mlp.up, &mlp.down}) add(list, *weight);
    };
    for (const Weight* weight : {&layer.q, &layer.k, &layer.v, &layer.output, &layer.router, &layer.shared_gate})
      add(to.own, *weight);
    if (layer.mixer)
      for (const Weight* weight : layer.mixer->matrices()) add(to.own, *weight);
    add_mlp(to.own, layer.mlp);
    add_mlp(to.own, layer.shared);
    for (const Weight* weight : {&layer.attention_shortcut, &layer.mlp_shortcut, &layer.input_gate,
                                 &layer.input_projection, &layer.laurel_left, &layer.laurel_right})
      add(to.own, *weight);
    for (const MlpWeights& expert : layer.experts) {
      add_mlp(to.experts.emplace_back(), expert);
      if (converted_.empty()) continue;
      const auto converted = [&](const Weight& weight) { return converted_.contains(&weight); };
      to.cold.push_back(converted(expert.gate) || converted(expert.up) || converted(expert.down));
    }
  }
  for (const auto& planned : packer.planned())
    if (planned.weight && !placed.contains(planned.weight)) out.others.push_back(ranges.at(planned.weight));
  out.model = sizes_of(out);
  return out;
}

OffloadModel ModelBuilder::sizes_of(const WeightPlaces& places) const {
  const ArchSpec& spec = model_->spec_;
  OffloadModel out{.layers = spec.layer_count(),
                   .token_bytes = static_cast<double>(places.other_bytes()),
                   .head_bytes = static_cast<double>(places.other_bytes()),
                   .activation_bytes = 4.0 * static_cast<double>(spec.width)};
  for (size_t i = 0; i < places.layers.size(); ++i) {
    const WeightPlaces::Layer& layer = places.layers[i];
    const MoeSpec& moe = spec.layers[i].experts;
    const auto own = static_cast<double>(WeightPlaces::bytes_of(layer.own));
    const double experts = static_cast<double>(layer.bytes()) - own;
    out.token_bytes += own;
    if (moe.experts == 0 || layer.experts.empty()) continue;
    out.token_bytes += experts * static_cast<double>(moe.used) / static_cast<double>(moe.experts);
    out.experts = std::max(out.experts, moe.experts);
    out.used_experts = std::max(out.used_experts, moe.used);
  }
  constexpr double kHalfBytes = 2;
  for (const KvLayer& layer : model_->kv_layers())
    out.key_bytes += kHalfBytes * static_cast<double>(layer.kv_heads * layer.head_dim * layer.planes());
  return out;
}

// The least that a model needs next to its packed weights while it is loaded.
int64_t ModelBuilder::bytes_beside(const WeightPacker& packer, int threads) const {
  return unpacked_bytes() + table_bytes() + model_->part_bytes_ +
         packer.most_in_memory(threads, WeightPacker::kNarrowestWindow);
}

int64_t ModelBuilder::Sizes::limit(int64_t left) const {
  return static_cast<int64_t>(kWeightShare * static_cast<double>(std::max<int64_t>(0, left - others)));
}

Result<ModelBuilder::Sizes> ModelBuilder::measure(std::shared_ptr<const ModelFiles> files, const Arch& arch,
                                                  const ArchSpec& spec, const KernelTable& table, int threads) {
  ModelBuilder builder(std::move(files), arch, spec);
  MILLRACE_TRY_VOID(builder.load_around_layers());
  for (int64_t i = 0; i < spec.layer_count(); ++i) MILLRACE_TRY_VOID(builder.load_layer(i));
  WeightPacker packer(*builder.files_, table);
  MILLRACE_TRY_VOID(builder.plan_packing(packer));
  return Sizes{builder.places(packer, 0), packer.packed_bytes(), builder.bytes_beside(packer, threads)};
}

// The packed cache is packed first if there is none that fits.
Result<void> ModelBuilder::place_streamed(const WeightPacker& packer, const KernelTable& table, ThreadPool& pool,
                                          const ModelOptions& options, const ChosenMember<WeightSourceMember>& source) {
  if (options.packed_cache.empty() || files_->files.empty())
    return Error::unsupported(
        fmt::format("{}: reads weights from a packed cache, and this model has no file for one", source.label));
  const auto labelled = [&](const Error& error) { return Error{error.kind, source.label + ": " + error.message}; };
  int64_t window = WeightPacker::kWidestWindow;
  const int64_t others = bytes_beside(packer, pool.threads());
  const int64_t limit = weight_limit(options.accounts, others);
  OffloadCosts costs;
  if (source.member.uses_costs)
    costs = known_costs(options.packed_cache, costs_key(packer.packed_bytes(), table.isa, pool.threads()),
                        files_->files.front()->path(), pool.threads());
  const auto placed_at = [&](int64_t payload) {
    WeightPlaces out = places(packer, payload);
    out.costs = costs;
    out.limit = limit;
    return out;
  };
  const auto resident = source.member.memory(placed_at(0), source.options, limit);
  if (!resident.ok()) {
    const std::string enough = resident.error().kind == ErrorKind::resource
                                   ? least_budget_text(options.accounts, others, least_limit(source, placed_at(0)))
                                   : "";
    return labelled({resident.error().kind, resident.error().message + enough});
  }
  MILLRACE_TRY(const MemoryHold loading, take_memory(packer, pool, options.accounts, *resident, &window));
  // Cold experts have a file of their own, so that a start without them finds the packed weights that it needs.
  const std::string path = options.packed_cache + (converted_.empty() ? "" : ".cold");
  const PackedCache cache(path, *files_, table.isa, packer);
  const auto place = [&](const PackedCache::Opened& opened) -> Result<void> {
    WeightFile file = cache.weight_file(opened);
    WeightPlaces at = placed_at(file.payload);
    auto placed = source.member.make(std::move(file), std::move(at), source.options, *resident);
    if (!placed.ok()) return labelled(placed.error());
    model_->packed_file_ = opened.file;
    packer.point_weights(placed->packed);
    model_->source_ = std::move(placed->source);
    NeuronMlp* const neurons = model_->source_->neurons();
    if (auto attached = neurons ? neurons->attach(*files_, *model_, table, pool) : Result<void>(); !attached.ok())
      return labelled(attached.error());
    return {};
  };
  PackedCache::Check check{
      .verify = options.verify_packed_cache, .blocks = !source.member.checks_reads, .release = true};
  auto opened = cache.open(pool, check, options.progress);
  if (opened.ok() && opened->file) {
    auto placed = place(*opened);
    if (placed.ok() || placed.error().kind != ErrorKind::corrupt) return placed;
    opened = placed.error();
  }
  if (!opened.ok() && options.warn) options.warn(opened.error().message + "; packing again");
  MILLRACE_TRY_VOID(cache.pack(pool, options.progress, window));
  check.verify = false;
  opened = cache.open(pool, check, options.progress);
  if (!opened.ok()) return opened.error();
  return place(*opened);
}

// The option `lock` of weights that all stay in memory.
Result<void> ModelBuilder::lock_resident(const ModelOptions& options) const {
  MILLRACE_TRY(const auto source, choose_member("weights", weight_sources(), options.weights));
  if (source.member.from_file || !source.options.boolean("lock")) return {};
  const Model& model = *model_;
  const std::span<const uint8_t> memory =
      model.packed_file_ ? model.packed_file_->bytes()
                         : std::span(model.packed_.data(), static_cast<size_t>(model.packed_.bytes()));
  return lock_memory(memory);
}

}  // namespace millrace
