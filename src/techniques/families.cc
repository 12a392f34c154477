#include "techniques/families.h"

#include <fmt/format.h>

#include "attention/pattern.h"
#include "base/cpu.h"
#include "context/document_context.h"
#include "exit/exit_gate.h"
#include "formats/format.h"
#include "kernels/kernel_table.h"
#include "kv/kv_formats.h"
#include "kv/prefix_evictor.h"
#include "kv/state_evictor.h"
#include "kv/tiers/places.h"
#include "kv/token_evictor.h"
#include "kv/transfer/transport.h"
#include "models/arch.h"
#include "models/forward_switches.h"
#include "models/mixers/mixer.h"
#include "models/router.h"
#include "models/weight_source.h"
#include "program/member.h"
#include "prompt/compressor.h"
#include "sampling/step.h"
#include "schedule/policy.h"
#include "schedule/predictor.h"
#include "speculate/acceptance.h"
#include "speculate/drafter.h"
#include "text/tools/tool_dialect.h"

namespace millrace {
namespace {

// Formats for which this machine's kernel table has attention, with and without residuals, and the codecs.
std::vector<TechniqueInfo> kv_formats() {
  std::vector<TechniqueInfo> out;
  const KernelTable table = make_kernel_table(detect_isa());
  for (const auto& kernel : table.attention) {
    const std::string summary = fmt::format("KV cache, {:.1f} bits a value", kernel.kv_format->bits_per_value());
    out.push_back({.family = "kv_format",
                   .name = std::string(kernel.kv_format->name),
                   .summary = summary,
                   .paper = kernel.kv_format->paper,
                   .options = kv_row_options(),
                   .loss = kernel.kv_format->loss,
                   .test = "tests/properties/engine_formats_test.cc"});
  }
  out.push_back(progressive_kv_format());
  for (TechniqueInfo& codec : kv_codecs().infos()) out.push_back(std::move(codec));
  return out;
}

}  // namespace

std::vector<TechniqueInfo> all_techniques() {
  std::vector<TechniqueInfo> out;
  for (const auto& family : {archs().infos(),
                             mixers().infos(),
                             formats().infos(),
                             samplers().infos(),
                             kv_formats(),
                             attention_patterns().infos(),
                             routers().infos(),
                             weight_sources().infos(),
                             kernel_switches().infos(),
                             exit_gates().infos(),
                             policies().infos(),
                             predictors().infos(),
                             prefix_evictors().infos(),
                             state_evictors().infos(),
                             token_evictors().infos(),
                             kv_tiers().infos(),
                             kv_stores().infos(),
                             transports().infos(),
                             drafters().infos(),
                             acceptances().infos(),
                             prompt_compressors().infos(),
                             program_members().infos(),
                             document_contexts().infos(),
                             tool_dialects().infos()})
    out.insert(out.end(), family.begin(), family.end());
  return out;
}

}  // namespace millrace
