// The built-in members of the family program, and what they share.
#include "base/choose.h"
#include "program/member.h"
#include "program/members/factories.h"
#include "program/variables.h"

namespace millrace {
namespace {

using Type = OptionSpec::Type;

const OptionSpec kAnswers = {"n", Type::integer, "8", 1, 128, "answers that are sampled"};
const OptionSpec kTemperature = {
    "temperature", Type::number, "0.8", 0, 100, "of these answers, if the request has none of its own"};

std::vector<OptionSpec> skeleton_options() {
  return {{"form", Type::text, "prompts", 0, 0,
           "how the model is asked: prompts (the paper's), or headings (it was trained to write Points: and Details:)"},
          {"points", Type::integer, "10", 1, 64, "most points that are written; further ones are left out"},
          {"skeleton_tokens", Type::integer, "0", 0, 65536, "tokens of the skeleton; 0: as many as an answer may have"},
          {"point_tokens", Type::integer, "0", 0, 65536, "tokens of a point's text; 0: as many as an answer may have"}};
}

}  // namespace

const Registry<ProgramMemberFactory>& program_members() {
  static const Registry<ProgramMemberFactory> registry(
      {.loss = Loss::lossy, .test = "src/program/members_test.cc", .proof = "docs/programs.md"},
      {
          {{"program",
            "best_of",
            "answers several times at once and keeps the likeliest answer; answers change",
            "",
            {kAnswers, kTemperature}},
           make_best_of},
          {{"program",
            "self_consistency",
            "answers several times at once and keeps the result that most answers have; answers change",
            "Wang et al., 2023, Self-Consistency Improves Chain of Thought Reasoning in Language Models",
            {kAnswers,
             kTemperature,
             {"after", Type::text, "The answer is ", 0, 0,
              "the text before an answer's result, which ends with the line; empty: the whole answer is the result"}}},
           make_self_consistency},
          {{"program", "skeleton", "lists the points of an answer, then writes all of them at once; answers change",
            "Ning et al., 2024, Skeleton-of-Thought: Prompting LLMs for Efficient Parallel Generation",
            skeleton_options()},
           make_skeleton},
          {{"program", "skeleton_router",
            "answers by a skeleton only where the answer is a list of points; answers change",
            "Ning et al., 2024, Skeleton-of-Thought: Prompting LLMs for Efficient Parallel Generation",
            skeleton_options()},
           make_skeleton_router},
          {{"program",
            "model_cascade",
            "asks a larger model only if the smaller one is not sure of its answer; answers change",
            "Chen et al., 2023, FrugalGPT: How to Use Large Language Models While Reducing Cost and Improving "
            "Performance",
            {{"models", Type::text, "", 0, 0, "names of the models after the request's own, cheapest first: a/b"},
             {"thresholds", Type::text, "", 0, 0,
              "for each of them the confidence of the answer before it below which it is asked: 0.9/0.8"}}},
           make_model_cascade},
      });
  return registry;
}

Result<std::unique_ptr<ProgramMember>> make_program_member(std::string_view text) {
  MILLRACE_TRY(const auto chosen, choose_member("program", program_members(), text));
  auto made = chosen.member(chosen.options);
  if (!made.ok()) return Error::user(chosen.label + ": " + made.error().message);
  return made;
}

GenSettings ProgramQuestion::settings() const {
  GenSettings out;
  out.max_tokens = max_tokens;
  out.stop = stop;
  out.temperature = temperature;
  return out;
}

std::vector<ProgramMessage> ProgramQuestion::escaped_messages() const {
  std::vector<ProgramMessage> out = messages;
  for (ProgramMessage& message : out) message.content = escaped(message.content);
  return out;
}

}  // namespace millrace
