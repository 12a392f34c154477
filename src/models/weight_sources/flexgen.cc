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
#include <cmath>
#include <optional>
#include <utility>

#include "base/choose.h"
#include "base/memory_accounts.h"
#include "models/weight_sources/records.h"
#include "models/weight_units/unit_plan.h"
#include "offload/flexgen_policy.h"

namespace millrace {
namespace {

constexpr int64_t kUnlimited = int64_t{1} << 50;  // bytes
constexpr double kDiskBytes = 1e15;               // what does not fit is refused when it is written
constexpr double kBitsOfHalf = 16;                // OffloadModel::key_bytes are those of f16

struct FlexgenPlan {
  FlexgenProblem problem;
  FlexgenPolicy policy;
  WeightPlaces places;  // matrices that stay are in `others`
  int64_t ahead = 0;
  double share = 0;                                // share of the matrices' bytes, before it is rounded to matrices
  double read = 0, decode_read = 0;                // bytes of a pass; decode steps also read keys
  double decode_seconds = 0, prefill_seconds = 0;  // one pass
  double seconds_per_stream = 0;                   // for its prompt and answer
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

// Calls visit(layer, range, stays) for every matrix: `share` of the bytes of the layers so far stay, rounded down.
template <typename Places, typename Visit>
void visit_matrices(Places& places, double share, const Visit& visit) {
  double seen = 0, kept = 0;
  const auto list = [&](size_t layer, auto& ranges) {
    for (auto& range : ranges) {
      const auto bytes = static_cast<double>(UnitStore::bytes_of({range}));
      seen += bytes;
      const bool stays = kept + bytes <= share * seen * (1 + 1e-9);
      kept += stays ? bytes : 0;
      visit(layer, range, stays);
    }
  };
  for (size_t i = 0; i < places.layers.size(); ++i) {
    list(i, places.layers[i].own);
    for (auto& expert : places.layers[i].experts) list(i, expert);
  }
}

// Bytes of the matrices that stay and of the others, and the latter of the layer that has most of them.
struct KeptBytes {
  int64_t kept = 0, left = 0, largest = 0;
};
KeptBytes kept_bytes(const WeightPlaces& places, double share) {
  KeptBytes out;
  std::vector<int64_t> left(places.layers.size());
  visit_matrices(places, share, [&](size_t layer, const WeightRange& range, bool stays) {
    const int64_t bytes = UnitStore::bytes_of({range});
    (stays ? out.kept : left[layer]) += bytes;
    out.left += stays ? 0 : bytes;
  });
  for (const int64_t bytes : left) out.largest = std::max(out.largest, bytes);
  return out;
}

// Moves the matrices that stay to places.others.
void keep_matrices(WeightPlaces& places, double share) {
  std::vector<WeightRange> kept;
  visit_matrices(places, share, [&](size_t, WeightRange& range, bool stays) {
    if (stays) kept.push_back(std::exchange(range, {}));
  });
  const auto moved = [](const WeightRange& range) { return range.bytes == 0; };
  for (WeightPlaces::Layer& layer : places.layers) {
    std::erase_if(layer.own, moved);
    for (auto& expert : layer.experts) std::erase_if(expert, moved);
  }
  places.others.insert(places.others.end(), kept.begin(), kept.end());
}

// Whole matrices do not fill a share exactly, and what is left of the largest layer may need more than its share: then
// less stays. Sets the plan's share to the one that fits.
KeptBytes round_share(const WeightPlaces& places, FlexgenPlan& plan, int64_t room) {
  const FlexgenProblem& problem = plan.problem;
  const double keys = static_cast<double>(plan.policy.block * (problem.prompt + problem.generated)) *
                      problem.key_bytes * static_cast<double>(problem.layers) * plan.policy.keys[0];
  for (plan.share = plan.policy.weights[0];; plan.share = std::max(0.0, plan.share - 0.01)) {
    const KeptBytes bytes = kept_bytes(places, plan.share);
    const auto need = static_cast<double>(bytes.kept + (1 + plan.ahead) * bytes.largest) + keys;
    if (plan.share > 0 && need > static_cast<double>(room)) continue;
    const auto all = static_cast<double>(bytes.kept + bytes.left);
    const double share = all > 0 ? static_cast<double>(bytes.kept) / all : 1;
    plan.policy.weights = {share, 1 - share};
    return bytes;
  }
}

// Sets the times of the plan. `left`: bytes of the matrices that do not stay.
void predict_plan(const WeightPlaces& places, int64_t left, int64_t chunk, FlexgenPlan& plan) {
  const FlexgenProblem& problem = plan.problem;
  const double context = static_cast<double>(problem.prompt) + static_cast<double>(problem.generated) / 2;
  const double keys = plan.policy.keys[1] * static_cast<double>(plan.policy.block) * context * problem.key_bytes *
                      static_cast<double>(problem.layers);
  plan.read = static_cast<double>(left);
  plan.decode_read = plan.read + keys;
  // With nothing read ahead, a layer is read while nothing computes.
  const auto pass = [&](double compute, double bytes) {
    return plan.ahead > 0 ? overlapped_seconds(places.costs, compute, bytes)
                          : compute + bytes / places.costs.read_bytes;
  };
  plan.decode_seconds = pass(decode_seconds(places.costs, places.model, plan.policy.block, context), plan.decode_read);
  plan.prefill_seconds = pass(prefill_seconds(places.costs, places.model, chunk), plan.read);
  const double passes = std::ceil(static_cast<double>(plan.policy.block * problem.prompt) / static_cast<double>(chunk));
  plan.seconds_per_stream =
      (passes * plan.prefill_seconds + static_cast<double>(problem.generated) * plan.decode_seconds) /
      static_cast<double>(plan.policy.block);
}

// The best plan of blocks of 1, 2, 4 ... streams, by the matrices that really stay. Errors: resource (not even one
// stream fits), internal.
Result<FlexgenPlan> best_block(const WeightPlaces& places, const FlexgenProblem& problem, int64_t ahead, int64_t room,
                               int64_t chunk) {
  std::optional<FlexgenPlan> best;
  for (int64_t block = 1;; block = std::min(2 * block, problem.streams)) {
    auto policy = solve_flexgen(problem, block);
    if (!policy.ok() && (!best || policy.error().kind != ErrorKind::resource)) return policy.error();
    if (!policy.ok()) break;  // nor does a larger block fit
    FlexgenPlan plan{.problem = problem, .policy = *std::move(policy), .places = {}, .ahead = ahead};
    const KeptBytes bytes = round_share(places, plan, room);
    predict_plan(places, bytes.left, chunk, plan);
    if (!best || plan.seconds_per_stream < best->seconds_per_stream * (1 - 1e-6)) best = std::move(plan);
    if (block >= problem.streams) break;
  }
  return *std::move(best);
}

// The best plan of up to `ahead` layers that are read ahead, or of `ahead` alone where the option is set.
Result<FlexgenPlan> plan_flexgen(const WeightPlaces& given, const OptionValues& options, int64_t limit,
                                 int64_t chunk = 512) {
  const std::string& keys = options.text("keys");
  if (keys != "auto" && keys != "memory") return Error::user(fmt::format("keys: must be auto or memory, got {}", keys));
  WeightPlaces places = given;
  MILLRACE_TRY(const int64_t most, memory_option(options, limit));
  MILLRACE_TRY_VOID(apply_place_rules(options, places));
  const int64_t others = UnitStore::bytes_of(places.others), room = std::min(most, kUnlimited) - others;
  // Layers that are read ahead take room.
  const int64_t most_ahead = options.integer("ahead"), least_ahead = options.given("ahead") ? most_ahead : 0;
  std::optional<FlexgenPlan> best;
  for (int64_t ahead = most_ahead; room > 0 && ahead >= least_ahead; --ahead) {
    const FlexgenProblem problem = flexgen_problem(places, options, static_cast<double>(room), ahead, chunk);
    auto plan = best_block(places, problem, ahead, room, chunk);
    if (!plan.ok() && plan.error().kind != ErrorKind::resource) return plan.error();
    if (plan.ok() && (!best || plan->seconds_per_stream < best->seconds_per_stream * (1 - 1e-6)))
      best = *std::move(plan);
  }
  if (!best)
    return Error::resource(fmt::format(
        "the head ({}), {} layer{} on the way, and the keys of one stream of {} tokens do not fit into {}; raise "
        "--memory or the option 'memory', or lower 'prompt' and 'generated'",
        format_bytes(others), 1 + least_ahead, least_ahead > 0 ? "s" : "",
        options.integer("prompt") + options.integer("generated"), format_bytes(most)));
  best->places = std::move(places);
  keep_matrices(best->places, best->share);
  return *std::move(best);
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
  WeightForecast out{.kept_bytes = UnitStore::bytes_of(plan.places.others),
                     .decode_bytes = plan.decode_read,
                     .prefill_bytes = plan.read,
                     .decode_seconds = plan.decode_seconds,
                     .prefill_seconds = plan.prefill_seconds,
                     .block = plan.policy.block,
                     .options = text};
  MILLRACE_TRY(const int64_t memory, stream.member.memory(plan.places, stream.options, INT64_MAX));
  out.cache_bytes = memory - out.kept_bytes;
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
