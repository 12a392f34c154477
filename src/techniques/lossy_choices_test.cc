#include "techniques/lossy_choices.h"

#include <gtest/gtest.h>

#include "techniques/families.h"
#include "techniques/technique_use.h"

namespace millrace {
namespace {

// Options without which these members cannot be chosen.
std::string with_options(const TechniqueInfo& info) {
  const std::string text = info.family + "=" + info.name;
  if (info.name == "cepe") return text + ":model=encoder";
  return text;
}

bool serves(const std::string& family) {
  return (", " + families_in("serve") + ",").find(", " + family + ",") != std::string::npos;
}

// Every registered member that changes answers, and that a server can be started with, is reported: a new family or
// member that is not in the table of lossy_choices.cc fails here.
TEST(LossyChoices, ReportEveryLossyMemberThatAServerRuns) {
  int reported = 0;
  for (const TechniqueInfo& info : all_techniques()) {
    if (info.family == "sampler" || info.family == "prompt") continue;  // fields of each request; reported as applied
    if (info.loss != Loss::lossy || !serves(info.family)) continue;
    const std::string text = with_options(info);
    const auto use = parse_use(text, "serve");
    ASSERT_TRUE(use.ok()) << use.error().message;
    LoadOptions load;
    EngineOptions engine;
    if (info.family == "acceptance") engine.drafter = "ngram";
    const std::vector<TechniqueUse> uses = {*use};
    ASSERT_TRUE(apply_uses(uses, load).ok()) << text;
    if (const auto set = apply_uses(uses, engine); !set.ok()) {  // needs a file that was trained or measured
      EXPECT_NE(set.error().message.find("file"), std::string::npos) << set.error().message;
      continue;
    }
    const auto found = lossy_choices(load, engine);
    if (info.family == "kv_format" && info.name == EngineOptions().kv_format) {
      EXPECT_TRUE(found.empty());
      continue;
    }
    ASSERT_EQ(found.size(), 1u) << text;
    EXPECT_EQ(found[0].family, info.family);
    EXPECT_EQ(found[0].text, use->written());
    ++reported;
  }
  EXPECT_GT(reported, 40);
  EXPECT_TRUE(lossy_choices({}, {}).empty());
}

TEST(LossyChoices, AcceptanceIsReportedWithADrafterOnly) {
  EngineOptions engine;
  engine.acceptance = "typical:epsilon=0.3";
  EXPECT_TRUE(lossy_choices({}, engine).empty());
  engine.drafter = "ngram";
  ASSERT_EQ(lossy_choices({}, engine).size(), 1u);
  EXPECT_EQ(lossy_choices({}, engine)[0].text, "typical:epsilon=0.3");
  for (const char* other_tokens : {"sampling", "spectr", "specinfer"}) {
    engine.acceptance = other_tokens;
    EXPECT_EQ(lossy_choices({}, engine).size(), 1u) << other_tokens;
  }
  engine.acceptance = "exact";
  EXPECT_TRUE(lossy_choices({}, engine).empty());
}

TEST(LossyChoices, NeuronsAreReportedIfAPredictorChoosesThem) {
  LoadOptions load;
  for (const char* exact :
       {"llm_in_flash:file=a.neurons", "powerinfer:file=a.neurons,predictor=none", "resident", "stream"}) {
    load.weights = exact;
    EXPECT_TRUE(lossy_choices(load, {}).empty()) << exact;
  }
  for (const char* predicted :
       {"llm_in_flash:predictor=file,file=a.neurons", "powerinfer:file=a.neurons,predictor=file"}) {
    load.weights = predicted;
    ASSERT_EQ(lossy_choices(load, {}).size(), 1u) << predicted;
    EXPECT_EQ(lossy_choices(load, {})[0].family, "weights");
    EXPECT_EQ(lossy_choices(load, {})[0].text, predicted);
  }
}

TEST(LossyChoices, ColdExpertsAreReported) {
  LoadOptions load;
  for (const char* exact : {"experts", "experts:memory=1G,keep=lru", "experts:hot=0.5"}) {
    load.weights = exact;
    EXPECT_TRUE(lossy_choices(load, {}).empty()) << exact;
  }
  for (const char* cold : {"experts:cold=q4_0,profile=a.experts", "experts:memory=1G,cold=q2_k,hot=0"}) {
    load.weights = cold;
    ASSERT_EQ(lossy_choices(load, {}).size(), 1u) << cold;
    EXPECT_EQ(lossy_choices(load, {})[0].family, "weights");
    EXPECT_EQ(lossy_choices(load, {})[0].text, cold);
  }
}

TEST(LossyChoices, LeaveOutWhatIsLossless) {
  LoadOptions load;
  EngineOptions engine;
  engine.kernels = {"shared_prefix", "unified_max:max=4", "fused", "attention=bigbird"};
  load.router = "switch";
  std::string named;
  for (const LossyChoice& one : lossy_choices(load, engine)) named += std::string(one.family) + "=" + one.text + " ";
  EXPECT_EQ(named, "router=switch kernel=unified_max:max=4 attention=bigbird ");
}

}  // namespace
}  // namespace millrace
