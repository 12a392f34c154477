// Skeleton-of-Thought with the router of its paper: only questions whose answer is a list of independent points are
// answered by a skeleton, all others by one generation. With `prompts`, the model is asked which of both a question is;
// with `headings`, the first line of its own answer says so.
#include "program/members/factories.h"
#include "program/members/skeleton_steps.h"
#include "program/variables.h"

namespace millrace {
namespace {

constexpr const char* kRouterPrompt =
    "\n\nDo not answer the question above. Would its answer be a list of several points, each of which can be written "
    "without the others? A calculation, a proof, a program, a story or a short fact is not such a list. Answer with "
    "yes or no.";
constexpr int64_t kLineTokens = 16;

class SkeletonRouter final : public ProgramMember {
 public:
  explicit SkeletonRouter(SkeletonOptions options) : options_(options) {}

  Program program(const ProgramQuestion& question) const override {
    ProgramBuilder build;
    build.seed(question.seed).messages(skeleton_messages(options_, question));
    build.variable("answer", "").variable("route", "no");
    add_route(question, build);
    build.if_is("route", "yes", [&](ProgramBuilder& then) {
      add_skeleton_steps(options_, question, then);
      then.set("answer", "{skeleton_answer}");
    });
    build.if_is("route", "no", [&](ProgramBuilder& then) { add_plain(question, then); });
    build.output("{answer}");
    return build.take();
  }

 private:
  void add_route(const ProgramQuestion& question, ProgramBuilder& build) const {
    if (options_.form == SkeletonForm::headings) {
      GenStep first;
      first.name = "first";
      first.settings = question.settings();
      first.settings.max_tokens = kLineTokens;
      first.settings.stop = {"\n"};
      first.append = false;
      build.gen(first);
      build.if_is("first", "Points:", [](ProgramBuilder& then) { then.set("route", "yes"); });
      return;
    }
    build.fork("routing", {[&](ProgramBuilder& branch) {
                 branch.user(escaped(question.text() + kRouterPrompt)).select("suits", {"yes", "no"});
               }});
    build.join_as({.fork = "routing", .text = "{suits}", .append = false}).set("route", "{routing}");
  }

  void add_plain(const ProgramQuestion& question, ProgramBuilder& build) const {
    GenStep plain;
    plain.name = "answer";
    plain.settings = question.settings();
    if (options_.form == SkeletonForm::prompts) build.user(escaped(question.text()));
    build.gen(plain);
  }

  const SkeletonOptions options_;
};

}  // namespace

Result<std::unique_ptr<ProgramMember>> make_skeleton_router(const OptionValues& options) {
  MILLRACE_TRY(const auto read, SkeletonOptions::read(options));
  return std::unique_ptr<ProgramMember>(std::make_unique<SkeletonRouter>(read));
}

}  // namespace millrace
