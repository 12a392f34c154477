#include "models/neurons/neuron_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/memory_accounts.h"
#include "models/neurons/neuron_tensors.h"
#include "models/weight_units/unit_plan.h"

namespace millrace {
namespace {

constexpr int64_t kBatchTokensOfPlan = 512;

Result<bool> predicts_option(const NeuronFile& file, const OptionValues& options) {
  const std::string& text = options.text("predictor");
  if (text == "none") return false;
  if (text != "file") return Error::user(fmt::format("predictor: must be none or file, got {}", text));
  if (file.shape().rank > 0) return true;
  return Error::user(
      fmt::format("predictor: {} has no predictors; millrace offload-train writes them with --rank", file.path()));
}

// Matrices that are read by neuron leave the list; in exact mode all rows of the first matrix are multiplied.
void take_neurons(WeightPlaces& places, const NeuronShape& shape, bool predicts) {
  for (size_t l = 0; l < places.layers.size(); ++l) {
    std::vector<WeightRange>& own = places.layers[l].own;
    std::erase_if(own, [&](const WeightRange& range) {
      const auto is = [&](const char* matrix) {
        return range.name == mlp_tensor_name(static_cast<int64_t>(l), matrix);
      };
      const bool first = is(shape.gated ? "ffn_gate" : "ffn_up");
      return first ? predicts : is("ffn_up") || is("ffn_down");
    });
    places.others.insert(places.others.end(), own.begin(), own.end());
    own.clear();
  }
}

class NeuronSource final : public WeightSource {
 public:
  NeuronSource(std::unique_ptr<UnitStore> others, std::unique_ptr<NeuronMlp> neurons)
      : others_(std::move(others)), neurons_(std::move(neurons)) {}

  NeuronMlp* neurons() const override { return neurons_.get(); }
  std::optional<WeightFigures> figures() const override {
    WeightFigures figures = neurons_->figures();
    figures.kept_bytes += others_->figures().kept_bytes;
    return figures;
  }

 private:
  // Everything that passes lease is in memory; neurons are read by NeuronMlp.
  Result<void> begin(WeightUnit) override { return {}; }
  void end(WeightUnit) override {}

  std::unique_ptr<UnitStore> others_;
  std::unique_ptr<NeuronMlp> neurons_;
};

}  // namespace

Result<NeuronFile> open_neuron_file(const OptionValues& options) {
  const std::string& path = options.text("file");
  if (path.empty())
    return Error::user("file: the neuron file is missing; millrace offload-train MODEL TEXT -o FILE makes one");
  return NeuronFile::open(path);
}

Result<NeuronPlan> plan_neurons(const NeuronFile& file, WeightPlaces& places, const OptionValues& options,
                                int64_t limit) {
  const NeuronShape& shape = file.shape();
  if (std::ssize(places.layers) != shape.layers)
    return Error::user(
        fmt::format("{}: was made from a model with {} layers, this one has {}; make it again with "
                    "millrace offload-train",
                    file.path(), shape.layers, places.layers.size()));
  NeuronPlan plan;
  MILLRACE_TRY(const int64_t most, memory_option(options, limit));
  MILLRACE_TRY(plan.predicts, predicts_option(file, options));
  take_neurons(places, shape, plan.predicts);
  const int64_t depth = options.integer("depth");
  plan.slot = NeuronStore::slot_bytes(shape, plan.predicts);
  plan.all = shape.layers * shape.hidden * plan.slot;
  const int64_t predictors = plan.predicts ? 2 * shape.layers * shape.rank * (shape.width + shape.hidden) : 0;
  plan.kept = UnitStore::bytes_of(places.others) + file.table_bytes() + predictors;
  // Masks, and scores of predictors, for a batch of the usual size.
  const int64_t batch = kBatchTokensOfPlan * shape.hidden * (plan.predicts ? 5 : 1);
  const int64_t fixed = NeuronStore::fixed_bytes(shape, plan.predicts, depth) + batch;
  if (plan.kept + fixed > most)
    return Error::resource(fmt::format(
        "all weights but the neurons, and the neurons of one layer, need {}, and weights may have {}; raise "
        "the limit, or use weights=stream",
        format_bytes(plan.kept + fixed), format_bytes(most)));
  plan.kept += fixed;
  plan.room = std::min(plan.all, most - plan.kept);
  return plan;
}

Result<int64_t> neuron_memory(const WeightPlaces& places, const OptionValues& options, int64_t limit) {
  MILLRACE_TRY(const NeuronFile file, open_neuron_file(options));
  WeightPlaces own = places;
  MILLRACE_TRY(const NeuronPlan plan, plan_neurons(file, own, options, limit));
  return plan.kept + plan.room;
}

Result<PlacedWeights> make_neuron_source(std::string name, WeightFile file, WeightPlaces places,
                                         const OptionValues& options, int64_t memory, const NeuronChoice& choose) {
  MILLRACE_TRY(NeuronFile neurons, open_neuron_file(options));
  MILLRACE_TRY(const NeuronPlan plan, plan_neurons(neurons, places, options, memory));
  NeuronStore::Options store = choose(neurons, plan);
  store.depth = options.integer("depth");
  store.gates = plan.predicts;
  store.io = file.io;
  auto mlp = std::make_unique<NeuronMlp>(std::move(neurons), std::move(name), plan.predicts);
  MILLRACE_TRY_VOID(mlp->open(std::move(store)));
  UnitStore::Options others{.depth = options.integer("depth")};
  MILLRACE_TRY(auto kept, UnitStore::create(std::move(file), {{std::move(places.others), true, "all but the neurons"}},
                                            others, make_keep_order("lru", 1, 1, 1)));
  const uint8_t* const packed = kept->packed();
  return PlacedWeights{std::make_unique<NeuronSource>(std::move(kept), std::move(mlp)), packed};
}

std::vector<OptionSpec> with_neuron_options(std::vector<OptionSpec> own) {
  using Type = OptionSpec::Type;
  own.insert(
      own.begin(),
      {{"file", Type::text, "", 0, 0, "the neuron file, which millrace offload-train makes"},
       {"predictor", Type::text, "none", 0, 0,
        "none: a neuron runs if its gate is positive, so answers do not change; file: if the file's predictor "
        "expects it, so answers change"},
       {"memory", Type::text, "", 0, 0, "bytes for weights, such as 2G; default: what --memory leaves, or all"}});
  own.push_back({"depth", Type::integer, "16", 1, 64, "reads in flight"});
  return own;
}

}  // namespace millrace
