// FlexGen (Sheng et al., 2023): weights and keys on two levels, memory and disk, in the shares that its linear program
// finds for a block of streams (offload/flexgen_policy.h). The paper's GPU is this machine's memory, where passes
// compute; its CPU memory does not exist here, and the disk is the disk.
//
// A block is a batch of the engine. A pass runs layer by layer over all of its streams, so each read of a layer serves
// all of them, which is the paper's zig-zag schedule; its micro-batches are the streams of the block. Of every layer
// the same share of the weights stays in memory, in whole matrices, and the remaining ones are read ahead as `stream`
// does (stream.cc). Keys on the disk: models/disk_keys.h. Activations stay in memory: they are those of one pass.
#include <fmt/format.h>

#include <algorithm>

#include "base/choose.h"
#include "base/memory_accounts.h"
#include "models/weight_sources/records.h"
#include "models/weight_units/unit_plan.h"
#include "offload/flexgen_policy.h"

namespace millrace {
namespace {

constexpr double kUnlimited = 1e15;  // bytes
constexpr double kDiskBytes = 1e15;  // what does not fit is refused when it is written
constexpr double kBitsOfHalf = 16;   // OffloadModel::key_bytes are those of f16

struct FlexgenPlan {
  FlexgenProblem problem;
  FlexgenPolicy policy;
  WeightPlaces places;  // those of matrices that stay moved to `others`
  int64_t ahead = 0;
};

int64_t unit_bytes(const WeightPlaces::Layer& layer) {
  int64_t bytes = UnitStore::bytes_of(layer.own);
  for (const auto& expert : layer.experts) bytes += UnitStore::bytes_of(expert);
  return bytes;
}

FlexgenProblem flexgen_problem(const WeightPlaces& places, const OptionValues& options, double room, int64_t ahead,
                               int64_t chunk) {
  const OffloadModel& model = places.model;
  const auto layers = static_cast<double>(std::max<int64_t>(1, std::ssize(places.layers)));
  double bytes = 0, largest = 0;
  for (const WeightPlaces::Layer& layer : places.layers) {
    bytes += static_cast<double>(unit_bytes(layer));
    largest = std::max(largest, static_cast<double>(unit_bytes(layer)));
  }
  const double mean = bytes / layers;
  FlexgenProblem problem{.levels = {{.name = "memory", .bytes = room},
                                    {.name = "disk",
                                     .bytes = kDiskBytes,
                                     .read_bytes = places.costs.read_bytes,
                                     .write_bytes = places.costs.write_bytes}},
                         .layers = std::ssize(places.layers),
                         .layer_bytes = mean,
                         .key_bytes = model.key_bytes * options.number("key_bits") / kBitsOfHalf / layers,
                         .activation_bytes = model.activation_bytes,
                         .layers_in_flight = static_cast<double>(1 + ahead) * (mean > 0 ? largest / mean : 1),
                         .streams = options.integer("streams"),
                         .prompt = options.integer("prompt"),
                         .generated = options.integer("generated"),
                         .chunk = chunk,
                         .read_work = places.costs.read_work,
                         .keys_move = options.text("keys") == "auto",
                         .activations_move = false};
  const double context = static_cast<double>(problem.prompt) + static_cast<double>(problem.generated) / 2;
  problem.decode_seconds = [costs = places.costs, model, layers, context](int64_t rows) {
    return decode_seconds(costs, model, rows, context) / layers;
  };
  problem.prefill_seconds = [costs = places.costs, model, layers, chunk](int64_t rows) {
    const double passes = static_cast<double>(rows) / static_cast<double>(chunk);
    return passes * prefill_seconds(costs, model, chunk) / layers;
  };
  return problem;
}

// Keeps `share` of the bytes of every layer, rounded down over the layers so far.
void keep_matrices(WeightPlaces& places, double share) {
  double seen = 0, kept = 0;
  const auto keep = [&](std::vector<WeightRange>& ranges) {
    std::vector<WeightRange> left;
    for (WeightRange& range : ranges) {
      const auto bytes = static_cast<double>(UnitStore::bytes_of({range}));
      seen += bytes;
      const bool stays = kept + bytes <= share * seen * (1 + 1e-9);
      kept += stays ? bytes : 0;
      (stays ? places.others : left).push_back(std::move(range));
    }
    ranges = std::move(left);
  };
  for (WeightPlaces::Layer& layer : places.layers) {
    keep(layer.own);
    for (auto& expert : layer.experts) keep(expert);
  }
}

// Whole matrices do not fill a share exactly, and what is left of the largest layer may need more than its share: then
// less stays.
void place_matrices(FlexgenPlan& plan, int64_t most) {
  const FlexgenProblem& problem = plan.problem;
  const double keys = static_cast<double>(plan.policy.block * (problem.prompt + problem.generated)) *
                      problem.key_bytes * static_cast<double>(problem.layers) * plan.policy.keys[0];
  const WeightPlaces all = plan.places;
  const double bytes = problem.layer_bytes * static_cast<double>(problem.layers);
  const double head = static_cast<double>(UnitStore::bytes_of(all.others));
  for (double share = plan.policy.weights[0];; share -= 0.01) {
    plan.places = all;
    keep_matrices(plan.places, std::max(0.0, share));
    int64_t largest = 0;
    for (const WeightPlaces::Layer& layer : plan.places.layers) largest = std::max(largest, unit_bytes(layer));
    const auto kept = static_cast<double>(UnitStore::bytes_of(plan.places.others));
    plan.policy.weights = {bytes > 0 ? (kept - head) / bytes : 1, bytes > 0 ? 1 - (kept - head) / bytes : 0};
    if (share <= 0 || kept + static_cast<double>((1 + plan.ahead) * largest) + keys <= static_cast<double>(most))
      return;
  }
}

// If memory is short, fewer layers are read ahead, unless the option `ahead` says how many.
Result<FlexgenPlan> plan_flexgen(const WeightPlaces& given, const OptionValues& options, int64_t limit,
                                 int64_t chunk = 512) {
  const std::string& keys = options.text("keys");
  if (keys != "auto" && keys != "memory") return Error::user(fmt::format("keys: must be auto or memory, got {}", keys));
  FlexgenPlan plan{.places = given};
  MILLRACE_TRY(const int64_t most, memory_option(options, limit));
  MILLRACE_TRY_VOID(apply_place_rules(options, plan.places));
  const int64_t others = UnitStore::bytes_of(plan.places.others);
  for (plan.ahead = options.integer("ahead");; --plan.ahead) {
    const double room = std::min(static_cast<double>(most) - static_cast<double>(others), kUnlimited);
    plan.problem = flexgen_problem(plan.places, options, room, plan.ahead, chunk);
    auto policy = room > 0 ? best_flexgen_policy(plan.problem) : Error::resource("no room");
    if (policy.ok()) {
      plan.policy = *std::move(policy);
      break;
    }
    if (policy.error().kind != ErrorKind::resource) return policy.error();
    if (plan.ahead > 0 && !options.given("ahead")) continue;
    return Error::resource(fmt::format(
        "the head ({}), {} layers on their way, and the keys of one stream of {} tokens do not fit into {}; raise "
        "--memory or the option 'memory', or lower 'prompt' and 'generated'",
        format_bytes(others), 1 + plan.ahead, plan.problem.prompt + plan.problem.generated, format_bytes(most)));
  }
  place_matrices(plan, most);
  return plan;
}

// The source that reads the remaining matrices.
Result<ChosenMember<WeightSourceMember>> stream_of(const FlexgenPlan& plan, const OptionValues& options) {
  return choose_member("weights", weight_sources(),
                       fmt::format("stream:resident=0,ahead={},depth={},timeout={},lock={}", plan.ahead,
                                   options.integer("depth"), options.number("timeout"), options.boolean("lock")));
}

Result<int64_t> flexgen_memory(const WeightPlaces& places, const OptionValues& options, int64_t limit) {
  MILLRACE_TRY(const FlexgenPlan plan, plan_flexgen(places, options, limit));
  MILLRACE_TRY(const auto stream, stream_of(plan, options));
  return stream.member.memory(plan.places, stream.options, limit);
}

// The plan is made again from what flexgen_memory() was given, so that both are the same.
Result<PlacedWeights> flexgen_source(WeightFile file, WeightPlaces places, const OptionValues& options,
                                     int64_t memory) {
  MILLRACE_TRY(FlexgenPlan plan, plan_flexgen(places, options, places.limit));
  MILLRACE_TRY(const auto stream, stream_of(plan, options));
  MILLRACE_TRY(PlacedWeights made, stream.member.make(std::move(file), std::move(plan.places), stream.options, memory));
  made.source->set_policy({.text = plan.policy.text(plan.problem), .keys_on_disk = plan.policy.keys[1]});
  return made;
}

Result<WeightForecast> predict_flexgen(const WeightQuestion& question) {
  const OffloadWork& work = question.work;
  // The question's streams, if no option says how many.
  const OptionValues& given = question.options;
  const auto number = [&](const char* name, int64_t asked) { return given.given(name) ? given.integer(name) : asked; };
  std::string text = fmt::format("streams={},prompt={},generated={}", number("streams", work.streams),
                                 std::max<int64_t>(1, number("prompt", work.prompt)),
                                 std::max<int64_t>(2, number("generated", work.generated)));
  if (given.given("keys")) text += ",keys=" + given.text("keys");
  if (given.given("key_bits")) text += fmt::format(",key_bits={}", given.number("key_bits"));
  if (given.given("ahead")) text += fmt::format(",ahead={}", given.integer("ahead"));
  if (given.given("place")) text += ",place=" + escape_option(given.text("place"));
  if (given.given("memory")) text += ",memory=" + given.text("memory");
  MILLRACE_TRY(const auto asked, choose_member("weights", weight_sources(), "flexgen:" + text));
  MILLRACE_TRY(const FlexgenPlan plan, plan_flexgen(question.places, asked.options, question.limit, work.chunk));
  MILLRACE_TRY(const auto stream, stream_of(plan, asked.options));
  WeightForecast out{
      .kept_bytes = UnitStore::bytes_of(plan.places.others), .block = plan.policy.block, .options = text};
  MILLRACE_TRY(const int64_t memory, stream.member.memory(plan.places, stream.options, INT64_MAX));
  out.cache_bytes = memory - out.kept_bytes;
  double read = 0;
  for (const WeightPlaces::Layer& layer : plan.places.layers) read += static_cast<double>(unit_bytes(layer));
  const auto layers = static_cast<double>(plan.problem.layers);
  const double keys = plan.policy.keys[1] * static_cast<double>(plan.policy.block) * work.mean_context() *
                      plan.problem.key_bytes * layers;
  const OffloadCosts& costs = question.places.costs;
  const OffloadModel& model = question.places.model;
  out.decode_bytes = read + keys;
  out.prefill_bytes = read;
  out.decode_seconds =
      overlapped_seconds(costs, decode_seconds(costs, model, plan.policy.block, work.mean_context()), out.decode_bytes);
  out.prefill_seconds = overlapped_seconds(costs, prefill_seconds(costs, model, work.chunk), out.prefill_bytes);
  out.note = plan.policy.text(plan.problem);
  return out;
}

}  // namespace

const WeightSourceMember kFlexgenWeights = {.from_file = true,
                                            .checks_reads = true,
                                            .memory = flexgen_memory,
                                            .make = flexgen_source,
                                            .uses_costs = true,
                                            .predict = predict_flexgen};

}  // namespace millrace
