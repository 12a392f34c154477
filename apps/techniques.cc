// millrace techniques: lists the techniques in this binary.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/cpu.h"
#include "command.h"
#include "formats/format.h"
#include "input.h"
#include "kernels/kernel_table.h"
#include "kv/prefix_evictor.h"
#include "models/arch.h"
#include "sampling/step.h"
#include "schedule/policy.h"
#include "schedule/predictor.h"
#include "workload/trace_format.h"

namespace millrace {
namespace {

constexpr const char* kExamples = R"(Examples:
  millrace techniques                   every family
  millrace techniques --family sampler  one family, with its options
  millrace techniques --json)";

std::vector<TechniqueInfo> all_techniques() {
  std::vector<TechniqueInfo> out = arch_techniques();
  for (const Format* format : formats())
    out.push_back({"format", std::string(format->name), std::string(format->summary), "", {}});
  for (const auto& entry : samplers().entries()) out.push_back(entry.info);
  const KernelTable table = make_kernel_table(detect_isa());
  for (const auto& kernel : table.attention)
    out.push_back({"kv_format",
                   std::string(kernel.kv_format->name),
                   fmt::format("KV cache, {:.1f} bits per value", kernel.kv_format->bits_per_value()),
                   "",
                   {}});
  out.push_back({"attention",
                 "full",
                 "Every earlier key, online softmax over fixed partitions of paged blocks",
                 "Dao et al., 2022, FlashAttention; Kwon et al., 2023, PagedAttention",
                 {}});
  out.push_back({"attention",
                 "window",
                 "The last N keys of a sliding window, if the model has one",
                 "Beltagy et al., 2020, Longformer; Jiang et al., 2023, Mistral 7B",
                 {}});
  for (const auto& entry : policies().entries()) out.push_back(entry.info);
  for (const auto& entry : predictors().entries()) out.push_back(entry.info);
  for (const PrefixEvictor* evictor : prefix_evictors())
    out.push_back(
        {"prefix_evictor", std::string(evictor->name), std::string(evictor->summary), std::string(evictor->paper), {}});
  for (const TraceFormat* format : trace_formats())
    out.push_back(
        {"trace_format", std::string(format->name), std::string(format->summary), std::string(format->origin), {}});
  return out;
}

const char* type_name(OptionSpec::Type type) {
  switch (type) {
    case OptionSpec::Type::integer: return "integer";
    case OptionSpec::Type::number: return "number";
    case OptionSpec::Type::boolean: return "boolean";
    case OptionSpec::Type::text: return "text";
  }
  return "";
}

nlohmann::ordered_json to_json(const TechniqueInfo& info) {
  auto options = nlohmann::ordered_json::array();
  for (const auto& option : info.options) {
    options.push_back({{"name", option.name},
                       {"type", type_name(option.type)},
                       {"default", option.default_value},
                       {"help", option.help}});
    if (option.type == OptionSpec::Type::integer || option.type == OptionSpec::Type::number) {
      options.back()["min"] = option.min;
      options.back()["max"] = option.max;
    }
  }
  return {{"family", info.family},
          {"name", info.name},
          {"summary", info.summary},
          {"paper", info.paper},
          {"options", options}};
}

void print_table(const std::vector<TechniqueInfo>& all, bool details) {
  std::string family;
  for (const auto& info : all) {
    if (info.family != family) fmt::print("{}{}\n", family.empty() ? "" : "\n", info.family);
    family = info.family;
    fmt::print("  {:<20} {}\n", info.name, info.summary);
    if (!details) continue;
    if (!info.paper.empty()) fmt::print("  {:<20} {}\n", "", info.paper);
    for (const auto& option : info.options)
      fmt::print("  {:<20}   {} [{}]: {}\n", "", option.name, option.default_value, option.help);
  }
}

Result<int> run(const std::string& family, bool json) {
  std::vector<TechniqueInfo> all = all_techniques();
  if (!family.empty()) {
    std::string known, last;
    for (const auto& info : all) {
      if (info.family != last) known += (known.empty() ? "" : ", ") + info.family;
      last = info.family;
    }
    std::erase_if(all, [&](const auto& info) { return info.family != family; });
    if (all.empty()) return Error::user(fmt::format("family: unknown '{}'; known: {}", family, known));
  }
  if (!json) {
    print_table(all, !family.empty());
    return 0;
  }
  auto out = nlohmann::ordered_json::array();
  for (const auto& info : all) out.push_back(to_json(info));
  print_json_line(out);
  return 0;
}

}  // namespace

void add_techniques_command(CLI::App& app) {
  auto family = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  CLI::App* command = add_command(app, "techniques", "List the techniques in this binary by family", kExamples,
                                  [=] { return run(*family, *json); });
  command->add_option("--family", *family, "Only list this family, with its options");
  command->add_flag("--json", *json, "Print a JSON array of {family, name, summary, paper, options}");
}

}  // namespace millrace
