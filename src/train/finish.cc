#include "train/finish.h"

#include <fmt/format.h>

#include <fstream>

#include "picture/picture.h"
#include "train/loss_plot.h"
#include "train/story_export.h"
#include "train/story_sampler.h"

namespace millrace {
namespace {

constexpr int64_t kSampleTokens = 400;
constexpr const char* kOpenings[] = {"Once upon a time", "One day, a little girl named Lily",
                                     "Tom and his dog went to the park."};

Result<void> write_report(const std::string& path, const FinishReport& report, double temperature) {
  std::ofstream out(path);
  out << fmt::format("parameters: {}\nheld-out bits per byte: {:.4f}\nheld-out nats per token: {:.4f}\n",
                     report.parameters, report.bits_per_byte, report.nats_per_token);
  for (const std::string& story : report.stories) out << fmt::format("\n--- temperature {}\n{}\n", temperature, story);
  if (!out) return Error::user("cannot write the report: " + path);
  return {};
}

}  // namespace

Result<FinishReport> finish_stories(const FinishOptions& options) {
  const std::string& out = options.run.out;
  MILLRACE_TRY(TokenizerSpec spec, read_vocabulary(out + "/vocabulary.txt"));
  if (static_cast<int64_t>(spec.tokens.size()) != options.run.model.vocab)
    return Error::corrupt("the vocabulary's size differs from the model's: " + out + "/vocabulary.txt");
  MILLRACE_TRY(StoryCorpus corpus, read_corpus(options.run.data));
  StoryModel model(options.run.model, options.run.seed);
  MILLRACE_TRY_VOID(load_weights(model, out + "/best.pt"));
  model.eval();
  BpeEncoder encoder(spec);
  FinishReport report;
  report.gguf = out + "/" + options.name + ".gguf";
  report.parameters = options.run.model.parameters();
  MILLRACE_TRY_VOID(
      export_story_gguf(model, spec, {options.name, "A small model that writes simple English stories", report.gguf}));
  MILLRACE_TRY(std::vector<LossPoint> curve, read_loss_csv(out + "/loss.csv"));
  if (curve.size() >= 2) {
    MILLRACE_TRY(const Chart chart, loss_chart(curve, options.name));
    MILLRACE_TRY_VOID(write_picture(chart, out + "/loss.png", PictureTheme::light));
  }
  const HeldOutScore score = score_stories(model, encoder, corpus.held_out);
  report.bits_per_byte = score.bits_per_byte();
  report.nats_per_token = score.nats_per_token();
  for (int i = 0; i < options.samples; ++i) {
    const char* opening = kOpenings[static_cast<size_t>(i) % std::size(kOpenings)];
    report.stories.push_back(sample_story(model, encoder, opening, kSampleTokens, options.temperature,
                                          options.run.seed + static_cast<uint64_t>(i)));
  }
  MILLRACE_TRY_VOID(write_report(out + "/report.txt", report, options.temperature));
  return report;
}

}  // namespace millrace
