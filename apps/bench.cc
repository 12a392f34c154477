// millrace bench: measures the speed of a model and compares it with the limits of the machine.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/cpu.h"
#include "base/ordered_json.h"
#include "bench_calibrate.h"
#include "bench_picture.h"
#include "bench_report.h"
#include "bench_roof.h"
#include "bench_speculate.h"
#include "command.h"
#include "durations.h"
#include "interrupt.h"
#include "kv/tiers/disk_speed.h"
#include "model_flags.h"
#include "picture_flags.h"
#include "progress.h"
#include "table_room.h"

namespace millrace {
namespace {

constexpr const char* kBenchExamples = R"(Examples:
  millrace bench -m model.gguf                      512 prompt tokens, then 128 generated tokens
  millrace bench -m model.gguf -p 512,2048 -n 0 -t 1,2,4 -o json
  millrace bench -m model.gguf -p 0 -n 64 -d 0,4096 --ctk f16,q8_0
  millrace bench -m model.gguf -p 0 -n 64 --parallel 1,2,4,8  several streams together
  millrace bench -m model.gguf -p 0 --beside        alternate steps and plain reads: share of the bandwidth reached
  millrace bench -m model.gguf -p 0 -d 4096 --evictor none --evictor streamingllm
  millrace bench -m model.gguf --pg 512,128         a prompt and its answer timed together
  millrace bench -m model.gguf --kernel none --kernel fused:parts=none   two ways to compute, in turns
  millrace bench -p 64 -n 64 --parallel 1,16 --speculate ngram --speculate suffix   what drafters gain over plain decoding
  millrace bench --roof                             bandwidth of memory and caches, peak compute throughput
  millrace bench --roof --disk model.gguf           how fast the disk with this file is
  millrace bench -m model.gguf --calibrate -o here.json   fit a cost model for simulate --cost and replay --predict)";

constexpr int64_t kMaxTokens = int64_t{1} << 24;
constexpr int64_t kDiskDepth = 16;  // reads in flight, as weights are read
constexpr int64_t kLargerThanCaches = int64_t{64} << 20;

struct BenchFlags {
  std::string model, output = "md", memory;
  std::string kv_pool = "paged";
  std::vector<int64_t> prompt = {512}, generate = {128}, depth = {0}, streams = {1};
  std::vector<std::string> prompt_and_generate, kv_formats = {"f16"};
  std::vector<int> threads = {0};
  int64_t batch_tokens = 512, batch_size = 2048, block_tokens = 16;
  int repetitions = 5;
  double seconds = 60;
  std::vector<std::string> evictors = {""}, kernels;
  int64_t shared = 0;
  bool json = false, no_warmup = false, roof = false, no_roof = false, alike = false, calibrate = false,
       scatter = false, beside = false, wide = false;
  std::string calibrate_disk, disk;
  ModelFlags places;  // --resident-layers, --place, --mlock
  std::vector<std::string> speculate;
  std::string speculate_prompts, draft_length = "auto";
  PictureFlags picture;
  UseFlag use;
  CLI::Option *depth_option = nullptr, *streams_option = nullptr, *kv_format_option = nullptr,
              *evictor_option = nullptr;
};

// "512,128" or "512+128"
Result<std::pair<int64_t, int64_t>> read_pair(const std::string& text) {
  long long prompt = 0, generate = 0;
  char separator = 0, rest = 0;
  const int read = std::sscanf(text.c_str(), "%9lld%c%9lld%c", &prompt, &separator, &generate, &rest);
  if (read != 3 || (separator != ',' && separator != '+') || prompt < 1 || generate < 1 || prompt > kMaxTokens ||
      generate > kMaxTokens)
    return Error::user(fmt::format("--pg: expected PROMPT,GENERATED such as 512,128, got {}", text));
  return std::pair<int64_t, int64_t>(prompt, generate);
}

// "A + B"; "none": what the engine does by itself.
std::vector<std::string> split_kernels(std::string_view text) {
  std::vector<std::string> out;
  for (size_t end = 0; text != "none" && end != text.npos; text.remove_prefix(end == text.npos ? 0 : end + 3)) {
    end = text.find(" + ");
    out.emplace_back(text.substr(0, end));
  }
  return out;
}

Result<std::vector<BenchTest>> list_tests(const BenchFlags& flags) {
  std::vector<std::pair<int64_t, int64_t>> shapes;
  for (int64_t n : flags.prompt)
    if (n > 0) shapes.emplace_back(n, 0);
  for (int64_t n : flags.generate)
    if (n > 0) shapes.emplace_back(0, n);
  for (const std::string& text : flags.prompt_and_generate) {
    MILLRACE_TRY(auto pair, read_pair(text));
    shapes.push_back(pair);
  }
  if (shapes.empty()) return Error::user("bench: nothing to do; set -p, -n or --pg to a number above 0");
  std::vector<BenchTest> tests;
  for (int threads : flags.threads)
    for (const std::string& kv_format : flags.kv_formats)
      for (const std::string& evictor : flags.evictors)
        for (int64_t depth : flags.depth)
          for (int64_t streams : flags.streams)
            for (const auto& [prompt, generate] : shapes) {
              const bool beside = flags.beside && prompt == 0;
              BenchTest test{prompt,
                             generate,
                             depth,
                             streams,
                             threads > 0 ? threads : available_cores(),
                             flags.batch_tokens,
                             kv_format,
                             flags.alike,
                             flags.kv_pool,
                             flags.block_tokens,
                             flags.scatter,
                             beside,
                             evictor == "none" ? "" : evictor};
              test.shared = std::min(flags.shared, depth);
              for (const std::string& kernels : flags.kernels) {
                test.kernels = split_kernels(kernels);
                tests.push_back(test);
              }
            }
  return tests;
}

// Other load on the machine varies, so the roof is measured before and after each test and the higher value is used.
// The weights of a model that fits in a cache are read from there, so the roof then reads as many bytes as one step.
BenchRoof measure_roof(int threads, const LanguageModel& model) {
  ThreadPool pool(threads);
  const int64_t step = model.info().step_bytes, each = std::max<int64_t>(64 << 10, step / threads / 4096 * 4096);
  const double gb_per_s = step < kLargerThanCaches ? measure_cache_bandwidth(pool, each, 0.1)
                                                   : measure_read_bandwidth(pool, int64_t{256} << 20, 0.1);
  BenchRoof roof{gb_per_s, measure_compute_peaks(pool, model.parts().kernels.isa)};
  const Model& weights = *model.parts().model;
  if (!weights.source() || !weights.source()->figures()) return roof;
  if (const auto disk = measure_disk_speed(weights.cache_path(), kDiskPieceBytes, kDiskDepth, 0.5); disk.ok())
    roof.disk_gb_per_s = disk->gb_per_s;
  return roof;
}

// -u, --parallel and -d bound the measured steps; -o names the output file.
Result<int> run_calibrate(const BenchFlags& flags) {
  CalibrationPlan plan;
  plan.threads = flags.threads.front();
  plan.batch_tokens = std::min<int64_t>(flags.batch_tokens, 65536);
  plan.kv_format = flags.kv_formats.front();
  plan.seconds = flags.seconds;
  if (flags.streams_option->count() > 0) plan.streams = std::ranges::max(flags.streams);
  plan.streams = std::min(plan.streams, plan.batch_tokens);
  const bool depth_given = flags.depth_option->count() > 0;
  if (depth_given) plan.depth = std::ranges::max(flags.depth);
  ModelFlags model_flags;
  model_flags.path = flags.model;
  if (depth_given) model_flags.context = plan.depth + plan.batch_tokens;
  MILLRACE_TRY(auto model, model_flags.load(&flags.use));
  const int64_t context = model->parts().model->context();
  if (plan.batch_tokens > context)
    return Error::user(
        fmt::format("calibrate: steps of {} tokens do not fit in the model's context of {}; use a smaller -u",
                    plan.batch_tokens, context));
  plan.depth = std::min(plan.depth, context - plan.batch_tokens);
  const std::string file = flags.output == "md" ? "" : flags.output;
  if (!flags.calibrate_disk.empty())
    plan.disk = flags.calibrate_disk;
  else if (!file.empty())
    plan.disk = std::filesystem::path(file).parent_path().string();
  return run_calibration(model, plan, file, flags.json);
}

// -p, -n, --parallel, -r, -t and -u bound the answers; -o is md or json.
Result<int> run_speculate(const BenchFlags& flags) {
  SpeculationPlan plan;
  plan.drafters = flags.speculate;
  plan.streams = flags.streams;
  plan.prompt = flags.prompt.front();
  plan.generate = flags.generate.front();
  plan.prompts = flags.speculate_prompts;
  plan.draft_length = flags.draft_length;
  plan.threads = flags.threads.front();
  plan.batch_tokens = std::max(flags.batch_tokens, std::ranges::max(flags.streams));
  plan.repetitions = flags.repetitions;
  plan.output = flags.json ? "json" : flags.output;
  if (plan.output != "md" && plan.output != "json")
    return Error::user(fmt::format("-o: with --speculate must be md or json, got {}", plan.output));
  if (plan.generate < 2 || (plan.prompts.empty() && plan.prompt < 1))
    return Error::user("--speculate: -n must be 2 or more, and -p 1 or more without --speculate-prompts");
  ModelFlags model_flags;
  model_flags.path = flags.model;
  model_flags.memory = flags.memory;
  MILLRACE_TRY(auto model, model_flags.load(&flags.use));
  return run_bench_speculate(model, plan);
}

// Replaces a flag's values by the choice of --use, if it made one.
Result<void> replace_values(const std::vector<TechniqueUse>& uses, const char* family, const CLI::Option* option,
                            const std::string& chosen, std::vector<std::string>& values) {
  if (std::ranges::find(uses, family, &TechniqueUse::family) == uses.end()) return {};
  if (option->count() > 0)
    for (const std::string& value : values)
      MILLRACE_TRY_VOID(check_flag_against(uses, family, option->get_name(), value, "bench"));
  values = {chosen};
  return {};
}

// Sets flags.kv_formats and flags.evictors.
Result<void> apply_techniques(BenchFlags& flags) {
  MILLRACE_TRY(const auto uses, flags.use.get());
  EngineOptions options;
  MILLRACE_TRY_VOID(apply_uses(uses, options));
  if (flags.kernels.empty()) flags.kernels = {"none"};
  for (std::string& kernels : flags.kernels)
    for (const std::string& chosen : options.kernels) kernels = kernels == "none" ? chosen : kernels + " + " + chosen;
  MILLRACE_TRY_VOID(replace_values(uses, "kv_format", flags.kv_format_option, options.kv_format, flags.kv_formats));
  return replace_values(uses, "evictor", flags.evictor_option, options.evictor, flags.evictors);
}

Result<int> run(BenchFlags flags) {
  MILLRACE_TRY_VOID(apply_techniques(flags));
  flags.batch_tokens = std::min(flags.batch_tokens, flags.batch_size);
  MILLRACE_TRY_VOID(flags.picture.check());
  if (flags.picture.wanted() && (flags.calibrate || flags.roof || !flags.speculate.empty()))
    return Error::user("--picture: draws the speeds of tests; leave it out with --speculate, --roof and --calibrate");
  if (flags.calibrate) return run_calibrate(flags);
  if (!flags.speculate.empty()) return run_speculate(flags);
  if (const auto& o = flags.output; o != "md" && o != "csv" && o != "json" && o != "jsonl")
    return Error::user(fmt::format("-o: must be md, csv, json or jsonl, got {}", o));
  if (!flags.disk.empty() && !flags.roof) return Error::user("--disk: belongs to --roof");
  if (flags.roof && !flags.disk.empty())
    return run_bench_disk(flags.disk, flags.json || flags.output.starts_with("json"));
  if (flags.roof)
    return run_bench_roof(flags.threads, flags.json || flags.output.starts_with("json"),
                          table_room(flags.wide, "--json"));
  MILLRACE_TRY(auto tests, list_tests(flags));
  ModelFlags model_flags = flags.places;
  model_flags.path = flags.model;
  model_flags.memory = flags.memory;
  model_flags.context = 1;
  for (const BenchTest& test : tests) model_flags.context = std::max(model_flags.context, test.longest());
  MILLRACE_TRY(auto model, model_flags.load(&flags.use));
  if (flags.beside && std::ranges::none_of(tests, &BenchTest::beside))
    return Error::user("--beside: no test only generates; set -n to a number above 0");
  if (flags.beside && model->info().step_bytes < kLargerThanCaches)
    return Error::user(
        fmt::format("--beside: a step reads only {} MiB, which may fit in a cache, so it would not measure memory",
                    model->info().step_bytes >> 20));
  BenchPrinter printer(flags.json ? "json" : flags.output, table_room(flags.wide, "--json"));
  BenchPicture picture;
  catch_interrupts();
  const size_t turns = flags.kernels.size();  // tests that differ in nothing else
  for (size_t i = 0; i < tests.size(); i += turns) {
    Result<std::vector<BenchResult>> result = Error::internal("");
    BenchRoof roof;
    if (!flags.no_roof) roof = measure_roof(tests[i].threads, *model);
    {
      ProgressBar bar(fmt::format("{}/{} {}", i + 1, tests.size(), bench_name(tests[i])));
      result = run_bench(*model, std::span(tests).subspan(i, turns), flags.repetitions, !flags.no_warmup,
                         [&](double fraction) {
                           bar.update(fraction);
                           return !interrupted();
                         });
    }
    if (!result.ok() && result.error().kind != ErrorKind::cancelled) return result.error();
    if (!result.ok()) break;
    if (!flags.no_roof) roof.raise_to(measure_roof(tests[i].threads, *model));
    for (size_t turn = 0; turn < turns; ++turn) {
      const auto record = bench_record(*model, tests[i + turn], (*result)[turn], roof);
      printer.add(tests[i + turn], record);
      picture.add(tests[i + turn], record);
    }
  }
  printer.finish();
  if (flags.picture.wanted()) MILLRACE_TRY_VOID(flags.picture.write(picture.chart()));
  return interrupted() ? 130 : 0;
}

void add_output_flags(CLI::App* command, BenchFlags& flags) {
  command
      ->add_option("-o,--output", flags.output,
                   "md, csv, json or jsonl; with --calibrate, the output file for the cost model")
      ->capture_default_str();
  command->add_flag("--json", flags.json, "Same as -o json");
  add_wide_to(command, &flags.wide, bench_columns());
}

void add_speculate_flags(CLI::App* command, BenchFlags& flags) {
  command
      ->add_option("--speculate", flags.speculate,
                   "Drafter NAME[:key=value,...], in turns with plain decoding: tokens a pass, acceptance, speed-up; "
                   "repeatable. oracle:accept=A,k=K is right with probability A, compared with the formula's speed-up")
      ->allow_extra_args(false);
  command->add_option("--speculate-prompts", flags.speculate_prompts,
                      "JSON lines with \"messages\" or \"prompt\", as from millrace lab generate; default: made-up "
                      "phrases that repeat themselves");
  command
      ->add_option("--draft-length", flags.draft_length,
                   "With --speculate: auto, as much of a draft as pays; or fixed, all of it")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "fixed"}));
}

