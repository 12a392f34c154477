#include "program/members/skeleton_steps.h"

#include "program/variables.h"

namespace millrace {
namespace {

constexpr const char* kSkeletonPrompt =
    "You're an organizer responsible for only giving the skeleton (not the full content) for answering the question. "
    "Provide the skeleton in a list of points (numbered 1., 2., 3., etc.) to answer the question. Instead of writing a "
    "full sentence, each skeleton point should be very short with only 3 to 5 words. Generally, the skeleton should "
    "have "
    "3 to 10 points. Now, please provide the skeleton for the following question.\n{question}\nSkeleton:";
constexpr const char* kPointPrompt =
    "You're responsible for continuing the writing of one and only one point in the overall answer to the following "
    "question.\n\n{question}\n\nThe skeleton of the answer is\n\n{skeleton}\n\nContinue and only continue the writing "
    "of "
    "point {index}. Write it **very shortly** in 1 to 2 sentences and do not continue with other points!";
constexpr const char* kDetailsHeading = "Details:\n";

GenStep step_of(const char* name, const ProgramQuestion& question, int64_t tokens) {
  GenStep step;
  step.name = name;
  step.settings = question.settings();
  if (tokens > 0) step.settings.max_tokens = tokens;
  return step;
}

// The list in the model's own form. Each branch goes on at the sentence of its point, which begins with "The".
void add_headings(const SkeletonOptions& options, const ProgramQuestion& question, ProgramBuilder& build) {
  GenStep skeleton = step_of("skeleton", question, options.skeleton_tokens);
  skeleton.settings.stop = {kDetailsHeading};
  build.gen(skeleton);
  build.fork_each(
      "details", "skeleton", "point",
      [&](ProgramBuilder& branch) {
        GenStep detail = step_of("detail", question, options.point_tokens);
        detail.settings.stop = {"\n"};
        branch.text(std::string(kDetailsHeading) + "{index}. The {point}").gen(detail);
      },
      true, options.most);
  build.join_as({.fork = "details", .text = "{index}. The {point}{detail}", .append = false});
  build.set("skeleton_answer", std::string("{skeleton}") + kDetailsHeading + "{details}");
}

void add_prompts(const SkeletonOptions& options, const ProgramQuestion& question, ProgramBuilder& build) {
  const std::string asked = escaped(question.text());
  const auto filled = [&](std::string prompt) {
    constexpr std::string_view kQuestion = "{question}";
    const size_t at = prompt.find(kQuestion);
    return prompt.replace(at, kQuestion.size(), asked);
  };
  GenStep skeleton = step_of("points", question, options.skeleton_tokens);
  build.fork("outline",
             {[&](ProgramBuilder& branch) { branch.user(filled(kSkeletonPrompt)).text("1.").gen(skeleton); }});
  build.join_as({.fork = "outline", .append = false});
  build.set("skeleton", "{outline}");
  build.fork_each(
      "details", "skeleton", "point",
      [&](ProgramBuilder& branch) {
        branch.user(filled(kPointPrompt))
            .text("{index}. {point}")
            .gen(step_of("detail", question, options.point_tokens));
      },
      true, options.most);
  build.join_as({.fork = "details", .text = "{index}. {point}{detail}", .append = false});
  build.set("skeleton_answer", "{details}");
}

}  // namespace

Result<SkeletonOptions> SkeletonOptions::read(const OptionValues& options) {
  SkeletonOptions out;
  const std::string& form = options.text("form");
  if (form != "prompts" && form != "headings")
    return Error::user("form: expected prompts or headings, got '" + form + "'");
  out.form = form == "prompts" ? SkeletonForm::prompts : SkeletonForm::headings;
  out.most = options.integer("points");
  out.skeleton_tokens = options.integer("skeleton_tokens");
  out.point_tokens = options.integer("point_tokens");
  return out;
}

std::vector<ProgramMessage> skeleton_messages(const SkeletonOptions& options, const ProgramQuestion& question) {
  std::vector<ProgramMessage> out = question.escaped_messages();
  if (options.form == SkeletonForm::prompts) out.pop_back();
  return out;
}

void add_skeleton_steps(const SkeletonOptions& options, const ProgramQuestion& question, ProgramBuilder& build) {
  if (options.form == SkeletonForm::headings)
    add_headings(options, question, build);
  else
    add_prompts(options, question, build);
  build.if_is("details", "", [](ProgramBuilder& then) { then.set("skeleton_answer", "{skeleton}"); });
}

}  // namespace millrace
