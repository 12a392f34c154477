// Self-consistency (Wang et al., 2023): samples several chains of reasoning in one batch, and returns the first one
// with the result that most of them have.
#include "program/builder.h"
#include "program/members/factories.h"

namespace millrace {
namespace {

class SelfConsistency final : public ProgramMember {
 public:
  explicit SelfConsistency(const OptionValues& options)
      : answers_(options.integer("n")), temperature_(options.number("temperature")), after_(options.text("after")) {}

  Program program(const ProgramQuestion& question) const override {
    GenSettings settings = question.settings();
    settings.temperature = question.temperature.value_or(temperature_);
    ProgramBuilder build;
    build.seed(question.seed).messages(question.escaped_messages());
    build.fork("answers", answers_, [&](ProgramBuilder& branch) { branch.gen("answer", settings); });
    build.vote_as({.name = "voted", .fork = "answers", .of = "answer", .after = after_, .whole = true});
    build.output("{voted}");
    return build.take();
  }

 private:
  const int64_t answers_;
  const double temperature_;
  const std::string after_;
};

}  // namespace

Result<std::unique_ptr<ProgramMember>> make_self_consistency(const OptionValues& options) {
  return std::unique_ptr<ProgramMember>(std::make_unique<SelfConsistency>(options));
}

}  // namespace millrace
