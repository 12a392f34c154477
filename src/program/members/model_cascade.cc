// FrugalGPT's cascade (Chen et al., 2023): the cheapest model answers first, and the next one only if the score of this
// answer is below a threshold. The score is the answer's confidence, the exponential of the mean log-probability of its
// tokens. `millrace cascade` learns the thresholds from questions with known answers.
#include <charconv>

#include "program/builder.h"
#include "program/members/factories.h"

namespace millrace {
namespace {

class ModelCascade final : public ProgramMember {
 public:
  ModelCascade(std::vector<std::string> models, std::vector<double> thresholds)
      : models_(std::move(models)), thresholds_(std::move(thresholds)) {}

  std::vector<std::string> models() const override { return models_; }

  Program program(const ProgramQuestion& question) const override {
    ProgramBuilder build;
    build.seed(question.seed).messages(question.escaped_messages());
    build.gen(answer_of("", question));
    add_next(0, question, build);
    build.output("{answer}");
    return build.take();
  }

 private:
  GenStep answer_of(const std::string& model, const ProgramQuestion& question) const {
    GenStep step;
    step.name = "answer";
    step.settings = question.settings();
    step.settings.model = model;
    step.score = true;
    step.append = false;
    return step;
  }

  // A model is asked inside of the condition on the one before it.
  void add_next(size_t next, const ProgramQuestion& question, ProgramBuilder& build) const {
    if (next == models_.size()) return;
    build.if_below("answer", thresholds_[next], [&](ProgramBuilder& then) {
      then.gen(answer_of(models_[next], question));
      add_next(next + 1, question, then);
    });
  }

  const std::vector<std::string> models_;  // after the program's own
  const std::vector<double> thresholds_;
};

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= text.size() && !text.empty();) {
    const size_t end = std::min(text.find('/', at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<ProgramMember>> make_model_cascade(const OptionValues& options) {
  constexpr size_t kMaxModels = 8;
  std::vector<std::string> models = parts_of(options.text("models"));
  const std::vector<std::string> texts = parts_of(options.text("thresholds"));
  if (models.empty() || models.size() > kMaxModels)
    return Error::user("models: names 1 to 8 models, separated by '/', which are asked after the model of the request");
  if (texts.size() != models.size())
    return Error::user("thresholds: needs one number for each name in models, separated by '/'");
  std::vector<double> thresholds;
  for (const std::string& text : texts) {
    double value = -1;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failed != std::errc() || end != text.data() + text.size() || !(value >= 0 && value <= 2))
      return Error::user("thresholds: '" + text + "' is not a number from 0 to 2");
    thresholds.push_back(value);
  }
  return std::unique_ptr<ProgramMember>(std::make_unique<ModelCascade>(std::move(models), std::move(thresholds)));
}

}  // namespace millrace
