// Generates several answers in one batch and returns the one that the model itself finds likeliest: the one with the
// highest mean log-probability of its tokens.
#include "program/builder.h"
#include "program/members/factories.h"

namespace millrace {
namespace {

class BestOf final : public ProgramMember {
 public:
  BestOf(int64_t answers, double temperature) : answers_(answers), temperature_(temperature) {}

  Program program(const ProgramQuestion& question) const override {
    GenStep answer;
    answer.name = "answer";
    answer.settings = question.settings();
    answer.settings.temperature = question.temperature.value_or(temperature_);
    answer.score = true;
    ProgramBuilder build;
    build.seed(question.seed).messages(question.escaped_messages());
    build.fork("answers", answers_, [&](ProgramBuilder& branch) { branch.gen(answer); });
    build.best("best", "answers", "answer").output("{best}");
    return build.take();
  }

 private:
  const int64_t answers_;
  const double temperature_;
};

}  // namespace

Result<std::unique_ptr<ProgramMember>> make_best_of(const OptionValues& options) {
  return std::unique_ptr<ProgramMember>(std::make_unique<BestOf>(options.integer("n"), options.number("temperature")));
}

}  // namespace millrace