void add_roof_flags(CLI::App* command, BenchFlags& flags) {
  command->add_flag(
      "--roof", flags.roof,
      "Measure the limits of the machine instead of a model, with one thread and with all (or -t); memory "
      "is read with and without software prefetch, and the better result is used");
  command->add_option("--disk", flags.disk,
                      "With --roof: measure how fast this file, such as a model, is read from its disk, past the page "
                      "cache, by the number of reads in flight");
}

}  // namespace

void add_bench_command(CLI::App& app) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* command =
      add_command(app, "bench", "Measure the speed of a model and compare it with the limits of the machine",
                  kBenchExamples, [=] { return run(*flags); });
  const auto tokens = CLI::Range(int64_t{0}, kMaxTokens);
  command->add_option("-m,--model", flags->model,
                      "GGUF file, .safetensors file, Hugging Face folder or built-in model; default: the built-in one");
  command->add_option("-p,--n-prompt", flags->prompt, "Prompt tokens; 0: skip this test")
      ->delimiter(',')
      ->check(tokens)
      ->capture_default_str();
  command->add_option("-n,--n-gen", flags->generate, "Generated tokens; 0: skip this test")
      ->delimiter(',')
      ->check(tokens)
      ->capture_default_str();
  command->add_option("--pg,--prompt-gen", flags->prompt_and_generate, "Prompt and generation timed together: 512,128")
      ->delimiter(';');
  flags->depth_option = command->add_option("-d,--n-depth", flags->depth, "Tokens in the context before timing starts")
                            ->delimiter(',')
                            ->check(tokens)
                            ->capture_default_str();
  flags->streams_option = command->add_option("--parallel,--streams", flags->streams, "Streams that run together")
                              ->delimiter(',')
                              ->check(CLI::Range(int64_t{1}, int64_t{4096}))
                              ->capture_default_str();
  command
      ->add_option("-u,--batch-tokens,--ubatch-size", flags->batch_tokens,
                   "Most tokens in one forward pass of a prompt")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command
      ->add_option("-b,--batch-size", flags->batch_size,
                   "Most tokens of a prompt that are submitted together, as llama-bench counts them; a forward pass "
                   "takes at most the smaller of -b and -u")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command->add_option("-r,--repetitions", flags->repetitions, "Repetitions of each test")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_option("-t,--threads", flags->threads, "Threads; 0: every core")
      ->delimiter(',')
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  flags->kv_format_option =
      command
          ->add_option("--kv-format,--ctk,--cache-type-k", flags->kv_formats,
                       "Format of the KV cache: f32, f16, bf16, q8_0, or NAME:key=value with one option"
                       " (several by --use)")
          ->delimiter(',')
          ->capture_default_str();
  flags->use.add_to(command, "bench");
  command->add_option("--kv-pool", flags->kv_pool, "KV pool: paged, or virtual (contiguous addresses for each stream)")
      ->check(CLI::IsMember({"paged", "virtual"}))
      ->capture_default_str();
  command->add_option("--block-tokens", flags->block_tokens, "Tokens per KV block")
      ->check(CLI::Range(int64_t{1}, kMaxBlockTokens))
      ->capture_default_str();
  command->add_flag("--scatter", flags->scatter,
                    "Allocate blocks in random order, like a pool that has been in use for a long time");
  flags->evictor_option =
      command
          ->add_option(
              "--evictor", flags->evictors,
              "Token evictor of every stream, NAME[:key=value,...], or none; repeatable. See millrace techniques "
              "--family evictor")
          ->allow_extra_args(false);
  command
      ->add_option("--kernel", flags->kernels,
                   "How passes compute, NAME[:key=value,...], several with ' + ' between, or none; repeatable: the "
                   "choices run in turns, and compare with the first. See millrace techniques --family kernel")
      ->allow_extra_args(false);
  command
      ->add_option("--shared-prefix", flags->shared,
                   "First tokens of the context (-d) that all streams share, in whole blocks")
      ->check(tokens);
  flags->places.add_places_to(command);
  command->add_option("--memory", flags->memory, "Memory limit, such as 8G or 512MiB; a test that does not fit fails");
  add_output_flags(command, *flags);
  add_roof_flags(command, *flags);
  command->add_flag(
      "--calibrate", flags->calibrate,
      "Measure steps of up to -u tokens, --parallel streams [16] and -d tokens of context [2048], and fit a "
      "cost model to them; also which kernels are faster for the model's matrices (kernel=by_shape)");
  command->add_option("--calibrate-disk", flags->calibrate_disk,
                      "Calibration: folder on the disk to be used for --kv-ssd; default: the folder of -o");
  command
      ->add_option("--seconds", flags->seconds,
                   "Calibration: approximate duration; every step is measured at least twice")
      ->transform(as_seconds())
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  command->add_flag("--alike", flags->alike,
                    "Use the same token everywhere, so that all streams choose the same experts");
  command->add_flag(
      "--beside", flags->beside,
      "Generation: after each step, read the same number of bytes from memory and print what share of that "
      "rate the steps reach (median, quartiles); for models larger than the caches");
  add_speculate_flags(command, *flags);
  flags->picture.add_to(command, "the speeds of the tests");
  command->add_flag("--no-roof", flags->no_roof, "Do not measure the machine's limits");
  command->add_flag("--no-warmup", flags->no_warmup, "Do not run an untimed warm-up pass first");
}

}  // namespace millrace
